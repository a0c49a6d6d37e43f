/* algo: algorithms on the device. No environment, no dlsym, no decision whether to offload.
 *
 * Matrices are the caller's, column-major, in host memory; a column-major rows x cols operand
 * occupies (cols-1)*ld + rows elements and nothing else is touched. */
#ifndef CLB_ALGO_H
#define CLB_ALGO_H

#include "tuning/tuning.h"

/* ---- the problem ----------------------------------------------------------------------------- */

struct clb_level3;

/* C = alpha*op(A)*op(B) + beta*C; op(A) is m x k, op(B) k x n, C m x n (BLAS xGEMM). The scalars
 * and matrices are of type `precision`. */
struct clb_gemm {
    clb_precision precision;
    clb_op transa, transb;
    size_t m, n, k;
    const void *alpha, *a, *b, *beta;
    void *c;
    size_t lda, ldb, ldc;
    /* What it is beside: shapes, a second term, a triangle of C; NULL: nothing. See level3.h. */
    const struct clb_level3 *level3;
};

/* What an operand's memory holds. Of the last three only one triangle is read; of a Hermitian
 * matrix's diagonal only the real parts, of a unit triangular one's nothing. */
typedef enum {
    CLB_STRUCTURE_GENERAL,
    CLB_STRUCTURE_SYMMETRIC,
    CLB_STRUCTURE_HERMITIAN,
    CLB_STRUCTURE_TRIANGULAR
} clb_structure;

/* ---- family.c: what the host must know of a kernel family ------------------------------------ */

typedef enum clb_operand_role { CLB_OPERAND_A, CLB_OPERAND_B } clb_operand_role;

struct clb_geometry {
    size_t global[2], local[2];
    cl_uint dimensions;
};

/* A kernel family: its source and the launch geometry that the file's header comment states. */
struct clb_gemm_family {
    const struct clb_source *source;
    /* False when the values are inconsistent or too large for the device; `element` is the size of
     * a real number. */
    bool (*fits)(const size_t *value, const struct clb_device *device, size_t element);
    struct clb_geometry (*pack)(const size_t *value, clb_operand_role role, size_t w, size_t k);
    struct clb_geometry (*gemm)(const size_t *value, size_t m, size_t n);
    /* Split families: bytes of a packed block, width x KU elements. Their offsets are in bytes, and
     * their packing kernels raise a flag, the last argument, when an element is outside the range
     * for which the family keeps its promise. NULL: packed elements are like the operand's. */
    size_t (*block_bytes)(const size_t *value, size_t width);
    bool has_direct; /* a kernel that takes B as the caller has it, contiguous in depth */
    /* Kernels that leave out what is zero or not wanted, pack triangles, take B from A's panels. */
    bool has_skip;
};

const struct clb_gemm_family *clb_gemm_family_get(clb_family family);

/* ---- variant.c: a family with its parameters, built and checked on the device ---------------- */

struct clb_gemm_variant {
    clb_precision precision;
    struct clb_gemm_tuning tuning;
    const struct clb_gemm_family *family;
    struct clb_program *program;
    /* Where the family has_skip: of those kernels, once it is built. NULL in variants made by hand,
     * which compute plain products only. */
    struct clb_program **shapes;
    char name[32]; /* "gemm-cpu-32x8", for reports */
    /* Split families: what computes problems and operands that they can't. */
    const struct clb_gemm_variant *plain;
};

static inline bool clb_gemm_is_split(const struct clb_gemm_variant *variant)
{
    return variant->family->block_bytes != NULL;
}

/* The variant for a precision on the runtime's device: chosen, built and self-checked by the first
 * caller. A family that doesn't build or miscalculates is dropped with a log line and the next one
 * of the table is tried; CLB_ERR_UNSUPPORTED when none is left. */
clb_status clb_gemm_variant_get(struct clb_runtime *runtime, clb_precision precision,
                                const struct clb_gemm_variant **variant) CLB_MUST_CHECK;

