/* The product of bf16 pieces of operands as BLAS has them, in place of packing where an element is
 * multiplied with few others: clb_gemm_nn and _nt, or with CLB_TURNED _tn and _tt. A is `n` when
 * its rows are contiguous, B when its depths are. Included at the end of gemm_nv_bf16x6.cl.
 *
 * The work-group's last two warpgroups read the operands, split them as packing does and write the
 * blocks to local memory; the first two multiply. Same sums, same bits as clb_gemm of equal tiles.
 * A block is sparse when its tail has the number of its step, from 1. *flag as in nv_bf16.h.
 *
 * Launch: local 512, global 512 * ceil(m/CLB_MR) * ceil(n/CLB_NR) * parts
 * SPDX-License-Identifier: BSD-3-Clause */

#ifndef CLB_TURNED
#define CLB_TURNED 0
#endif

#if CLB_EMULATE
#define CLB_RAW_STAGES 1
/* Not constants for the compiler: see CLB_EXCHANGE. */
#define CLB_RAW_POINTER local uchar *volatile
#else
#define CLB_RAW_STAGES  CLB_STAGES
#define CLB_RAW_POINTER local uchar *
#endif

/* Chunks of a block that a work-item of 256 splits. */
#define CLB_CHUNKS(width) ((width)*CLB_KU / 8 / 256)

/* An operand from the tile's first row and the part's first depth on: w rows and k depths exist.
 * Rows beyond are others again, because they never meet what is kept. `vectors`: lines of
 * contiguous depths begin at multiples of 16 bytes. */
struct raw_operand {
    global const float *from;
    ulong ld;
    uint width, w, k;
    bool turned, vectors;
};

/* Row and first depth of a work-item's chunk: neighbours read what is contiguous. */
CLB_INLINE uint2 chunk_at(const struct raw_operand *x, uint chunk)
{
    const uint e = chunk * 256 + get_local_id(0) % 256;

    return x->turned ? (uint2)(e / (CLB_KU / 8), e % (CLB_KU / 8) * 8)
                     : (uint2)(e % x->width, e / x->width * 8);
}

CLB_INLINE void read_chunk(const struct raw_operand *x, uint chunk, uint step, float v[8])
{
    const uint2 at = chunk_at(x, chunk);
    const uint row = min(at.x, x->w - 1), p = step * CLB_KU + at.y;
    global const float *from = x->from + (x->turned ? p + row * x->ld : row + p * x->ld);
    const ulong dp = x->turned ? 1 : x->ld;

    if ((step + 1) * CLB_KU > x->k) {
#pragma unroll
        for (uint d = 0; d < 8; d++)
            v[d] = p + d < x->k ? from[d * dp] : 0.0f;
    } else if (x->turned && x->vectors) {
        const float4 low = ((global const float4 *)from)[0];
        const float4 high = ((global const float4 *)from)[1];

        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    } else {
#pragma unroll
        for (uint d = 0; d < 8; d++)
            v[d] = from[d * dp];
    }
}

CLB_INLINE void write_chunk(const struct raw_operand *x, uint chunk, uint step, float v[8],
                            local uchar *block, bool *unsafe)
{
    const uint2 at = chunk_at(x, chunk);
    local uchar *place = block + at.y / 8 * CLB_CHUNK(x->width) + at.x * 16;
    struct findings found = {*unsafe, false};

    look_at(v, &found);
#pragma unroll
    for (uint piece = 0; piece < 3; piece++)
        *(local uint4 *)(place + piece * CLB_PIECE(x->width)) = split_chunk(v);
    if (found.sparse)
        *(local uint *)(block + 3 * CLB_PIECE(x->width)) = step + 1;
    *unsafe = found.unsafe;
}

/* Splits the chunks of step s - 1, v, if there is one, and reads those of step s. */
CLB_INLINE void split_step(const struct raw_operand *x, uint s, uint steps, uint chunks,
                           local uchar *block, float v[][8], bool *unsafe)
{
#pragma unroll
    for (uint c = 0; c < chunks; c++) {
        if (s > 0)
            write_chunk(x, c, s - 1, v[c], block, unsafe);
        if (s < steps)
            read_chunk(x, c, s, v[c]);
    }
}

