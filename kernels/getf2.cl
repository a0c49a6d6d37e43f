/* A panel of the LU factorisation with partial pivoting (LAPACK xGETF2) in one launch.
 *
 * Each work-item has one row of the m x n panel, n <= CLB_WIDTH. It holds the elements of columns
 * that are not finished yet in registers, that of the current column first. Rows are not moved
 * between work-items. A work-item tracks the position that the interchanges so far give its row,
 * writes finished elements to `aside`, and copies them to that position of the matrix at the end.
 * For each column all work-groups agree on the pivot: each publishes its best row and reads those
 * of all groups, chooses the best of them, and eliminates. SPDX-License-Identifier: BSD-3-Clause
 *
 * Work-groups: ceil(m / CLB_PANEL_WG), one-dimensional. If there is more than one they wait for
 * each other, so all must be resident: never more groups than the device has compute units, never
 * two such launches at once, and never on a device without independent progress of work-groups (CPU
 * devices). A single group does not wait.
 *
 * aside      CLB_WIDTH elements for every work-item
 * exchange   2 x groups slots of CLB_SLOT words of 64 bits, zero before the first launch. The high
 *            half of a word is a tag, the low half data. No fence is needed, because a word is
 *            written as a whole. Columns use the two halves of `exchange` alternately: a group that
 *            publishes column j + 2 has read column j + 1 of all groups, and these had read
 *            column j before they published that.
 * tag        larger than 0; a launch uses CLB_WIDTH tags, and the next launch the following ones,
 *            so that nothing is ever reset
 * state      [0] first column + 1 whose pivot is zero, `column` being the panel's first; kept
 *            when not 0
 *            [1] set to 1 when a group has waited for another in vain; all is undefined then
 *            [2 + column ...] the interchanges, 1-based
 * order,     where the interchanges move rows, for the kernels that apply them to other columns:
 * moves      see "moves" below
 *
 * The panel is on the diagonal of a matrix: `column` is its first row as well, and interchanges and
 * moves count from the matrix's first row.
 *
 * Pivots are chosen as in LAPACK: the largest |x|, for complex numbers |re| + |im|, the first among
 * equals; a NaN is chosen only if it is in the first place. Multipliers are computed by division,
 * so that LAPACK's check for pivots below sfmin is not needed. */

#include "common.h"

/* From the host:
 *   CLB_WIDTH    columns of a panel, at most
 *   CLB_BLOCK    columns of a block
 *   CLB_SHUFFLE  1: reduce with shuffles, warps of 32; 2: with the instructions of compute
 *                capability 8.0
 *   CLB_TAPER    1: exchange and subtract less the fewer columns of a row are left; makes four
 *                copies of the code */

/* Reads of a word before a group gives up waiting for another. */
#define CLB_PATIENCE 4000000

/* Rows are accessed in vectors of 16 bytes where all work-items read the same. */
#if CLB_DOUBLE
typedef double2 wide;
#define REAL_WORDS   2
#define WIDE         2
#define make_wide(x) ((double2)((x)[0], (x)[1]))
#else
typedef float4 wide;
#define REAL_WORDS   1
#define WIDE         4
#define make_wide(x) ((float4)((x)[0], (x)[1], (x)[2], (x)[3]))
#endif

#define REALS     (CLB_WIDTH * CLB_PARTS) /* in a row */
#define ROW_WORDS (REALS * REAL_WORDS)
#define SLOT      (ROW_WORDS + 4) /* a row and its position; whole vectors */
#define NOBODY    0xffffffffu     /* position: the group has no candidate */
#define BATCH     4               /* words that a work-item has in flight */

/* Words of the first `width` columns. */
#define WORDS_OF(width) ((width)*CLB_PARTS * REAL_WORDS)

/* A row stays in registers only if everything is inlined and the bounds of every loop over it are
 * constants before that; so loops run over the whole row and compare with `width` inside. */
/* ---- numbers ---- */

CLB_INLINE void take_wide(wide v, real *x)
{
    x[0] = v.x;
    x[1] = v.y;
#if !CLB_DOUBLE
    x[2] = v.z;
    x[3] = v.w;
#endif
}

