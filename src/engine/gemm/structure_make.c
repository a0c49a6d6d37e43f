/* SPDX-License-Identifier: BSD-3-Clause
 * Makes elements of structured operands that are not stored as they are needed. */
#include "structure.h"

#include <string.h>

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
