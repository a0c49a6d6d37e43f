/* SPDX-License-Identifier: BSD-3-Clause
 * structure: what the two ways of computing products share, theirs alone: operands that are
 * described as the packing kernels see them, with element (i, p), i along the width (rows of A,
 * columns of B), p along the depth; and results of which only a triangle is computed. */
#ifndef CLB_STRUCTURE_H
#define CLB_STRUCTURE_H

#include "engine/kernel/kernel.h"

/* ---- operands ---- */

/* op(X) as a w x k operand of the packing kernels: w is m for A and n for B. */
struct clb_operand {
    clb_operand_role role;
    const char *host;
    size_t ld, element;
    bool depth_contiguous; /* element (i, p) is host[p + i*ld], not host[i + p*ld] */
    bool conjugated;       /* the elements are the conjugates; ignored for real precisions */
    clb_structure shape;
    bool upper, unit;  /* as stored */
    const void *scale; /* factor of all elements; NULL: one */
    cl_mem mem;        /* the whole operand in device memory, or NULL */
    size_t offset;     /* of the first element in mem */
};

#define CLB_MAX_TERMS 2

/* The operand of a role in one of the terms. */
struct clb_operand clb_operand_of_term(const struct clb_gemm *problem, clb_operand_role role,
                                       size_t term);

struct clb_span {
    size_t first, end; /* empty when they are equal */
};

/* What a role's operand has of a rectangle of C: A its rows, B its columns. */
static inline struct clb_span clb_rect_span(const struct clb_rect *rect, clb_operand_role role)
{
    return role == CLB_OPERAND_A ? (struct clb_span){rect->row, rect->row + rect->rows}
                                 : (struct clb_span){rect->col, rect->col + rect->cols};
}

/* The part of [i0, i0 + w), from a multiple of `unit` after i0 on, in which depths [p0, p0 + k) of
 * an operand are not known to be zero. */
struct clb_span clb_operand_support(const struct clb_operand *x, size_t i0, size_t w, size_t p0,
                                    size_t k, size_t unit);

/* Where elements (i0 .. i0 + w, p0 .. p0 + k) are in an operand as it is stored. */
static inline struct clb_rect clb_stored(bool depth_contiguous, size_t i0, size_t p0, size_t w,
                                         size_t k)
{
    return depth_contiguous ? (struct clb_rect){p0, i0, k, w} : (struct clb_rect){i0, p0, w, k};
}

/* How the elements of a piece of a span are obtained: as stored; transposed from the stored
 * triangle; expanded one by one, because the piece crosses the diagonal or is scaled; or by a
 * packing kernel that handles triangles. */
typedef enum {
    CLB_PIECE_STORED,
    CLB_PIECE_TRANSPOSED,
    CLB_PIECE_EXPANDED,
    CLB_PIECE_TRIANGLE
} clb_piece_kind;

struct clb_piece {
    clb_piece_kind kind;
    size_t i0, w;
};

/* Divide what [i0, i0 + w) has at depths [p0, p0 + k) into at most three pieces, in order, each
 * from a multiple of `unit` after i0 on; returns their number. With `triangle` all is one piece. */
size_t clb_operand_pieces(const struct clb_operand *x, bool triangle, size_t i0, size_t w,
                          size_t p0, size_t k, size_t unit, struct clb_piece piece[3]);
/* The piece of [0, w) that is expanded, empty where there is none. Those of parts of [0, w) that
 * begin at multiples of `unit` are parts of it. */
struct clb_piece clb_operand_expanded(const struct clb_operand *x, size_t w, size_t p0, size_t k,
                                      size_t unit);

/* True when the variant packs the operand as a triangle, in one piece. */
bool clb_operand_packs_triangle(const struct clb_gemm_variant *variant,
                                const struct clb_operand *x);
/* Set what that packing kernel needs in the chunk that begins at i0 and p0. */
void clb_operand_set_triangle(const struct clb_operand *x, size_t i0, size_t p0,
                              struct clb_chunk *chunk);

/* The transposed view of an operand, whose stored elements are the other triangle's. */
struct clb_operand clb_operand_other_half(const struct clb_operand *x);

/* Expand elements (i0.., p0..), in the order in which the operand is stored: only columns [first,
 * first + count), to `to`, whose leading dimension is their number of rows. */
void clb_operand_make(clb_precision precision, const struct clb_operand *x, size_t i0, size_t p0,
                      size_t w, size_t k, size_t first, size_t count, void *to);

/* True when it is xGEMM's: one term of general operands, all of C. */
bool clb_gemm_is_plain(const struct clb_gemm *problem);

/* The factor of a finished sum; where the terms' differ, operands are scaled instead. */
const void *clb_gemm_factor(const struct clb_gemm *problem);

/* The term whose B is the transpose of `term`'s A, in the same memory; else CLB_MAX_TERMS. */
size_t clb_gemm_transposed_term(const struct clb_gemm *problem, size_t term);

/* The most bytes that operands in place are expanded to for a pass of such a depth, or 0. */
size_t clb_gemm_expanded_bytes(const struct clb_gemm_variant *variant,
                               const struct clb_gemm *problem, size_t depth);

/* Bytes of A, B and C. */
double clb_gemm_bytes(const struct clb_gemm *problem);

/* ---- the depth ---- */

/* A pass: a slab of the depth of one of the terms. */
struct clb_pass {
    size_t term, p0, k;
};

/* The passes of all terms. */
size_t clb_gemm_passes(const struct clb_gemm *problem, size_t slab);
/* Pass number `index`. The first pass has all of C in its support; others may only add to it. */
struct clb_pass clb_gemm_pass(const struct clb_gemm *problem, size_t slab, size_t index);

