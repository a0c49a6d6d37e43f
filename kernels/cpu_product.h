/* The product of packed panels for gemm_cpu.cl: micro-tiles in registers, and a work-group's block
 * of C. SPDX-License-Identifier: BSD-3-Clause */

/* Where B is. */
#define CLB_B_PACKED    0
#define CLB_B_PLAIN     1 /* the caller's */
#define CLB_B_OF_A      2 /* in the panels of A: B = A^T */
#define CLB_B_OF_A_CONJ 3 /* B = A^H */
#define CLB_BOTH_PLAIN  4 /* and A is, too */

CLB_INLINE bool is_plain(const uint source)
{
    return source == CLB_B_PLAIN || source == CLB_BOTH_PLAIN;
}

CLB_INLINE bool is_of_a(const uint source)
{
    return source == CLB_B_OF_A || source == CLB_B_OF_A_CONJ;
}

/* Each column of a micro-tile's B has an address of its own: columns are the caller's, or some are
 * in one panel of A and some in the next. */
CLB_INLINE bool is_by_columns(const uint source)
{
    return is_plain(source) || (is_of_a(source) && CLB_MW % CLB_NR != 0);
}

/* From one depth of B to the next. */
CLB_INLINE uint b_step(const uint source)
{
    return is_plain(source) ? 1 : source == CLB_B_PACKED ? CLB_NR : CLB_MW;
}

/* One element of A, at depth `part` of its two where it is complex, times y of B at that depth: for
 * vector i of a column, (re, im)*re and (-im, re)*im. `conj`: B's imaginary parts are negative. */
CLB_INLINE vacc multiply_part(const vacc x[CLB_MV], vacc y, vacc sum, const uint i, const uint part,
                              const bool conj)
{
    if (part == 0)
        return fma(x[i], y, sum);
    if ((i < CLB_MH) != conj)
        return fma(-x[(i + CLB_MH) % CLB_MV], y, sum);
    return fma(x[(i + CLB_MH) % CLB_MV], y, sum);
}

/* acc += A*B over kc steps, kc a multiple of CLB_KU, in vectors v0 ... v1 - 1 of every column.  The
 * panel of A stays in the first-level cache, that of B is new in every micro-tile: it comes from
 * the second level, and what the hardware fetches ahead of so short a run is not enough.  Behind
 * its end follows b_next. */
CLB_INLINE void multiply(vacc acc[CLB_NR][CLB_MV], global const real *a, global const real *b,
                         global const real *b_next, uint kc, const uint source, const uint v0,
                         const uint v1)
{
    /* What a line of B has, where it is packed, and depths where it is in the panels of A. */
    const uint line = source == CLB_B_PACKED ? CLB_LINE : CLB_NR;
    const uint ahead = source == CLB_B_PACKED ? CLB_AHEAD * CLB_LINE : CLB_AHEAD * CLB_MW;
    const uint turn = kc - min(ahead / b_step(source), kc);
    global const real *soon = b + ahead;
    for (uint p = 0; p < kc; p += CLB_KU) {
        if (p == turn / CLB_KU * CLB_KU)
            soon = b_next;
#pragma unroll
        for (uint i = 0; i < CLB_KU * CLB_NR; i += line)
            CLB_PREFETCH_NEAR(soon + i / CLB_NR * b_step(source) + i % CLB_NR);
        soon += CLB_KU * b_step(source);
#pragma unroll
        for (uint u = 0; u < CLB_KU; u += CLB_PARTS) {
            vacc x[CLB_MV];
#pragma unroll
            for (uint i = v0; i < v1; i++)
                x[i] = load_acc(a + u * CLB_MW + i * CLB_VL);
#pragma unroll
            for (uint part = 0; part < CLB_PARTS; part++) {
#pragma unroll
                for (uint j = 0; j < CLB_NR; j++) {
                    const vacc y = (vacc)(b[(u + part) * b_step(source) + j]);
#pragma unroll
                    for (uint i = v0; i < v1; i++)
                        acc[j][i] =
                            multiply_part(x, y, acc[j][i], i, part, source == CLB_B_OF_A_CONJ);
                }
            }
        }
        a += CLB_KU * CLB_MW;
        b += CLB_KU * b_step(source);
    }
}