CLB_INLINE real magnitude(const real *x)
{
#if CLB_COMPLEX
    return fabs(x[0]) + fabs(x[1]);
#else
    return fabs(x[0]);
#endif
}

/* The value by which rows are compared: the bits of a magnitude, which are ordered like the
 * magnitude. The smallest value is for rows that were pivots and rows that don't exist, the next
 * one for NaN. */
#if CLB_DOUBLE
typedef ulong code;
#define bits_of(x) as_ulong(x)
#else
typedef uint code;
#define bits_of(x) as_uint(x)
#endif

CLB_INLINE code code_of(const real *x, uint pos, uint j)
{
    real size = magnitude(x);
    if (isnan(size))
        return pos == j ? ~(code)0 : 1;
    return bits_of(size) + 2;
}

/* ---- the best of many: code, position, and in `index` whose they are ---- */

struct best {
    code key;
    uint pos, index;
};

#define NO_ONE ((struct best){0, NOBODY, 0})

CLB_INLINE void take(struct best *best, code key, uint pos, uint index)
{
    if (key > best->key || (key == best->key && pos < best->pos)) {
        best->key = key;
        best->pos = pos;
        best->index = index;
    }
}

#if CLB_SHUFFLE == 2
CLB_INLINE uint largest(uint value)
{
    uint result;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(value));
    return result;
}

/* Find the best of the lanes of a warp, in all lanes; its index only if `indexed`. */
CLB_INLINE void best_of_warp(struct best *best, const bool indexed)
{
    const uint low = (uint)best->key;
    bool is_best = true;
    uint part;
#if CLB_DOUBLE
    const uint high = (uint)(best->key >> 32);
    best->key = (code)largest(high) << 32;
    is_best = high == (uint)(best->key >> 32);
#else
    best->key = 0;
#endif
    part = largest(is_best ? low : 0);
    is_best = is_best && low == part;
    best->key |= part;
    /* NOBODY is the largest position. */
    part = ~largest(is_best ? ~best->pos : 0);
    if (indexed)
        best->index = largest(is_best && best->pos == part ? best->index : 0);
    best->pos = part;
}
#elif CLB_SHUFFLE
CLB_INLINE uint shuffle(uint value, uint lanes)
{
    uint result;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
                 : "=r"(result)
                 : "r"(value), "r"(lanes));
    return result;
}

CLB_INLINE void best_of_warp(struct best *best, const bool indexed)
{
    for (uint lanes = 16; lanes > 0; lanes /= 2) {
        uint index = indexed ? shuffle(best->index, lanes) : 0, pos = shuffle(best->pos, lanes);
        code key = shuffle((uint)best->key, lanes);
#if CLB_DOUBLE
        key |= (code)shuffle((uint)(best->key >> 32), lanes) << 32;
#endif
        take(best, key, pos, index);
    }
}
#endif

#if CLB_SHUFFLE
#define REDUCED (CLB_PANEL_WG / 32)

/* Find the best of the work-group, in all work-items, without its index. The arrays have one
 * element per warp. */
