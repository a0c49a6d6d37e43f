/*
 * Single-precision GEMM for the `fast` mode, on the fp16 tensor cores of compute capability 9.0
 * (wgmma).
 *
 * Each element, scaled by the power of two of its packed block, is x1 + x2 * 2^-11 with two fp16
 * pieces, up to 2^-24 of its magnitude; the product is x1*y1 + 2^-11 (x1*y2 + x2*y1). Not exact:
 * A*I may differ from A in the last bits. The tensor core truncates its sums, so it adds up CLB_KU
 * depths only, and its results are then scaled back and added in registers with rounding. CLB_KU =
 * 64 is the faster, and from k = 256 on below plain FMA's error; 32 from k = 48 on.
 *
 * C (m x n, column-major) = alpha*A*B + beta*C, A and B packed beforehand.
 *
 * Packed layout: operand = panels of W rows (columns for B; W = CLB_MR for A, CLB_NR for B), panel
 * = blocks of CLB_KU depths, block = the image of the tile in local memory: x1, then x2, each in
 * chunks of 8 depths by rows (16 bytes each: 8 rows are one core matrix without swizzle), then the
 * factor that undoes the scaling, a float in CLB_TAIL bytes. Zero beyond the operand.
 * Packed size: ceil(w/W) * (KP/CLB_KU) * (W * CLB_KU * 4 + CLB_TAIL) *bytes*, KP = k rounded up to
 * CLB_KU. dst_off, pa_off and pb_off are in bytes, multiples of 16.
 *
 * *flag is set to 1, never cleared, when a block holds Inf or NaN, its largest magnitude is outside
 * 2^-50 .. 2^60, or that of one of its rows or depths, not zero, is more than CLB_SPREAD binades
 * below it: C must then come from another kernel. Accuracy is relative to a block's largest
 * element, not to each element.
 *
 * Launch, all sizes at least 1:
 *   clb_pack_*: local (CLB_PACK_WG, 1), global (CLB_PACK_WG * ceil(w/W), KP / CLB_KU)
 *   clb_gemm:   local 384, global 384 * ceil(m/CLB_MR) * ceil(n/CLB_NR)
 *
 * Building: as gemm_nv_bf16x6.cl for wgmma.
 */

/* Tile of C of one work-group: 64 rows for each of the two consumer warpgroups by 128 or 192. */
#ifndef CLB_MR
#define CLB_MR 128
#endif
#ifndef CLB_NR
#define CLB_NR 128
#endif
/* Depth of one stage, and of what the tensor core adds up. */
#ifndef CLB_KU
#define CLB_KU 64
#endif
#ifndef CLB_STAGES
#define CLB_STAGES 3
#endif
#ifndef CLB_SPREAD
#define CLB_SPREAD 20
#endif
/* Tile rows that are walked together, so that their panels of A stay in L2. */
#ifndef CLB_GROUP
#define CLB_GROUP 8
#endif
#ifndef CLB_PACK_WG
#define CLB_PACK_WG 256
#endif

#define CLB_WG 384
/* Byte distance from a chunk of 8 depths to the next; bytes of a piece, of the tail, of a stage. */
#define CLB_CHUNK(width) ((width)*16)
#define CLB_PIECE(width) ((width)*CLB_KU * 2)
#define CLB_TAIL         128
#define CLB_BLOCK(width) (CLB_PIECE(width) * 2 + CLB_TAIL)
#define CLB_BYTES_A      CLB_BLOCK(CLB_MR)
#define CLB_BYTES_B      CLB_BLOCK(CLB_NR)
#define CLB_PACK_KERNEL  kernel __attribute__((reqd_work_group_size(CLB_PACK_WG, 1, 1)))
#define CLB_GEMM_KERNEL  kernel __attribute__((reqd_work_group_size(CLB_WG, 1, 1)))
/* A work-item's sums: fragments of 16 x 8, 4 elements each, CLB_FN fragments in a row. */
#define CLB_FN  (CLB_NR / 8)
#define CLB_ACC (CLB_FN * 4)

#if CLB_MR != 128 || (CLB_NR != 128 && CLB_NR != 192) || CLB_KU % 16
#error "CLB_MR is 128, CLB_NR 128 or 192, CLB_KU a multiple of 16"
#endif

/* Two floats to fp16, to nearest, `low` in the lower half. */
static inline uint pair_half(float low, float high)
{
    uint pair;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

static inline float2 unpair_half(uint pair)
{
    float2 v;

    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(v.x), "=f"(v.y)
        : "r"(pair));
    return v;
}

/* 2^e, -126 <= e <= 127. */
static inline float power_of_two(int e)
{
    return as_float((uint)(e + 127) << 23);
}

