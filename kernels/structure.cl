/*
 * Blocks of matrices that are stored by half, as general ones: rows [row, row + rows) and columns
 * [col, col + cols) of a symmetric, Hermitian or triangular matrix, of which only one triangle is
 * read, into a rows x cols matrix of which packing kernels make what they need. Also blocks of a
 * general matrix times a number.
 *
 * CLB_CPU = 1: local size 1, CLB_CPU = 0: local size CLB_WG. The grid has any number of
 * work-groups: a work-item takes every so-many-th square of CLB_SIDE x CLB_SIDE elements. That is
 * for devices that share the host's memory; for others the host makes such blocks when it copies
 * them.
 */

#include "common.h"

#pragma OPENCL FP_CONTRACT OFF

#if CLB_CPU
#define CLB_ITEMS 1
#else
#define CLB_ITEMS CLB_WG
#endif
#define CLB_SIDE   16
#define CLB_KERNEL CLB_KERNEL_OF(CLB_ITEMS)

/* The kinds of matrices, as src/engine/gemm/structure.c has them. */
#define CLB_UPPER      1
#define CLB_HERMITIAN  2
#define CLB_TRIANGULAR 4
#define CLB_UNIT       8
#define CLB_SCALED     16

/* The caller's complex numbers are aligned to their parts only. */
#if CLB_COMPLEX
typedef CLB_JOIN(CLB_REAL, 2) element;
CLB_INLINE element load_element(global const real *x, ulong at)
{
    return vload2(at, x);
}
CLB_INLINE void store_element(element e, global real *x, ulong at)
{
    vstore2(e, at, x);
}
CLB_INLINE element conjugate(element e)
{
    return (element)(e.x, -e.y);
}
CLB_INLINE element real_part(element e)
{
    return (element)(e.x, 0);
}
CLB_INLINE element times(element e, real re, real im)
{
    return (element)(re * e.x - im * e.y, re * e.y + im * e.x);
}
CLB_INLINE element number(real x)
{
    return (element)(x, 0);
}
#else
typedef real element;
CLB_INLINE element load_element(global const real *x, ulong at)
{
    return x[at];
}
CLB_INLINE void store_element(element e, global real *x, ulong at)
{
    x[at] = e;
}
CLB_INLINE element conjugate(element e)
{
    return e;
}
CLB_INLINE element real_part(element e)
{
    return e;
}
CLB_INLINE element times(element e, real re, real im)
{
    return re * e;
}
CLB_INLINE element number(real x)
{
    return x;
}
#endif

/* Element (i, j) of the matrix whose first stored element is at `a_off`. */
CLB_INLINE element get(global const real *a, ulong a_off, ulong ld, ulong i, ulong j, uint kind)
{
    const bool stored = kind & CLB_UPPER ? i < j : i > j;

    if (i == j && (kind & CLB_UNIT))
        return number(1);
    if (i == j) {
        const element e = load_element(a, a_off + i + i * ld);
        return kind & CLB_HERMITIAN ? real_part(e) : e;
    }
    if (stored)
        return load_element(a, a_off + i + j * ld);
    if (kind & CLB_TRIANGULAR)
        return number(0);
    const element e = load_element(a, a_off + j + i * ld);
    return kind & CLB_HERMITIAN ? conjugate(e) : e;
}

/* Element (i, j) of the result is at x + i + j*rows. */
CLB_KERNEL void clb_structure(global const real *a, ulong a_off, ulong ld, ulong row, ulong col,
                              uint rows, uint cols, uint kind, real scale_re, real scale_im,
                              global real *x CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    const uint down = (rows + CLB_SIDE - 1) / CLB_SIDE;
    const uint squares = down * ((cols + CLB_SIDE - 1) / CLB_SIDE);
    const uint step = get_num_groups(0) * CLB_ITEMS;

    for (uint s = get_group_id(0) * CLB_ITEMS + get_local_id(0); s < squares; s += step) {
        const uint r = s % down * CLB_SIDE, c = s / down * CLB_SIDE;
        const uint r_end = min(r + CLB_SIDE, rows), c_end = min(c + CLB_SIDE, cols);
        const ulong i = row + r, j = col + c;
        /* All of it on one side of the diagonal. */
        const bool above = i + CLB_SIDE <= j, below = j + CLB_SIDE <= i;
        const bool stored = kind & CLB_UPPER ? above : below;

        if (kind & CLB_SCALED) {
            for (uint v = c; v < c_end; v++)
                for (uint u = r; u < r_end; u++)
                    store_element(times(load_element(a, a_off + row + u + (col + v) * ld), scale_re,
                                        scale_im),
                                  x, u + (ulong)v * rows);
        } else if (stored) {
            for (uint v = c; v < c_end; v++)
                for (uint u = r; u < r_end; u++)
                    store_element(load_element(a, a_off + row + u + (col + v) * ld), x,
                                  u + (ulong)v * rows);
        } else if ((above || below) && (kind & CLB_TRIANGULAR)) {
            for (uint v = c; v < c_end; v++)
                for (uint u = r; u < r_end; u++)
                    store_element(number(0), x, u + (ulong)v * rows);
        } else if (above || below) {
            for (uint u = r; u < r_end; u++) {
                for (uint v = c; v < c_end; v++) {
                    const element e = load_element(a, a_off + col + v + (row + u) * ld);
                    store_element(kind & CLB_HERMITIAN ? conjugate(e) : e, x, u + (ulong)v * rows);
                }
            }
        } else {
            for (uint v = c; v < c_end; v++)
                for (uint u = r; u < r_end; u++)
                    store_element(get(a, a_off, ld, row + u, col + v, kind), x,
                                  u + (ulong)v * rows);
        }
    }
}