#define CLB_HAS_HALVES (!CLB_COMPLEX && CLB_MV == 2)

/* Where A is real and triangular in a micro-tile of two vectors a column: in [0, begin) the second
 * one's rows are zero still, in [end, kc) the first one's are zero again. */
typedef struct {
    uint begin, end;
} halves;

CLB_INLINE void multiply_halves(vacc acc[CLB_NR][CLB_MV], global const real *a,
                                global const real *b, global const real *b_next, uint kc,
                                halves ends, const uint source)
{
    const uint step = b_step(source);
    if (ends.begin > 0)
        multiply(acc, a, b, b + ends.begin * step, ends.begin, source, 0, 1);
    multiply(acc, a + ends.begin * CLB_MW, b + ends.begin * step,
             ends.end < kc ? b + ends.end * step : b_next, ends.end - ends.begin, source, 0,
             CLB_MV);
    if (ends.end < kc)
        multiply(acc, a + ends.end * CLB_MW, b + ends.end * step, b_next, kc - ends.end, source,
                 CLB_MV / 2, CLB_MV);
}

/* One element's depths of A, x, vectors 0 ... v1 - 1 of every column: column j of B begins at
 * column[j]. */
CLB_INLINE void multiply_element(vacc acc[CLB_NR][CLB_MV], const vacc x[CLB_MV],
                                 global const real *const column[CLB_NR], uint p, const uint v1,
                                 const uint source)
{
#pragma unroll
    for (uint part = 0; part < CLB_PARTS; part++) {
#pragma unroll
        for (uint j = 0; j < CLB_NR; j++) {
            const vacc y = (vacc)(column[j][(p + part) * b_step(source)]);
#pragma unroll
            for (uint i = 0; i < v1; i++)
                acc[j][i] = multiply_part(x, y, acc[j][i], i, part, source == CLB_B_OF_A_CONJ);
        }
    }
}

/* The same with x in a packed panel. */
CLB_INLINE void multiply_step(vacc acc[CLB_NR][CLB_MV], global const real *a,
                              global const real *const column[CLB_NR], uint p, const uint v1,
                              const uint source)
{
    vacc x[CLB_MV];
#pragma unroll
    for (uint i = 0; i < v1; i++)
        x[i] = load_acc(a + i * CLB_VL);
    multiply_element(acc, x, column, p, v1, source);
}

/* The columns of a micro-tile's B.  Where they have addresses of their own those that don't exist
 * are the last one; they are ldb apart, or in panels of A, the first in row `first` of one, so much
 * from the end of a panel's row to that of the next panel. */
CLB_INLINE void find_columns(global const real *column[CLB_NR], global const real *b, size_t ldb,
                             uint columns, uint first, const uint source)
{
#pragma unroll
    for (uint j = 0; j < CLB_NR; j++) {
        const uint exists = is_by_columns(source) ? min(j, columns - 1) : j;
        column[j] = b + (is_plain(source) ? exists * ldb : exists);
        if (is_by_columns(source) && !is_plain(source))
            column[j] += (first + exists) / CLB_MW * ldb;
    }
}

/* The same for a B by columns, of exactly kc rows. */
CLB_INLINE void multiply_columns(vacc acc[CLB_NR][CLB_MV], global const real *a,
                                 global const real *const column[CLB_NR], uint kc,
                                 const uint source)
{
    uint p = 0;
    for (; p + CLB_KU <= kc; p += CLB_KU)
#pragma unroll
        for (uint u = 0; u < CLB_KU; u += CLB_PARTS)
            multiply_step(acc, a + (p + u) * CLB_MW, column, p + u, CLB_MV, source);
#pragma unroll 1
    for (; p < kc; p += CLB_PARTS)
        multiply_step(acc, a + p * CLB_MW, column, p, CLB_MV, source);
}

