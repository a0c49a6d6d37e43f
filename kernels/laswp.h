/* Copies between places of column-major matrices.
 * SPDX-License-Identifier: BSD-3-Clause
 * Row interchanges are a list of moves: element `from` of a column is copied to place `to`, and all
 * are read before any is written. A step of LU with nb interchanges is at most 2*nb moves, of which
 * the first nb, to the top rows, are written side by side.
 *
 * Elements are copied as they are, CLB_SIZE bytes each. Offsets and leading dimensions count
 * elements. The grids have any number of work-groups: each takes a share of the columns. A call has
 * at most CLB_MOVES moves. trsm.cl, which includes this, defines the work-items of a group.
 */
#define CLB_SIZE (4 << CLB_DOUBLE << CLB_COMPLEX)

#if CLB_SIZE == 4
typedef uint element;
#elif CLB_SIZE == 8
typedef uint2 element;
#else
typedef uint4 element;
#endif

#define NOBODY 0xffffffffu

/* Complex numbers in the caller's memory are aligned to their parts only. */
static inline element load_element(global const uint *x, ulong at)
{
#if CLB_SIZE == 4
    return x[at];
#elif CLB_SIZE == 8
    return vload2(at, x);
#else
    return vload4(at, x);
#endif
}

static inline void store_element(element e, global uint *x, ulong at)
{
#if CLB_SIZE == 4
    x[at] = e;
#elif CLB_SIZE == 8
    vstore2(e, at, x);
#else
    vstore4(e, at, x);
#endif
}

/* The columns of this work-group: neighbouring ones, so that a CPU reads memory in order. */
static inline ulong2 get_columns(ulong cols)
{
    const ulong each = (cols + get_num_groups(0) - 1) / get_num_groups(0);
    const ulong first = min(get_group_id(0) * each, cols);

    return (ulong2)(first, min(first + each, cols));
}

/* In place: move k copies row moves[k].y of x to row moves[k].x, unless that is NOBODY. Columns
 * gap_first ... gap_first + gap - 1 are left out, and not counted in `cols`. */
CLB_KERNEL void clb_laswp(global uint *x, ulong x_off, ulong ld, ulong cols, ulong gap_first,
                          ulong gap, global const uint2 *moves, ulong first,
                          uint count CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    const ulong2 columns = get_columns(cols);

    moves += first;

#if CLB_CPU
    element held[CLB_MOVES];

    for (ulong j = columns.x; j < columns.y; j++) {
        const ulong column = x_off + (j < gap_first ? j : j + gap) * ld;

        for (uint k = 0; k < count; k++)
            held[k] = load_element(x, column + moves[k].y);
        for (uint k = 0; k < count; k++)
            if (moves[k].x != NOBODY)
                store_element(held[k], x, column + moves[k].x);
    }
#else
    const uint id = get_local_id(0);

    for (ulong j = columns.x; j < columns.y; j++) {
        const ulong column = x_off + (j < gap_first ? j : j + gap) * ld;
        element held[CLB_MOVES / CLB_WG];

#pragma unroll
        for (uint k = 0; k < CLB_MOVES / CLB_WG; k++)
            if (id + k * CLB_WG < count)
                held[k] = load_element(x, column + moves[id + k * CLB_WG].y);
        barrier(CLK_GLOBAL_MEM_FENCE);
#pragma unroll
        for (uint k = 0; k < CLB_MOVES / CLB_WG; k++)
            if (id + k * CLB_WG < count && moves[id + k * CLB_WG].x != NOBODY)
                store_element(held[k], x, column + moves[id + k * CLB_WG].x);
    }
#endif
}

/* y = x with the moves applied; both have `rows` rows. */
CLB_KERNEL void clb_laswp_copy(global const uint *x, ulong x_off, ulong ldx, global uint *y,
                               ulong y_off, ulong ldy, ulong rows, ulong cols,
                               global const uint2 *moves, uint count CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    const ulong2 columns = get_columns(cols);
    const uint id = get_local_id(0);

    for (ulong j = columns.x; j < columns.y; j++) {
        const ulong from = x_off + j * ldx, to = y_off + j * ldy;
        ulong i = id;

#if CLB_CPU
        const ulong words = rows * (CLB_SIZE / 4);
        for (i = 0; i + 16 <= words; i += 16)
            vstore16(vload16(0, x + from * (CLB_SIZE / 4) + i), 0, y + to * (CLB_SIZE / 4) + i);
        i /= CLB_SIZE / 4;
#endif
        for (; i < rows; i += CLB_ITEMS)
            store_element(load_element(x, from + i), y, to + i);
        barrier(CLK_GLOBAL_MEM_FENCE);
        for (uint k = id; k < count; k += CLB_ITEMS)
            store_element(load_element(x, from + moves[k].y), y, to + moves[k].x);
        barrier(CLK_GLOBAL_MEM_FENCE);
    }
}

/* y(i, j) = x(rows[i], j). */
CLB_KERNEL void clb_permute_rows(global const uint *x, ulong x_off, ulong ldx, global uint *y,
                                 ulong y_off, ulong ldy, ulong rows, ulong cols,
                                 global const uint *order CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    const ulong2 columns = get_columns(cols);

    for (ulong j = columns.x; j < columns.y; j++)
        for (ulong i = get_local_id(0); i < rows; i += CLB_ITEMS)
            store_element(load_element(x, x_off + j * ldx + order[i]), y, y_off + j * ldy + i);
}

/* y = the unit lower trapezoid of x, as large as y: zeros above the diagonal and `one` on it. Below
 * it the elements of x, or zeros. */
CLB_KERNEL void clb_trapezoid(global const uint *x, ulong x_off, ulong ldx, global uint *y,
                              ulong y_off, ulong ldy, ulong rows, ulong cols, element one,
                              uint below CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    const ulong2 columns = get_columns(cols);
    const element zero = (element)(0);

    for (ulong j = columns.x; j < columns.y; j++) {
        const ulong from = x_off + j * ldx, to = y_off + j * ldy;
        ulong i = get_local_id(0);

        for (; i < rows && i <= j; i += CLB_ITEMS)
            store_element(i < j ? zero : one, y, to + i);
#if CLB_CPU
        for (; below && i + 16 <= rows; i += 16)
            for (uint v = 0; v < CLB_SIZE / 4; v++)
                vstore16(vload16(v, x + (from + i) * (CLB_SIZE / 4)), v,
                         y + (to + i) * (CLB_SIZE / 4));
#endif
        for (; i < rows; i += CLB_ITEMS)
            store_element(below ? load_element(x, from + i) : zero, y, to + i);
    }
}

/*
 * y = the triangle of x, n x n, on and above its diagonal or on and below it, with zeros in the
 * other.
 */
CLB_KERNEL void clb_triangle(global const uint *x, ulong x_off, ulong ldx, global uint *y,
                             ulong y_off, ulong ldy, ulong n, uint upper CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    const ulong2 columns = get_columns(n);
    const element zero = (element)(0);

    for (ulong j = columns.x; j < columns.y; j++) {
        const ulong from = x_off + j * ldx, to = y_off + j * ldy;
        const ulong first = upper ? 0 : j, end = upper ? j + 1 : n;

        for (ulong i = get_local_id(0); i < first; i += CLB_ITEMS)
            store_element(zero, y, to + i);
        for (ulong i = first + get_local_id(0); i < end; i += CLB_ITEMS)
            store_element(load_element(x, from + i), y, to + i);
        for (ulong i = end + get_local_id(0); i < n; i += CLB_ITEMS)
            store_element(zero, y, to + i);
    }
}
