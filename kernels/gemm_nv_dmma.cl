/* Double-precision GEMM on NVIDIA's FP64 tensor cores. The unit rounds each fused multiply-add as
 * IEEE does, so accuracy is plain FMA's.
 * SPDX-License-Identifier: BSD-3-Clause
 * CLB_COPY = 1 is for compute capability 9.0 and later: bulk copies and mma.sync m16n8k16. 2 is for
 * 8.0 and later: copies of 16 bytes and m8n8k4, two of which side by side are 4 depths of the
 * other; packing is the same.
 *
 * C (m x n, column-major) = alpha*A*B + beta*C, A and B packed beforehand; beta = CLB_IN_ORDER see
 * below.
 *
 * Packed layout: operand = panels of W rows (columns for B; W = CLB_MR for A, CLB_NR for B), panel
 * = blocks of CLB_KU depths, block = the image of the tile in local memory: for each 16 depths, for
 * each row group (16 rows of A, 8 columns of B) the operands of one mma in the order in which its
 * 32 work-items hold them, two elements (16 bytes) a work-item at a time. Zero beyond the operand.
 * Packed size: ceil(w/W) * W * KP elements, KP = k rounded up to CLB_KU. dst_off, pa_off, pb_off:
 * even.
 *
 * Launch, all sizes at least 1:
 *   clb_pack_*: local (CLB_PACK_WG, 1), global (CLB_PACK_WG * ceil(w/W), KP / CLB_KU)
 *   clb_gemm:   local CLB_WG = 32 * (CLB_MR/CLB_WARP_M) * (CLB_NR/CLB_WARP_N),
 *               global CLB_WG * ceil(m/CLB_MR) * ceil(n/CLB_NR) * parts
 *
 * With CLB_COMPLEX the packing kernels read complex operands: see operand.h.
 *
 * With CLB_RAW there are other kernels instead, which read unpacked operands: see below.
 */

/* 1: bulk copies. 2: copies of 16 bytes. */
#ifndef CLB_COPY
#define CLB_COPY 1
#endif
/*
 * Bulk copies: a stage is refilled CLB_LAG steps after work-item 0 read it, 1 .. CLB_STAGES - 1:
 * the copies are then CLB_STAGES - CLB_LAG steps ahead, and the other warps may be CLB_LAG - 1
 * steps behind without work-item 0 waiting for them.
 */
#ifndef CLB_LAG
#define CLB_LAG 1
#endif

/* With CLB_RAW, 1: A's depths are contiguous. */
#ifndef CLB_TURNED
#define CLB_TURNED 0
#endif

#include "common.h"
#include "operand.h"
#include "nv.h"
#include "nv_warp.h"

#define CLB_BYTES_A (CLB_MR * CLB_KU * 8)
#define CLB_BYTES_B (CLB_NR * CLB_KU * 8)

#if CLB_KU % 16
#error "CLB_KU must be a multiple of 16"
#endif
#if CLB_COPY != 1 && CLB_COPY != 2
#error "CLB_COPY is 1 or 2"
#endif
#if CLB_COPY == 1 && (CLB_LAG < 1 || CLB_LAG >= CLB_STAGES)
#error "CLB_LAG must be 1 .. CLB_STAGES - 1"
#endif

#include "nv_copy.h"
#include "nv_mma.h"

/* The depth, of 16, that lane t % 4 of a quarter has in its mma's depth 4*q + t. Complex operands
 * have re and im of an element in the same lane. */
static inline uint depth_at(uint q, uint t)
{
    return CLB_PARTS > 1 ? (q / 2 * 4 + t) * 2 + q % 2 : q * 4 + t;
}

#if !CLB_RAW

/*
 * One block of the packed operand. Eight rows by four depths are read at a time, so every 32-byte
 * sector of the source is used whole in either direction, and writes are contiguous.
 */
static inline void pack_a(global const double *src, ulong di, ulong dp, uint w, uint k,
                          global double *dst, uint conj)
{
    global double2 *out = (global double2 *)(dst + packed_index() * (CLB_MR * CLB_KU));

#pragma unroll 8
    for (uint e = get_local_id(0); e < CLB_MR * CLB_KU / 2; e += CLB_PACK_WG) {
        uint quad = e / 32 % 4;
        uint rows = e / 128 % (CLB_MR / 16);
        uint i = get_group_id(0) * CLB_MR + rows * 16 + e % 32 / 4;
        uint p = get_group_id(1) * CLB_KU + e / (CLB_MR * 8) * 16 + depth_at(quad, e % 4);

        out[e] = (double2)(element(src, di, dp, w, k, i, p, true, conj),
                           element(src, di, dp, w, k, i + 8, p, true, conj));
    }
}

