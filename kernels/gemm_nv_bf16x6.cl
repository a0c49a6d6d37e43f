/*
 * Single-precision GEMM on NVIDIA's bf16 tensor cores.
 *
 * Each operand element is the exact sum of three bf16 pieces, x = x1 + x2 + x3 (8 significant bits
 * each, rounded to nearest, so |x2| <= 2^-8 |x|, |x3| <= 2^-16 |x|), and the product is
 *   x1*y1 + (x1*y2 + x2*y1) + (x1*y3 + x2*y2 + x3*y1);
 * what is left out is below 2^-23 |x*y|, or 2^-32 |x*y| with CLB_PRODUCTS = 8. The tensor core
 * truncates its sums, so it adds up CLB_KU depths only, small products first, and its results are
 * then added in registers with rounding. Under k = 32 use the FMA kernel.
 *
 * C (m x n, column-major) = alpha*A*B + beta*C, A and B packed beforehand.
 *
 * CLB_WGMMA = 1 is for compute capability 9.0 and needs patching (below); 0 uses mma.sync: 9.0 and
 * later, slower.
 *
 * Packed layout: operand = panels of W rows (columns for B; W = CLB_MR for A, CLB_NR for B), panel
 * = blocks of CLB_KU depths, block = the image of the tile in local memory: piece 1, 2, 3, each
 * made of chunks of 8 elements (16 bytes). For wgmma a chunk is 8 depths of a row, and all rows'
 * chunks of the same depths follow each other: 8 are a core matrix without swizzle. For mma.sync a
 * chunk is what a work-item needs of A for one mma, of B for two (depths may be taken in any order
 * common to A and B), so that it gets its registers in order and without bank conflicts. Zero
 * beyond the operand.
 * Packed size: ceil(w/W) * W * KP * 6 *bytes*, KP = k rounded up to CLB_KU. dst_off, pa_off and
 * pb_off are in bytes, multiples of 16.
 *
 * *flag is set to 1, never cleared, when an element is neither zero nor of magnitude CLB_SAFE_MIN
 * .. CLB_SAFE_MAX (Inf and NaN included): C must then come from the FMA kernel. Within the range no
 * product of two pieces loses bits to underflow, and no sum over up to 2^15 depths overflows.
 *
 * Launch, all sizes at least 1:
 *   clb_pack_*: local (CLB_PACK_WG, 1), global (CLB_PACK_WG * ceil(w/W), KP / CLB_KU)
 *   clb_gemm:   local CLB_WG = 384 for wgmma, 32 * (CLB_MR/64) * (CLB_NR/32) for mma.sync,
 *               global CLB_WG * ceil(m/CLB_MR) * ceil(n/CLB_NR)
 *
 * Building for wgmma: instructions of sm_90a stand in PTX comments that begin with "//@", because
 * the driver's compiler generates code for sm_90. Build, read the PTX (CL_PROGRAM_BINARIES), delete
 * every "//@", replace ".target sm_90" by ".target sm_90a", and build again from that with
 * clCreateProgramWithBinary. Unpatched, the kernel runs and leaves wrong results.
 */

/* 1: wgmma, patched PTX. 0: mma.sync. */
#ifndef CLB_WGMMA
#define CLB_WGMMA 1
#endif
/*
 * Tile of C of one work-group. wgmma: 64 rows for each of the two consumer warpgroups by 128 or
 * 192; mma.sync: each warp does 64 x 32.
 */
#ifndef CLB_MR
#define CLB_MR 128
#endif
#ifndef CLB_NR
#if CLB_WGMMA
#define CLB_NR 192
#else
#define CLB_NR 128
#endif
#endif
/* Depth of one stage, and of what the tensor core adds up. */
#ifndef CLB_KU
#define CLB_KU 32
#endif
#ifndef CLB_STAGES
#if CLB_WGMMA && CLB_NR == 192
#define CLB_STAGES 3
#else
#define CLB_STAGES 4
#endif
#endif
/*
 * mma.sync: a stage is refilled CLB_LAG steps after work-item 0 read it, 1 .. CLB_STAGES - 1; the
 * other warps may be CLB_LAG - 1 steps behind without work-item 0 waiting for them.
 */
