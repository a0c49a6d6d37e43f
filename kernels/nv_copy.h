/* Copies into local memory that go on while a kernel computes, and waiting for them: inline PTX for
 * NVIDIA devices. Included where the tile, CLB_WG, CLB_STAGES and CLB_COPY are defined.
 *
 * CLB_COPY = 1, compute capability 9.0 and later: bulk copies, one work-item asks for a whole
 * block, and barriers in local memory that count its bytes. A local address is a __local pointer
 * cast to uint. CLB_COPY = 2, compute capability 8.0 and later: each work-item copies 16 bytes at a
 * time and waits for its own copies; a barrier of the work-group behind that makes all of them
 * visible.
 * SPDX-License-Identifier: BSD-3-Clause */

#ifndef CLB_EMULATE
#define CLB_EMULATE 0
#endif
/* 1: numbers one by one too in double precision, with either kind of copies. */
#ifndef CLB_RAW
#define CLB_RAW 0
#endif

#if CLB_EMULATE

/* In plain OpenCL C, 16 bytes at a time and at once. */
static inline void copy_16(local uchar *to, global const uchar *from)
{
    *(local uint4 *)to = *(global const uint4 *)from;
}

static inline void end_step(void)
{
}

static inline void wait_step(void)
{
}

#if CLB_RAW && CLB_DOUBLE
static inline void copy_number(local double *to, global const double *from, bool inside)
{
    *to = inside ? *from : 0.0;
}

static inline void copy_pair(local double *to, global const double *from, bool inside)
{
    copy_number(to, from, inside);
    copy_number(to + 1, from + 1, inside);
}
#endif

#elif CLB_COPY == 1

static inline void init_barrier(uint barrier_address, uint count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier_address), "r"(count)
                 : "memory");
}

static inline void wait_barrier(uint barrier_address, uint parity)
{
    uint done;

    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier_address), "r"(parity)
                     : "memory");
    } while (!done);
}

/* The phase of `full` completes when `bytes` more have arrived. */
static inline void expect_bytes(uint full, uint bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(bytes)
                 : "memory");
}

/* `from` to local memory; `full` completes when all bytes expected by it have arrived. */
static inline void bulk_copy(uint to, global const void *from, uint bytes, uint full)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(full)
                 : "memory");
}

/* One arrival of a warp that has read the stage. */
static inline void release_stage(uint empty)
{
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
    if (get_local_id(0) % 32 == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty) : "memory");
}

#endif

#if !CLB_EMULATE && (CLB_COPY == 2 || (CLB_RAW && CLB_DOUBLE))

static inline void copy_16(local uchar *to, global const uchar *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint)to), "l"(from) : "memory");
}

#if CLB_RAW && CLB_DOUBLE
/* A number, or zero where `inside` is false: nothing is read there. */
static inline void copy_number(local double *to, global const double *from, bool inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"((uint)to), "l"(from),
                 "r"(inside ? 8 : 0)
                 : "memory");
}

/* Two of them, at multiples of 16 bytes. */
static inline void copy_pair(local double *to, global const double *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint)to), "l"(from),
                 "r"(inside ? 16 : 0)
                 : "memory");
}

#if CLB_COPY == 1
/* One arrival of the work-item when all that it has copied so far has arrived. */
static inline void arrive_copied(uint full)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full) : "memory");
}
#endif
#endif

/* What the work-item has copied since the last end_step() is one step's. */
static inline void end_step(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All steps that the work-item has ended but the last CLB_STAGES - 2, or 3, have arrived. */
static inline void wait_step(void)
{
#if CLB_STAGES == 2
    asm volatile("cp.async.wait_group 0;" ::: "memory");
#elif CLB_STAGES == 3
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#elif CLB_STAGES == 4
    asm volatile("cp.async.wait_group 2;" ::: "memory");
#else
    asm volatile("cp.async.wait_group 3;" ::: "memory");
#endif
}

#endif

#if CLB_EMULATE || CLB_COPY == 2

/* A block of a multiple of 16 bytes, by a work-group of `group` work-items. */
static inline void copy_block(local uchar *to, global const uchar *from, uint bytes, uint group)
{
    uint here = get_local_id(0) * 16;

#pragma unroll
    for (uint e = 0; e < bytes; e += group * 16) {
        if (e + group * 16 <= bytes || e + here < bytes)
            copy_16(to + e + here, from + e + here);
    }
}

#endif

/* Asks for a line of global memory. */
static inline void prefetch_line(global const void *line)
{
#if !CLB_EMULATE
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
#endif
}

/* Asks for a tile of C while the product runs, one read for each 128 bytes of a column; a tile off
 * the 128-byte lines misses its last ones. */
static inline void prefetch_tile(global const real *c, ulong ldc, uint m, uint n, uint row,
                                 uint col)
{
    const uint lines = CLB_MR * (uint)sizeof(real) / 128;

    for (uint e = get_local_id(0); e < CLB_NR * lines; e += CLB_WG) {
        uint r = row + e % lines * (128 / (uint)sizeof(real));
        uint s = col + e / lines;

        if (r < m && s < n)
            prefetch_line(c + r + s * ldc);
    }
}
