/* Bulk copies into local memory and the barriers that count their bytes: inline PTX for NVIDIA
 * devices of compute capability 9.0 and later. A local address is a __local pointer cast to uint.
 */

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
