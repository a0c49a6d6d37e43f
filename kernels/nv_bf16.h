/* SPDX-License-Identifier: BSD-3-Clause
 * Single precision in exact bf16 pieces: splitting and packing. Included behind nv.h, where
 * CLB_PIECE(width) and CLB_TAIL are defined.
 *
 * Each element is the exact sum of three bf16 pieces, x = x1 + x2 + x3 (8 significant bits each,
 * rounded to nearest, so |x2| <= 2^-8 |x|, |x3| <= 2^-16 |x|), and the product is
 *   x1*y1 + (x1*y2 + x2*y1) + (x1*y3 + x2*y2 + x3*y1) + (x2*y3 + x3*y2);
 * what is left out is below 2^-32 |x*y|, or 2^-23 |x*y| without the last two products.
 *
 * Packed layout: operand = panels of W rows (columns for B; W = CLB_MR for A, CLB_NR for B), panel
 * = blocks of CLB_KU depths, block = the image of the tile in local memory: piece 1, 2, 3, each
 * made of chunks of 8 elements (16 bytes), which place_of() orders. Zero beyond the operand. Behind
 * that a block has CLB_TAIL bytes, none or multiples of 16: words that are not 0 if the block is
 * *sparse*. It is when a row has, somewhere among 8 consecutive depths, a single element that
 * matters (none of the others is a sixteenth of it), so that an entry of C may be one product.
 * Packed size: ceil(w/W) * KP/CLB_KU * (W * CLB_KU * 6 + CLB_TAIL) *bytes*, KP = k rounded up to
 * CLB_KU. dst_off, pa_off and pb_off are in bytes, multiples of 16.
 *
 * *flag is set to 1, never cleared, when an element is neither zero nor of magnitude CLB_SAFE_MIN
 * .. CLB_SAFE_MAX (Inf and NaN included): C must then come from the FMA kernel. Within the range no
 * product of two pieces loses bits to underflow, and no sum over up to 2^15 depths overflows.
 */

/* Magnitudes that are split exactly. */
#define CLB_SAFE_MIN 0x1p-58f
#define CLB_SAFE_MAX 0x1p56f

#define CLB_BLOCK(width) (CLB_PIECE(width) * 3 + CLB_TAIL)

/* Row and depth, in the block, of element d of the chunk at e * 16 bytes of a piece. Defined by the
 * kernel file. */
static inline uint2 place_of(uint e, uint d, uint width, bool is_a);

/* The upper half of a float rounded to bf16, to nearest even, as a float; x must be finite. */
static inline float round_bf16(float x)
{
    uint u = as_uint(x);

    return as_float((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000);
}

/* Two bf16 of one piece in a word, the lower depth in the lower half. */
static inline uint pair_bf16(float low, float high)
{
    return as_uint(low) >> 16 | (as_uint(high) & 0xffff0000);
}

/* The same of two numbers, rounded. */
static inline uint round_pair(float low, float high)
{
#if CLB_EMULATE
    return pair_bf16(round_bf16(low), round_bf16(high));
#else
    uint pair;

    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

/* What a work-item finds in the elements that it splits. */
struct findings {
    bool unsafe, sparse;
};

/* Looks at 8 elements: whether all are zero or in the range, and whether one is large and the
 * others are less than a sixteenth of it. Magnitudes are in the order of their bits. */
static inline void look_at(const float x[8], struct findings *found)
{
    uint first = 0, second = 0, least = 0xffffffff;

#pragma unroll
    for (uint i = 0; i < 8; i++) {
        uint a = as_uint(x[i]) & 0x7fffffff;

        second = max(second, min(first, a));
        first = max(first, a);
        least = min(least, a - 1);
    }
    found->unsafe =
        found->unsafe || first > as_uint(CLB_SAFE_MAX) || least < as_uint(CLB_SAFE_MIN) - 1;
    found->sparse = found->sparse || as_float(second) * 16.0f < as_float(first);
}

/* Splits the 8 elements of a chunk: a piece of them, and what it leaves. */
static inline uint4 split_chunk(float x[8])
{
    uint pair[4];

#pragma unroll
    for (uint i = 0; i < 4; i++) {
        pair[i] = round_pair(x[2 * i], x[2 * i + 1]);
        x[2 * i] -= as_float(pair[i] << 16);
        x[2 * i + 1] -= as_float(pair[i] & 0xffff0000);
    }
    return (uint4)(pair[0], pair[1], pair[2], pair[3]);
}

#if !CLB_RAW

/* Splits a chunk and writes the pieces. */
static inline void pack_chunk(float x[8], global uchar *dst, uint width, struct findings *found)
{
    look_at(x, found);
#pragma unroll
    for (uint piece = 0; piece < 3; piece++)
        *(global uint4 *)(dst + piece * CLB_PIECE(width)) = split_chunk(x);
}

/* What the work-group has found. `sparse` is local memory for it. */
static inline void note_findings(const struct findings *found, global uchar *tail,
                                 global uint *flag, local uint *sparse)
{
    if (found->unsafe)
        *flag = 1;
#if CLB_TAIL
    if (get_local_id(0) == 0)
        *sparse = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (found->sparse)
        *sparse = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) < CLB_TAIL / 4)
        ((global uint *)tail)[get_local_id(0)] = *sparse;
#endif
}