#ifndef CLB_LAG
#define CLB_LAG 1
#endif
/*
 * 8 adds x2*y3 and x3*y2. With CLB_SPLIT_SUM = 1 an entry of C that is one product, or is dominated
 * by one, is then as accurate as plain FMA's; with 6 and 0 its rms error is 1.8 times that.
 */
#ifndef CLB_PRODUCTS
#define CLB_PRODUCTS 6
#endif
/* wgmma: 1 = x1*y1 is added on its own, so that no truncated sum contains it. */
#ifndef CLB_SPLIT_SUM
#define CLB_SPLIT_SUM 0
#endif
/* Magnitudes that are split exactly. */
#ifndef CLB_SAFE_MIN
#define CLB_SAFE_MIN 0x1p-58f
#endif
#ifndef CLB_SAFE_MAX
#define CLB_SAFE_MAX 0x1p56f
#endif
/* Tile rows that are walked together, so that their panels of A stay in L2. */
#ifndef CLB_GROUP
#define CLB_GROUP 8
#endif
#ifndef CLB_PACK_WG
#define CLB_PACK_WG 256
#endif

#if CLB_WGMMA
#define CLB_WG 384
/* Byte distances in a piece: from a chunk of 8 depths to the next, from a row to the next. */
#define CLB_CHUNK(width) ((width)*16)
#define CLB_ROW          16
#else
#define CLB_WG           (CLB_MR / 64 * (CLB_NR / 32) * 32)
#define CLB_CHUNK(width) 16
#define CLB_ROW          (CLB_KU * 2)
#endif
/* A work-item's sums: fragments of 16 x 8, 4 elements each, CLB_FN fragments in a row. */
#if CLB_WGMMA
#define CLB_FN  (CLB_NR / 8)
#define CLB_ACC (CLB_FN * 4)
#else
#define CLB_FN  4
#define CLB_ACC 64
#endif
/* Bytes of one piece of a stage, and of the stage. */
#define CLB_PIECE(width) ((width)*CLB_KU * 2)
#define CLB_BYTES_A      (CLB_PIECE(CLB_MR) * 3)
#define CLB_BYTES_B      (CLB_PIECE(CLB_NR) * 3)
#define CLB_PACK_KERNEL  kernel __attribute__((reqd_work_group_size(CLB_PACK_WG, 1, 1)))
#define CLB_GEMM_KERNEL  kernel __attribute__((reqd_work_group_size(CLB_WG, 1, 1)))

#if CLB_PRODUCTS != 6 && CLB_PRODUCTS != 8
#error "CLB_PRODUCTS is 6 or 8"
#endif
#if CLB_WGMMA && (CLB_MR != 128 || (CLB_NR != 128 && CLB_NR != 192) || CLB_KU % 16)
#error "wgmma: CLB_MR is 128, CLB_NR 128 or 192, CLB_KU a multiple of 16"
#endif
#if !CLB_WGMMA && (CLB_MR % 64 || CLB_NR % 32 || CLB_KU != 32)
#error "mma.sync: 64 | CLB_MR, 32 | CLB_NR, CLB_KU is 32"
#endif
#if CLB_LAG < 1 || CLB_LAG >= CLB_STAGES
#error "CLB_LAG must be 1 .. CLB_STAGES - 1"
#endif

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

static inline bool is_safe(float x)
{
    float a = fabs(x);

    return a == 0.0f || (a >= CLB_SAFE_MIN && a <= CLB_SAFE_MAX);
}