/* Build the kernels that has_skip means, and put them at *variant->shapes. */
clb_status clb_gemm_variant_get_structured(struct clb_runtime *runtime,
                                           const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* A variant from explicit values, built and self-checked now: what the tuner tries. A split family
 * made this way has no plain one beside it. CLB_ERR_UNSUPPORTED when the family can't be so,
 * CLB_ERR_BUILD when it does not build or miscalculates. */
clb_status clb_gemm_variant_make(struct clb_runtime *runtime, clb_precision precision,
                                 const struct clb_gemm_tuning *tuning,
                                 struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* ---- prelaunch.c
 * --------------------------------------------------------------------------------- */

/* Order of the products by which structure_device.c checks kernels: several micro-tiles and passes.
 */
size_t clb_gemm_check_order(const struct clb_gemm_variant *variant);

/* Launch every kernel of a new variant once, as wide as it will ever be. Only PoCL needs it, before
 * anything else runs them. */
clb_status clb_gemm_prelaunch(struct clb_runtime *runtime,
                              const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* The same for the kernels that leave something out or pack triangles, and for that which takes B
 * from A's panels, which are not built before they are used. */
clb_status clb_gemm_prelaunch_cut(struct clb_queue_set *queue_set,
                                  const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
clb_status clb_gemm_prelaunch_shared(struct clb_queue_set *queue_set,
                                     const struct clb_gemm_variant *variant,
                                     clb_op b_op_of_a) CLB_MUST_CHECK;

/* ---- launch.c: the kernels of a variant ------------------------------------------------------
 *
 * Everything outside this part counts elements of the problem. Kernels multiply real matrices; a
 * complex product is a real one, only the packing differs. With interleaved storage C (m x n, ldc)
 * is the real 2m x n matrix with leading dimension 2*ldc; A is packed as the real 2m x 2k matrix
 * whose 2 x 2 blocks are [re -im; im re], B as the real 2k x n matrix with the rows re and im in
 * turn: 8mnk flops, as many as there are. Launch geometry and parameters (CLB_MR, CLB_KU, ...) are
 * in real elements. */

/* The multiples of rows of A or columns of B at which panels begin, and those of depth to which
 * they are padded. */
size_t clb_gemm_unit(const struct clb_gemm_variant *variant, clb_operand_role role);
size_t clb_gemm_depth_unit(const struct clb_gemm_variant *variant);

/* Most rows of A or columns of B of one launch; SIZE_MAX where it does not matter. Wider launches
 * than those of prelaunch.c must not occur. */
size_t clb_gemm_widest(const struct clb_gemm_variant *variant, clb_operand_role role);

/* Panels of A consist of whole panels of B, and a kernel takes them from there. */
bool clb_gemm_shares_panels(const struct clb_gemm_variant *variant);

struct clb_geometry clb_gemm_pack_geometry(const struct clb_gemm_variant *variant,
                                           clb_operand_role role, size_t w, size_t k);
struct clb_geometry clb_gemm_multiply_geometry(const struct clb_gemm_variant *variant, size_t m,
                                               size_t n);

/* Elements of an operand as the device sees them: element (i, p) is at offset + i*di + p*dp, where
 * one of the strides is 1 and the other ld. */
struct clb_chunk {
    cl_mem mem;
    cl_ulong offset, ld;
    bool depth_contiguous; /* dp is 1 */
    bool conjugated;       /* the operand's elements are the conjugates; no matter when real */
    unsigned triangle;     /* CLB_TRIANGLE_...; 0: it is general */
    ptrdiff_t diagonal;    /* of the triangle, at p = i + diagonal */
};

/* Triangular chunks, as in kernels/cpu_triangle.h, for families that leave out what is zero. */
enum {
    CLB_TRIANGLE_LOW = 1,  /* element (i, p) is zero for p > i + diagonal */
    CLB_TRIANGLE_HIGH = 2, /* for p < i + diagonal */
    CLB_TRIANGLE_UNIT = 4  /* ones on the diagonal */
};

/* Where a command goes, what it waits for, and its event where that is wanted. */
struct clb_order {
    struct clb_queue *queue; /* of the queue_set; NULL is its queue for kernels */
    cl_uint waits;
    const cl_event *wait_list;
    cl_event *event;
};

/* Bytes of w x k packed elements; w is rounded up to the panel width, k to the depth step. */
size_t clb_packed_bytes(const struct clb_gemm_variant *variant, clb_operand_role role, size_t w,
                        size_t k);

/* Where the packed panels that begin with element i0 are, in the kernels' units; i0 is a multiple
 * of clb_gemm_unit. */
cl_ulong clb_packed_offset(const struct clb_gemm_variant *variant, clb_operand_role role, size_t i0,
                           size_t k);

/* `flag` is for split families, a cl_uint; NULL for others. */
clb_status clb_gemm_pack(struct clb_queue_set *queue_set, const struct clb_gemm_variant *variant,
                         clb_operand_role role, const struct clb_chunk *chunk, size_t w, size_t k,
                         cl_mem packed, cl_ulong offset, cl_mem flag,
                         struct clb_order order) CLB_MUST_CHECK;

/* What of a product is zero or not wanted, as in kernels/cpu_product.h, for families that have such
 * a kernel. Elements (i, p) of A, (p, j) of B, (i, j) of C. */
enum {
    CLB_SKIP_A_END = 1,   /* A is zero for p > i + a */
    CLB_SKIP_A_BEGIN = 2, /* for p < i + a */
    CLB_SKIP_B_END = 4,   /* B is zero for p > j + b */
    CLB_SKIP_B_BEGIN = 8, /* for p < j + b */
    CLB_SKIP_LOWER = 16,  /* C is wanted for i + c >= j */
    CLB_SKIP_UPPER = 32   /* for i + c <= j */
};
struct clb_skip {
    unsigned kind; /* 0: nothing is */
    ptrdiff_t a, b, c;
};

/* A product of packed operands: C (m x n, ldc) = A*B, C += A*B or C -= A*B. C begins with element
 * c_offset of its buffer. With ldb, B is the caller's: element (p, j) is at b_offset + p + j*ldb,
 * counted in elements of the problem. With b_op_of_a it is the transpose or the adjoint of what is
 * packed as A in b: its columns are rows of that. */
struct clb_product {
    size_t m, n, k;
    cl_mem a, b, c;
    cl_ulong a_offset, b_offset, ldb;
    size_t c_offset, ldc;
    clb_op b_op_of_a; /* CLB_OP_T or CLB_OP_C where clb_gemm_shares_panels; CLB_OP_N: not so */
    bool add, subtract;
    bool in_order; /* with subtract: one product after the other, by families that are not split */
    bool negate;   /* C = -A*B, C += -A*B */
    struct clb_skip cut;
};
clb_status clb_gemm_multiply(struct clb_queue_set *queue_set,
                             const struct clb_gemm_variant *variant,
                             const struct clb_product *product,
                             struct clb_order order) CLB_MUST_CHECK;

/* ---- plan.c: how a problem is cut for a device that shares the host's memory ----------------- */

struct clb_rect {
    size_t row, col, rows, cols;
};

/* C is cut into tiles of tile_m x tile_n, in order of rows of tiles, the depth into slabs. The
 * slab never depends on free memory, so the bits of the result don't either. */
struct clb_gemm_plan {
    size_t tile_m, tile_n, slab;
    size_t tile_rows, tile_cols;
    size_t slabs;          /* of all terms */
    clb_operand_role kept; /* for a row of tiles; B where tiles are whole rows */
    size_t a_slots;        /* packed chunks of A: those of a row of tiles, or one */
    size_t b_slots;        /* of B, of a column of tiles, or one; none where it is not packed */
    size_t c_slots;        /* tiles of C in flight */
    size_t queues;         /* two when all slots of `kept` are there: the next tile's work fills the
                            * end of the last one's. Each has slots of its own for the other operand. */
    size_t a_bytes, b_bytes, c_bytes; /* of one slot */
    size_t mixed_w, mixed_bytes;      /* for each queue, of operands made on the device; or 0 */
    bool direct;                      /* B is not packed */
    clb_op b_op_of_a;                 /* nor here: A's panels are B's, see clb_product */
    size_t ldc;                       /* of a tile */
    uint64_t bytes;                   /* device memory in all */
};

/* The plan for at most `available` bytes and buffers of at most `max_alloc`; CLB_ERR_NOMEM when
 * even the smallest tiles need more. */
clb_status clb_gemm_make_plan(const struct clb_gemm_variant *variant,
                              const struct clb_gemm *problem, uint64_t available,
                              uint64_t max_alloc, struct clb_gemm_plan *plan) CLB_MUST_CHECK;

/* Tile number `index` of the plan, as a part of C. */
struct clb_rect clb_gemm_tile(const struct clb_gemm_plan *plan, const struct clb_gemm *problem,
                              size_t index);

/* The part of a problem that computes one rectangle of C. */
struct clb_gemm clb_gemm_part(const struct clb_gemm *problem, const struct clb_rect *rect);

/* ---- gemm.c ---------------------------------------------------------------------------------- */

/* What a run has written of C, in parts that cover it without overlap; each is written completely
 * or not at all. No parts: nothing was begun. */
struct clb_gemm_progress {
    struct clb_rect *part;
    bool *written;
    size_t parts;
    const char *kernel; /* the variant that computed the last part */
};

clb_status clb_gemm_progress_make(struct clb_gemm_progress *progress, size_t parts) CLB_MUST_CHECK;
void clb_gemm_progress_free(struct clb_gemm_progress *progress);

/* At the end of a run it turns out that a command has failed, or clFinish. What is written came
 * from commands that ended well by their own account; where C is not an operand all of it is
 * computed again nevertheless, because some drivers say only in clFinish that a kernel was not run.
 * Returns what the run returns. */
clb_status clb_gemm_distrust(const struct clb_gemm *problem,
                             struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* Run on the device. On failure, the parts of C that *progress does not call written are untouched,
 * or, where C is not read, perhaps not, and must be computed elsewhere. When it returns no command
 * that uses the caller's memory is outstanding. The caller frees *progress. */
clb_status clb_gemm_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_gemm *problem,
                        struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* inplace.c: the device shares the host's memory. stream.c: it has its own; CLB_ERR_RANGE when an
 * operand turned out to be outside a split family's range, after which another variant may continue
 * with the same progress (CLB_ERR_UNSUPPORTED when its parts would be others). */
clb_status clb_gemm_run_inplace(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                const struct clb_gemm *problem,
                                struct clb_gemm_progress *progress) CLB_MUST_CHECK;
clb_status clb_gemm_run_stream(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                               const struct clb_gemm *problem,
                               struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* ---- merge.c --------------------------------------------------------------------------------- */

/* Y(i, j) = X(order[i], j) on the CPU, for `rows` rows of Y. */
void clb_copy_ordered(clb_precision precision, size_t rows, size_t cols, const uint32_t *order,
                      const void *x, size_t ldx, void *y, size_t ldy);

/* Y = X on the CPU in the entries (i, j) with i >= diagonal + j, or i <= diagonal + j where
 * `upper`; the others of Y are neither read nor written. */
void clb_copy_trapezoid(clb_precision precision, bool upper, ptrdiff_t diagonal, size_t rows,
                        size_t cols, const void *x, size_t ldx, void *y, size_t ldy);

/* 0 and 1 of a precision. */
const void *clb_scalar_zero(clb_precision precision);
const void *clb_scalar_one(clb_precision precision);
bool clb_scalar_equal(clb_precision precision, const void *x, const void *y);

/* C = alpha*P + beta*C on the CPU: how a finished tile P (ldp) reaches the caller's matrix. beta =
 * 0 does not read C. */
void clb_merge_tile(clb_precision precision, size_t m, size_t n, const void *alpha, const void *p,
                    size_t ldp, const void *beta, void *c, size_t ldc);

/* No element of P is infinite or NaN. */
bool clb_tile_is_finite(clb_precision precision, size_t m, size_t n, const void *p, size_t ldp);

/* ---- transpose.c: by as many threads as are free --------------------------------------------- */

/* Y = X^T or X^H for a rows x cols matrix Y, on the CPU. */
void clb_transpose(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                   void *y, size_t ldy, bool conjugate);

/* Whether X (rows x cols) has a NaN; with 'U' or 'L' in that triangle, the diagonal included, with
 * 'u' or 'l' without it. */
bool clb_has_nan(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                 char part);

/* Such a part of a square of order n > 0: whether it has no NaN and no infinity; a copy of its
 * first columns, beside which nothing is read or written. */
bool clb_triangle_is_finite(clb_precision precision, char part, size_t n, const void *x,
                            size_t ldx);
void clb_copy_triangle(clb_precision precision, char part, size_t n, size_t cols, const void *x,
                       size_t ldx, void *y, size_t ldy);

/* ---- prefault.c: C that the program never touched -----------------------------------------------
 */

/* Whole columns of C that may be faulted in, in units, before results come. */
struct clb_prefault {
    char *c;
    size_t bytes, step, columns; /* of a column; from one to the next; number */
    bool solid;                  /* every page between the first and the last byte holds entries */
    size_t per_unit, units;      /* columns of a unit; 0 units: nothing to do */
    size_t next;                 /* whoever uses it counts here */
};

/* What there is to do, nothing where pages are there, and the advice to the system that takes huge
 * pages for the faults; `mode` is the tuning's. */
struct clb_prefault clb_prefault_begin(const struct clb_gemm *problem, size_t mode);
/* Have the pages of a unit made. */
void clb_prefault_unit(const struct clb_prefault *prefault, size_t unit);

/* ---- operand.c: the caller's matrices as the device sees them -------------------------------- */

/* op(X) as a w x k operand of the packing kernels: w is m for A and n for B. */
struct clb_operand {
    clb_operand_role role;
    const char *host;
    size_t ld, element;
    bool depth_contiguous; /* element (i, p) is host[p + i*ld], not host[i + p*ld] */
    bool conjugated;       /* its elements are the conjugates; no matter when real */
    clb_structure shape;
    bool upper, unit;       /* as stored */
    const void *scale;      /* times this number; NULL: one */
    cl_mem mem;             /* the whole operand in place, or NULL */
    size_t offset;          /* of its first element in mem */
    struct clb_buffer *raw; /* otherwise a chunk is copied here */
};

#define CLB_MAX_TERMS 2

struct clb_operands {
    struct clb_operand a[CLB_MAX_TERMS], b[CLB_MAX_TERMS]; /* of each term */
    size_t terms;
    cl_mem wrapped[2 * CLB_MAX_TERMS]; /* buffers over the caller's memory, to be released */
    struct clb_buffer *raw[2];         /* of A and B */
};

/* Open both operands: in place where the device shares the host's memory, through copies of at most
 * a chunk of the plan otherwise. On failure nothing is held. */
clb_status clb_operands_open(struct clb_runtime *runtime, const struct clb_gemm *problem,
                             const struct clb_gemm_plan *plan,
                             struct clb_operands *operands) CLB_MUST_CHECK;
/* None is copied. */
bool clb_operands_in_place(const struct clb_operands *operands);
/* `idle`: no command that uses them is outstanding. */
void clb_operands_close(struct clb_runtime *runtime, struct clb_operands *operands, bool idle);

/* Where elements (i0.., p0..) of an operand are for the device: enqueues the copy if there is one.
 */
clb_status clb_operand_chunk(struct clb_queue *queue, const struct clb_operand *operand, size_t i0,
                             size_t p0, size_t w, size_t k, struct clb_chunk *chunk) CLB_MUST_CHECK;

/* An operand of a problem, not yet opened: of its first term, or of any. */
struct clb_operand clb_operand_describe(const struct clb_gemm *problem, clb_operand_role role);
struct clb_operand clb_operand_of_term(const struct clb_gemm *problem, clb_operand_role role,
                                       size_t term);

#endif