/* Rows contiguous in the source, which is read in whole 32-byte sectors at least. */
static inline void pack_n(global const float *src, ulong ld, uint w, uint k, global uchar *dst,
                          uint width, bool is_a, global uint *flag, uint conj, local uint *sparse)
{
    struct findings found = {false, false};

    for (uint e = get_local_id(0); e < width * CLB_KU / 8; e += CLB_PACK_WG) {
        float x[8];

#pragma unroll
        for (uint d = 0; d < 8; d++) {
            uint2 at = place_of(e, d, width, is_a);
            uint i = get_group_id(0) * width + at.x;
            uint p = get_group_id(1) * CLB_KU + at.y;

            x[d] = element(src, 1, ld, w, k, i, p, is_a, conj);
        }
        pack_chunk(x, dst + e * 16, width, &found);
    }
    note_findings(&found, dst + 3 * CLB_PIECE(width), flag, sparse);
}

/* Depths contiguous in the source: the block is read along the depth and turned in local memory. */
static inline void pack_t(global const float *src, ulong ld, uint w, uint k, global uchar *dst,
                          uint width, bool is_a, global uint *flag, uint conj, local uint *sparse,
                          local float *block)
{
    struct findings found = {false, false};

    load_depths(src, ld, w, k, width, is_a, conj, block);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = get_local_id(0); e < width * CLB_KU / 8; e += CLB_PACK_WG) {
        float x[8];

#pragma unroll
        for (uint d = 0; d < 8; d++) {
            uint2 at = place_of(e, d, width, is_a);

            x[d] = block[at.y * (width + 1) + at.x];
        }
        pack_chunk(x, dst + e * 16, width, &found);
    }
    note_findings(&found, dst + 3 * CLB_PIECE(width), flag, sparse);
}

/* Packing kernels for an operand in panels of `width` rows; `parts` are the real rows in one of the
 * caller's. */
#define CLB_BF16_KERNELS(name_n, name_t, width, parts, is_a)                                      \
    CLB_PACK_KERNEL void name_n(global const float *src, ulong src_off, ulong ld, uint w, uint k, \
                                global uchar *dst, ulong dst_off,                                 \
                                global uint *flag CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)       \
    {                                                                                             \
        CLB_NOTE_LAUNCH();                                                                        \
        local uint sparse;                                                                        \
                                                                                                  \
        pack_n(src + CLB_PARTS * src_off, ld, parts * w, CLB_PARTS * k,                           \
               dst + dst_off + packed_index() * CLB_BLOCK(width), width, is_a, flag, CLB_CONJ,    \
               &sparse);                                                                          \
    }                                                                                             \
    CLB_PACK_KERNEL void name_t(global const float *src, ulong src_off, ulong ld, uint w, uint k, \
                                global uchar *dst, ulong dst_off,                                 \
                                global uint *flag CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)       \
    {                                                                                             \
        CLB_NOTE_LAUNCH();                                                                        \
        local float block[CLB_KU * (width + 1)];                                                  \
        local uint sparse;                                                                        \
                                                                                                  \
        pack_t(src + CLB_PARTS * src_off, ld, parts * w, CLB_PARTS * k,                           \
               dst + dst_off + packed_index() * CLB_BLOCK(width), width, is_a, flag, CLB_CONJ,    \
               &sparse, block);                                                                   \
    }

CLB_BF16_KERNELS(clb_pack_a_n, clb_pack_a_t, CLB_MR, CLB_PARTS, true)
CLB_BF16_KERNELS(clb_pack_b_n, clb_pack_b_t, CLB_NR, 1, false)

#endif