/* Splits the 8 elements of a chunk and writes the pieces; false: one is outside the range. */
static inline bool split_chunk(float x[8], global uchar *dst, uint width)
{
    bool safe = true;
    float rest[8];

    for (uint i = 0; i < 8; i++)
        safe = safe && is_safe(x[i]);
#pragma unroll
    for (uint piece = 0; piece < 3; piece++) {
#pragma unroll
        for (uint i = 0; i < 8; i++) {
            float r = round_bf16(x[i]);

            rest[i] = x[i] - r;
            x[i] = r;
        }
        *(global uint4 *)(dst + piece * CLB_PIECE(width)) =
            (uint4)(pair_bf16(x[0], x[1]), pair_bf16(x[2], x[3]), pair_bf16(x[4], x[5]),
                    pair_bf16(x[6], x[7]));
#pragma unroll
        for (uint i = 0; i < 8; i++)
            x[i] = rest[i];
    }
    return safe;
}

static inline global uchar *packed_block(global uchar *dst, ulong dst_off, uint width)
{
    ulong block = get_group_id(0) * get_num_groups(1) + get_group_id(1);

    return dst + dst_off + block * (width * CLB_KU * 6);
}

/* Row and depth, in the block, of element d of the chunk at e * 16 bytes of a piece. */
static inline uint2 place_of(uint e, uint d, uint width, bool is_a)
{
#if CLB_WGMMA
    return (uint2)(e % width, e / width * 8 + d);
#else
    if (is_a)
        return (uint2)(e / 64 * 16 + d / 2 % 2 * 8 + e % 32 / 4,
                       e % 4 * 8 + e / 32 % 2 * 4 + d / 4 * 2 + d % 2);
    return (uint2)(e / 4, e % 4 * 8 + d);
#endif
}

/* Rows contiguous in the source, which is read in whole 32-byte sectors at least. */
static inline void pack_n(global const float *src, ulong ld, uint w, uint k, global uchar *dst,
                          uint width, bool is_a, global uint *flag)
{
    bool safe = true;

    for (uint e = get_local_id(0); e < width * CLB_KU / 8; e += CLB_PACK_WG) {
        float x[8];

#pragma unroll
        for (uint d = 0; d < 8; d++) {
            uint2 at = place_of(e, d, width, is_a);
            uint i = get_group_id(0) * width + at.x;
            uint p = get_group_id(1) * CLB_KU + at.y;

            x[d] = i < w && p < k ? src[i + p * ld] : 0.0f;
        }
        safe = split_chunk(x, dst + e * 16, width) && safe;
    }
    if (!safe)
        *flag = 1;
}

/* Depths contiguous in the source: the block is read along the depth and turned in local memory. */
static inline void pack_t(global const float *src, ulong ld, uint w, uint k, global uchar *dst,
                          uint width, bool is_a, global uint *flag, local float *block)
{
    bool safe = true;

#pragma unroll 8
    for (uint e = get_local_id(0); e < width * CLB_KU; e += CLB_PACK_WG) {
        uint i = get_group_id(0) * width + e / CLB_KU;
        uint p = get_group_id(1) * CLB_KU + e % CLB_KU;

        block[e % CLB_KU * (width + 1) + e / CLB_KU] = i < w && p < k ? src[p + i * ld] : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = get_local_id(0); e < width * CLB_KU / 8; e += CLB_PACK_WG) {
        float x[8];

#pragma unroll
        for (uint d = 0; d < 8; d++) {
            uint2 at = place_of(e, d, width, is_a);

            x[d] = block[at.y * (width + 1) + at.x];
        }
        safe = split_chunk(x, dst + e * 16, width) && safe;
    }
    if (!safe)
        *flag = 1;
}

CLB_PACK_KERNEL void clb_pack_a_n(global const float *src, ulong src_off, ulong ld, uint w, uint k,
                                  global uchar *dst, ulong dst_off, global uint *flag)
{
    pack_n(src + src_off, ld, w, k, packed_block(dst, dst_off, CLB_MR), CLB_MR, true, flag);
}

