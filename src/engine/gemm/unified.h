/* unified: products on a device that shares the host's memory. */
#ifndef CLB_UNIFIED_H
#define CLB_UNIFIED_H

#include "structure.h"

/* C is divided into tiles of tile_m x tile_n, numbered by rows of tiles, and the depth into slabs.
 * The slab never depends on free memory, so the bits of the result don't either. */
struct clb_gemm_plan {
    size_t tile_m, tile_n, slab;
    size_t tile_rows, tile_cols;
    size_t slabs; /* of all terms */
    /* The operand whose packed chunks are kept for a row of tiles; B where tiles are whole rows. */
    clb_operand_role kept;
    /* Packed chunks of A in memory: those of a row of tiles, or one; none where A is not packed. */
    size_t a_slots;
    /* Packed chunks of B in memory: those of a column of tiles, or one; none where B is not
     * packed. */
    size_t b_slots;
    size_t c_slots; /* tiles of C in flight */
    /* Two when there are slots for all chunks of `kept`: the next tile's work fills the device at
     * the end of the last tile's. Each queue has its own slots for the other operand. */
    size_t queues;
    size_t a_bytes, b_bytes, c_bytes; /* of one slot */
    /* For each queue, of operands that a kernel expands from a stored triangle; or 0. */
    size_t mixed_w, mixed_bytes;
    bool direct, raw; /* B is not packed; nor is A; see has_direct */
    clb_op b_op_of_a; /* nor here: B is read from A's panels, see clb_product */
    size_t ldc;       /* of a tile */
    uint64_t bytes;   /* device memory in all */
};

/* Make the plan for at most `available` bytes of device memory and buffers of at most `max_alloc`
 * bytes; CLB_ERR_NOMEM when even the smallest tiles need more. */
clb_status clb_gemm_make_plan(const struct clb_gemm_variant *variant,
                              const struct clb_gemm *problem, uint64_t available,
                              uint64_t max_alloc, struct clb_gemm_plan *plan) CLB_MUST_CHECK;

/* The rectangle of C that is tile number `index` of the plan. */
struct clb_rect clb_gemm_tile(const struct clb_gemm_plan *plan, const struct clb_gemm *problem,
                              size_t index);

#endif