/* The same where A is real and the rows of the second of a column's two vectors don't exist. An
 * operand has one such panel at most: the loop is short for the compiler's sake. */
CLB_INLINE void multiply_first(vacc acc[CLB_NR][CLB_MV], global const real *a,
                               global const real *const column[CLB_NR], uint kc, const uint source)
{
#pragma unroll 1
    for (uint p = 0; p < kc; p++)
        multiply_step(acc, a + p * CLB_MW, column, p, 1, source);
}

/* Between the two parts of a column's numbers and pairs of them. */
CLB_INLINE void make_pairs(vacc acc[CLB_MV])
{
#if CLB_COMPLEX
    vacc pairs[CLB_MV];
#pragma unroll
    for (uint i = 0; i < CLB_MH; i++) {
        pairs[2 * i].even = acc[i].lo;
        pairs[2 * i].odd = acc[CLB_MH + i].lo;
        pairs[2 * i + 1].even = acc[i].hi;
        pairs[2 * i + 1].odd = acc[CLB_MH + i].hi;
    }
#pragma unroll
    for (uint i = 0; i < CLB_MV; i++)
        acc[i] = pairs[i];
#endif
}

CLB_INLINE void split_pairs(vacc acc[CLB_MV])
{
#if CLB_COMPLEX
    vacc parts[CLB_MV];
#pragma unroll
    for (uint i = 0; i < CLB_MH; i++) {
        parts[i] = (vacc)(acc[2 * i].even, acc[2 * i + 1].even);
        parts[CLB_MH + i] = (vacc)(acc[2 * i].odd, acc[2 * i + 1].odd);
    }
#pragma unroll
    for (uint i = 0; i < CLB_MV; i++)
        acc[i] = parts[i];
#endif
}

/* One column of the micro-tile, rows of it valid: c = alpha*acc + beta*c. Changes acc. */
CLB_INLINE void update_column(vacc acc[CLB_MV], real alpha, real beta, global real *c, uint rows)
{
    make_pairs(acc);
    if (rows >= CLB_MR) {
#pragma unroll
        for (uint i = 0; i < CLB_MV; i++) {
            vacc v = fma((vacc)(alpha), acc[i], (vacc)(0)); /* no negative zeros */
            if (beta != 0)
                v = fma((vacc)(beta), load_acc(c + i * CLB_VL), v);
            store_acc(v, c + i * CLB_VL);
        }
    } else {
        real t[CLB_MR];
#pragma unroll
        for (uint i = 0; i < CLB_MV; i++)
            store_acc(fma((vacc)(alpha), acc[i], (vacc)(0)), t + i * CLB_VL);
        for (uint i = 0; i < rows; i++)
            c[i] = beta == 0 ? t[i] : fma(beta, c[i], t[i]);
    }
}

/* One column of C or of an A that is not packed, rows of it valid and zero behind them. */
CLB_INLINE void load_column(vacc x[CLB_MV], global const real *from, uint rows)
{
    if (rows >= CLB_MR) {
#pragma unroll
        for (uint i = 0; i < CLB_MV; i++)
            x[i] = load_acc(from + i * CLB_VL);
    } else {
        real t[CLB_MR];
        for (uint i = 0; i < CLB_MR; i++)
            t[i] = i < rows ? from[i] : 0;
#pragma unroll
        for (uint i = 0; i < CLB_MV; i++)
            x[i] = load_acc(t + i * CLB_VL);
    }
    split_pairs(x);
}

/* Where A is that is not packed: its columns, lda apart, and a copy of the panel that the first
 * micro-tile of a row of them makes for the others (`copies`). */
typedef struct {
    size_t lda;
    vacc *panel;
    bool copies;
} plain_a;

CLB_INLINE void copy_column(vacc x[CLB_MV], global const real *a, plain_a place, uint p, uint rows)
{
    load_column(x, a + p / CLB_PARTS * place.lda, rows);
#pragma unroll
    for (uint i = 0; i < CLB_MV; i++)
        place.panel[p / CLB_PARTS * CLB_MV + i] = x[i];
}

