/* shape: operands that are stored by half, and results that are computed by half.
 *
 * An operand is seen as the packing kernels see it, element (i, p) with i along the width (rows of
 * A, columns of B) and p along the depth. */
#ifndef CLB_STRUCTURE_H
#define CLB_STRUCTURE_H

#include "level3.h"

/* ---- operands -------------------------------------------------------------------------------- */

struct clb_span {
    size_t first, end; /* empty when they are equal */
};

/* The part of [i0, i0 + w) in which depths [p0, p0 + k) of an operand are not known to be zeros. It
 * begins a multiple of `unit` behind i0. */
struct clb_span clb_operand_support(const struct clb_operand *x, size_t i0, size_t w, size_t p0,
                                    size_t k, size_t unit);

/* How a piece of such a span is had: as it is stored, from the other triangle, or it has to be made
 * element by element, because it crosses the diagonal or is to be scaled; or the packing kernel
 * knows triangles. */
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

/* At most three pieces, in order; each begins a multiple of `unit` behind i0. */
size_t clb_operand_pieces(const struct clb_operand *x, size_t i0, struct clb_span span, size_t p0,
                          size_t k, size_t unit, struct clb_piece piece[3]);

/* The variant packs the operand as a triangle, in one piece. */
bool clb_operand_packs_triangle(const struct clb_gemm_variant *variant,
                                const struct clb_operand *x);
/* What its packing kernel has to know of the chunk that begins at i0 and p0. */
void clb_operand_set_triangle(const struct clb_operand *x, size_t i0, size_t p0,
                              struct clb_chunk *chunk);

/* The operand whose stored elements are the other triangle's. */
struct clb_operand clb_operand_other_half(const struct clb_operand *x);

/* Elements (i0.., p0..) made on the CPU, in the order that the operand is stored in: the first
 * column is at `to`, columns are as long as their number of rows. Of these columns only [first,
 * first + count). */
void clb_operand_make(clb_precision precision, const struct clb_operand *x, size_t i0, size_t p0,
                      size_t w, size_t k, size_t first, size_t count, void *to);

/* structure_device.c: the same by a kernel, for operands in place. */
clb_status clb_structure_make(struct clb_queue_set *queue_set, struct clb_program *program,
                              const struct clb_gemm_variant *variant, const struct clb_operand *x,
                              size_t i0, size_t p0, size_t w, size_t k, cl_mem to,
                              struct clb_queue *queue) CLB_MUST_CHECK;

/* Before a problem's kernels are used that plain products have not: those that they have for this
 * problem are built, launched and checked, once for each precision. *program makes operands, NULL
 * where that is not needed; CLB_ERR_UNSUPPORTED when something miscalculates. */
clb_status clb_structure_prepare(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant,
                                 const struct clb_gemm *problem, bool on_device,
                                 struct clb_program **program) CLB_MUST_CHECK;

/* The same for products of device matrices: the kernel that leaves something out, where the family
 * has one. */
clb_status clb_skip_prepare(struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* The term whose second operand is the first one of `term` transposed, from the same memory;
 * CLB_MAX_TERMS when there is none. */
size_t clb_gemm_transposed_term(const struct clb_gemm *problem, size_t term);

/* Any operand is scaled or not general. */
bool clb_gemm_is_structured(const struct clb_gemm *problem);
/* And has pieces that the variant can't pack as they are. */
bool clb_gemm_is_expanded(const struct clb_gemm_variant *variant, const struct clb_gemm *problem);

/* ---- the depth ------------------------------------------------------------------------------- */

/* A slab of the depth, of one of the terms. */
struct clb_pass {
    size_t term, p0, k;
};

size_t clb_gemm_terms(const struct clb_gemm *problem);
size_t clb_gemm_passes(const struct clb_gemm *problem, size_t slab);
/* In this order the first pass has all of C in its support, and the others may add. */
struct clb_pass clb_gemm_pass(const struct clb_gemm *problem, size_t slab, size_t index);

/* The depth of a slab that suits the problem, at most the tuning's: what crosses the diagonal is a
 * small part of the whole, but where operands in place are packed as triangles. It depends on
 * nothing else, so that results don't. */
size_t clb_gemm_slab(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                     bool in_place);

/* What is left out of the product of a pass for the rectangle of C that begins at row and col;
 * nothing where nothing could be, or where the family has no kernel for it. */
struct clb_skip clb_gemm_skip(const struct clb_gemm_variant *variant,
                              const struct clb_gemm *problem, const struct clb_pass *pass,
                              const struct clb_rect *rect);

/* ---- the region of C ------------------------------------------------------------------------- */

clb_region clb_gemm_region(const struct clb_gemm *problem);
/* Blocks that must be written as a whole: of all rows (left), of all columns (right). */
bool clb_gemm_has_whole_columns(const struct clb_gemm *problem);
bool clb_gemm_has_whole_rows(const struct clb_gemm *problem);

/* Where panels of A and of B may both begin. */
size_t clb_gemm_square_unit(const struct clb_gemm_variant *variant);

/* The rows of a block of C that its columns have in the region; no rows when there are none. Rows
 * and columns of blocks begin and end at multiples of one number, the columns' width. */
struct clb_rect clb_region_trim(clb_region region, struct clb_rect block);
/* What has been trimmed, in one or two parts: beside the diagonal, and square on it. */
size_t clb_region_parts(clb_region region, const struct clb_rect *rect, struct clb_rect part[2]);

/* One of the operands is triangular: zeros beside the triangle are multiplied that the sums don't
 * have. */
bool clb_gemm_adds_zeros(const struct clb_gemm *problem);

/* Zero times infinity is not zero: false for a part of a product with such zeros that is not
 * finite. It must be computed elsewhere, and the run ends with CLB_ERR_RANGE. Where all of the
 * general operand that goes into a part is finite, the part is exact anyway. */
bool clb_part_is_exact(const struct clb_gemm *problem, const struct clb_rect *part, const void *p,
                       size_t ldp);

/* C = alpha*P + beta*C for one part of C; of one on the diagonal only the triangle. P begins with
 * the part's first element. */
void clb_merge_part(const struct clb_gemm *problem, const struct clb_rect *part, const void *p,
                    size_t ldp);

#endif