static inline void pack_b(global const double *src, ulong di, ulong dp, uint w, uint k,
                          global double *dst, uint conj)
{
    global double2 *out = (global double2 *)(dst + packed_index() * (CLB_NR * CLB_KU));

#pragma unroll 8
    for (uint e = get_local_id(0); e < CLB_NR * CLB_KU / 2; e += CLB_PACK_WG) {
        uint half_block = e / 32 % 2;
        uint cols = e / 64 % (CLB_NR / 8);
        uint i = get_group_id(0) * CLB_NR + cols * 8 + e % 32 / 4;
        uint p = get_group_id(1) * CLB_KU + e / (CLB_NR * 8) * 16;
        uint p0 = p + depth_at(2 * half_block, e % 4), p1 = p + depth_at(2 * half_block + 1, e % 4);

        out[e] = (double2)(element(src, di, dp, w, k, i, p0, false, conj),
                           element(src, di, dp, w, k, i, p1, false, conj));
    }
}

/* A packing kernel for an operand of which (i, p) is at i*di + p*dp; `parts` are the real rows in
 * one of the caller's. */
#define CLB_DMMA_KERNEL(name, pack, di, dp, parts)                                               \
    CLB_PACK_KERNEL void name(global const double *src, ulong src_off, ulong ld, uint w, uint k, \
                              global double *dst,                                                \
                              ulong dst_off CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)            \
    {                                                                                            \
        CLB_NOTE_LAUNCH();                                                                       \
        pack(src + CLB_PARTS * src_off, di, dp, parts * w, CLB_PARTS * k, dst + dst_off,         \
             CLB_CONJ);                                                                          \
    }

CLB_DMMA_KERNEL(clb_pack_a_n, pack_a, 1, ld, CLB_PARTS)
CLB_DMMA_KERNEL(clb_pack_a_t, pack_a, ld, 1, CLB_PARTS)
CLB_DMMA_KERNEL(clb_pack_b_n, pack_b, 1, ld, 1)
CLB_DMMA_KERNEL(clb_pack_b_t, pack_b, ld, 1, 1)

#endif

/* A row of fragments of C plus a fragment of A times those of B. */
static inline void multiply_row(const double a[8], double b[CLB_FN][4], double acc[CLB_FN][4],
                                local double *exchange)
{
#if CLB_COPY == 1
#pragma unroll
    for (uint j = 0; j < CLB_FN; j++)
        mma_m16n8k16(acc[j], a, b[j]);
#else
#pragma unroll
    for (uint e = 0; e < 8 * CLB_FN; e++) {
        uint j = e % CLB_FN;
        uint h = e / CLB_FN % 2;
        uint q = e / CLB_FN / 2;

        mma_m8n8k4(acc[j] + 2 * h, a[2 * q + h], b[j][q], exchange);
    }
#endif
}

/* From the first row of a lane's fragment to its second. */
#define CLB_ROWS_APART (CLB_RAW && (CLB_COMPLEX || !CLB_TURNED) ? 1 : 8)

/* acc = -C. */
static inline void load_tile(double acc[CLB_FM][CLB_FN][4], uint m, uint n, global const double *c,
                             ulong ldc, uint row, uint col)
{
#pragma unroll
    for (uint e = 0; e < CLB_FM * CLB_FN * 4; e++) {
        uint i = e / (CLB_FN * 4);
        uint j = e / 4 % CLB_FN;
        uint r = row + i * 16 + e % 4 / 2 * CLB_ROWS_APART;
        uint s = col + j * 8 + e % 2;

        acc[i][j][e % 4] = r < m && s < n ? -c[r + s * ldc] : 0.0;
    }
}

/*
 * Two row fragments at a time: all loads of C of a batch before its stores, because the compiler
 * can't move them across stores that may alias.
 */
