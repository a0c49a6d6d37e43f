/* algo: algorithms on the device. They read no environment, call no dlsym, and don't decide whether
 * to use the device.
 *
 * Matrices belong to the caller and are column-major in host memory; a column-major rows x cols
 * operand occupies (cols-1)*ld + rows elements, and nothing else is touched. */
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
    /* Extensions for the other Level 3 routines: structured operands, a second term, a triangle of
     * C. NULL: plain GEMM. See level3.h. */
    const struct clb_level3 *level3;
};

/* How an operand is stored. Of the last three structures only one triangle is read; on the diagonal
 * of a Hermitian matrix only the real parts are read, on that of a unit triangular matrix
 * nothing. */
typedef enum {
    CLB_STRUCTURE_GENERAL,
    CLB_STRUCTURE_SYMMETRIC,
    CLB_STRUCTURE_HERMITIAN,
    CLB_STRUCTURE_TRIANGULAR
} clb_structure;

/* ---- family.c: the host's description of kernel families ------------------------------------- */

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
    /* Split families: bytes of a packed block, width x KU elements. These families count offsets of
     * packed operands in bytes. The last argument of their packing kernels is a flag, which is
     * raised when an element is outside the range for which the family keeps its accuracy. NULL in
     * other families, whose packed elements have the operand's type. */
    size_t (*block_bytes)(const size_t *value, size_t width);
    bool has_direct; /* has a kernel that reads B unpacked; B is contiguous in depth then */
    /* Has kernels that skip what is zero or not wanted, that pack triangles, and that read B from
     * A's packed panels. */
    bool has_skip;
};

const struct clb_gemm_family *clb_gemm_family_get(clb_family family);

/* ---- variant.c: a family with its parameters, built and checked on the device ---------------- */