/* The part of a rectangle of C to which a pass contributes. Indices of `operand` and `origin`,
 * where panels begin, are roles. */
struct clb_rect clb_gemm_support(const struct clb_gemm_variant *variant,
                                 struct clb_operand (*operand)[CLB_MAX_TERMS],
                                 const struct clb_pass *pass, const size_t origin[2],
                                 const struct clb_rect *rect);

/* The depth of the slabs, at most the tuning's. Where structured operands are expanded across the
 * diagonal it is so small that this is a small part of the work. It depends only on the arguments,
 * so that the results do too. */
size_t clb_gemm_slab(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                     bool in_place);

/* What the product of a pass skips in the rectangle `rect` of C; none where nothing can be skipped,
 * or the family has no kernel for that. */
struct clb_skip clb_gemm_skip(const struct clb_gemm_variant *variant,
                              const struct clb_gemm *problem, const struct clb_pass *pass,
                              const struct clb_rect *rect);

/* ---- the region of C ---- */

/* True when C must be written in blocks of whole columns (trmm from the left), or rows (right). */
bool clb_gemm_has_whole_columns(const struct clb_gemm *problem);
bool clb_gemm_has_whole_rows(const struct clb_gemm *problem);

/* The multiples at which panels of both A and B may begin. */
size_t clb_gemm_square_unit(const struct clb_gemm_variant *variant);

/* True when an operand is triangular: zeros outside it, no terms of the sums, may be multiplied. */
bool clb_gemm_adds_zeros(const struct clb_gemm *problem);

/* Zero times infinity is not zero: false for a part of a product with such zeros that is not
 * finite; it must be computed elsewhere, and the run ends with CLB_ERR_RANGE. A part is exact where
 * all elements of the general operand that enter it are finite. */
bool clb_part_is_exact(const struct clb_gemm *problem, const struct clb_rect *part, const void *p,
                       size_t ldp);

struct clb_prefault;
/* clb_prefault_begin for C. */
struct clb_prefault clb_gemm_prefault(const struct clb_gemm *problem, size_t mode);

/* C = alpha*P + beta*C for one part of C, only in the triangle for one on the diagonal of a
 * triangular region. P begins with the part's first element. */
void clb_merge_part(const struct clb_gemm *problem, const struct clb_rect *part, const void *p,
                    size_t ldp);

/* ---- the buffers of a run, which it gets before anything is enqueued ---- */

struct clb_need {
    clb_memory_kind kind;
    size_t count, bytes;
    struct clb_buffer **buffer; /* `count` of them; set by clb_needs_get */
};
/* clb_needs_end is for the needs of a failed clb_needs_get, too. */
clb_status clb_needs_get(struct clb_runtime *runtime, struct clb_need *need,
                         size_t needs) CLB_MUST_CHECK;
void clb_needs_end(struct clb_runtime *runtime, struct clb_need *need, size_t needs, bool idle);

/* ---- unified.c: on a device that shares the host's memory ---- */

/* Needs of a run. Packed chunks' are numbered as roles; what an operand is expanded to is for each
 * slab, parts of tiles for each queue. */
enum { CLB_NEED_A, CLB_NEED_B, CLB_NEED_C, CLB_NEED_EXPANDED, CLB_NEED_PARTS, CLB_NEEDS };

/* C is divided into tiles, numbered by rows of tiles, and the depth into slabs. The slab, hence the
 * result's bits, never depends on free memory. Indices are roles. */
struct clb_gemm_plan {
    size_t tile[2], slab;
    size_t tile_rows, tile_cols;
    size_t slabs; /* of all terms */
    /* The operand whose packed chunks are kept for a row of tiles; B where tiles are whole rows. */
    clb_operand_role kept;
    /* Packed chunks in memory: of a row of tiles for A, a column for B, or one; or none. */
    size_t slots[2];
    size_t c_slots; /* tiles of C in flight */
    /* Two when there are slots for all chunks of `kept`: then the next tile's work fills the device
     * at the end of a tile's. Each queue has its own slots for the other operand. */
    size_t queues;
    bool direct, raw;                /* B is not packed; nor is A; see has_direct */
    clb_op b_op_of_a;                /* nor here: B is read from A's panels, see clb_product */
    size_t ldc;                      /* of a tile */
    struct clb_need need[CLB_NEEDS]; /* those of parts are set by the run */
    uint64_t bytes;                  /* device memory in all */
};

/* Make the plan for at most `available` bytes of device memory and buffers of at most `max_alloc`
 * bytes; CLB_ERR_NOMEM when even the smallest tiles need more. */
clb_status clb_gemm_make_plan(const struct clb_gemm_variant *variant, size_t units,
                              const struct clb_gemm *problem, uint64_t available,
                              uint64_t max_alloc, struct clb_gemm_plan *plan) CLB_MUST_CHECK;

/* The rectangle of C that is a tile. */
struct clb_rect clb_gemm_tile(const struct clb_gemm_plan *plan, const struct clb_gemm *problem,
                              size_t index);

/* CLB_ERR_UNSUPPORTED: an operand can't be used in place, or not be expanded; nothing was begun. */
clb_status clb_gemm_run_unified(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                const struct clb_gemm *problem,
                                struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* ---- discrete.c ---- */

/* On any device, as one with its own memory. CLB_ERR_RANGE: an operand is outside a split family's
 * range. Another variant may continue with the progress; CLB_ERR_UNSUPPORTED if parts differ. */
clb_status clb_gemm_run_discrete(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant,
                                 const struct clb_gemm *problem,
                                 struct clb_gemm_progress *progress) CLB_MUST_CHECK;

#endif
