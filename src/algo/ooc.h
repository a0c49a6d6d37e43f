/* blocks: what the files of LU in blocks of columns share; getrf_ooc.c has the scheme. */
#ifndef CLB_OOC_H
#define CLB_OOC_H

#include "transfer_queue.h"
#include "getrf.h"

/* Memory for panels of earlier blocks: one is used while the other is brought up. */
#define CLB_OOC_SLOTS ((size_t)2)

struct clb_ooc_panel {
    size_t first, width;
    size_t down; /* load */
};

struct clb_ooc_block {
    size_t first, end;
    size_t panels, panels_end; /* its own; those before are on its left */
    size_t up;                 /* load; behind it those of the panels on the left */
    size_t down, down_end;     /* loads of the panels, then of the rest */
    size_t rest;               /* columns without a panel, the last ones */
};

struct clb_ooc_run {
    struct clb_getrf_run *lu;
    struct clb_transfer_queue transfers;
    struct clb_transfer *transfer;
    struct clb_ooc_panel *panel;
    struct clb_ooc_block *block;
    size_t transfer_count, panels, blocks;
    struct clb_buffer *staging, *slot[CLB_OOC_SLOTS]; /* staging: a panel for the CPU */
    cl_uint *order[CLB_OOC_SLOTS + 1];                /* of rows; the last is the block's */
    char *host; /* the copy, not owned; leading dimension lu->x.ld */
};

/* The matrix there as a window on a block. */
struct clb_dmat clb_ooc_window(const struct clb_ooc_run *run, const struct clb_ooc_block *block);

/* Where a panel of an earlier block is: its rows from its first on. */
struct clb_dmat clb_ooc_slot(const struct clb_ooc_run *run, const struct clb_ooc_panel *panel,
                             size_t turn);

/* Blocks of about `width` columns, their loads and all memory, before anything is enqueued. After a
 * failure only clb_ooc_close is left to do. */
clb_status clb_ooc_open(struct clb_ooc_run *run, const struct clb_gemm_variant *variant,
                        size_t width) CLB_MUST_CHECK;
void clb_ooc_close(struct clb_ooc_run *run);

#endif