struct clb_gemm_variant {
    clb_precision precision;
    struct clb_gemm_tuning tuning;
    const struct clb_gemm_family *family;
    struct clb_program *program;
    /* Families with has_skip: where the program with those kernels is stored once it is built. NULL
     * in variants from clb_gemm_variant_make, which compute plain products only. */
    struct clb_program **shapes;
    char name[32]; /* "gemm-cpu-32x8", for reports */
    /* Split families: the variant for the problems and operands that this one can't compute. */
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

/* Build the kernels that has_skip stands for and store their program at *variant->shapes. */
clb_status clb_gemm_variant_get_structured(struct clb_runtime *runtime,
                                           const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* Make a variant from explicit values; it is built and self-checked now. The tuner calls this. A
 * split family's variant made this way has no `plain`. CLB_ERR_UNSUPPORTED when the values don't
 * suit the family or the device, CLB_ERR_BUILD when the kernels do not build or miscalculate. */
clb_status clb_gemm_variant_make(struct clb_runtime *runtime, clb_precision precision,
                                 const struct clb_gemm_tuning *tuning,
                                 struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* ---- prelaunch.c ----------------------------------------------------------------------------- */

/* Order of the matrices with which structure_device.c checks kernels: several micro-tiles and
 * passes. */
size_t clb_gemm_check_order(const struct clb_gemm_variant *variant);

/* Launch every kernel of a new variant once, with the largest grid that it will ever have. Only
 * PoCL needs this, before any other launch of the kernels; prelaunch.c tells why. */
clb_status clb_gemm_prelaunch(struct clb_runtime *runtime,
                              const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* The same for the kernels that skip parts of a product or pack triangles, and for the kernel that
 * reads B from A's panels. They are built only when a problem needs them. */
clb_status clb_gemm_prelaunch_cut(struct clb_queue_set *queue_set,
                                  const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
clb_status clb_gemm_prelaunch_shared(struct clb_queue_set *queue_set,
                                     const struct clb_gemm_variant *variant,
                                     clb_op b_op_of_a) CLB_MUST_CHECK;

/* ---- launch.c: the kernels of a variant ------------------------------------------------------
 *
 * Everything outside this part counts elements of the problem. Kernels multiply real matrices; a
 * complex product is computed as a real one, and only the packing differs. With interleaved storage
 * C (m x n, ldc) is the real 2m x n matrix with leading dimension 2*ldc. A is packed as the real
 * 2m x 2k matrix whose 2 x 2 blocks are [re -im; im re], and B as the real 2k x n matrix whose rows
 * are re and im in turn. This takes 8mnk flops, no more than a complex product needs. Launch
 * geometry and parameters (CLB_MR, CLB_KU, ...) are in real elements. */

/* The multiples of rows of A or columns of B at which panels begin, and those of depth to which
 * they are padded. */
size_t clb_gemm_unit(const struct clb_gemm_variant *variant, clb_operand_role role);
size_t clb_gemm_depth_unit(const struct clb_gemm_variant *variant);

/* Most rows of A or columns of B in one launch; SIZE_MAX where there is no limit. No launch may be
 * wider than those of prelaunch.c. */
size_t clb_gemm_widest(const struct clb_gemm_variant *variant, clb_operand_role role);

/* True when panels of A consist of whole panels of B and a kernel can read B from them. */
bool clb_gemm_shares_panels(const struct clb_gemm_variant *variant);

struct clb_geometry clb_gemm_pack_geometry(const struct clb_gemm_variant *variant,
                                           clb_operand_role role, size_t w, size_t k);
struct clb_geometry clb_gemm_multiply_geometry(const struct clb_gemm_variant *variant, size_t m,
                                               size_t n);

/* Elements of an operand in device memory: element (i, p) is at offset + i*di + p*dp, where one of
 * the strides is 1 and the other ld. */
struct clb_chunk {
    cl_mem mem;
    cl_ulong offset, ld;
    bool depth_contiguous; /* dp is 1 */
    bool conjugated;    /* the operand's elements are the conjugates; ignored for real precisions */
    unsigned triangle;  /* CLB_TRIANGLE_...; 0: a general matrix */
    ptrdiff_t diagonal; /* the triangle's diagonal is at p = i + diagonal */
};

/* Triangular chunks, as in kernels/cpu_triangle.h, for families with has_skip. */
enum {
    CLB_TRIANGLE_LOW = 1,  /* element (i, p) is zero for p > i + diagonal */
    CLB_TRIANGLE_HIGH = 2, /* for p < i + diagonal */
    CLB_TRIANGLE_UNIT = 4  /* ones on the diagonal */
};

/* The queue of a command, the events that it waits for, and where to store its own event; `event`
 * is NULL when no event is wanted. */
struct clb_order {
    struct clb_queue *queue; /* one of the queue set's; NULL: its queue for kernels */
    cl_uint waits;
    const cl_event *wait_list;
    cl_event *event;
};

/* Bytes of w x k packed elements; w is rounded up to the panel width, k to the depth step. */
size_t clb_packed_bytes(const struct clb_gemm_variant *variant, clb_operand_role role, size_t w,
                        size_t k);

/* Offset of the packed panels that begin with element i0, in the kernels' units; i0 is a multiple
 * of clb_gemm_unit. */
cl_ulong clb_packed_offset(const struct clb_gemm_variant *variant, clb_operand_role role, size_t i0,
                           size_t k);

/* Enqueue the packing of a chunk. `flag` is the range flag of split families, a cl_uint; NULL for
 * others. */
clb_status clb_gemm_pack(struct clb_queue_set *queue_set, const struct clb_gemm_variant *variant,
                         clb_operand_role role, const struct clb_chunk *chunk, size_t w, size_t k,
                         cl_mem packed, cl_ulong offset, cl_mem flag,
                         struct clb_order order) CLB_MUST_CHECK;

/* Parts of a product that are zero or not wanted, as in kernels/cpu_product.h, for families with
 * has_skip. The conditions are about elements (i, p) of A, (p, j) of B, (i, j) of C. */
enum {
    CLB_SKIP_A_END = 1,   /* A is zero for p > i + a */
    CLB_SKIP_A_BEGIN = 2, /* for p < i + a */
    CLB_SKIP_B_END = 4,   /* B is zero for p > j + b */
    CLB_SKIP_B_BEGIN = 8, /* for p < j + b */
    CLB_SKIP_LOWER = 16,  /* C is wanted for i + c >= j */
    CLB_SKIP_UPPER = 32   /* for i + c <= j */
};
struct clb_skip {
    unsigned kind; /* 0: the product is computed in full */
    ptrdiff_t a, b, c;
};

/* A product of packed operands: C (m x n, ldc) = A*B, C += A*B or C -= A*B. C begins with element
 * c_offset of its buffer. If ldb is not 0, B is not packed: element (p, j) is at b_offset + p +
 * j*ldb, counted in elements of the problem. If b_op_of_a is not CLB_OP_N, `b` holds a matrix
 * packed as A, and B is its transpose or adjoint: columns of B are rows of that matrix. */
struct clb_product {
    size_t m, n, k;
    cl_mem a, b, c;
    cl_ulong a_offset, b_offset, ldb;
    size_t c_offset, ldc;
    clb_op b_op_of_a; /* CLB_OP_T or CLB_OP_C only where clb_gemm_shares_panels; else CLB_OP_N */
    bool add, subtract;
    /* With subtract: products of elements are subtracted from C one after the other. Not for split
     * families. */
    bool in_order;
    bool negate; /* C = -A*B, C += -A*B */
    struct clb_skip cut;
};
clb_status clb_gemm_multiply(struct clb_queue_set *queue_set,
                             const struct clb_gemm_variant *variant,
                             const struct clb_product *product,
                             struct clb_order order) CLB_MUST_CHECK;

/* ---- plan.c: the tiles of a problem on a device that shares the host's memory ---------------- */

struct clb_rect {
    size_t row, col, rows, cols;
};

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

/* The parts of C that a run has written. They cover C without overlap; each is written completely
 * or not at all. No parts: nothing was begun. */
struct clb_gemm_progress {
    struct clb_rect *part;
    bool *written;
    size_t parts;
    const char *kernel; /* the variant that computed the last part */
};

clb_status clb_gemm_progress_make(struct clb_gemm_progress *progress, size_t parts) CLB_MUST_CHECK;
void clb_gemm_progress_free(struct clb_gemm_progress *progress);

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

/* ---- merge.c --------------------------------------------------------------------------------- */

/* On the CPU: Y(i, j) = X(order[i], j), for `rows` rows of Y. */
void clb_copy_ordered(clb_precision precision, size_t rows, size_t cols, const uint32_t *order,
                      const void *x, size_t ldx, void *y, size_t ldy);

/* On the CPU: Y = X in the entries (i, j) with i >= diagonal + j, or i <= diagonal + j if `upper`;
 * other entries of Y are neither read nor written. */
void clb_copy_trapezoid(clb_precision precision, bool upper, ptrdiff_t diagonal, size_t rows,
                        size_t cols, const void *x, size_t ldx, void *y, size_t ldy);

/* Zero and one in a precision. */
const void *clb_scalar_zero(clb_precision precision);
const void *clb_scalar_one(clb_precision precision);
bool clb_scalar_equal(clb_precision precision, const void *x, const void *y);

/* On the CPU: C = alpha*P + beta*C, which writes a finished tile P (ldp) to the caller's matrix.
 * With beta = 0 C is not read. */
void clb_merge_tile(clb_precision precision, size_t m, size_t n, const void *alpha, const void *p,
                    size_t ldp, const void *beta, void *c, size_t ldc);

/* True when no element of P is infinite or NaN. */
bool clb_tile_is_finite(clb_precision precision, size_t m, size_t n, const void *p, size_t ldp);

/* ---- transpose.c: by as many threads as are free --------------------------------------------- */

/* Y = X^T or X^H for a rows x cols matrix Y, on the CPU. */
void clb_transpose(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                   void *y, size_t ldy, bool conjugate);

/* True when X (rows x cols) has a NaN; with `part` 'U' or 'L' only that triangle and the diagonal
 * are searched, with 'u' or 'l' that triangle without the diagonal. */
bool clb_has_nan(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                 char part);

/* For such a part of a square matrix of order n > 0: clb_triangle_is_finite is true when it has no
 * NaN and no infinity; clb_copy_triangle copies its first `cols` columns and reads and writes
 * nothing outside the part. */
bool clb_triangle_is_finite(clb_precision precision, char part, size_t n, const void *x,
                            size_t ldx);
void clb_copy_triangle(clb_precision precision, char part, size_t n, size_t cols, const void *x,
                       size_t ldx, void *y, size_t ldy);

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

#endif
