/* SPDX-License-Identifier: BSD-3-Clause
 * The product of the split families on the warpgroups of compute capability 9.0: 384 work-items,
 * two warpgroups multiply 64 rows each, one work-item of the third fetches.
 *
 * Included behind nv_split.h, nv_copy.h, nv_mma.h and nv_tile.h, where CLB_TYPE is "bf16" or "f16".
 *
 * Instructions of sm_90a stand in PTX comments that begin with "//@", because the driver's compiler
 * generates code for sm_90. Build, read the PTX (CL_PROGRAM_BINARIES), delete every "//@", replace
 * ".target sm_90" by ".target sm_90a", and build again from that with clCreateProgramWithBinary.
 * Unpatched, the kernel runs and leaves wrong results.
 *
 * CLB_EMULATE = 1 needs no patch: work-items take the products from local memory themselves, and
 * all of them copy, between barriers of the work-group.
 */

/*
 * The products of one stage, la and lb, which has step `step`; `group` is the warpgroup. What is
 * left in d is then added to the sum, times the value returned. Defined by the kernel file.
 */
static inline float multiply_stage(local const uchar *la, local const uchar *lb, uint step,
                                   uint group, float d[CLB_ACC], float sum[CLB_ACC]);

#if CLB_EMULATE

/* A number of type CLB_TYPE. Defined by the kernel file. */
static inline float read_number(local const uchar *place);

static inline void multiply_piece(local const uchar *la, local const uchar *lb, uint i, uint j,
                                  uint keep, float d[CLB_ACC])
{
    uint lane = get_local_id(0) % 32;

    la += (i - 1) * CLB_PIECE(CLB_MR) + (get_local_id(0) / 32 % 4 * 16 + lane / 4) * 16;
    lb += (j - 1) * CLB_PIECE(CLB_NR) + lane % 4 * 2 * 16;
    for (uint h = 0; h < CLB_KU / 16; h++) {
        for (uint e = 0; e < CLB_ACC; e++) {
            float x[16], y[16];

            for (uint p = 0; p < 16; p++) {
                uint chunk = h * 2 + p / 8;

                x[p] = read_number(la + chunk * CLB_CHUNK(CLB_MR) + e % 4 / 2 * 128 + p % 8 * 2);
                y[p] = read_number(lb + chunk * CLB_CHUNK(CLB_NR) + (e / 4 * 8 + e % 2) * 16 +
                                   p % 8 * 2);
            }
            d[e] = add_products(keep + h ? d[e] : 0.0f, x, y);
        }
    }
}

static inline void begin_products(float d[CLB_ACC])
{
}

static inline void finish_products(float d[CLB_ACC])
{
}

#if !CLB_RAW

static inline void multiply_panels(global const uchar *pa, global const uchar *pb, uint steps,
                                   local uchar *la, local uchar *lb, float sum[CLB_ACC])
{
    uint group = get_local_id(0) / 128;
    float d[CLB_ACC];

    clear(sum);
    clear(d);
    for (uint s = 0; s < steps; s++) {
        copy_block(la, pa + (ulong)s * CLB_BYTES_A, CLB_BYTES_A, CLB_WG);
        copy_block(lb, pb + (ulong)s * CLB_BYTES_B, CLB_BYTES_B, CLB_WG);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (group < 2)
            add_scaled(sum, multiply_stage(la, lb, s, group, d, sum), d);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

CLB_GEMM_KERNEL void clb_gemm(uint m, uint n, uint k, float alpha, float beta,
                              global const uchar *pa, ulong pa_off, global const uchar *pb,
                              ulong pb_off, global float *c, ulong c_off,
                              ulong ldc CLB_PART_PARAMETERS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local uchar la[CLB_BYTES_A] __attribute__((aligned(128)));
    local uchar lb[CLB_BYTES_B] __attribute__((aligned(128)));
    /* Not constants for the compiler: see CLB_EXCHANGE. */
    local uchar *volatile to_a = la;
    local uchar *volatile to_b = lb;
    struct share share = share_of_group(m, n, k, part, part_stride);
    uint2 tile = share.tile;
    uint id = get_local_id(0);
    float sum[CLB_ACC];

    pa += pa_off + ((ulong)tile.x * share.total + share.first) * CLB_BYTES_A;
    pb += pb_off + ((ulong)tile.y * share.total + share.first) * CLB_BYTES_B;
    multiply_panels(pa, pb, share.steps, to_a, to_b, sum);
    if (id < 256)
        store_tile(sum, m, n, alpha, beta, c + c_off + share.c_offset, ldc,
                   tile.x * CLB_MR + id / 32 * 16 + id % 32 / 4, tile.y * CLB_NR + id % 4 * 2);
}

#endif

#else

static inline void fetch_step(global const uchar *pa, global const uchar *pb, uint step, uint stage,
                              uint la, uint lb, uint full)
{
    expect_bytes(full + 8 * stage, CLB_BYTES_A + CLB_BYTES_B);
    bulk_copy(la + stage * CLB_BYTES_A, pa + (ulong)step * CLB_BYTES_A, CLB_BYTES_A,
              full + 8 * stage);
    bulk_copy(lb + stage * CLB_BYTES_B, pb + (ulong)step * CLB_BYTES_B, CLB_BYTES_B,
              full + 8 * stage);
}

/*
 * Operand lists of an asm statement with the CLB_ACC accumulators: their constraints, their
 * numbers, and the numbers of the three operands behind them.
 */
#define CLB_IO8(d, i)                                                                           \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define CLB_IO32(d, i) CLB_IO8(d, i), CLB_IO8(d, i + 8), CLB_IO8(d, i + 16), CLB_IO8(d, i + 24)
#define CLB_NUMBERS_32                                                                      \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
    "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CLB_NUMBERS_64                                                                   \
    CLB_NUMBERS_32                                                                       \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#if CLB_NR == 64
#define CLB_IO(d) CLB_IO32(d, 0)
#define CLB_WGMMA_TEXT                                                                      \
    "{ .reg .pred p; setp.ne.u32 p, %34, 0;\n//@ "                                          \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32." CLB_TYPE "." CLB_TYPE " {" CLB_NUMBERS_32 \
    "}, %32, %33, p, 1, 1, 0, 0;\n}"
#elif CLB_NR == 128
#define CLB_IO(d) CLB_IO32(d, 0), CLB_IO32(d, 32)
#define CLB_WGMMA_TEXT                                                                           \
    "{ .reg .pred p; setp.ne.u32 p, %66, 0;\n"                                                   \
    "//@ wgmma.mma_async.sync.aligned.m64n128k16.f32." CLB_TYPE "." CLB_TYPE " {" CLB_NUMBERS_64 \
    "}, %64, %65, p, 1, 1, 0, 0;\n}"
#else
#define CLB_IO(d) CLB_IO32(d, 0), CLB_IO32(d, 32), CLB_IO32(d, 64)
#define CLB_WGMMA_TEXT                                                                             \
    "{ .reg .pred p; setp.ne.u32 p, %98, 0;\n"                                                     \
    "//@ wgmma.mma_async.sync.aligned.m64n192k16.f32." CLB_TYPE "." CLB_TYPE " {" CLB_NUMBERS_64   \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, %96, %97, p, 1, 1, "   \
    "0, 0;\n}"