/* As multiply_columns where A is not packed either; `rows` of the panel exist.  The copy costs the
 * first micro-tile nothing but its misses: it multiplies what it copies.  Loops of one element are
 * short enough for the processor, and in longer ones LLVM 15 loads what does not fit into
 * registers. */
CLB_INLINE void multiply_plain(vacc acc[CLB_NR][CLB_MV], global const real *a, plain_a place,
                               global const real *const column[CLB_NR], uint kc, uint rows)
{
    uint p = 0;
    vacc x[CLB_MV];
    if (place.copies && rows >= CLB_MR) {
        for (; p < kc; p += CLB_PARTS) {
            prefetch_run(a + (p / CLB_PARTS + CLB_PACK_AHEAD) * place.lda, CLB_MR);
            copy_column(x, a, place, p, CLB_MR);
            multiply_element(acc, x, column, p, CLB_MV, CLB_BOTH_PLAIN);
        }
        return;
    }
    if (place.copies)
        for (p = 0; p < kc; p += CLB_PARTS)
            copy_column(x, a, place, p, rows);
    p = 0;
    if (CLB_HAS_HALVES && rows <= CLB_VL) {
#pragma unroll 1
        for (; p < kc; p++)
            multiply_element(acc, place.panel + p * CLB_MV, column, p, 1, CLB_BOTH_PLAIN);
        return;
    }
#pragma unroll 1
    for (; p < kc; p += CLB_PARTS)
        multiply_element(acc, place.panel + p / CLB_PARTS * CLB_MV, column, p, CLB_MV,
                         CLB_BOTH_PLAIN);
}

/* One micro-tile, of which rows x columns are valid, over kc steps; b_next is what follows b. */
CLB_INLINE void update_tile(global const real *a, plain_a place, global const real *b,
                            global const real *b_next, size_t ldb, uint first, uint kc, halves ends,
                            real alpha, real beta, global real *c, size_t ldc, uint rows,
                            uint columns, const uint source)
{
    const bool in_order = beta == CLB_IN_ORDER;
    vacc acc[CLB_NR][CLB_MV];
#pragma unroll
    for (uint j = 0; j < CLB_NR; j++)
#pragma unroll
        for (uint i = 0; i < CLB_MV; i++)
            acc[j][i] = (vacc)(0);
    if (in_order) {
#pragma unroll
        for (uint j = 0; j < CLB_NR; j++) {
            if (j < columns)
                load_column(acc[j], c + j * ldc, rows);
#pragma unroll
            for (uint i = 0; i < CLB_MV; i++)
                acc[j][i] = -acc[j][i];
        }
    }
    /* What is read in the end; in order, what is read of the next tile in the beginning. */
    global const real *soon = c + (in_order ? CLB_NR * ldc : 0);
#pragma unroll
    for (uint j = 0; j < CLB_NR; j++)
#pragma unroll
        for (uint i = 0; i < CLB_MR; i += CLB_LINE)
            CLB_PREFETCH_WRITE(soon + j * ldc + i);
    global const real *column[CLB_NR];
    find_columns(column, b, ldb, columns, first, source);
    if (source == CLB_BOTH_PLAIN)
        multiply_plain(acc, a, place, column, kc, rows);
    else if (CLB_HAS_HALVES && rows <= CLB_VL)
        multiply_first(acc, a, column, kc, source);
    else if (is_by_columns(source))
        multiply_columns(acc, a, column, kc, source);
    else
        multiply_halves(acc, a, b, b_next, kc, ends, source);
#pragma unroll
    for (uint j = 0; j < CLB_NR; j++)
        if (j < columns)
            update_column(acc[j], alpha, in_order ? 0 : beta, c + j * ldc, rows);
}

/* What of a product is zero or not wanted, in real rows and depths, which are CLB_PARTS as many
 * where elements are complex; columns count as many. */
