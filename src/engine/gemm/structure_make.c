/* Makes elements of structured operands that are not stored as they are needed: by the CPU, or by a
 * kernel on a device that shares the host's memory. */
#include "structure.h"

#include "engine/kernel/kernels.h"

#include <stdio.h>
#include <string.h>

/* ---- by the CPU ------------------------------------------------------------------------------ */

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

/* A block of a matrix as it is stored: rows [row, row + rows) and columns [col, col + cols). */
struct structure_block {
    size_t row, col, rows, cols;
    char *to; /* rows elements from one column to the next */
};

/* Make rows [r, end) of the block's column j, outside the stored triangle: transposed elements, or
 * zeros for a triangular operand. */
static inline void mirror(const struct clb_operand *x, const struct structure_block *block,
                          size_t j, size_t r, size_t end, size_t real, size_t parts)
{
    size_t element = real * parts;
    char *to = block->to + j * block->rows * element;
    if (x->shape == CLB_STRUCTURE_TRIANGULAR) {
        memset(to + r * element, 0, (end - r) * element);
        return;
    }
    const char *from = x->host + (block->col + j) * element;
    for (; r < end; r++)
        copy_element(to + r * element, from + (block->row + r) * x->ld * element, real, parts,
                     x->shape == CLB_STRUCTURE_HERMITIAN);
}

static inline void make_diagonal(const struct clb_operand *x, size_t at, char *to, size_t real,
                                 size_t parts)
{
    if (x->unit && x->shape == CLB_STRUCTURE_TRIANGULAR) {
        const void *one = real == sizeof(float) ? clb_scalar_one(CLB_C) : clb_scalar_one(CLB_Z);
        memcpy(to, one, real * parts);
        return;
    }
    memcpy(to, x->host + (at + at * x->ld) * real * parts, real * parts);
    if (parts == 2 && x->shape == CLB_STRUCTURE_HERMITIAN)
        memset(to + real, 0, real);
}

/* Make rows [r, end) of a column: the elements above the diagonal, on it, below it. */
static inline void make_column(const struct clb_operand *x, const struct structure_block *block,
                               size_t j, size_t r, size_t end, size_t real, size_t parts)
{
    size_t element = real * parts, col = block->col + j;
    size_t above = col > block->row ? clb_max(clb_min(col - block->row, end), r) : r;
    size_t below = col >= block->row ? clb_max(clb_min(col - block->row + 1, end), r) : r;
    char *to = block->to + j * block->rows * element;
    const char *from = x->host + (block->row + col * x->ld) * element;
    if (x->upper && above > r)
        memcpy(to + r * element, from + r * element, (above - r) * element);
    else if (above > r)
        mirror(x, block, j, r, above, real, parts);
    if (below > above)
        make_diagonal(x, col, to + above * element, real, parts);
    if (!x->upper && end > below)
        memcpy(to + below * element, from + below * element, (end - below) * element);
    else if (end > below)
        mirror(x, block, j, below, end, real, parts);
}

/* Blocks are made in groups of so many rows: `mirror` then reads from as many columns, on few
 * pages, and each cache line that it reads serves several columns of the block. */
#define BLOCK_ROWS ((size_t)64)

static inline void make_block(const struct clb_operand *x, const struct structure_block *block,
                              size_t real, size_t parts)
{
    for (size_t r = 0; r < block->rows; r += BLOCK_ROWS) {
        for (size_t j = 0; j < block->cols; j++)
            make_column(x, block, j, r, clb_min(r + BLOCK_ROWS, block->rows), real, parts);
    }
}

void clb_operand_make(clb_precision precision, const struct clb_operand *x, size_t i0, size_t p0,
                      size_t w, size_t k, size_t first, size_t count, void *to)
{
    struct structure_block block = {x->depth_contiguous ? p0 : i0,
                                    (x->depth_contiguous ? i0 : p0) + first,
                                    x->depth_contiguous ? k : w, count, to};
    if (x->shape == CLB_STRUCTURE_GENERAL)
        clb_merge_tile(precision, block.rows, block.cols,
                       x->scale != NULL ? x->scale : clb_scalar_one(precision),
                       x->host + (block.row + block.col * x->ld) * x->element, x->ld,
                       clb_scalar_zero(precision), to, block.rows);
    else if (precision == CLB_S)
        make_block(x, &block, sizeof(float), 1);
    else if (precision == CLB_D)
        make_block(x, &block, sizeof(double), 1);
    else if (precision == CLB_C)
        make_block(x, &block, sizeof(float), 2);
    else
        make_block(x, &block, sizeof(double), 2);
}

/* ---- by a kernel ----------------------------------------------------------------------------- */

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
    const void *scale = x->scale != NULL ? x->scale : clb_scalar_one(precision);
    clb_scalar factor = {{0}};
    memcpy(&factor, scale, clb_precision_size(precision));
    const cl_ulong offset = x->offset, ld = x->ld;
    const cl_ulong row = x->depth_contiguous ? p0 : i0, col = x->depth_contiguous ? i0 : p0;
    const cl_uint rows = (cl_uint)(x->depth_contiguous ? k : w);
    const cl_uint cols = (cl_uint)(x->depth_contiguous ? w : k), kind = kind_of(x);
    const struct clb_argument arguments[] = {CLB_ARG(x->mem),
                                             CLB_ARG(offset),
                                             CLB_ARG(ld),
                                             CLB_ARG(row),
                                             CLB_ARG(col),
                                             CLB_ARG(rows),
                                             CLB_ARG(cols),
                                             CLB_ARG(kind),
                                             single ? CLB_ARG(factor.s[0]) : CLB_ARG(factor.d[0]),
                                             single ? CLB_ARG(factor.s[1]) : CLB_ARG(factor.d[1]),
                                             CLB_ARG(to)};
    /* The number of groups is always the same; see prelaunch.c for the reason. */
    const size_t local =
        variant->tuning.family == CLB_FAMILY_CPU ? 1 : group_of(&queue_set->runtime->device);
    const size_t global = local * clb_max(64, 8 * (size_t)queue_set->runtime->device.units);
    cl_kernel kernel;
    clb_status status = clb_queue_set_kernel(queue_set, program, "clb_structure", &kernel);
    if (status != CLB_OK)
        return status;
    return clb_queue_launch(queue, kernel, "clb_structure", arguments, CLB_COUNT_OF(arguments), 1,
                            &global, &local, 0, NULL, NULL);
}