CLB_PACK_KERNEL void clb_pack_a_t(global const float *src, ulong src_off, ulong ld, uint w, uint k,
                                  global uchar *dst, ulong dst_off, global uint *flag)
{
    local float block[CLB_KU * (CLB_MR + 1)];

    pack_t(src + src_off, ld, w, k, packed_block(dst, dst_off, CLB_MR), CLB_MR, true, flag, block);
}

CLB_PACK_KERNEL void clb_pack_b_n(global const float *src, ulong src_off, ulong ld, uint w, uint k,
                                  global uchar *dst, ulong dst_off, global uint *flag)
{
    pack_n(src + src_off, ld, w, k, packed_block(dst, dst_off, CLB_NR), CLB_NR, false, flag);
}

CLB_PACK_KERNEL void clb_pack_b_t(global const float *src, ulong src_off, ulong ld, uint w, uint k,
                                  global uchar *dst, ulong dst_off, global uint *flag)
{
    local float block[CLB_KU * (CLB_NR + 1)];

    pack_t(src + src_off, ld, w, k, packed_block(dst, dst_off, CLB_NR), CLB_NR, false, flag, block);
}

#include "tile.h"
#include "nv_copy.h"

static inline void fetch_step(global const uchar *pa, global const uchar *pb, uint step, uint stage,
                              uint la, uint lb, uint full)
{
    expect_bytes(full + 8 * stage, CLB_BYTES_A + CLB_BYTES_B);
    bulk_copy(la + stage * CLB_BYTES_A, pa + (ulong)step * CLB_BYTES_A, CLB_BYTES_A,
              full + 8 * stage);
    bulk_copy(lb + stage * CLB_BYTES_B, pb + (ulong)step * CLB_BYTES_B, CLB_BYTES_B,
              full + 8 * stage);
}

/* Asks for this tile of C while the product runs; a tile off the 128-byte lines misses its last
 * ones. */
static inline void prefetch_tile(global const float *c, ulong ldc, uint m, uint n, uint row,
                                 uint col)
{
    for (uint e = get_local_id(0); e < CLB_NR * (CLB_MR / 32); e += CLB_WG) {
        uint r = row + e % (CLB_MR / 32) * 32;
        uint s = col + e / (CLB_MR / 32);

        if (r < m && s < n)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(c + r + s * ldc));
    }
}

static inline void clear(float d[CLB_ACC])
{
#pragma unroll
    for (uint e = 0; e < CLB_ACC; e++)
        d[e] = 0.0f;
}

static inline void add_to(float sum[CLB_ACC], const float d[CLB_ACC])
{
#pragma unroll
    for (uint e = 0; e < CLB_ACC; e++)
        sum[e] += d[e];
}

#if CLB_WGMMA

/*
 * Operand lists of an asm statement with the CLB_ACC accumulators: their constraints, their
 * numbers, and the numbers of the three operands behind them.
 */
#define CLB_IO8(d, i)                                                                              \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define CLB_IO32(d, i) CLB_IO8(d, i), CLB_IO8(d, i + 8), CLB_IO8(d, i + 16), CLB_IO8(d, i + 24)
#define CLB_NUMBERS_64                                                                             \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "   \
    "%20, "                                                                                        \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, "   \
    "%39, "                                                                                        \
    "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "   \
    "%58, "                                                                                        \
    "%59, %60, %61, %62, %63"
#if CLB_NR == 128
#define CLB_IO(d) CLB_IO32(d, 0), CLB_IO32(d, 32)
#define CLB_WGMMA_TEXT                                                                             \
    "{ .reg .pred p; setp.ne.u32 p, %66, 0;\n"                                                     \
    "//@ wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" CLB_NUMBERS_64                   \
    "}, %64, %65, p, 1, 1, 0, 0;\n}"
#else
#define CLB_IO(d) CLB_IO32(d, 0), CLB_IO32(d, 32), CLB_IO32(d, 64)
#define CLB_WGMMA_TEXT                                                                             \
    "{ .reg .pred p; setp.ne.u32 p, %98, 0;\n"                                                     \
    "//@ wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" CLB_NUMBERS_64                   \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, %96, %97, p, 1, 1, "   \
    "0, 0;\n}"
