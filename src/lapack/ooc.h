/* ooc: LU of a matrix larger than the device's memory, in blocks of columns; shared by ooc.c and
 * getrf_ooc.c, which describes the scheme. */
#ifndef CLB_OOC_H
#define CLB_OOC_H

#include "transfer/transfer_queue.h"
#include "getrf.h"

/* Buffers for panels of earlier blocks: one is used while the other is filled. */
#define CLB_OOC_SLOTS ((size_t)2)

struct clb_ooc_panel {
    size_t first, width;
    size_t down; /* index of its download */
};

struct clb_ooc_block {
    size_t first, end;
    size_t panels, panels_end; /* panels of the block; those before `panels` are on its left */
    size_t up;                 /* index of its upload; those of the panels on the left follow it */
    size_t down, down_end;     /* downloads of its panels, then of the rest */
    size_t rest;               /* columns after the last panel, which have none */
};

struct clb_ooc_run {
    struct clb_getrf_run *lu;
    struct clb_transfer_queue transfers;
    struct clb_transfer *transfer;
    struct clb_ooc_panel *panel;
    struct clb_ooc_block *block;
    size_t transfer_count, panels, blocks;
    struct clb_buffer *staging, *slot[CLB_OOC_SLOTS]; /* staging: a panel for the CPU */
    cl_uint *order[CLB_OOC_SLOTS + 1];                /* row orders for the slots; the last for a
                                                       * block */
    char *host; /* the copy of the matrix, not owned; leading dimension lu->x.ld */
};

/* The matrix on the device, of which only a block's columns are in memory. */
struct clb_dmat clb_ooc_window(const struct clb_ooc_run *run, const struct clb_ooc_block *block);

/* The memory for a panel of an earlier block: the panel's rows from its first on. */
struct clb_dmat clb_ooc_slot(const struct clb_ooc_run *run, const struct clb_ooc_panel *panel,
                             size_t turn);

/* Divide the matrix into blocks of about `width` columns, plan their transfers and get all memory,
 * before anything is enqueued. After a failure the caller must still call clb_ooc_close. */
clb_status clb_ooc_open(struct clb_ooc_run *run, const struct clb_gemm_variant *variant,
                        size_t width) CLB_MUST_CHECK;
void clb_ooc_close(struct clb_ooc_run *run);

#endif