#endif

/*
 * Descriptor of 16 depths of an operand in local memory: address, leading offset (from one chunk of
 * 8 depths to the next) and stride offset (from 8 rows to the next 8), all in units of 16 bytes, no
 * swizzle.
 */
static inline ulong describe(local const uchar *place, uint width)
{
    return (ulong)((uint)place >> 4 & 0x3fff) | (ulong)(CLB_CHUNK(width) >> 4) << 16 |
           (ulong)(128 >> 4) << 32;
}

/*
 * d (+)= piece i of A times piece j of B over one stage's depths; keep = 0: d is overwritten. la is
 * the warpgroup's first row.
 */
static inline void multiply_piece(local const uchar *la, local const uchar *lb, uint i, uint j,
                                  uint keep, float d[CLB_ACC])
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
        float scale;

        wait_barrier(full + 8 * stage, parity);
        scale =
            multiply_stage(la + stage * CLB_BYTES_A, lb + stage * CLB_BYTES_B, s, group, d, sum);
        release_stage(empty + 8 * stage);
        add_scaled(sum, scale, d);
        if (++stage == CLB_STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
}

#if !CLB_RAW

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
 * Barriers per stage: `full` counts the bytes of a fill, `empty` one arrival of each multiplying
 * warp after its last read. Fill number f of a stage completes phase f of `full`, its release phase
 * f of `empty`; a wait for phase f passes parity f & 1.
 */
CLB_GEMM_KERNEL void clb_gemm(uint m, uint n, uint k, float alpha, float beta,
                              global const uchar *pa, ulong pa_off, global const uchar *pb,
                              ulong pb_off, global float *c, ulong c_off,
                              ulong ldc CLB_PART_PARAMETERS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local uchar la[CLB_STAGES * CLB_BYTES_A] __attribute__((aligned(128)));
    local uchar lb[CLB_STAGES * CLB_BYTES_B] __attribute__((aligned(128)));
    local ulong barriers[2 * CLB_STAGES];
    struct share share = share_of_group(m, n, k, part, part_stride);
    uint2 tile = share.tile;
    uint id = get_local_id(0);
    uint full = (uint)barriers;
    uint empty = full + 8 * CLB_STAGES;
    uint row = tile.x * CLB_MR;
    uint col = tile.y * CLB_NR;

    pa += pa_off + ((ulong)tile.x * share.total + share.first) * CLB_BYTES_A;
    pb += pb_off + ((ulong)tile.y * share.total + share.first) * CLB_BYTES_B;
    c += c_off + share.c_offset;
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
            fetch_panels(pa, pb, share.steps, (uint)la, (uint)lb, full, empty);
    } else {
        float sum[CLB_ACC];

        asm volatile("//@ setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");
        multiply_panels(share.steps, la, lb, full, empty, sum);
        store_tile(sum, m, n, alpha, beta, c, ldc, row + id / 32 * 16 + id % 32 / 4,
                   col + id % 4 * 2);
    }
}

#endif

#endif