static inline void store_tile(double acc[CLB_FM][CLB_FN][4], uint m, uint n, double alpha,
                              double beta, global double *c, ulong ldc, uint row, uint col)
{
#pragma unroll
    for (uint i0 = 0; i0 < CLB_FM; i0 += 2) {
        double out[2][CLB_FN][4];

#pragma unroll
        for (uint e = 0; e < 2 * CLB_FN * 4; e++) {
            uint i = e / (CLB_FN * 4);
            uint j = e / 4 % CLB_FN;
            uint r = row + (i0 + i) * 16 + e % 4 / 2 * CLB_ROWS_APART;
            uint s = col + j * 8 + e % 2;

            out[i][j][e % 4] =
                beta != 0.0 && i0 + i < CLB_FM && r < m && s < n ? c[r + s * ldc] : 0.0;
        }
#pragma unroll
        for (uint e = 0; e < 2 * CLB_FN * 4; e++) {
            uint i = e / (CLB_FN * 4);
            uint j = e / 4 % CLB_FN;
            uint r = row + (i0 + i) * 16 + e % 4 / 2 * CLB_ROWS_APART;
            uint s = col + j * 8 + e % 2;

            if (i0 + i < CLB_FM && r < m && s < n)
                c[r + s * ldc] = fma(alpha, acc[i0 + i][j][e % 4], beta * out[i][j][e % 4]);
        }
    }
}

#if !CLB_RAW

/* la, lb: this lane's first element of the warp's rows and columns in the stage. */
static inline void multiply_tile(local const double2 *la, local const double2 *lb,
                                 double acc[CLB_FM][CLB_FN][4], local double *exchange)
{
#pragma unroll
    for (uint d = 0; d < CLB_KU / 16; d++) {
        double b[CLB_FN][4];

#pragma unroll
        for (uint j = 0; j < CLB_FN; j++) {
#pragma unroll
            for (uint h = 0; h < 2; h++) {
                double2 v = lb[(d * (CLB_NR / 8) + j) * 64 + h * 32];

                b[j][2 * h] = v.x;
                b[j][2 * h + 1] = v.y;
            }
        }
#pragma unroll
        for (uint i = 0; i < CLB_FM; i++) {
            double a[8];

#pragma unroll
            for (uint h = 0; h < 4; h++) {
                double2 v = la[(d * (CLB_MR / 16) + i) * 128 + h * 32];

                a[2 * h] = v.x;
                a[2 * h + 1] = v.y;
            }
            multiply_row(a, b, acc[i], exchange);
        }
    }
}

#if CLB_COPY == 1

static inline void fetch_step(global const double *pa, global const double *pb, uint step,
                              uint to_a, uint to_b, uint full)
{
    expect_bytes(full, CLB_BYTES_A + CLB_BYTES_B);
    bulk_copy(to_a, pa + (ulong)step * (CLB_MR * CLB_KU), CLB_BYTES_A, full);
    bulk_copy(to_b, pb + (ulong)step * (CLB_NR * CLB_KU), CLB_BYTES_B, full);
}

/*
 * Barriers per stage: `full` counts the bytes of a fill, `empty` one arrival of each warp after its
 * last read. Fill number f of a stage completes phase f of `full`, its release phase f of `empty`;
 * a wait for phase f passes parity f & 1. from_a, from_b: this lane's first element in stage 0.
 */
