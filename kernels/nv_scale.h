/* Operands of extreme scale in the split families: a row of A, or a column of B, is scaled by the
 * power of two that brings its largest element to 2^55 .. 2^56, before it is packed, and the
 * product is scaled back. Included behind nv.h. Only products whose operands have raised the flag
 * of the packing kernels are computed so; the other kernels know nothing of it.
 *
 * Launch: local CLB_PACK_WG, any number of groups.
 * SPDX-License-Identifier: BSD-3-Clause */

#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#define CLB_SCALED_TO 55
/* Rows of a work-group at a time, the work-items of each, and elements that one has loaded. */
#define CLB_SCALE_ROWS  8
#define CLB_SCALE_LANES (CLB_PACK_WG / CLB_SCALE_ROWS)
#define CLB_SCALE_BATCH 32

/* 2^e as a double, -1022 <= e <= 1023. */
static inline double double_power(int e)
{
    return as_double((ulong)(e + 1023) << 52);
}

/* A batch of a row's numbers from number q on, CLB_SCALE_LANES apart, the last for those behind it.
 * All are loaded before any is used, because loads wait longest here. */
static inline void load_batch(global const float *from, ulong dp, uint count, uint q,
                              float y[CLB_SCALE_BATCH])
{
#pragma unroll
    for (uint d = 0; d < CLB_SCALE_BATCH; d++) {
        uint at = min(q + d * CLB_SCALE_LANES, count - 1);

        y[d] = from[at / CLB_PARTS * dp * CLB_PARTS + at % CLB_PARTS];
    }
}

/* The e for which x * 2^-e is 2^CLB_SCALED_TO or up to twice as large, x being a magnitude's bits;
 * 0 for zero, infinity and NaN. */
static inline int scale_of(uint x)
{
    if (x == 0 || x >= 0x7f800000)
        return 0;
    return (x >> 23 ? (int)(x >> 23) - 127 : -118 - (int)clz(x)) - CLB_SCALED_TO;
}

/*
 * Scales the rows of a w x k operand in place: x(i, p) at x_off + i*ld + p if `along` is not 0, at
 * x_off + i + p*ld otherwise. x(i, p) becomes x(i, p) * 2^-e(i), and e(i) is written to exponents
 * first + i and second + i. Exact, but for elements that are below the packing kernels' range.
 */
CLB_PACK_KERNEL void clb_scale(global float *x, ulong x_off, ulong ld, uint w, uint k, uint along,
                               global int *exponents, ulong first,
                               ulong second CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local uint largest[CLB_SCALE_ROWS];
    const uint id = get_local_id(0);
    const uint row = along ? id / CLB_SCALE_LANES : id % CLB_SCALE_ROWS;
    const uint lane = along ? id % CLB_SCALE_LANES : id / CLB_SCALE_ROWS;
    const ulong dp = along ? 1 : ld;
    const uint count = CLB_PARTS * k;

    for (uint begin = get_group_id(0) * CLB_SCALE_ROWS; begin < w;
         begin += get_num_groups(0) * CLB_SCALE_ROWS) {
        const uint i = min(begin + row, w - 1);
        const bool inside = begin + row < w;
        global float *from = x + CLB_PARTS * (x_off + i * (along ? ld : 1));
        uint top = 0;

        if (id < CLB_SCALE_ROWS)
            largest[id] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint q = lane; q < count; q += CLB_SCALE_BATCH * CLB_SCALE_LANES) {
            float y[CLB_SCALE_BATCH];

            load_batch(from, dp, count, q, y);
#pragma unroll
            for (uint d = 0; d < CLB_SCALE_BATCH; d++)
                top = max(top, as_uint(y[d]) & 0x7fffffff);
        }
        atomic_max(largest + row, top);
        barrier(CLK_LOCAL_MEM_FENCE);

        const int e = scale_of(largest[row]);
        const double scale = double_power(-e);

        if (inside && lane == 0)
            exponents[first + i] = exponents[second + i] = e;
        for (uint q = lane; q < count && inside && e != 0; q += CLB_SCALE_BATCH * CLB_SCALE_LANES) {
            float y[CLB_SCALE_BATCH];

            load_batch(from, dp, count, q, y);
#pragma unroll
            for (uint d = 0; d < CLB_SCALE_BATCH; d++) {
                uint at = q + d * CLB_SCALE_LANES;

                if (at < count)
                    from[at / CLB_PARTS * dp * CLB_PARTS + at % CLB_PARTS] =
                        (float)((double)y[d] * scale);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/*
 * clb_gemm_sum for scaled operands: C = X * 2^(e(i) + e(j)), plus C if beta is not 0, where X is
 * the sum of the parts in ascending order; rounded once. The exponents of rows begin at a_first,
 * those of columns at b_first.
 */
CLB_PACK_KERNEL void clb_gemm_sum_scaled(uint m, uint n, uint parts, float beta,
                                         global const float *x, ulong part_stride, ulong ldx,
                                         global float *c, ulong c_off, ulong ldc,
                                         global const int *exponents, ulong a_first,
                                         ulong b_first CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    const uint blocks = (m - 1) / CLB_PACK_WG + 1;

    c += c_off;
    for (uint block = get_group_id(0); block < blocks * n; block += get_num_groups(0)) {
        const uint i = block % blocks * CLB_PACK_WG + get_local_id(0), j = block / blocks;

        if (i < m) {
            float sum = x[i + j * ldx];
            int e = exponents[a_first + i / CLB_PARTS] + exponents[b_first + j];

            for (uint s = 1; s < parts; s++)
                sum += x[i + j * ldx + s * part_stride];
            double scaled = (double)sum * double_power(e);
            c[i + j * ldc] = (float)(beta != 0.0f ? scaled + (double)c[i + j * ldc] : scaled);
        }
    }
}
