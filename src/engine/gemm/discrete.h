/* discrete: products on a device with its own memory. SPDX-License-Identifier: BSD-3-Clause
 *
 * A is divided into bands of rows and B into bands of columns, and each band into slabs of depth. A
 * *load* brings one slab of one band to the device: staging threads copy it in pieces into pinned
 * memory, an upload queue transfers them to a raw buffer, and a kernel packs that into the slab's
 * place in the packed operand, which stays on the device. A *step* loads one band of the operand of
 * which less has been loaded, and then computes a *strip* of C: the product of that band with all
 * that has been loaded of the other operand. So after a fraction t of the operands has arrived t^2
 * of the product can be under way, and little work is left after the last load. Strips are
 * downloaded in pieces to pinned memory meanwhile, and staging threads merge these into C.
 *
 * Bound: with T the time to upload A and B and W the time of the kernels, no schedule over growing
 * squares ends before the maximum over t of t*T + (1-t^2)*W.
 *
 * Where all of C is kept on the device and the depth is large, the first slabs are loaded for all
 * bands and multiplied before any other. So the device has work earlier: with s their share in the
 * depth, after a fraction t <= s of the operands s*(t/s)^2 of the work can be done, not t^2. Where
 * C has few tiles, every slab is multiplied before the next is loaded.
 *
 * The products of a batch are blocks on C's diagonal (blas.h), with operands and results in
 * matrices of their own: those of the next one are brought up while one is multiplied, and packed
 * when all its strips are done.
 *
 * When the packed operands don't fit into device memory, C is divided into blocks in a serpentine
 * order, so that only one operand of the next block has to be loaded; each band is followed by a
 * strip of the block's whole height or width.
 *
 * Structured operands are loaded in pieces (structure.h), without zeros. Elements outside the
 * stored triangle are copied from the other side of the diagonal and packed transposed; staging
 * threads expand pieces across it. Where both operands are one matrix, as in A*A^T, a load is
 * packed for both. Of a triangle of C only strips inside it are computed, and on the diagonal
 * squares of one piece. Where C is an operand (trmm) strips and pieces are whole columns or rows.
 *
 * Queues: one packs. Strips use several others in turn, because one may not fill the device;
 * transfers one or more. A device with room keeps all of C, so that kernels never wait for a
 * download.
 *
 * Split families: after the packing of each step the range flag is read into pinned memory, on the
 * packing queue, so word s tells exactly whether everything up to step s is within the family's
 * range. Strips of steps whose word is raised are never merged, all others always are: so which
 * family computes a part depends on the operands and the plan, not on timing.
 *
 * Variants that scale (kernel.h) scale a load before they pack it, and keep its exponents. Strips
 * are multiplied into memory beside C and scaled back from there. */
#ifndef CLB_DISCRETE_H
#define CLB_DISCRETE_H

#include "structure.h"
#include "engine/transfer/transfer_queue.h"

#include <stdatomic.h>

/* ---- discrete_plan.c: the plan ---- */

/* How C and the operands are divided. Extents are multiples of the kernel's tile and depth step.
 * Indices are roles: rows for A, columns for B. */
struct clb_discrete_plan {
    size_t unit[2];  /* the kernel's tile */
    size_t block[2]; /* of C */
    size_t band[2], slab;
    size_t slabs;       /* of all terms */
    size_t part;        /* of a slab, of one work-group: see clb_part_depth; or 0 */
    size_t first_slabs; /* slabs that are loaded for all bands before the others */
    bool slab_by_slab;  /* then as many again, and so on */
    size_t square;      /* order of the squares on a triangular region's diagonal; or 0 */
    size_t strip[2];    /* size of strips that are whole columns or rows; or 0 */
    bool shared;        /* both operands are the same matrices */
    bool gathers;       /* uploads are small enough to be gathered (transfer_queue.h) */
    bool down_first;    /* the serpentine goes down the columns of blocks, else along the rows */
    size_t packed_bytes[2];      /* a block's packed operands, one buffer for each slab */
    size_t raw_bytes, raw_slots; /* buffers of loads that are not packed yet */
    size_t strip_bytes, strip_slots;
    size_t staging_threads; /* an upper bound */
    size_t piece_bytes;     /* of a pinned slot, and of a piece at most */
    size_t strip_tiles;     /* the most tiles of a strip, or 0 */
    uint64_t available;     /* bytes of device memory for the run */
    uint64_t bytes;         /* those used, unless all of C is kept there */
};

/* Make the plan that moves the fewest bytes, for at most `available` bytes of device memory and
 * buffers of at most `max_alloc` bytes; CLB_ERR_NOMEM when there is none. The slab never depends on
 * free memory. A strip has at most as many tiles as the device has compute `units`, unless these
 * are few or the tuning sets another number. */
clb_status clb_discrete_make_plan(const struct clb_gemm_variant *variant,
                                  const struct clb_gemm *problem, uint64_t available,
                                  uint64_t max_alloc, size_t units,
                                  struct clb_discrete_plan *plan) CLB_MUST_CHECK;

/* Leading dimension of a strip with `rows` rows on the device. */
size_t clb_strip_ld(size_t rows, size_t element);

/* ---- discrete_plan.c: the order of loads and strips ---- */

/* The operand and slab that a load is packed for. */
struct clb_pack_target {
    clb_operand_role role;
    size_t slab;
    bool conjugated;
};

struct clb_load {
    const struct clb_operand *operand;
    clb_piece_kind kind;
    bool depth_contiguous; /* layout of the copied elements */
    size_t i0, w, p0, k;
    size_t slab; /* counted over all terms */
    struct clb_pack_target target[2];
    size_t targets;
    /* Where the operand's block begins; offsets of packed panels count from here. */
    size_t origin;
    size_t step;
    size_t piece_cols;
    clb_event packed; /* the last packing: frees the raw buffer; NULL until enqueued */
};

struct clb_strip {
    struct clb_rect rect; /* of C */
    size_t origin[2];     /* where the strip's block begins */
    size_t ldc;           /* on the device */
    size_t offset;        /* first element in the buffer of C, where all of C is kept */
    size_t step;
    /* The kernels add slabs [slab, end_slab). A strip that later slabs complete has no pieces. */
    size_t slab, end_slab;
    size_t queue;
    size_t pieces, piece_cols;
    cl_uint packing_launches; /* what had been launched by then to pack */
};

/* A step: its loads, then the strips that they make computable. */
struct clb_step {
    size_t loads, strips;
    bool new_block;    /* its loads overwrite packed operands that earlier strips read */
    clb_event checked; /* split families: the flag has been read */
    /* Products with a triangular operand: some element of the general operand is not finite. Set
     * before the transfer of that element is enqueued, hence before a strip comes down. */
    atomic_bool infinite;
};

struct clb_schedule {
    struct clb_operand operand[2][CLB_MAX_TERMS]; /* by role; loads point to them */
    struct clb_load *load;
    struct clb_strip *strip;
    struct clb_step *step;
    size_t loads, strips, steps;
    size_t strip_pieces;   /* of all strips */
    size_t strip_elements; /* of all strips on the device */
};

/* Make the loads and strips of a problem. */
clb_status clb_schedule_make(const struct clb_discrete_plan *plan, const struct clb_gemm *problem,
                             struct clb_schedule *schedule) CLB_MUST_CHECK;
void clb_schedule_free(struct clb_schedule *schedule);

/* The queues of strips. */
#define CLB_STRIP_QUEUES 3

#endif