static inline void multiply_panels(global const double *pa, global const double *pb, uint steps,
                                   local double *la, local double *lb, uint from_a, uint from_b,
                                   local ulong *barriers, double acc[CLB_FM][CLB_FN][4],
                                   local double *exchange)
{
    uint id = get_local_id(0);
    uint full = (uint)barriers;
    uint empty = full + 8 * CLB_STAGES;
    uint stage = 0;
    uint parity = 0;

    if (id == 0) {
        for (uint i = 0; i < CLB_STAGES; i++) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, CLB_WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (uint i = 0; i < CLB_STAGES - CLB_LAG && i < steps; i++)
            fetch_step(pa, pb, i, (uint)la + i * CLB_BYTES_A, (uint)lb + i * CLB_BYTES_B,
                       full + 8 * i);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint s = 0; s < steps; s++) {
        uint next = s + CLB_STAGES - CLB_LAG;

        if (id == 0 && next < steps) {
            uint wraps = stage >= CLB_LAG;
            uint refill = wraps ? stage - CLB_LAG : stage + CLB_STAGES - CLB_LAG;

            /* The previous content of `refill`, if any, was step s - CLB_LAG. */
            if (s >= CLB_LAG)
                wait_barrier(empty + 8 * refill, wraps ? parity : parity ^ 1);
            fetch_step(pa, pb, next, (uint)la + refill * CLB_BYTES_A,
                       (uint)lb + refill * CLB_BYTES_B, full + 8 * refill);
        }
        asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
        wait_barrier(full + 8 * stage, parity);
        multiply_tile((local const double2 *)(la + stage * (CLB_MR * CLB_KU)) + from_a,
                      (local const double2 *)(lb + stage * (CLB_NR * CLB_KU)) + from_b, acc,
                      exchange);
        release_stage(empty + 8 * stage);
        if (++stage == CLB_STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
}

#else

static inline void fetch_step(global const double *pa, global const double *pb, uint step,
                              uint steps, uint stage, local double *la, local double *lb)
{
    if (step < steps) {
        copy_block((local uchar *)la + stage * CLB_BYTES_A,
                   (global const uchar *)(pa + (ulong)step * (CLB_MR * CLB_KU)), CLB_BYTES_A,
                   CLB_WG);
        copy_block((local uchar *)lb + stage * CLB_BYTES_B,
                   (global const uchar *)(pb + (ulong)step * (CLB_NR * CLB_KU)), CLB_BYTES_B,
                   CLB_WG);
    }
    end_step();
}

/*
 * The copies are CLB_STAGES - 1 steps ahead. The barrier of step s makes its stage visible to all,
 * and behind it nobody reads that of step s - 1 any more, which is refilled.
 */
static inline void multiply_panels(global const double *pa, global const double *pb, uint steps,
                                   local double *la, local double *lb, uint from_a, uint from_b,
                                   local ulong *barriers, double acc[CLB_FM][CLB_FN][4],
                                   local double *exchange)
{
    uint stage = 0;

    for (uint i = 0; i < CLB_STAGES - 1; i++)
        fetch_step(pa, pb, i, steps, i, la, lb);
    for (uint s = 0; s < steps; s++) {
        wait_step();
        barrier(CLK_LOCAL_MEM_FENCE);
        fetch_step(pa, pb, s + CLB_STAGES - 1, steps, (stage ? stage : CLB_STAGES) - 1, la, lb);
        multiply_tile((local const double2 *)(la + stage * (CLB_MR * CLB_KU)) + from_a,
                      (local const double2 *)(lb + stage * (CLB_NR * CLB_KU)) + from_b, acc,
                      exchange);
        if (++stage == CLB_STAGES)
            stage = 0;
    }
}

#endif

CLB_GEMM_KERNEL void clb_gemm(uint m, uint n, uint k, double alpha, double beta,
                              global const double *pa, ulong pa_off, global const double *pb,
                              ulong pb_off, global double *c, ulong c_off,
                              ulong ldc CLB_PART_PARAMETERS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local double la[CLB_STAGES * CLB_MR * CLB_KU] __attribute__((aligned(128)));
    local double lb[CLB_STAGES * CLB_NR * CLB_KU] __attribute__((aligned(128)));
    local ulong barriers[2 * CLB_STAGES];
    CLB_EXCHANGE(double, 2);
    struct share share = share_of_group(m, n, k, part, part_stride);
    uint2 tile = share.tile;
    uint lane = get_local_id(0) % 32;
    uint wm = get_local_id(0) / 32 % CLB_WARPS_M;
    uint wn = get_local_id(0) / 32 / CLB_WARPS_M;
    double acc[CLB_FM][CLB_FN][4];

#pragma unroll
    for (uint e = 0; e < CLB_FM * CLB_FN * 4; e++)
        acc[e / (CLB_FN * 4)][e / 4 % CLB_FN][e % 4] = 0.0;
    pa += pa_off + ((ulong)tile.x * share.total + share.first) * (CLB_MR * CLB_KU);
    pb += pb_off + ((ulong)tile.y * share.total + share.first) * (CLB_NR * CLB_KU);
    c += c_off + share.c_offset;
    if (beta == CLB_IN_ORDER) {
        load_tile(acc, m, n, c, ldc, tile.x * CLB_MR + wm * CLB_WARP_M + lane / 4,
                  tile.y * CLB_NR + wn * CLB_WARP_N + lane % 4 * 2);
        beta = 0.0;
    }
    if (beta != 0.0)
        prefetch_tile(c, ldc, m, n, tile.x * CLB_MR, tile.y * CLB_NR);
    multiply_panels(pa, pb, share.steps, la, lb, wm * (CLB_FM * 128) + lane,
                    wn * (CLB_FN * 64) + lane, barriers, acc, exchange);
    store_tile(acc, m, n, alpha, beta, c, ldc, tile.x * CLB_MR + wm * CLB_WARP_M + lane / 4,
               tile.y * CLB_NR + wn * CLB_WARP_N + lane % 4 * 2);
}

#else

/*
 * CLB_RAW, instead of the kernels above: clb_gemm_nn and _nt, or with CLB_TURNED _tn and _tt, C =
 * alpha*A*B + beta*C with A and B as BLAS has them, in place of packing where an element is
 * multiplied with few others. Same launch, same sums, same bits as clb_gemm. A is `n` when its rows
 * are contiguous, B when its depths are. Complex operands have one more argument, before `part`:
 * 1 asks for the conjugate of A, 2 for that of B.
 *
 * Local memory has lines of what is contiguous: a tile's rows at one depth of the caller's operand,
 * or a step's depths of one of its rows (CLB_TURNED of A). With these pitches copies are
 * conflict-free, and so are the reads, of 16 bytes where two elements that a lane needs lie side by
 * side: of rows of A, whose order is changed for that, and re and im of a complex element, which
 * stand for four of operand.h's real operand A.
 */
#define CLB_RAW_LENGTH(of_a, turned) ((turned) ? CLB_KU : (of_a) ? CLB_MR : CLB_NR * CLB_PARTS)
#define CLB_RAW_LINES(of_a, turned) \
    ((turned) ? ((of_a) ? CLB_MR / CLB_PARTS : CLB_NR) : CLB_KU / CLB_PARTS)
#define CLB_RAW_PITCH(of_a, turned) (CLB_RAW_LENGTH(of_a, turned) + ((turned) ? 4 * CLB_PARTS : 4))
#define CLB_RAW_SIZE(of_a, turned)  (CLB_RAW_PITCH(of_a, turned) * CLB_RAW_LINES(of_a, turned))

/* The largest power of two that divides x. */
#define CLB_LOW_BIT(x)              ((x) & -(x))

/* The depths of one step of a tile's operand: zeros where rows are not below w or depths not below
 * k. `pairs`: all lines begin at multiples of 16 bytes, and rows in lines are even in number. */
CLB_INLINE void fetch_raw(global const double *from, ulong ld, bool of_a, bool turned, bool pairs,
                          uint w, uint k, local double *to)
{
    const uint length = CLB_RAW_LENGTH(of_a, turned), lines = CLB_RAW_LINES(of_a, turned);
    const uint pitch = CLB_RAW_PITCH(of_a, turned);
    const uint along = turned ? k : of_a ? w : w * CLB_PARTS;
    const uint across = !turned ? k / CLB_PARTS : of_a ? w / CLB_PARTS : w;
    const uint id = get_local_id(0);

    if (pairs && (!turned || k >= CLB_KU || k % 2 == 0)) {
        /* The group copies a block at a time: addresses differ by uniform numbers. */
        const uint width = min(CLB_LOW_BIT(length), CLB_LOW_BIT(2u * CLB_WG));
        const uint height = 2 * CLB_WG / width, across_blocks = length / width;
        const uint x = id * 2 % width, y = id * 2 / width;

        from += x + y * ld;
        to += x + y * pitch;
#pragma unroll
        for (uint e = 0; e < across_blocks * ((lines - 1) / height + 1); e++) {
            const uint dx = e % across_blocks * width, dy = e / across_blocks * height;

            if (dy + height <= lines || y + dy < lines)
                copy_pair(to + dx + dy * pitch, from + dx + dy * ld,
                          x + dx < along && y + dy < across);
        }
    } else {
#pragma unroll 4
        for (uint e = id; e < length * lines; e += CLB_WG) {
            uint x = e % length, y = e / length;

            copy_number(to + x + y * pitch, from + x + y * ld, y < across && x < along);
        }
    }
}

/* Complex elements always are; `along`: the length of a line, if that may be odd. */
CLB_INLINE bool in_pairs(global const double *x, ulong ld, uint along)
{
    return CLB_PARTS > 1 || (((ulong)x & 15) == 0 && (ld & 1) == 0 && (along & 1) == 0);
}

/* What a work-group reads: both operands from its tile's first element and the next step's first
 * depth on, up to rows w_a, w_b and depth k; signs of what fragment_of() makes of a complex
 * element. */
struct raw_operands {
    global const double *a, *b;
    ulong lda, ldb;
    bool b_turned, a_pairs, b_pairs;
    uint w_a, w_b, k;
    ulong sign[4];
};

/* What a lane reads of a row fragment of A in the 16 depths of number d; of complex elements re and
 * im, which stand for four numbers each. */
#define CLB_READ_A (8 / CLB_PARTS)

CLB_INLINE void read_a(local const double *la, uint d, uint i, double a[CLB_READ_A])
{
    const uint pitch = CLB_RAW_PITCH(true, CLB_TURNED);

#pragma unroll
    for (uint q = 0; q < CLB_READ_A / 2; q++) {
#if CLB_TURNED && !CLB_COMPLEX
        a[2 * q] = la[i * 16 * pitch + d * 16 + q * 4];
        a[2 * q + 1] = la[(i * 16 + 8) * pitch + d * 16 + q * 4];
#else
        double2 v =
            *(local const double2 *)(la + (CLB_TURNED
                                               ? i * 8 * pitch + d * 16 + q * 8
                                               : i * 16 + (d * 16 / CLB_PARTS + q * 4) * pitch));

        a[2 * q] = v.x;
        a[2 * q + 1] = v.y;
#endif
    }
}

/* The fragment, of complex elements with the signs of B's imaginary parts, too. */
CLB_INLINE void fragment_of(const double read[CLB_READ_A], const private struct raw_operands *x,
                            double a[8])
{
#pragma unroll
    for (uint e = 0; e < 8; e++) {
#if CLB_COMPLEX
        /* re, im, -im, re */
        const ulong read_bits = as_ulong(read[e / 4 * 2 + (e ^ e / 2) % 2]);

        a[e] = as_double(read_bits ^ x->sign[e % 4]);
#else
        a[e] = read[e];
#endif
    }
}

/* The column fragments of B. */
CLB_INLINE void read_b(local const double *lb, uint d, bool turned, double b[CLB_FN][4])
{
    const uint pitch = CLB_RAW_PITCH(false, turned);

#pragma unroll
    for (uint j = 0; j < CLB_FN; j++) {
#pragma unroll
        for (uint q = 0; q < 4; q++) {
#if CLB_COMPLEX
            double2 v =
                *(local const double2 *)(lb + (turned ? j * 8 * pitch + d * 16 + q / 2 * 8
                                                      : j * 16 + (d * 8 + q / 2 * 4) * pitch));

            b[j][q] = q % 2 ? v.y : v.x;
#else
            b[j][q] =
                lb[turned ? j * 8 * pitch + d * 16 + q * 4 : j * 8 + (d * 16 + q * 4) * pitch];
#endif
        }
    }
}

CLB_INLINE void fetch_raw_step(private struct raw_operands *x, local double *la, local double *lb)
{
    fetch_raw(x->a, x->lda, true, CLB_TURNED, x->a_pairs, x->w_a, x->k, la);
    fetch_raw(x->b, x->ldb, false, x->b_turned, x->b_pairs, x->w_b, x->k, lb);
    x->a += CLB_TURNED ? CLB_KU : CLB_KU / CLB_PARTS * x->lda;
    x->b += x->b_turned ? CLB_KU : CLB_KU / CLB_PARTS * x->ldb;
    x->k -= CLB_KU;
}

#if CLB_COPY != 1
#undef CLB_LAG
#define CLB_LAG 1
#endif

/*
 * The copies are CLB_STAGES - CLB_LAG steps ahead, and the fragments of A and B are read while
 * those before are multiplied. la, lb: the stages of each operand; from_a, from_b: this lane's
 * first element in a stage.
 */
CLB_INLINE void multiply_raw_panels(private struct raw_operands *x, uint steps, local double *la,
                                    local double *lb, uint from_a, uint from_b,
                                    local ulong *barriers, double acc[CLB_FM][CLB_FN][4],
                                    local double *exchange)
{
    const uint size_a = CLB_RAW_SIZE(true, CLB_TURNED), size_b = CLB_RAW_SIZE(false, x->b_turned);
    const uint ahead = CLB_STAGES - CLB_LAG, rows = CLB_KU / 16 * CLB_FM;
    double a[CLB_READ_A], b[CLB_FN][4];
    uint stage = 0, next = ahead;
#if CLB_COPY == 1
    /* As multiply_panels: barriers per stage, of which `full` counts the work-items whose copies
     * have arrived. A wait for the release before the first passes at once. */
    const uint full = (uint)barriers, empty = full + 8 * CLB_STAGES;
    uint parity = 0, next_parity = 1;

    if (get_local_id(0) == 0) {
        for (uint i = 0; i < CLB_STAGES; i++) {
            init_barrier(full + 8 * i, CLB_WG);
            init_barrier(empty + 8 * i, CLB_WARPS);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (uint s = 0; s < ahead; s++) {
        if (s < steps) {
            fetch_raw_step(x, la + s * size_a, lb + s * size_b);
#if CLB_COPY == 1
            arrive_copied(full + 8 * s);
#endif
        }
#if CLB_COPY != 1
        end_step();
#endif
    }
#if CLB_COPY == 1
    wait_barrier(full, 0);
#else
    wait_step();
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    read_a(la + from_a, 0, 0, a);
    read_b(lb + from_b, 0, x->b_turned, b);
    for (uint s = 0; s < steps; s++) {
        const uint of = stage;

#pragma unroll
        for (uint r = 0; r < rows; r++) {
            const uint d = (r + 1) % rows / CLB_FM, i = (r + 1) % CLB_FM;
            double next_a[CLB_READ_A], fragment[8], next_b[CLB_FN][4];

            if (r == rows / 2) {
#if CLB_COPY == 1
                if (s + ahead < steps) {
                    wait_barrier(empty + 8 * next, next_parity);
                    fetch_raw_step(x, la + next * size_a, lb + next * size_b);
                    arrive_copied(full + 8 * next);
                    next_parity ^= next + 1 == CLB_STAGES;
                }
#else
                if (s + ahead < steps)
                    fetch_raw_step(x, la + next * size_a, lb + next * size_b);
                end_step();
#endif
                next = next + 1 == CLB_STAGES ? 0 : next + 1;
            }
            if (r + 1 == rows) {
                stage = stage + 1 == CLB_STAGES ? 0 : stage + 1;
#if CLB_COPY == 1
                parity ^= stage == 0;
                if (s + 1 < steps)
                    wait_barrier(full + 8 * stage, parity);
#else
                wait_step();
                barrier(CLK_LOCAL_MEM_FENCE);
#endif
            }
            /* Behind the last step they are not used. */
            read_a(la + stage * size_a + from_a, d, i, next_a);
            if (i == 0)
                read_b(lb + stage * size_b + from_b, d, x->b_turned, next_b);
            fragment_of(a, x, fragment);
            multiply_row(fragment, b, acc[r % CLB_FM], exchange);
#pragma unroll
            for (uint e = 0; e < CLB_READ_A; e++)
                a[e] = next_a[e];
#pragma unroll
            for (uint e = 0; i == 0 && e < 4 * CLB_FN; e++)
                b[e / 4][e % 4] = next_b[e / 4][e % 4];
        }
#if CLB_COPY == 1
        release_stage(empty + 8 * of);
#endif
    }
}

/* C of a lane that has rows side by side, an even number of them. */
CLB_INLINE void store_pairs(double acc[CLB_FM][CLB_FN][4], uint m, uint n, double alpha,
                            global double *c, ulong ldc, uint row, uint col)
{
#pragma unroll
    for (uint e = 0; e < CLB_FM * CLB_FN * 2; e++) {
        const uint i = e / (CLB_FN * 2), j = e / 2 % CLB_FN;
        const uint r = row + i * 16, s = col + j * 8 + e % 2;

        if (r < m && s < n)
            *(global double2 *)(c + r + s * ldc) =
                (double2)(fma(alpha, acc[i][j][e % 2], 0.0), fma(alpha, acc[i][j][e % 2 + 2], 0.0));
    }
}

CLB_INLINE void raw_product(uint m, uint n, uint k, double alpha, double beta,
                            global const double *a, ulong lda, global const double *b, ulong ldb,
                            global double *c, ulong ldc, uint conj, uint part, ulong part_stride,
                            bool b_turned, local double *la, local double *lb,
                            local ulong *barriers, local double *exchange)
{
    const struct share share = share_of_group(m, n, k, part, part_stride);
    const uint row = share.tile.x * CLB_MR, col = share.tile.y * CLB_NR;
    const uint first = share.first * CLB_KU;
    const uint a_pitch = CLB_RAW_PITCH(true, CLB_TURNED), b_pitch = CLB_RAW_PITCH(false, b_turned);
    const uint lane = get_local_id(0) % 32;
    const uint wm = get_local_id(0) / 32 % CLB_WARPS_M * CLB_WARP_M;
    const uint wn = get_local_id(0) / 32 / CLB_WARPS_M * CLB_WARP_N;
    /* This lane's first row, column and depth in the tile. */
    const uint i = wm + lane / 4 * (CLB_ROWS_APART == 1 ? 2 : 1), j = wn + lane / 4;
    const uint p = lane % 4;
    /* Zeros that the compiler doesn't know: the low halves of x and -x would be one value to it,
     * which it would move to each operand again. */
    const uint zero = conj >> 2, nought = conj >> 3;
    struct raw_operands x = {
        .a = a + (CLB_TURNED ? first + row / CLB_PARTS * lda : row + first / CLB_PARTS * lda),
        .b = b + (b_turned ? first + col * ldb : col * CLB_PARTS + first / CLB_PARTS * ldb),
        .lda = lda,
        .ldb = ldb,
        .b_turned = b_turned,
        .a_pairs = in_pairs(a, lda, CLB_TURNED ? 0 : m),
        .b_pairs = in_pairs(b, ldb, b_turned ? 0 : n),
        .w_a = m - row,
        .w_b = n - col,
        .k = min(share.steps * CLB_KU, k - first),
        .sign = {zero, (ulong)conj << 63 | zero, (ulong)(conj ^ conj >> 1 ^ 1) << 63 | nought,
                 (ulong)(conj >> 1) << 63 | nought}};
    double acc[CLB_FM][CLB_FN][4];

    c += share.c_offset;
#pragma unroll
    for (uint e = 0; e < CLB_FM * CLB_FN * 4; e++)
        acc[e / (CLB_FN * 4)][e / 4 % CLB_FN][e % 4] = 0.0;
    if (beta == CLB_IN_ORDER) {
        load_tile(acc, m, n, c, ldc, row + i, col + wn + p * 2);
        beta = 0.0;
    }
    if (beta != 0.0)
        prefetch_tile(c, ldc, m, n, row, col);
    multiply_raw_panels(&x, share.steps, la, lb,
                        CLB_TURNED ? i / CLB_PARTS * a_pitch + p * CLB_PARTS : i + p * a_pitch,
                        b_turned ? j * b_pitch + p * CLB_PARTS : j * CLB_PARTS + p * b_pitch,
                        barriers, acc, exchange);
    if (CLB_ROWS_APART == 1 && beta == 0.0 && in_pairs(c, ldc, m) && ((ulong)c & 15) == 0)
        store_pairs(acc, m, n, alpha, c, ldc, row + i, col + wn + p * 2);
    else
        store_tile(acc, m, n, alpha, beta, c, ldc, row + i, col + wn + p * 2);
}

#define CLB_RAW_KERNEL(name, b_turned)                                                             \
    CLB_GEMM_KERNEL void name(                                                                     \
        uint m, uint n, uint k, double alpha, double beta, global const double *a, ulong a_off,    \
        ulong lda, global const double *b, ulong b_off, ulong ldb, global double *c, ulong c_off,  \
        ulong ldc CLB_CONJ_PARAMETER CLB_PART_PARAMETERS CLB_LAUNCH_PARAMETERS)                    \
    {                                                                                              \
        CLB_NOTE_LAUNCH();                                                                         \
        local double la[CLB_STAGES * CLB_RAW_SIZE(true, CLB_TURNED)]                               \
            __attribute__((aligned(128)));                                                         \
        local double lb[CLB_STAGES * CLB_RAW_SIZE(false, b_turned)] __attribute__((aligned(128))); \
        local ulong barriers[2 * CLB_STAGES];                                                      \
        CLB_EXCHANGE(double, 2);                                                                   \
                                                                                                   \
        raw_product(m, n, k, alpha, beta, a + a_off, lda, b + b_off, ldb, c + c_off, ldc,          \
                    CLB_CONJ, part, part_stride, b_turned, la, lb, barriers, exchange);            \
    }

#if CLB_TURNED
CLB_RAW_KERNEL(clb_gemm_tn, true)
CLB_RAW_KERNEL(clb_gemm_tt, false)
#else
CLB_RAW_KERNEL(clb_gemm_nn, true)
CLB_RAW_KERNEL(clb_gemm_nt, false)
#endif

#endif
