/* gemm: products of the caller's matrices on the device. Nothing here reads the environment, calls
 * dlsym or decides whether to use the device. */
#ifndef CLB_GEMM_H
#define CLB_GEMM_H

#include "kernel/kernel.h"

/* ---- plan.c: the tiles of a problem on a device that shares the host's memory ---------------- */

/* C is divided into tiles of tile_m x tile_n, numbered by rows of tiles, and the depth into slabs.
 * The slab never depends on free memory, so the bits of the result don't either. */
struct clb_gemm_plan {
    size_t tile_m, tile_n, slab;
    size_t tile_rows, tile_cols;
    size_t slabs; /* of all terms */
    /* The operand whose packed chunks are kept for a row of tiles; B where tiles are whole rows. */
    clb_operand_role kept;
    size_t a_slots; /* packed chunks of A in memory: those of a row of tiles, or one */
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
    bool direct;      /* B is not packed; see has_direct */
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

/* The part of a problem that computes one rectangle of C. */
struct clb_gemm clb_gemm_part(const struct clb_gemm *problem, const struct clb_rect *rect);

/* ---- gemm.c ---------------------------------------------------------------------------------- */

/* Called when a command, or clFinish at the end of a run, turns out to have failed. The parts that
 * are written came from commands that reported success, so they are kept. But where C is not an
 * operand all parts are marked as not written and computed again, because some drivers report only
 * in clFinish that a kernel was not run. Returns the status that the run must return. */
clb_status clb_gemm_distrust(const struct clb_gemm *problem,
                             struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* Run on the device. On failure, the parts of C that *progress does not call written must be
 * computed elsewhere; they are untouched, except that they may have been overwritten where C is not
 * read. When this returns, no command that uses the caller's memory is outstanding. The caller
 * frees *progress. */
clb_status clb_gemm_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_gemm *problem,
                        struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* inplace.c is for devices that share the host's memory, stream.c for devices with their own.
 * CLB_ERR_RANGE: an operand is outside a split family's range. Another variant may then continue
 * with the same progress; it returns CLB_ERR_UNSUPPORTED if its parts would be different ones. */
clb_status clb_gemm_run_inplace(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                const struct clb_gemm *problem,
                                struct clb_gemm_progress *progress) CLB_MUST_CHECK;
clb_status clb_gemm_run_stream(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                               const struct clb_gemm *problem,
                               struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* ---- operand.c: the caller's matrices as the device sees them -------------------------------- */

/* op(X) as a w x k operand of the packing kernels: w is m for A and n for B. */
struct clb_operand {
    clb_operand_role role;
    const char *host;
    size_t ld, element;
    bool depth_contiguous; /* element (i, p) is host[p + i*ld], not host[i + p*ld] */
    bool conjugated; /* the operand's elements are the conjugates; ignored for real precisions */
    clb_structure shape;
    bool upper, unit;       /* as stored */
    const void *scale;      /* factor of all elements; NULL: one */
    cl_mem mem;             /* the whole operand in place, or NULL */
    size_t offset;          /* offset of the first element in mem */
    struct clb_buffer *raw; /* else the buffer that chunks are copied to */
};

#define CLB_MAX_TERMS 2

struct clb_operands {
    struct clb_operand a[CLB_MAX_TERMS], b[CLB_MAX_TERMS]; /* of each term */
    size_t terms;
    cl_mem wrapped[2 * CLB_MAX_TERMS]; /* buffers over the caller's memory, to be released */
    struct clb_buffer *raw[2];         /* of A and B */
};

/* Open both operands: as buffers over the caller's memory where the device shares the host's
 * memory, otherwise with buffers that hold a copy of one chunk of the plan. On failure nothing is
 * held. */
clb_status clb_operands_open(struct clb_runtime *runtime, const struct clb_gemm *problem,
                             const struct clb_gemm_plan *plan,
                             struct clb_operands *operands) CLB_MUST_CHECK;
/* True when no operand is copied. */
bool clb_operands_in_place(const struct clb_operands *operands);
/* `idle`: no command that uses them is outstanding. */
void clb_operands_close(struct clb_runtime *runtime, struct clb_operands *operands, bool idle);

/* Set *chunk to the place of elements (i0.., p0..) of an operand in device memory. If the operand
 * is not in place, this enqueues the copy of them. */
clb_status clb_operand_chunk(struct clb_queue *queue, const struct clb_operand *operand, size_t i0,
                             size_t p0, size_t w, size_t k, struct clb_chunk *chunk) CLB_MUST_CHECK;

/* An operand of a problem, not yet opened: that of the first term, or of a given one. */
struct clb_operand clb_operand_describe(const struct clb_gemm *problem, clb_operand_role role);
struct clb_operand clb_operand_of_term(const struct clb_gemm *problem, clb_operand_role role,
                                       size_t term);

/* ---- prefault.c: faulting in the pages of C -------------------------------------------------- */

/* Columns of C in units, which threads may fault in before results come. */
struct clb_prefault {
    char *c;
    size_t bytes, step, columns; /* of a column; between columns; number of them */
    bool solid;                  /* every page between the first and the last byte holds entries */
    size_t per_unit, units;      /* columns of a unit; 0 units: nothing to do */
    size_t next;                 /* the next unit; counted by the user of the struct */
};

/* Returns the units to fault in, none where the pages seem to be there, and advises the system to
 * use huge pages for the faults. `mode` is the value of CLB_PARAM_FAULT. */
struct clb_prefault clb_prefault_begin(const struct clb_gemm *problem, size_t mode);
/* Fault in the pages of one unit. */
void clb_prefault_unit(const struct clb_prefault *prefault, size_t unit);

#endif
