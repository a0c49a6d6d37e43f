/* blocks: what the files of LU in blocks of columns share; getrf_blocks.c has the scheme. */
#ifndef CLB_BLOCKS_H
#define CLB_BLOCKS_H

#include "ferry.h"
#include "lu.h"

/* Memory for panels of earlier blocks: one is used while the other is brought up. */
#define CLB_BLOCK_SLOTS ((size_t)2)

struct clb_block_panel {
    size_t first, width;
    size_t down; /* load */
};

struct clb_block {
    size_t first, end;
    size_t panels, panels_end; /* its own; those before are on its left */
    size_t up;                 /* load; behind it those of the panels on the left */
    size_t down, down_end;     /* loads of the panels, then of the rest */
    size_t rest;               /* columns without a panel, the last ones */
};

struct clb_block_run {
    struct clb_lu *lu;
    struct clb_ferry ferry;
    struct clb_cargo *cargo;
    struct clb_block_panel *panel;
    struct clb_block *block;
    size_t cargoes, panels, blocks;
    struct clb_buffer *staging, *slot[CLB_BLOCK_SLOTS]; /* staging: a panel for the CPU */
    cl_uint *order[CLB_BLOCK_SLOTS + 1];                /* of rows; the last is the block's */
    char *host; /* the copy, not owned; leading dimension lu->x.ld */
};

/* The matrix there as a window on a block. */
struct clb_dmat clb_blocks_window(const struct clb_block_run *run, const struct clb_block *block);

/* Where a panel of an earlier block is: its rows from its first on. */
struct clb_dmat clb_blocks_slot(const struct clb_block_run *run,
                                const struct clb_block_panel *panel, size_t turn);

/* Blocks of about `width` columns, their loads and all memory, before anything is enqueued. After a
 * failure only clb_blocks_close is left to do. */
clb_status clb_blocks_open(struct clb_block_run *run, const struct clb_gemm_variant *variant,
                           size_t width) CLB_MUST_CHECK;
void clb_blocks_close(struct clb_block_run *run);

#endif