/* The largest magnitude of `count` elements as an integer, which orders Inf and NaN on top. */
static inline uint largest_of(local const float *x, uint count, uint stride)
{
    uint top = 0;

#pragma unroll 16
    for (uint i = 0; i < count; i++)
        top = max(top, as_uint(x[i * stride]) & 0x7fffffff);
    return top;
}

/*
 * Packs the block that the work-group has put into local memory, element (i, p) at p * (width + 1)
 * + i. largest: for each row, each depth (from largest[width] on), and last the block.
 */
static inline void pack_block(local const float *block, local uint *largest, global uchar *dst,
                              uint width, global uint *flag)
{
    for (uint e = get_local_id(0); e <= width + CLB_KU; e += CLB_PACK_WG)
        largest[e] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = get_local_id(0); e < width * 2; e += CLB_PACK_WG) {
        uint p = e / width * (CLB_KU / 2);
        uint top = largest_of(block + p * (width + 1) + e % width, CLB_KU / 2, width + 1);

        atomic_max(largest + e % width, top);
        atomic_max(largest + width + CLB_KU, top);
    }
    for (uint e = get_local_id(0); e < CLB_KU * 4; e += CLB_PACK_WG) {
        uint p = e % CLB_KU;

        atomic_max(largest + width + p,
                   largest_of(block + p * (width + 1) + e / CLB_KU * (width / 4), width / 4, 1));
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    /* The largest magnitude becomes 2^14 .. 2^15. */
    uint top = largest[width + CLB_KU];
    int shift = top ? 14 + 127 - (int)(top >> 23) : 0;

    if (top && (top < as_uint(0x1p-50f) || top > as_uint(0x1p60f))) {
        *flag = 1;
        shift = 0;
    }
    for (uint e = get_local_id(0); e < width + CLB_KU; e += CLB_PACK_WG) {
        if (largest[e] && (largest[e] >> 23) + CLB_SPREAD < top >> 23)
            *flag = 1;
    }

    float scale = power_of_two(shift);

    for (uint e = get_local_id(0); e < width * CLB_KU / 8; e += CLB_PACK_WG) {
        uint large[4];
        uint small[4];

#pragma unroll
        for (uint d = 0; d < 4; d++) {
            uint at = (e / width * 8 + 2 * d) * (width + 1) + e % width;
            float x = block[at] * scale;
            float y = block[at + width + 1] * scale;
            float2 v;

            large[d] = pair_half(x, y);
            v = unpair_half(large[d]);
            small[d] = pair_half((x - v.x) * 0x1p11f, (y - v.y) * 0x1p11f);
        }
        ((global uint4 *)dst)[e] = (uint4)(large[0], large[1], large[2], large[3]);
        ((global uint4 *)(dst + CLB_PIECE(width)))[e] =
            (uint4)(small[0], small[1], small[2], small[3]);
    }
    if (get_local_id(0) < CLB_TAIL / 4)
        ((global float *)(dst + 2 * CLB_PIECE(width)))[get_local_id(0)] = power_of_two(-shift);
}

/* The work-group's block into local memory: rows contiguous in the source, or depths. */
static inline void load_rows(global const float *src, ulong ld, uint w, uint k, uint width,
                             local float *block)
{
#pragma unroll 8
    for (uint e = get_local_id(0); e < width * CLB_KU; e += CLB_PACK_WG) {
        uint i = get_group_id(0) * width + e % width;
        uint p = get_group_id(1) * CLB_KU + e / width;

        block[e / width * (width + 1) + e % width] = i < w && p < k ? src[i + p * ld] : 0.0f;
    }
}

static inline void load_depths(global const float *src, ulong ld, uint w, uint k, uint width,
                               local float *block)
{
#pragma unroll 8
    for (uint e = get_local_id(0); e < width * CLB_KU; e += CLB_PACK_WG) {
        uint i = get_group_id(0) * width + e / CLB_KU;
        uint p = get_group_id(1) * CLB_KU + e % CLB_KU;

        block[e % CLB_KU * (width + 1) + e / CLB_KU] = i < w && p < k ? src[p + i * ld] : 0.0f;
    }
}

static inline global uchar *packed_block(global uchar *dst, ulong dst_off, uint width)
{
    ulong block = get_group_id(0) * get_num_groups(1) + get_group_id(1);

    return dst + dst_off + block * CLB_BLOCK(width);
}