#define CLB_SKIP_A_END   1  /* A(i, p) is zero for p > i + a */
#define CLB_SKIP_A_BEGIN 2  /* for p < i + a */
#define CLB_SKIP_B_END   4  /* B(p, j) is zero for p > j + b */
#define CLB_SKIP_B_BEGIN 8  /* for p < j + b */
#define CLB_SKIP_LOWER   16 /* C(i, j) is wanted for i + c >= j */
#define CLB_SKIP_UPPER   32 /* for i + c <= j */
#define CLB_SKIP_PIECES  64 /* both operands are in pieces of a depths, which are b apart */
typedef struct {
    uint kind;
    int a, b, c;
} cuts;

/* The depths at which products of rows [row, row_end) and columns [col, col_end) are not all zero,
 * as (begin, end), or none where begin > end; all are in real numbers. */
CLB_INLINE int2 get_depths(cuts cut, uint row, uint row_end, uint col, uint col_end, uint kp)
{
    int begin = 0, end = (int)kp;
    if (cut.kind & CLB_SKIP_A_END)
        end = min(end, (int)row_end + cut.a);
    if (cut.kind & CLB_SKIP_B_END)
        end = min(end, (int)col_end + cut.b);
    if (cut.kind & CLB_SKIP_A_BEGIN)
        begin = max(begin, (int)row + cut.a);
    if (cut.kind & CLB_SKIP_B_BEGIN)
        begin = max(begin, (int)col + cut.b);
    return (int2)(begin / CLB_KU * CLB_KU, (int)round_up((uint)max(end, 0), CLB_KU));
}

/* Anything of the micro-tile is wanted. */
CLB_INLINE bool is_wanted(cuts cut, uint row, uint col)
{
    return !(cut.kind & CLB_SKIP_LOWER && (int)row + CLB_MR + cut.c <= (int)col) &&
           !(cut.kind & CLB_SKIP_UPPER && (int)row + cut.c >= (int)(col + CLB_PARTS * CLB_NR));
}

/* Of the micro-tile's depths first ... last - 1, for a product with a triangular A. */
CLB_INLINE halves get_halves(cuts cut, uint row, uint first, uint last)
{
    halves ends = {0, last - first};
    if (CLB_HAS_HALVES && cut.kind & (CLB_SKIP_A_END | CLB_SKIP_A_BEGIN)) {
        const int middle = (int)row + CLB_VL + cut.a, p0 = (int)first, p1 = (int)last;
        if (cut.kind & CLB_SKIP_A_BEGIN)
            ends.begin = down_to_step(middle, p0, p1) - first;
        else
            ends.end = up_to_step(middle, p0, p1) - first;
    }
    return ends;
}

/* Columns from j on and depths from p on. */
CLB_INLINE global const real *panel_of_b(global const real *pb, size_t ldb, size_t kp, uint j,
                                         uint p, const uint source)
{
    if (is_plain(source))
        return pb + j * ldb + p;
    if (source == CLB_B_PACKED)
        return pb + j * kp + (size_t)p * CLB_NR;
    return pb + j / CLB_MW * CLB_MW * kp + (size_t)p * CLB_MW + j % CLB_MW;
}

/* Rows from i on and depths from p on. */
CLB_INLINE global const real *panel_of_a(global const real *pa, size_t lda, size_t kp, uint i,
                                         uint p, const uint source)
{
    return source == CLB_BOTH_PLAIN ? pa + p / CLB_PARTS * lda + i
                                    : pa + i / CLB_PARTS * kp + (size_t)p * CLB_MW;
}

/* Asks for a part of a panel, one of so many, of kc depths; returns where the next part is. */
CLB_INLINE global const real *prefetch_part(global const real *a, size_t lda, uint kc, uint parts,
                                            const uint source)
{
    if (source == CLB_BOTH_PLAIN) {
        const uint columns = kc / CLB_PARTS / parts + 1;
        for (uint p = 0; p < columns; p++)
            prefetch_run(a + p * lda, CLB_MR);
        return a + columns * lda;
    }
    const uint share = CLB_MW * kc / parts + 1;
    prefetch_run(a, share);
    return a + share;
}