CLB_INLINE void raw_product(uint m, uint n, uint k, float alpha, float beta, global const float *a,
                            ulong lda, global const float *b, ulong ldb, global float *c, ulong ldc,
                            uint part, ulong part_stride, global uint *flag, bool b_turned,
                            local uchar *la, local uchar *lb, local ulong *barriers)
{
    const struct share share = share_of_group(m, n, k, part, part_stride);
    const uint first = share.first * CLB_KU;
    const uint row = share.tile.x * CLB_MR, col = share.tile.y * CLB_NR;
    const uint depths = min(share.steps * CLB_KU, k - first);
    const struct raw_operand of_a = {.from =
                                         a + (CLB_TURNED ? first + row * lda : row + first * lda),
                                     .ld = lda,
                                     .width = CLB_MR,
                                     .w = m - row,
                                     .k = depths,
                                     .turned = CLB_TURNED,
                                     .vectors = ((ulong)a & 15) == 0 && lda % 4 == 0};
    const struct raw_operand of_b = {.from = b + (b_turned ? first + col * ldb : col + first * ldb),
                                     .ld = ldb,
                                     .width = CLB_NR,
                                     .w = n - col,
                                     .k = depths,
                                     .turned = b_turned,
                                     .vectors = ((ulong)b & 15) == 0 && ldb % 4 == 0};
    const uint id = get_local_id(0), group = id / 128;
    /* What a splitting work-item has of the next step; the sums of one that multiplies. */
    float va[CLB_CHUNKS(CLB_MR)][8], vb[CLB_CHUNKS(CLB_NR)][8];
    float sum[CLB_ACC];
    bool unsafe = false;

    /* No block is sparse yet. */
    if (id < CLB_RAW_STAGES) {
        *(local uint *)(la + id * CLB_BYTES_A + 3 * CLB_PIECE(CLB_MR)) = 0;
        *(local uint *)(lb + id * CLB_BYTES_B + 3 * CLB_PIECE(CLB_NR)) = 0;
    }
    c += share.c_offset;
    if (beta != 0.0f)
        prefetch_tile(c, ldc, m, n, row, col);
#if CLB_EMULATE
    float d[CLB_ACC];

    clear(sum);
    clear(d);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint s = 0; s <= share.steps; s++) {
        if (group >= 2) {
            split_step(&of_a, s, share.steps, CLB_CHUNKS(CLB_MR), la, va, &unsafe);
            split_step(&of_b, s, share.steps, CLB_CHUNKS(CLB_NR), lb, vb, &unsafe);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (group < 2 && s > 0)
            add_scaled(sum, multiply_stage(la, lb, s - 1, group, d, sum), d);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#else
    /* Barriers per stage as in nv_wgmma.h, but that `full` counts an arrival of each splitting
     * warp. */
    const uint full = (uint)barriers, empty = full + 8 * CLB_STAGES;

    if (id < CLB_STAGES) {
        init_barrier(full + 8 * id, 8);
        init_barrier(empty + 8 * id, 8);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (group >= 2) {
        uint stage = 0;
        uint parity = 1;

        /* Narrow tiles are compiled for fewer registers, so that there are none to pass on. */
        if (CLB_NR > 64)
            asm volatile("//@ setmaxnreg.dec.sync.aligned.u32 80;" ::: "memory");
        for (uint s = 0; s <= share.steps; s++) {
            if (s > 0)
                wait_barrier(empty + 8 * stage, parity);
            split_step(&of_a, s, share.steps, CLB_CHUNKS(CLB_MR), la + stage * CLB_BYTES_A, va,
                       &unsafe);
            split_step(&of_b, s, share.steps, CLB_CHUNKS(CLB_NR), lb + stage * CLB_BYTES_B, vb,
                       &unsafe);
            if (s == 0)
                continue;
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            release_stage(full + 8 * stage);
            if (++stage == CLB_STAGES) {
                stage = 0;
                parity ^= 1;
            }
        }
    } else {
        if (CLB_NR > 64)
            asm volatile("//@ setmaxnreg.inc.sync.aligned.u32 176;" ::: "memory");
        multiply_panels(share.steps, la, lb, full, empty, sum);
        store_tile(sum, m, n, alpha, beta, c, ldc, row + id / 32 * 16 + id % 32 / 4,
                   col + id % 4 * 2);
    }
#endif
    if (unsafe)
        *flag = 1;
    if (CLB_EMULATE && group < 2)
        store_tile(sum, m, n, alpha, beta, c, ldc, row + id / 32 * 16 + id % 32 / 4,
                   col + id % 4 * 2);
}

#define CLB_RAW_KERNEL(name, b_turned)                                                          \
    CLB_GEMM_KERNEL void name(                                                                  \
        uint m, uint n, uint k, float alpha, float beta, global const float *a, ulong a_off,    \
        ulong lda, global const float *b, ulong b_off, ulong ldb, global float *c, ulong c_off, \
        ulong ldc CLB_PART_PARAMETERS, global uint *flag CLB_LAUNCH_PARAMETERS)                 \
    {                                                                                           \
        CLB_NOTE_LAUNCH();                                                                      \
        local uchar la[CLB_RAW_STAGES * CLB_BYTES_A] __attribute__((aligned(128)));             \
        local uchar lb[CLB_RAW_STAGES * CLB_BYTES_B] __attribute__((aligned(128)));             \
        local ulong barriers[2 * CLB_STAGES];                                                   \
        CLB_RAW_POINTER to_a = la;                                                              \
        CLB_RAW_POINTER to_b = lb;                                                              \
                                                                                                \
        raw_product(m, n, k, alpha, beta, a + a_off, lda, b + b_off, ldb, c + c_off, ldc, part, \
                    part_stride, flag, b_turned, to_a, to_b, barriers);                         \
    }

#if CLB_TURNED
CLB_RAW_KERNEL(clb_gemm_tn, true)
CLB_RAW_KERNEL(clb_gemm_tt, false)
#else
CLB_RAW_KERNEL(clb_gemm_nn, true)
CLB_RAW_KERNEL(clb_gemm_nt, false)
#endif
