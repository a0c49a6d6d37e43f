/* inplace: GEMM on a device that shares the host's memory; declarations shared by the run
 * (inplace.c) and the packed operands (inplace_pack.c). */
#ifndef CLB_INPLACE_H
#define CLB_INPLACE_H

#include "structure.h"

/* A tile of C: the block for which operands are packed, and the part of it that is computed. */
struct clb_inplace_tile {
    struct clb_rect block, rect;
    size_t first_part, parts; /* the tile's parts of the progress */
};

/* A buffer for one packed chunk of an operand. */
struct clb_inplace_slot {
    struct clb_buffer *buffer;
    size_t holds;   /* number of the packed chunk plus one; 0: none */
    size_t turn;    /* the queue that packed it */
    cl_event ready; /* completion of the packing, for the other queue */
};

struct clb_inplace {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    const struct clb_gemm *problem;
    struct clb_gemm_plan plan;
    struct clb_queue_set *queue_set;
    struct clb_operands operands;
    struct clb_inplace_slot *a, *b; /* slots of A and of B, one array of a_count + b_count */
    size_t a_count, b_count;
    struct clb_program *shape; /* expands what can't be packed as it is; NULL: not needed */
    struct clb_buffer *mixed[2];
    struct clb_inplace_tile *tile;
    size_t tiles;
    struct clb_buffer *c[2];
    cl_event event[2]; /* the tile in the slot is readable */
    void *mapped[2];   /* NULL: the slot is not mapped, the device may use it */
    bool out_of_range; /* some parts were not written, see clb_part_is_exact */
};

/* ---- inplace_pack.c -------------------------------------------------------------------------- */

/* Acquire all memory of the plan, before anything is enqueued; release it. `idle`: no command that
 * uses it is outstanding. */
clb_status clb_inplace_get(struct clb_inplace *run) CLB_MUST_CHECK;
void clb_inplace_put(struct clb_inplace *run, bool idle);

/* Tile t runs on queue t % queues. */
static inline struct clb_queue *clb_inplace_queue(const struct clb_inplace *run, size_t turn)
{
    return turn == 0 ? run->queue_set->queue : run->queue_set->upload;
}

/* Set what the product of tile number `index` in pass number `slab` reads: the operands and offsets
 * of *product, and in *wait the event that it has to wait for, or NULL. Enqueues the packing of
 * operands that are not packed yet, on the tile's queue. */
clb_status clb_inplace_operands(struct clb_inplace *run, const struct clb_rect *block, size_t slab,
                                const struct clb_pass *pass, size_t index,
                                struct clb_product *product, const cl_event **wait) CLB_MUST_CHECK;

#endif