CLB_PACK_KERNEL void clb_pack_a_n(global const float *src, ulong src_off, ulong ld, uint w, uint k,
                                  global uchar *dst, ulong dst_off, global uint *flag)
{
    local float block[CLB_KU * (CLB_MR + 1)];
    local uint largest[CLB_MR + CLB_KU + 1];

    load_rows(src + src_off, ld, w, k, CLB_MR, block);
    pack_block(block, largest, packed_block(dst, dst_off, CLB_MR), CLB_MR, flag);
}

CLB_PACK_KERNEL void clb_pack_a_t(global const float *src, ulong src_off, ulong ld, uint w, uint k,
                                  global uchar *dst, ulong dst_off, global uint *flag)
{
    local float block[CLB_KU * (CLB_MR + 1)];
    local uint largest[CLB_MR + CLB_KU + 1];

    load_depths(src + src_off, ld, w, k, CLB_MR, block);
    pack_block(block, largest, packed_block(dst, dst_off, CLB_MR), CLB_MR, flag);
}

CLB_PACK_KERNEL void clb_pack_b_n(global const float *src, ulong src_off, ulong ld, uint w, uint k,
                                  global uchar *dst, ulong dst_off, global uint *flag)
{
    local float block[CLB_KU * (CLB_NR + 1)];
    local uint largest[CLB_NR + CLB_KU + 1];

    load_rows(src + src_off, ld, w, k, CLB_NR, block);
    pack_block(block, largest, packed_block(dst, dst_off, CLB_NR), CLB_NR, flag);
}

CLB_PACK_KERNEL void clb_pack_b_t(global const float *src, ulong src_off, ulong ld, uint w, uint k,
                                  global uchar *dst, ulong dst_off, global uint *flag)
{
    local float block[CLB_KU * (CLB_NR + 1)];
    local uint largest[CLB_NR + CLB_KU + 1];

    load_depths(src + src_off, ld, w, k, CLB_NR, block);
    pack_block(block, largest, packed_block(dst, dst_off, CLB_NR), CLB_NR, flag);
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

static inline void add_scaled(float sum[CLB_ACC], float scale, const float d[CLB_ACC])
{
#pragma unroll
    for (uint e = 0; e < CLB_ACC; e++)
        sum[e] = fma(scale, d[e], sum[e]);
}

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
    "//@ wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" CLB_NUMBERS_64                     \
    "}, %64, %65, p, 1, 1, 0, 0;\n}"
#else
#define CLB_IO(d) CLB_IO32(d, 0), CLB_IO32(d, 32), CLB_IO32(d, 64)
#define CLB_WGMMA_TEXT                                                                             \
    "{ .reg .pred p; setp.ne.u32 p, %98, 0;\n"                                                     \
    "//@ wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {" CLB_NUMBERS_64                     \
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
static inline void multiply_panels(uint steps, local const uchar *la, local const uchar *lb,
                                   uint full, uint empty, float sum[CLB_ACC])
{
    uint group = get_local_id(0) / 128;
    uint stage = 0;
    uint parity = 0;
    float d[CLB_ACC];

    clear(sum);
    clear(d);
    for (uint s = 0; s < steps; s++) {
        local const uchar *block_a = la + stage * CLB_BYTES_A;
        local const uchar *block_b = lb + stage * CLB_BYTES_B;
        uint ta = (uint)block_a + group * CLB_CHUNK(64);
        uint tb = (uint)block_b;

        wait_barrier(full + 8 * stage, parity);

        float scale = *(local const float *)(block_a + 2 * CLB_PIECE(CLB_MR)) *
                      *(local const float *)(block_b + 2 * CLB_PIECE(CLB_NR));

        begin_products(d);
        multiply_piece(ta, tb, 2, 1, 0, d);
        multiply_piece(ta, tb, 1, 2, 1, d);
        finish_products(d);
        add_scaled(sum, scale * 0x1p-11f, d);
        begin_products(d);
        multiply_piece(ta, tb, 1, 1, 0, d);
        finish_products(d);
        release_stage(empty + 8 * stage);
        add_scaled(sum, scale, d);
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
            init_barrier(empty + 8 * i, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (beta != 0.0f)
        prefetch_tile(c, ldc, m, n, row, col);

    if (id >= 256) {
        asm volatile("//@ setmaxnreg.dec.sync.aligned.u32 24;" ::: "memory");
        if (id == 256)
            fetch_panels(pa, pb, steps, (uint)la, (uint)lb, full, empty);
    } else {
        float sum[CLB_ACC];

        asm volatile("//@ setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");
        multiply_panels(steps, la, lb, full, empty, sum);
        store_tile(sum, m, n, alpha, beta, c, ldc, row + id / 32 * 16 + id % 32 / 4,
                   col + id % 4 * 2);
    }
}