#endif

/*
 * Descriptor of 16 depths of an operand in local memory: address, leading offset (from one chunk of
 * 8 depths to the next) and stride offset (from 8 rows to the next 8), all in units of 16 bytes, no
 * swizzle.
 */
static inline ulong describe(uint address, uint width)
{
    return (ulong)(address >> 4 & 0x3fff) | (ulong)(CLB_CHUNK(width) >> 4) << 16 |
           (ulong)(128 >> 4) << 32;
}

/* d (+)= piece i of A times piece j of B over one stage's depths; keep = 0: d is overwritten. */
static inline void multiply_piece(uint la, uint lb, uint i, uint j, uint keep, float d[CLB_ACC])
{
#pragma unroll
    for (uint h = 0; h < CLB_KU / 16; h++) {
        ulong a = describe(la + (i - 1) * CLB_PIECE(CLB_MR) + h * 2 * CLB_CHUNK(CLB_MR), CLB_MR);
        ulong b = describe(lb + (j - 1) * CLB_PIECE(CLB_NR) + h * 2 * CLB_CHUNK(CLB_NR), CLB_NR);

        asm volatile(CLB_WGMMA_TEXT : CLB_IO(d) : "l"(a), "l"(b), "r"(keep + h) : "memory");
    }
}

/* d = the small products of one stage, smallest first. */
static inline void multiply_small(uint la, uint lb, float d[CLB_ACC])
{
#if CLB_PRODUCTS == 8
    multiply_piece(la, lb, 3, 2, 0, d);
    multiply_piece(la, lb, 2, 3, 1, d);
#endif
    multiply_piece(la, lb, 3, 1, CLB_PRODUCTS == 8, d);
    multiply_piece(la, lb, 1, 3, 1, d);
    multiply_piece(la, lb, 2, 2, 1, d);
    multiply_piece(la, lb, 2, 1, 1, d);
    multiply_piece(la, lb, 1, 2, 1, d);
}

/* Around each batch of asynchronous products: d is theirs in between. */
static inline void begin_products(float d[CLB_ACC])
{
    asm volatile("//@ wgmma.fence.sync.aligned;" : CLB_IO(d) : : "memory");
}