/*
 * C = alpha*A*B + beta*C from packed operands, or with B or both as the caller has them; beta = 0
 * does not read C, and with beta = CLB_IN_ORDER and alpha = -1 it is C - A*B, product by product.
 *
 * A work-group takes its block of C in passes of CLB_KC steps of depth.  In a pass a panel of A
 * (CLB_MW x CLB_KC, first-level cache) meets every panel of B in turn (CLB_KC x CLB_NC, second
 * level), while the next panel of A is fetched piece by piece.
 */
CLB_INLINE void multiply_block(uint m, uint n, uint k, real alpha, real beta, global const real *pa,
                               size_t lda, global const real *pb, size_t ldb, global real *c,
                               size_t ldc, const uint source, cuts cut)
{
    const uint i0 = (uint)get_group_id(0) * CLB_MC, i1 = min(i0 + CLB_MC, m);
    const uint j0 = (uint)get_group_id(1) * CLB_NC, j1 = min(j0 + CLB_NC, n);
    const bool pieces = cut.kind & CLB_SKIP_PIECES;
    const uint depth = round_up(k, CLB_KU), kp = pieces ? (uint)cut.a : depth;
    vacc panel[CLB_KC / CLB_PARTS * CLB_MV]; /* of an A that is not packed */

    int2 depths = (int2)(0, (int)depth);
    if (cut.kind != 0)
        depths = get_depths(cut, i0, i1, CLB_PARTS * j0, CLB_PARTS * j1, depth);

    /* Passes of equal depth, or of a piece's.  The first applies beta, the others add; k = 0 is one
     * pass of none. */
    const uint begin = (uint)depths.x, end = min((uint)depths.y, depth);
    if (begin > end) /* nothing of it is wanted: what is has depths (clb_gemm_skip) */
        return;
    const uint passes = max((end - begin + CLB_KC - 1) / CLB_KC, 1u);
    const uint step = pieces ? kp : round_up((end - begin + passes - 1) / passes, CLB_KU);
    uint p = begin;
    do {
        const uint kc = min(step, end - p);
        const uint tiles = (j1 - j0 + CLB_NR - 1) / CLB_NR;
        for (uint i = i0; i < i1; i += CLB_MR) {
            /* The panel that follows: in this pass, in the next, in the next work-group. */
            global const real *next = panel_of_a(pa, lda, kp, i + CLB_MR, p, source);
            if (i + CLB_MR >= i1)
                next = p + kc < end ? panel_of_a(pa, lda, kp, i0, p + kc, source)
                                    : panel_of_a(pa, lda, kp, i1, 0, source);
            for (uint j = j0; j < j1; j += CLB_NR) {
                uint first = p, last = is_plain(source) ? min(p + kc, k) : p + kc;
                bool begins = p == 0;
                next = prefetch_part(next, lda, kc, tiles, source);
                if (cut.kind != 0) {
                    /* Passes that begin before the first depth leave beta to a later one. */
                    depths = get_depths(cut, i, i + CLB_MR, CLB_PARTS * j, CLB_PARTS * (j + CLB_NR),
                                        depth);
                    first = max(first, (uint)depths.x);
                    last = min(last, (uint)depths.y);
                    begins = first == (uint)depths.x;
                }
                if (cut.kind == 0 || (first < last && is_wanted(cut, i, CLB_PARTS * j)))
                    update_tile(
                        panel_of_a(pa, lda, kp, i, first, source), (plain_a){lda, panel, j == j0},
                        panel_of_b(pb, ldb, kp, j, first, source),
                        panel_of_b(pb, ldb, kp, j + CLB_NR < j1 ? j + CLB_NR : j0, first, source),
                        is_of_a(source) ? CLB_MW * kp - CLB_MW : ldb, j % CLB_MW, last - first,
                        get_halves(cut, i, first, last), alpha,
                        begins || beta == CLB_IN_ORDER ? beta : 1, c + j * ldc + i, ldc, i1 - i,
                        j1 - j, source);
            }
        }
        p += kc;
        if (pieces) { /* p counts the depths before, too */
            pa += cut.b - (int)(CLB_MW * kp);
            pb += cut.b - (int)(CLB_MW * kp);
        }
    } while (p < end);
}