CLB_INLINE void best_of_group(struct best *best, local code *keys, local uint *poss)
{
    uint item = get_local_id(0), lane = item % 32;
    best_of_warp(best, false);
    if (lane == 0) {
        keys[item / 32] = best->key;
        poss[item / 32] = best->pos;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    best->key = keys[lane % REDUCED];
    best->pos = poss[lane % REDUCED];
    best_of_warp(best, false);
}
#else
#define REDUCED CLB_PANEL_WG

CLB_INLINE void best_of_group(struct best *best, local code *keys, local uint *poss)
{
    uint item = get_local_id(0);
    keys[item] = best->key;
    poss[item] = best->pos;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint span = CLB_PANEL_WG / 2; span > 0; span /= 2) {
        if (item < span) {
            struct best both = {keys[item], poss[item], 0};
            take(&both, keys[item + span], poss[item + span], 0);
            keys[item] = both.key;
            poss[item] = both.pos;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    best->key = keys[0];
    best->pos = poss[0];
    barrier(CLK_LOCAL_MEM_FENCE); /* all have read before the next column writes */
}
#endif

/* ---- the exchange between groups ---- */

/* The index in a slot of word w of those that are exchanged: `words` words of the row, then the
 * position. */
CLB_INLINE uint word_number(uint w, uint words)
{
    return w < words ? w : ROW_WORDS;
}

/* Publish this group's candidate. */
CLB_INLINE void publish(volatile global ulong *turn, const local uint *slot, uint words, uint tag)
{
    volatile global ulong *to = turn + (ulong)get_group_id(0) * SLOT;
    for (uint w = get_local_id(0); w <= words; w += CLB_PANEL_WG)
        to[word_number(w, words)] = (ulong)tag << 32 | slot[word_number(w, words)];
}

/* Read the candidates of all groups to `slots`; false when one did not arrive. */
CLB_INLINE bool gather(volatile global ulong *turn, local uint *slots, uint words, uint tag,
                       const uint patience)
{
    const uint each = words + 1, count = (uint)get_num_groups(0) * each;
    for (uint base = get_local_id(0); base < count; base += BATCH * CLB_PANEL_WG) {
        uint at[BATCH];
        ulong word[BATCH];
        bool all = false;
#pragma unroll
        for (uint b = 0; b < BATCH; b++) {
            uint i = min(base + b * CLB_PANEL_WG, count - 1);
            at[b] = i / each * SLOT + word_number(i % each, words);
        }
        for (uint look = 0; !all && look < patience; look++) {
#pragma unroll
            for (uint b = 0; b < BATCH; b++)
                word[b] = turn[at[b]];
            all = true;
#pragma unroll
            for (uint b = 0; b < BATCH; b++)
                all = all && (uint)(word[b] >> 32) == tag;
        }
        if (!all)
            return false;
#pragma unroll
        for (uint b = 0; b < BATCH; b++)
            slots[at[b]] = (uint)word[b];
    }
    return true;
}

/* Choose the best candidate of all groups; returns its number to all work-items. */
CLB_INLINE uint choose(const local uint *slots, uint j)
{
    const uint groups = get_num_groups(0), lanes = CLB_SHUFFLE ? 32 : 1;
    struct best best = NO_ONE;
    for (uint g = get_local_id(0) % lanes; g < groups; g += lanes) {
        const local uint *slot = slots + g * SLOT;
        const local real *row = (const local real *)slot;
        real x[CLB_PARTS];
        for (uint part = 0; part < CLB_PARTS; part++)
            x[part] = row[part];
        if (slot[ROW_WORDS] != NOBODY)
            take(&best, code_of(x, slot[ROW_WORDS], j), slot[ROW_WORDS], g);
    }
#if CLB_SHUFFLE
    best_of_warp(&best, true);
#endif
    return best.index;
}

/* ---- elimination ---- */

/* x /= pivot, by Smith's method when complex. A zero pivot leaves x as it is. */
CLB_INLINE void divide(real *x, const real *pivot)
{
#if CLB_COMPLEX
    real a = pivot[0], b = pivot[1], re = x[0], im = x[1];
    if (a == 0 && b == 0)
        return;
    if (fabs(a) >= fabs(b)) {
        real ratio = b / a, scale = a + b * ratio;
        x[0] = (re + im * ratio) / scale;
        x[1] = (im - re * ratio) / scale;
    } else {
        real ratio = a / b, scale = b + a * ratio;
        x[0] = (re * ratio + im) / scale;
        x[1] = (im * ratio - re) / scale;
    }
#else
    if (pivot[0] != 0)
        x[0] /= pivot[0];
#endif
}

/* c -= l * u */
CLB_INLINE void subtract_product(real *c, const real *l, const real *u)
{
#if CLB_COMPLEX
    c[0] = fma(-l[0], u[0], fma(l[1], u[1], c[0]));
    c[1] = fma(-l[0], u[1], fma(-l[1], u[0], c[1]));
#else
    c[0] = fma(-l[0], u[0], c[0]);
#endif
}

/* ---- the panel ---- */

/* Parameters: the work-group's local memory. */
#define SHARED \
    local code *keys, local uint *poss, local uint *mine, local uint *slots, local uint *lost
#define SHARED_AS_IS keys, poss, mine, slots, lost

/* Copy the group's best row to `mine`: its first `width` columns and its position. `best` is this
 * work-item's own row. */
CLB_INLINE void nominate(const real *r, struct best best, const uint width, SHARED)
{
    const uint pos = best.pos;
    best_of_group(&best, keys, poss);
    if (pos == best.pos && pos != NOBODY) {
#pragma unroll
        for (uint c = 0; c < REALS / WIDE; c++)
            if (c < width * CLB_PARTS / WIDE)
                ((local wide *)mine)[c] = make_wide(r + c * WIDE);
    }
    if (get_local_id(0) == 0)
        mine[ROW_WORDS] = best.pos;
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Returns the pivot row, the best of all groups' candidates. Sets *lost if a candidate did not
 * arrive. */
CLB_INLINE const local uint *elect(uint j, volatile global ulong *exchange, uint tag,
                                   const uint width, SHARED)
{
    const uint groups = get_num_groups(0);
    if (groups == 1)
        return mine;
    volatile global ulong *turn = exchange + (ulong)(j % 2) * groups * SLOT;
    publish(turn, mine, WORDS_OF(width), tag + j);
    if (!gather(turn, slots, WORDS_OF(width), tag + j, *lost ? 1 : CLB_PATIENCE))
        *lost = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    return slots + choose(slots, j) * SLOT;
}

/* Shift the row so that the next column is the first. */
CLB_INLINE void shift(real *r, const uint width)
{
#pragma unroll
    for (uint c = 0; c < REALS - CLB_PARTS; c++) {
        if (c < (width - 1) * CLB_PARTS)
            r[c] = r[c + CLB_PARTS];
    }
}

/* For rows below the pivot row, whose first element has been divided by the pivot: subtract the
 * multiple of the pivot row, and shift. */
CLB_INLINE void eliminate(real *r, const uint width, const local uint *pivot_row)
{
    real l[CLB_PARTS];
#pragma unroll
    for (uint part = 0; part < CLB_PARTS; part++)
        l[part] = r[part];
#pragma unroll
    for (uint v = 0; v < REALS / WIDE; v++) {
        if (v * WIDE < width * CLB_PARTS) {
            real u[WIDE];
            take_wide(((const local wide *)pivot_row)[v], u);
#pragma unroll
            for (uint w = 0; w < WIDE; w += CLB_PARTS) {
                const uint c = v * WIDE + w;
                if (c >= CLB_PARTS && c < width * CLB_PARTS) {
#pragma unroll
                    for (uint part = 0; part < CLB_PARTS; part++)
                        r[c - CLB_PARTS + part] = r[c + part];
                    subtract_product(r + c - CLB_PARTS, l, u + w);
                }
            }
        }
    }
}

CLB_INLINE void put_aside(const real *x, global real *aside)
{
#pragma unroll
    for (uint part = 0; part < CLB_PARTS; part++)
        aside[part] = x[part];
}

/* Factor columns j ... end-1, of which those before `steps` have a pivot. `width` is at least the
 * number of columns that are left of a row. Returns the position of this work-item's row; *zero
 * becomes the first column + 1 with a zero pivot. (Barriers must not be in conditional code,
 * because of PoCL.) */
CLB_INLINE uint columns(uint j, uint end, uint steps, real *r, const uint width, bool exists,
                        uint pos, uint *zero, global real *aside, global int *ipiv, uint first,
                        volatile global ulong *exchange, uint tag, SHARED)
{
    const ulong stride = (ulong)get_global_size(0) * CLB_PARTS;
    for (; j < min(end, steps); j++) {
        const bool stands = exists && pos >= j;
        nominate(r, stands ? (struct best){code_of(r, pos, j), pos, 0} : NO_ONE, width,
                 SHARED_AS_IS);
        const local uint *pivot_row = elect(j, exchange, tag, width, SHARED_AS_IS);
        if (*lost)
            break;
        const uint pivot_pos = pivot_row[ROW_WORDS];
        real pivot[CLB_PARTS];
#pragma unroll
        for (uint part = 0; part < CLB_PARTS; part++)
            pivot[part] = ((const local real *)pivot_row)[part];
        /* Interchange the positions of rows, not the rows. */
        pos = pos == pivot_pos ? j : pos == j ? pivot_pos : pos;
        if (get_global_id(0) == 0)
            ipiv[j] = (int)(first + pivot_pos) + 1;
        if (magnitude(pivot) == 0 && *zero == 0)
            *zero = j + 1;
        const bool below = exists && pos > j;
        if (below)
            divide(r, pivot);
        put_aside(r, aside + j * stride);
        if (below)
            eliminate(r, width, pivot_row);
        else
            shift(r, width);
    }
    for (; j < end; j++) {
        put_aside(r, aside + j * stride);
        shift(r, width);
    }
    return pos;
}

#define COLUMNS(width, begin, end)                                                            \
    columns(begin, min(n, (uint)(end)), min(m, n), r, width, exists, pos, &zero, aside, ipiv, \
            column, exchange, tag, SHARED_AS_IS)

/* ---- moves ---- */

/* A strip is part of a block, and that of a panel: three ranges of columns, whose first and last
 * columns are those of strips. For each range the combined interchanges so far are kept as 2 x
 * width moves (to, from): first the row that moves to each of the range's rows, then the place that
 * each of these rows moves to, or NOBODY if it stays within the range. No other rows move. */
struct range {
    uint first, width;
};

/* Note that row `here`, as numbered before the range's interchanges, is row `there` now. */
CLB_INLINE void note_move(uint here, uint there, struct range range, global uint2 *moves)
{
    const uint end = range.first + range.width;
    if (there < end)
        moves[there - range.first] = (uint2)(there, here);
    if (here < end)
        moves[range.width + here - range.first] = (uint2)(there < end ? NOBODY : there, here);
}

/* The row that is at `row` now, as numbered before the range's interchanges, from `order`. */
CLB_INLINE uint row_before(const global uint *order, uint row, uint column, struct range range)
{
    return column == range.first ? row : order[row];
}

/* `order`: one for the block, one for the panel, of `rows` rows each. `moves`: those of the strip,
 * of the block, and of all panels. */
CLB_KERNEL_OF(CLB_PANEL_WG)
void clb_getrf_panel(uint m, uint n, global real *a, ulong offset, ulong lda, global int *state,
                     uint column, global real *aside, volatile global ulong *exchange, uint tag,
                     global uint *order, uint rows, global uint2 *moves, uint block_first,
                     uint block_width, uint panel_first, uint panel_width,
                     local uint4 *slot_memory CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local code keys[REDUCED];
    local uint poss[REDUCED], lost[1];
    local uint mine[SLOT] __attribute__((aligned(16)));
    local uint *slots = (local uint *)slot_memory;
    const struct range strip = {column, n}, block = {block_first, block_width},
                       panel = {panel_first, panel_width};
    const uint row = get_global_id(0);
    const bool exists = row < m;
    global int *ipiv = state + 2 + column;
    const ulong stride = (ulong)get_global_size(0) * CLB_PARTS;
    uint pos = row, zero = 0, in_block = 0, in_panel = 0;
    real r[REALS];

    a += offset * CLB_PARTS;
    aside += (ulong)row * CLB_PARTS;
#pragma unroll
    for (uint c = 0; c < REALS; c++)
        r[c] = exists && c / CLB_PARTS < n
                   ? a[(row + c / CLB_PARTS * lda) * CLB_PARTS + c % CLB_PARTS]
                   : 0;
    if (exists) {
        in_block = row_before(order, column + row, column, block);
        in_panel = row_before(order + rows, column + row, column, panel);
    }
    if (get_local_id(0) == 0)
        *lost = state[1] != 0;
    barrier(CLK_LOCAL_MEM_FENCE);
#if CLB_TAPER
    pos = COLUMNS(CLB_WIDTH, 0, CLB_WIDTH / 4);
    pos = COLUMNS(CLB_WIDTH / 4 * 3, CLB_WIDTH / 4, CLB_WIDTH / 2);
    pos = COLUMNS(CLB_WIDTH / 2, CLB_WIDTH / 2, CLB_WIDTH / 4 * 3);
    pos = COLUMNS(CLB_WIDTH / 4, CLB_WIDTH / 4 * 3, CLB_WIDTH);
#else
    pos = COLUMNS(CLB_WIDTH, 0, CLB_WIDTH);
#endif
    if (*lost) {
        if (get_local_id(0) == 0)
            state[1] = 1;
        return;
    }
    /* All work-items have read their rows, because all took part in the first column; so the matrix
     * may be overwritten. */
    if (exists) {
#pragma unroll 1
        for (uint first = 0; first < n; first += 8) {
#pragma unroll
            for (uint c = 0; c < 8 * CLB_PARTS; c++)
                r[c] = first + c / CLB_PARTS < n
                           ? aside[(first + c / CLB_PARTS) * stride + c % CLB_PARTS]
                           : 0;
#pragma unroll
            for (uint c = 0; c < 8 * CLB_PARTS; c++)
                if (first + c / CLB_PARTS < n)
                    a[(pos + (first + c / CLB_PARTS) * lda) * CLB_PARTS + c % CLB_PARTS] = r[c];
        }
        order[column + pos] = in_block;
        order[rows + column + pos] = in_panel;
        note_move(column + row, column + pos, strip, moves);
        note_move(in_block, column + pos, block, moves + 2 * CLB_WIDTH);
        note_move(in_panel, column + pos, panel, moves + 2 * (CLB_WIDTH + CLB_BLOCK + panel_first));
    }
    if (row == 0 && zero != 0 && state[0] == 0)
        state[0] = (int)(column + zero);
}

/* ---- the other columns of a block ---- */

#define FOLLOW_WG 64 /* a work-item for each move of a strip */

#if FOLLOW_WG < 2 * CLB_WIDTH
#error "CLB_WIDTH is too large"
#endif

/* Apply the strip's moves to the other columns of its block; in those on its right also solve L*X =
 * B for the strip's `width` rows, where L is the strip's unit lower triangle. A work-group
 * processes one column at a time; any number of groups. a + offset is row 0 of the block's first
 * column, `strip` the number of columns before the strip and `cols` that of all columns but the
 * strip's. */
CLB_KERNEL_OF(FOLLOW_WG)
void clb_getrf_follow(global real *a, ulong offset, ulong lda, uint cols, uint strip, uint width,
                      uint column, global const uint2 *moves CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real top[CLB_WIDTH * CLB_PARTS];
    const uint id = get_local_id(0);
    const uint2 move = id < 2 * width ? moves[id] : (uint2)(NOBODY, 0);
    real l[CLB_WIDTH * CLB_PARTS]; /* row id of L */

    a += offset * CLB_PARTS;
#pragma unroll
    for (uint e = 0; e < CLB_WIDTH * CLB_PARTS; e++)
        l[e] = id < width && e / CLB_PARTS < id
                   ? a[(column + id + (ulong)(strip + e / CLB_PARTS) * lda) * CLB_PARTS +
                       e % CLB_PARTS]
                   : 0;
    for (uint at = get_group_id(0); at < cols; at += get_num_groups(0)) {
        const bool solves = at >= strip;
        global real *b = a + (ulong)(solves ? at + width : at) * lda * CLB_PARTS;
        real x[CLB_PARTS];

        for (uint part = 0; part < CLB_PARTS; part++)
            x[part] = move.x != NOBODY ? b[(ulong)move.y * CLB_PARTS + part] : 0;
        barrier(CLK_GLOBAL_MEM_FENCE); /* all is read before anything is written */
        for (uint part = 0; part < CLB_PARTS; part++) {
            if (id >= width && move.x != NOBODY)
                b[(ulong)move.x * CLB_PARTS + part] = x[part];
            if (id == 0)
                top[part] = x[part];
        }
        /* PoCL takes long to compile copies of a barrier. */
#if CLB_SHUFFLE
#pragma unroll
#else
#pragma unroll 1
#endif
        for (uint j = 0; j < CLB_WIDTH; j++) {
            barrier(CLK_LOCAL_MEM_FENCE); /* element j is in `top` */
            if (solves && id > j && id < width) {
                real done[CLB_PARTS];
                for (uint part = 0; part < CLB_PARTS; part++)
                    done[part] = top[j * CLB_PARTS + part];
                subtract_product(x, l + j * CLB_PARTS, done);
                for (uint part = 0; part < CLB_PARTS; part++)
                    if (id == j + 1)
                        top[(j + 1) * CLB_PARTS + part] = x[part];
            }
        }
        for (uint part = 0; part < CLB_PARTS; part++)
            if (id < width)
                b[(ulong)(column + id) * CLB_PARTS + part] = x[part];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#define UPDATE_WG   128
#define UPDATE_ROWS 64 /* of a tile; 4 x 4 elements for each work-item */
#define UPDATE_COLS 32

/* C -= L*U for the `rows` x `cols` part below the strip's first `width` rows and on its right. L is
 * at a + l, U at a + u, C at a + c. Any number of groups. */
CLB_KERNEL_OF(UPDATE_WG)
void clb_getrf_update(global real *a, ulong l, ulong u, ulong c, ulong lda, uint rows, uint cols,
                      uint width CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real left[CLB_WIDTH * UPDATE_ROWS * CLB_PARTS];
    local real top[CLB_WIDTH * (UPDATE_COLS + 1) * CLB_PARTS];
    const uint id = get_local_id(0), i = id % 16, j = id / 16 * 4;
    const uint high = (rows + UPDATE_ROWS - 1) / UPDATE_ROWS;
    const uint tiles = high * ((cols + UPDATE_COLS - 1) / UPDATE_COLS);

    for (uint tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        const uint row = tile % high * UPDATE_ROWS, col = tile / high * UPDATE_COLS;
        real x[16 * CLB_PARTS];

#pragma unroll
        for (uint e = 0; e < 16 * CLB_PARTS; e++) {
            const uint r = row + i + e / CLB_PARTS % 4 * 16, s = col + j + e / CLB_PARTS / 4;
            x[e] = r < rows && s < cols ? a[(c + r + s * lda) * CLB_PARTS + e % CLB_PARTS] : 0;
        }
        for (uint e = id; e < CLB_WIDTH * UPDATE_ROWS; e += UPDATE_WG) {
            const uint r = row + e % UPDATE_ROWS, p = e / UPDATE_ROWS;
            for (uint part = 0; part < CLB_PARTS; part++)
                left[e * CLB_PARTS + part] =
                    p < width && r < rows ? a[(l + r + p * lda) * CLB_PARTS + part] : 0;
        }
        for (uint e = id; e < CLB_WIDTH * UPDATE_COLS; e += UPDATE_WG) {
            const uint p = e % CLB_WIDTH, s = e / CLB_WIDTH;
            for (uint part = 0; part < CLB_PARTS; part++)
                top[(p * (UPDATE_COLS + 1) + s) * CLB_PARTS + part] =
                    p < width && col + s < cols ? a[(u + p + (col + s) * lda) * CLB_PARTS + part]
                                                : 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 4
        for (uint p = 0; p < CLB_WIDTH; p++) {
            const local real *of_row = top + (p * (UPDATE_COLS + 1) + j) * CLB_PARTS;
            real f[4 * CLB_PARTS], g[4 * CLB_PARTS];

#pragma unroll
            for (uint e = 0; e < 4 * CLB_PARTS; e++) {
                f[e] = left[(p * UPDATE_ROWS + i + e / CLB_PARTS * 16) * CLB_PARTS + e % CLB_PARTS];
                g[e] = of_row[e];
            }
#pragma unroll
            for (uint e = 0; e < 16; e++)
                subtract_product(x + e * CLB_PARTS, f + e % 4 * CLB_PARTS, g + e / 4 * CLB_PARTS);
        }
#pragma unroll
        for (uint e = 0; e < 16 * CLB_PARTS; e++) {
            const uint r = row + i + e / CLB_PARTS % 4 * 16, s = col + j + e / CLB_PARTS / 4;
            if (r < rows && s < cols)
                a[(c + r + s * lda) * CLB_PARTS + e % CLB_PARTS] = x[e];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