static inline void finish_products(float d[CLB_ACC])
{
    asm volatile("//@ wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("//@ wgmma.wait_group.sync.aligned 0;" : CLB_IO(d) : : "memory");
}

/* Three warpgroups: two multiply 64 rows each, one work-item of the third fetches. */
static inline void multiply_panels(uint steps, uint la, uint lb, uint full, uint empty,
                                   float sum[CLB_ACC])
{
    uint group = get_local_id(0) / 128;
    uint stage = 0;
    uint parity = 0;
    float d[CLB_ACC];

    clear(sum);
    clear(d);
    for (uint s = 0; s < steps; s++) {
        uint ta = la + stage * CLB_BYTES_A + group * (64 * CLB_ROW);
        uint tb = lb + stage * CLB_BYTES_B;

        wait_barrier(full + 8 * stage, parity);
        begin_products(d);
        multiply_small(ta, tb, d);
#if CLB_SPLIT_SUM
        finish_products(d);
        add_to(sum, d);
        begin_products(d);
#endif
        multiply_piece(ta, tb, 1, 1, !CLB_SPLIT_SUM, d);
        finish_products(d);
        release_stage(empty + 8 * stage);
        add_to(sum, d);
        if (++stage == CLB_STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
}

/* The fetching work-item; a wait for the release before the first passes at once. */
static inline void fetch_panels(global const uchar *pa, global const uchar *pb, uint steps, uint la,
                                uint lb, uint full, uint empty)
{
    uint stage = 0;
    uint parity = 1;

    for (uint s = 0; s < steps; s++) {
        wait_barrier(empty + 8 * stage, parity);
        fetch_step(pa, pb, s, stage, la, lb, full);
        if (++stage == CLB_STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
}

#else

static inline void mma(float c[4], uint4 a, uint2 b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

/* A piece of 4 row fragments, for each the chunks of the first and of the second mma. */
static inline void load_piece(local const uchar *la, uint i, uint4 a[8])
{
#pragma unroll
    for (uint e = 0; e < 8; e++)
        a[e] = *(local const uint4 *)(la + (i - 1) * CLB_PIECE(CLB_MR) + e * (8 * CLB_ROW));
}

/* d += a piece of A times a piece of B. Products that follow each other are independent. */
static inline void multiply_piece(const uint4 a[8], const uint4 b[CLB_FN], float d[CLB_ACC])
{
#pragma unroll
    for (uint e = 0; e < 4 * CLB_FN; e++)
        mma(d + e * 4, a[e / CLB_FN * 2], b[e % CLB_FN].xy);
#pragma unroll
    for (uint e = 0; e < 4 * CLB_FN; e++)
        mma(d + e * 4, a[e / CLB_FN * 2 + 1], b[e % CLB_FN].zw);
}

/*
 * la, lb: this lane's chunk of the warp's first row and column in the stage. Each piece is loaded
 * once; x1*y1 is always added on its own.
 */
static inline void multiply_tile(local const uchar *la, local const uchar *lb, float sum[CLB_ACC])
{
    uint4 a[8];
    uint4 b[3][CLB_FN];
    float d[CLB_ACC];

#pragma unroll
    for (uint e = 0; e < 3 * CLB_FN; e++)
        b[e / CLB_FN][e % CLB_FN] = *(local const uint4 *)(lb + e / CLB_FN * CLB_PIECE(CLB_NR) +
                                                           e % CLB_FN * (8 * CLB_ROW));
    clear(d);
    load_piece(la, 3, a);
#if CLB_PRODUCTS == 8
    multiply_piece(a, b[1], d);
#endif
    multiply_piece(a, b[0], d);
    load_piece(la, 2, a);
#if CLB_PRODUCTS == 8
    multiply_piece(a, b[2], d);
#endif
    multiply_piece(a, b[1], d);
    multiply_piece(a, b[0], d);
    load_piece(la, 1, a);
    multiply_piece(a, b[2], d);
    multiply_piece(a, b[1], d);
    add_to(sum, d);
    clear(d);
    multiply_piece(a, b[0], d);
    add_to(sum, d);
}

static inline void multiply_panels(global const uchar *pa, global const uchar *pb, uint steps,
                                   local const uchar *la, local const uchar *lb, uint full,
                                   uint empty, float sum[CLB_ACC])
{
    uint id = get_local_id(0);
    uint lane = id % 32 * 16;
    uint row = id / 32 % (CLB_MR / 64) * 64;
    uint col = id / 32 / (CLB_MR / 64) * 32;
    uint stage = 0;
    uint parity = 0;

    clear(sum);
    if (id == 0) {
        for (uint i = 0; i < CLB_STAGES - CLB_LAG && i < steps; i++)
            fetch_step(pa, pb, i, i, (uint)la, (uint)lb, full);
    }
    for (uint s = 0; s < steps; s++) {
        uint next = s + CLB_STAGES - CLB_LAG;

        if (id == 0 && next < steps) {
            bool same_turn = stage >= CLB_LAG;
            uint refill = same_turn ? stage - CLB_LAG : stage + CLB_STAGES - CLB_LAG;

            /* What `refill` held, if anything, was step s - CLB_LAG. */
            if (s >= CLB_LAG)
                wait_barrier(empty + 8 * refill, same_turn ? parity : parity ^ 1);
            fetch_step(pa, pb, next, refill, (uint)la, (uint)lb, full);
        }
        asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
        wait_barrier(full + 8 * stage, parity);
        multiply_tile(la + stage * CLB_BYTES_A + row * CLB_ROW + lane,
                      lb + stage * CLB_BYTES_B + col * CLB_ROW + lane, sum);
        release_stage(empty + 8 * stage);
        if (++stage == CLB_STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
}

#endif

/*
 * All loads of C of a batch before its stores: the compiler can't move them across stores that may
 * alias. Two batches, because registers hold no more. row, col: of the work-item's first element.
 */
static inline void store_tile(const float sum[CLB_ACC], uint m, uint n, float alpha, float beta,
                              global float *c, ulong ldc, uint row, uint col)
{
#pragma unroll
    for (uint e0 = 0; e0 < CLB_ACC; e0 += CLB_ACC / 2) {
        float old[CLB_ACC / 2];

#pragma unroll
        for (uint e = 0; e < CLB_ACC / 2; e++) {
            uint r = row + (e0 + e) / (4 * CLB_FN) * 16 + e % 4 / 2 * 8;
            uint s = col + (e0 + e) / 4 % CLB_FN * 8 + e % 2;

            old[e] = beta != 0.0f && r < m && s < n ? c[r + s * ldc] : 0.0f;
        }
#pragma unroll
        for (uint e = 0; e < CLB_ACC / 2; e++) {
            uint r = row + (e0 + e) / (4 * CLB_FN) * 16 + e % 4 / 2 * 8;
            uint s = col + (e0 + e) / 4 % CLB_FN * 8 + e % 2;

            if (r < m && s < n)
                c[r + s * ldc] = fma(alpha, sum[e0 + e], beta * old[e]);
        }
    }
}

/*
 * Barriers per stage: `full` counts the bytes of a fill, `empty` one arrival of each multiplying
 * warp after its last read. Fill number f of a stage completes phase f of `full`, its release phase
 * f of `empty`; a wait for phase f passes parity f & 1.
 */
CLB_GEMM_KERNEL void clb_gemm(uint m, uint n, uint k, float alpha, float beta,
                              global const uchar *pa, ulong pa_off, global const uchar *pb,
                              ulong pb_off, global float *c, ulong c_off, ulong ldc)
{
    local uchar la[CLB_STAGES * CLB_BYTES_A] __attribute__((aligned(128)));
    local uchar lb[CLB_STAGES * CLB_BYTES_B] __attribute__((aligned(128)));
    local ulong barriers[2 * CLB_STAGES];
    uint2 tile = tile_of_group(m, n);
    uint steps = (k - 1) / CLB_KU + 1;
    uint id = get_local_id(0);
    uint full = (uint)barriers;
    uint empty = full + 8 * CLB_STAGES;
    uint row = tile.x * CLB_MR;
    uint col = tile.y * CLB_NR;

    pa += pa_off + (ulong)tile.x * steps * CLB_BYTES_A;
    pb += pb_off + (ulong)tile.y * steps * CLB_BYTES_B;
    c += c_off;
    if (id == 0) {
        for (uint i = 0; i < CLB_STAGES; i++) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, CLB_WGMMA ? 8 : CLB_WG / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (beta != 0.0f)
        prefetch_tile(c, ldc, m, n, row, col);

#if CLB_WGMMA
    if (id >= 256) {
        asm volatile("//@ setmaxnreg.dec.sync.aligned.u32 24;" ::: "memory");
        if (id == 256)
            fetch_panels(pa, pb, steps, (uint)la, (uint)lb, full, empty);
    } else {
        float sum[CLB_ACC];

        asm volatile("//@ setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");
        multiply_panels(steps, (uint)la, (uint)lb, full, empty, sum);
        store_tile(sum, m, n, alpha, beta, c, ldc, row + id / 32 * 16 + id % 32 / 4,
                   col + id % 4 * 2);
    }
#else
    float sum[CLB_ACC];

    multiply_panels(pa, pb, steps, la, lb, full, empty, sum);
    store_tile(sum, m, n, alpha, beta, c, ldc, row + id / 32 % (CLB_MR / 64) * 64 + id % 32 / 4,
               col + id / 32 / (CLB_MR / 64) * 32 + id % 4 * 2);
#endif
}
