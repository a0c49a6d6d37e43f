/* Makes elements of structured operands that are not stored as they are needed: by the CPU, or by a
 * kernel on a device that shares the host's memory. */
#include "structure.h"

#include "engine/kernel/kernels.h"

#include <stdio.h>
#include <string.h>

/* ---- by the CPU ---- */

/* Copy one element; its size is a constant for the compiler. */
static inline void copy_element(char *to, const char *from, size_t real, size_t parts,
                                bool conjugate)
{
    memcpy(to, from, real * parts);
    if (parts == 2 && conjugate && real == sizeof(float))
        ((float *)(void *)to)[1] = -((float *)(void *)to)[1];
    else if (parts == 2 && conjugate)
        ((double *)(void *)to)[1] = -((double *)(void *)to)[1];
}

/* Make rows [row, end) of column `col` of the matrix, as it is stored: outside the stored triangle
 * transposed elements, or zeros for a triangular operand. */
static inline void make_column(const struct clb_operand *x, size_t row, size_t end, size_t col,
                               char *to, size_t real, size_t parts)
{
    const size_t element = real * parts;
    const bool hermitian = x->shape == CLB_STRUCTURE_HERMITIAN;
    /* Where the stored rows of an upper triangle end, or those of a lower one begin. */
    const size_t edge = clb_max(clb_min(col + x->upper, end), row);
    const size_t first = x->upper ? row : edge, last = x->upper ? edge : end; /* stored */
    const size_t from = x->upper ? edge : row, until = x->upper ? end : edge; /* others */
    memcpy(to + (first - row) * element, x->host + (first + col * x->ld) * element,
           (last - first) * element);
    if (x->shape == CLB_STRUCTURE_TRIANGULAR)
        memset(to + (from - row) * element, 0, (until - from) * element);
    else
        for (size_t i = from; i < until; i++)
            copy_element(to + (i - row) * element, x->host + (col + i * x->ld) * element, real,
                         parts, hermitian);
    if (col < row || col >= end)
        return;
    to += (col - row) * element;
    if (x->unit && x->shape == CLB_STRUCTURE_TRIANGULAR)
        memcpy(to, clb_scalar_of(real == sizeof(float) ? CLB_C : CLB_Z, 1), element);
    else if (parts == 2 && hermitian)
        memset(to + real, 0, real);
}

/* Blocks are made in groups of so many rows: transposed elements are then read from as many
 * columns, on few pages, and each cache line that is read serves several columns of the block. */
#define BLOCK_ROWS ((size_t)64)

static inline void make_block(const struct clb_operand *x, const struct clb_rect *block, char *to,
                              size_t real, size_t parts)
{
    for (size_t r = 0; r < block->rows; r += BLOCK_ROWS) {
        for (size_t j = 0; j < block->cols; j++)
            make_column(x, block->row + r, block->row + clb_min(r + BLOCK_ROWS, block->rows),
                        block->col + j, to + (j * block->rows + r) * real * parts, real, parts);
    }
}

void clb_operand_make(clb_precision precision, const struct clb_operand *x, size_t i0, size_t p0,
                      size_t w, size_t k, size_t first, size_t count, void *to)
{
    struct clb_rect block = clb_stored(x->depth_contiguous, i0, p0, w, k);
    block.col += first;
    block.cols = count;
    if (x->shape == CLB_STRUCTURE_GENERAL)
        clb_merge_tile(precision, block.rows, block.cols,
                       x->scale != NULL ? x->scale : clb_scalar_of(precision, 1),
                       x->host + (block.row + block.col * x->ld) * x->element, x->ld,
                       clb_scalar_of(precision, 0), to, block.rows);
    else if (precision == CLB_S)
        make_block(x, &block, to, sizeof(float), 1);
    else if (precision == CLB_D)
        make_block(x, &block, to, sizeof(double), 1);
    else if (precision == CLB_C)
        make_block(x, &block, to, sizeof(float), 2);
    else
        make_block(x, &block, to, sizeof(double), 2);
}

/* ---- by a kernel ---- */

/* As in kernels/structure.cl. */
#define KIND_UPPER      1u
#define KIND_HERMITIAN  2u
#define KIND_TRIANGULAR 4u
#define KIND_UNIT       8u
#define KIND_SCALED     16u
#define GROUP           ((size_t)64)

static cl_uint kind_of(const struct clb_operand *x)
{
    if (x->shape == CLB_STRUCTURE_GENERAL)
        return KIND_SCALED;
    return (x->upper ? KIND_UPPER : 0) |
           (x->shape == CLB_STRUCTURE_HERMITIAN ? KIND_HERMITIAN : 0) |
           (x->shape == CLB_STRUCTURE_TRIANGULAR ? KIND_TRIANGULAR | (x->unit ? KIND_UNIT : 0) : 0);
}

static size_t group_of(const struct clb_device *device)
{
    return clb_min(GROUP, device->max_group);
}

clb_status clb_structure_build(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                               struct clb_program **program)
{
    clb_precision precision = variant->precision;
    char options[80];
    snprintf(options, sizeof options, "-DCLB_DOUBLE=%d -DCLB_COMPLEX=%d -DCLB_CPU=%d -DCLB_WG=%zu",
             clb_precision_real_size(precision) == sizeof(double),
             clb_precision_parts(precision) > 1, variant->tuning.family == CLB_FAMILY_CPU,
             group_of(&runtime->device));
    return clb_program_get(runtime, &clb_kernel_structure, options, program);
}

clb_status clb_structure_make(struct clb_queue_set *queue_set, struct clb_program *program,
                              const struct clb_gemm_variant *variant, const struct clb_operand *x,
                              size_t i0, size_t p0, size_t w, size_t k, cl_mem to,
                              struct clb_queue *queue)
{
    clb_precision precision = variant->precision;
    bool single = clb_precision_real_size(precision) == sizeof(float);
    clb_scalar factor = {{0}};
    memcpy(&factor, x->scale != NULL ? x->scale : clb_scalar_of(precision, 1), x->element);
    const struct clb_rect block = clb_stored(x->depth_contiguous, i0, p0, w, k);
    const cl_ulong offset = x->offset, ld = x->ld, row = block.row, col = block.col;
    const cl_uint rows = (cl_uint)block.rows, cols = (cl_uint)block.cols, kind = kind_of(x);
    /* The number of groups is always the same; see prelaunch.c for the reason. */
    const size_t local =
        variant->tuning.family == CLB_FAMILY_CPU ? 1 : group_of(&queue_set->runtime->device);
    const struct clb_geometry geometry = {
        .dimensions = 1,
        .global = {local * clb_max(64, 8 * (size_t)queue_set->runtime->device.units)},
        .local = {local}};
    return clb_kernel_launch(
        queue_set, program, "clb_structure", &geometry, (struct clb_order){.queue = queue},
        CLB_ARGUMENTS(CLB_ARG(x->mem), CLB_ARG(offset), CLB_ARG(ld), CLB_ARG(row), CLB_ARG(col),
                      CLB_ARG(rows), CLB_ARG(cols), CLB_ARG(kind),
                      single ? CLB_ARG(factor.s[0]) : CLB_ARG(factor.d[0]),
                      single ? CLB_ARG(factor.s[1]) : CLB_ARG(factor.d[1]), CLB_ARG(to)));
}
