/* SPDX-License-Identifier: BSD-3-Clause
 * Tensor instructions of a warp (mma.sync), and what they do in plain OpenCL C.
 *
 * Fragments, in the PTX manual's terms, with g = lane / 4 and t = lane % 4:
 *   m8n8k4, f64     a: (g, t) of A. b: (t, g) of B. c0, c1: (g, 2t), (g, 2t + 1) of C.
 *   m16n8k16, bf16  a: two depths a register, the lower in the lower half: (g, 2t), (g + 8, 2t),
 *                   (g, 2t + 8), (g + 8, 2t + 8) of A and the depth behind each. b: (2t, g),
 *                   (2t + 8, g) of B and the depth behind. c0 .. c3: (g, 2t), (g, 2t + 1),
 *                   (g + 8, 2t), (g + 8, 2t + 1) of C.
 *
 * CLB_EMULATE = 1 is for tests on devices that are not NVIDIA's: the work-items of a warp show each
 * other their operands in local memory, `exchange`, so that all of a work-group must come by. It is
 * exact where a plain sum is; other sums of bf16 products are truncated like the worst known
 * device's.
 */

#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#if CLB_EMULATE

/*
 * Local memory in which work-items exchange operands of type T, `each` of them. The compiler must
 * not see that the pointer is constant: addresses of parts of a __local array become constants
 * then, and PoCL 3.1 leaves the array those are in a static variable that its threads share.
 */
#define CLB_EXCHANGE(T, each)           \
    local T exchanged[CLB_WG * (each)]; \
    local T *volatile exchange = exchanged

/*
 * c plus products of bf16 numbers or of fp16 numbers as tensor cores add them: all terms are
 * brought to the exponent of the largest and truncated to 24 bits there, and so is the sum; 8
 * products at a time.
 */
static inline float add_products(float c, const float x[16], const float y[16])
{
    for (uint h = 0; h < 16; h += 8) {
        double top = fabs((double)c);
        long sum = 0;

        for (uint i = h; i < h + 8; i++)
            top = fmax(top, fabs((double)x[i] * (double)y[i]));
        if (top == 0.0)
            continue;

        /* Powers of two: `scale` makes the largest term 2^23 .. 2^24. */
        ulong exponent = as_ulong(top) >> 52;
        double scale = as_double((2 * 1023 + 23 - exponent) << 52);
        double unscale = as_double((exponent - 23) << 52);

        for (uint i = h; i < h + 8; i++)
            sum += (long)((double)x[i] * (double)y[i] * scale);
        sum += (long)((double)c * scale);
        c = (float)(as_double(as_ulong((double)sum) & ~0x1fffffffUL) * unscale);
    }
    return c;
}

static inline float low_bf16(uint pair)
{
    return as_float(pair << 16);
}

static inline float high_bf16(uint pair)
{
    return as_float(pair & 0xffff0000);
}

static inline void mma_m8n8k4(double c[2], double a, double b, local double *exchange)
{
    uint lane = get_local_id(0) % 32;
    local double *of_a = exchange + get_local_id(0) / 32 * 64;
    local double *of_b = of_a + 32;

    of_a[lane] = a;
    of_b[lane] = b;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint p = 0; p < 4; p++) {
        c[0] = fma(of_a[lane / 4 * 4 + p], of_b[lane % 4 * 8 + p], c[0]);
        c[1] = fma(of_a[lane / 4 * 4 + p], of_b[lane % 4 * 8 + 4 + p], c[1]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

static inline void mma_bf16(float c[4], uint4 a, uint2 b, local uint *exchange)
{
    uint lane = get_local_id(0) % 32;
    local uint *of_a = exchange + get_local_id(0) / 32 * 192;
    local uint *of_b = of_a + 128;

    vstore4(a, lane, of_a);
    vstore2(b, lane, of_b);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < 4; i++) {
        uint row = lane / 4, col = lane % 4 * 2 + i % 2;
        float x[16], y[16];

        for (uint p = 0; p < 16; p += 2) {
            uint pair_a = of_a[(row * 4 + p % 8 / 2) * 4 + p / 8 * 2 + i / 2];
            uint pair_b = of_b[(col * 4 + p % 8 / 2) * 2 + p / 8];

            x[p] = low_bf16(pair_a);
            x[p + 1] = high_bf16(pair_a);
            y[p] = low_bf16(pair_b);
            y[p + 1] = high_bf16(pair_b);
        }
        c[i] = add_products(c[i], x, y);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

#else

/* Registers are exchanged by the instructions. */
#define CLB_EXCHANGE(T, each) local T *exchange = 0

static inline void mma_m8n8k4(double c[2], double a, double b, local double *exchange)
{
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(c[0]), "+d"(c[1])
                 : "d"(a), "d"(b));
}

#if CLB_COPY == 1
/* Of compute capability 9.0, where it takes less time than 8 of the former. */
static inline void mma_m16n8k16(double c[4], const double a[8], const double b[4])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]),
                   "d"(a[7]), "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
}
#endif

static inline void mma_bf16(float c[4], uint4 a, uint2 b, local uint *exchange)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

#endif
