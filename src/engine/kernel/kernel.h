/* SPDX-License-Identifier: BSD-3-Clause
 * kernel: kernel families, the variants that are built from them, and how they are launched. */
#ifndef CLB_KERNEL_H
#define CLB_KERNEL_H

#include "blas/blas.h"
#include "engine/ocl/queue.h"
#include "engine/tuning/tuning.h"

#include <stdatomic.h>

/* ---- family.c: the host's description of kernel families ---- */

typedef enum clb_operand_role { CLB_OPERAND_A, CLB_OPERAND_B } clb_operand_role;

/* A kernel family: its source, and what the file's header comment states. */
struct clb_gemm_family {
    const struct clb_source *source;
    /* False when values are inconsistent or too large; `element` is the size of a real number. */
    bool (*fits)(const struct clb_gemm_family *family, const size_t *value,
                 const struct clb_device *device, size_t element);
    size_t element; /* the only such size that it has kernels for; 0: any */
    /* A group computes a tile of MR x NR, by so many work-items for each `rows` x `cols` of it
     * (parameters), and packs a panel in KU depths by PACK_WG. 0: groups of one work-item, which
     * compute MC x NC and pack PACK_PANELS panels in PACK_K depths, in two dimensions. */
    size_t items;
    clb_param rows, cols;
    /* Split families: bytes of the pieces of a packed element, and further ones of a packed block,
     * which is as wide as a panel and KU deep; offsets of packed operands count bytes. The last
     * argument of their packing kernels is a flag, raised when an element is outside the range for
     * which the family keeps its accuracy. 0 in other families, whose packed elements have the
     * operand's type. */
    size_t pieces, block_extra;
    /* Has kernels that read B unpacked if contiguous in depth, one also A if that is not. */
    bool has_direct;
    /* Kernels skip what is zero or not wanted, pack triangles, and read B from A's panels. */
    bool has_skip;
    bool packs_once; /* packs A as B: see below, launch.c */
    bool has_parts;  /* divides the depth over work-groups: see clb_part_depth */
    /* The `items` of variants with RAW, which have kernels that read both operands unpacked, no
     * others; 0: there are none. */
    size_t raw_items;
};

const struct clb_gemm_family *clb_gemm_family_get(clb_family family);

/* ---- variant.c: checks that run once ---- */

/* The result of a check. Objects belong to a device and begin with zeros. */
struct clb_check {
    atomic_bool done;
    clb_status status;
    _Atomic double again; /* when a call asks again whether the helper has done what it needs */
};

/* The result is known and good: clb_check_once need not be called. */
static inline bool clb_check_has_passed(struct clb_check *check)
{
    return atomic_load_explicit(&check->done, memory_order_acquire) && check->status == CLB_OK;
}

/* ---- variant.c: a family with its parameters, built and checked on the device ---- */

struct clb_direct {
    struct clb_check check;
    struct clb_runtime *runtime;
};

struct clb_gemm_variant {
    clb_precision precision;
    struct clb_gemm_tuning tuning;
    const struct clb_gemm_family *family;
    struct clb_program *program;
    struct clb_program *turned; /* with RAW: the kernels for A contiguous in depth; else NULL */
    /* Whether kernels that read operands unpacked may be used, for clb_direct_prepare. NULL in
     * second variants, which were checked with them. */
    struct clb_direct *direct;
    char name[40];       /* "gemm-cpu-32x8", for reports */
    bool split;          /* of a split family: see clb_gemm_family */
    bool scales;         /* rows of A and columns of B are scaled before they are packed */
    double rate;         /* GFLOP/s as clb_gemm_measure has them; 0: not known */
    bool too_slow;       /* slower than CLB_LEAST_RATE: `auto` leaves the device alone */
    double flop_seconds; /* that such a device is expected to need for an operation */
    /* Split families: for the problems and operands that this one can't compute. */
    const struct clb_gemm_variant *plain;
    /* Split families: with the same kernels, scales operands out of range; or NULL. */
    const struct clb_gemm_variant *scaled;
    /* Other variants of the family, faster for some products (clb_gemm_for); or NULL. `raw` and its
     * `second` read both operands unpacked; clb_direct_prepare makes them. */
    const struct clb_gemm_variant *second, *raw;
};

/* The variant for a precision on the runtime's device: chosen, built and checked by the first
 * caller. A row of the table that doesn't work, or whose known rate is below a tenth of the next
 * one's, is dropped with a log line; CLB_ERR_UNSUPPORTED: none left. */
clb_status clb_gemm_variant_choose(struct clb_runtime *runtime, clb_precision precision,
                                   const struct clb_gemm_variant **variant) CLB_MUST_CHECK;
/* By precision; NULL: none chosen yet. */
extern const struct clb_gemm_variant *_Atomic clb_gemm_variants[CLB_PRECISIONS];
CLB_MUST_CHECK static inline clb_status
clb_gemm_variant_get(struct clb_runtime *runtime, clb_precision precision,
                     const struct clb_gemm_variant **variant)
{
    *variant = atomic_load_explicit(&clb_gemm_variants[precision], memory_order_acquire);
    return *variant != NULL ? CLB_OK : clb_gemm_variant_choose(runtime, precision, variant);
}

/* parts.c: the variant, its `second` or, where operands need not be packed and clb_direct_prepare
 * has returned CLB_OK, a `raw` one, whichever should be fastest for an m x n product with
 * launches that are k deep, on a device with so many units. */
const struct clb_gemm_variant *clb_gemm_for(const struct clb_gemm_variant *variant, size_t units,
                                            size_t m, size_t n, size_t k, bool raw);

/* Launch and check the kernels that has_skip stands for, once for each precision, before
 * they are used; nothing without has_skip. CLB_ERR_UNSUPPORTED when one miscalculates. */
clb_status clb_skip_prepare(struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* The same for kernels that read B unpacked, which CPU devices compile at their first launch, and
 * for `raw` variants, which first products don't wait for. With any status but CLB_OK operands
 * are to be packed, which gives the same sums. */
clb_status clb_direct_check(const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
static inline bool clb_gemm_has_direct(const struct clb_gemm_variant *variant)
{
    return variant->family->has_direct && variant->tuning.value[CLB_PARAM_DIRECT] != 0;
}
CLB_MUST_CHECK static inline clb_status clb_direct_prepare(const struct clb_gemm_variant *variant)
{
    if (!clb_gemm_has_direct(variant) && variant->family->raw_items == 0)
        return CLB_ERR_UNSUPPORTED;
    return variant->direct == NULL || clb_check_has_passed(&variant->direct->check)
               ? CLB_OK
               : clb_direct_check(variant);
}

/* ---- launch.c: matrices in the device's memory ---- */

/* A column-major matrix, or part of one, in the device's memory: element (i, j) is at offset + i +
 * j*ld of the buffer, in elements. */
struct clb_dmat {
    cl_mem mem;
    size_t offset, rows, cols, ld;
};
struct clb_dmat clb_dmat_part(const struct clb_dmat *x, size_t row, size_t col, size_t rows,
                              size_t cols);

/* ---- launch.c: the kernels of a variant ----
 *
 * Outside this part everything counts elements of the problem. Kernels multiply real matrices; for
 * a complex product only the packing differs. With interleaved storage C (m x n, ldc) is the real
 * 2m x n matrix with leading dimension 2*ldc. A is packed as the real 2m x 2k matrix whose 2 x 2
 * blocks are [re -im; im re], and B as the real 2k x n matrix whose rows are re and im in turn;
 * families with packs_once pack A's rows as B's columns, m x 2k, and make the blocks while they
 * multiply. This takes 8mnk flops, no more than a complex product needs. Launch geometry and
 * parameters (CLB_MR, CLB_KU, ...) are in real elements. */

/* The multiples of A's rows or B's columns at which panels begin, and of their padded depth. */
size_t clb_gemm_unit(const struct clb_gemm_variant *variant, clb_operand_role role);
size_t clb_gemm_depth_unit(const struct clb_gemm_variant *variant);

/* Most rows of A or columns of B in one launch, no wider than prelaunch.c's; SIZE_MAX: no limit. */
size_t clb_gemm_widest(const struct clb_gemm_variant *variant, clb_operand_role role);

/* Work-items of a group; 0 in families whose groups have one. */
size_t clb_gemm_group(const struct clb_gemm_family *family, const size_t *value);
/* The launches that pack w x k elements, and that multiply to m x n. */
struct clb_geometry clb_gemm_pack_geometry(const struct clb_gemm_variant *variant,
                                           clb_operand_role role, size_t w, size_t k);
struct clb_geometry clb_gemm_multiply_geometry(const struct clb_gemm_variant *variant, size_t m,
                                               size_t n);

/* An operand on the device: (i, p) is at offset + i*di + p*dp; one stride is 1, the other ld. */
struct clb_chunk {
    cl_mem mem;
    cl_ulong offset, ld;
    bool depth_contiguous; /* dp is 1 */
    bool conjugated;    /* the operand's elements are the conjugates; ignored for real precisions */
    unsigned triangle;  /* CLB_TRIANGLE_...; 0: a general matrix */
    ptrdiff_t diagonal; /* the triangle's diagonal is at p = i + diagonal */
};

/* Triangular chunks, as in kernels/gemm_cpu.cl, for families with has_skip. */
enum {
    CLB_TRIANGLE_LOW = 1,  /* element (i, p) is zero for p > i + diagonal */
    CLB_TRIANGLE_HIGH = 2, /* for p < i + diagonal */
    CLB_TRIANGLE_UNIT = 4  /* ones on the diagonal */
};

/* Bytes of w x k packed elements; w is rounded up to the panel width, k to the depth step. */
size_t clb_packed_bytes(const struct clb_gemm_variant *variant, clb_operand_role role, size_t w,
                        size_t k);

/* Where the packed panels from i0 on begin, in the kernels' units; clb_gemm_unit divides i0. */
cl_ulong clb_packed_offset(const struct clb_gemm_variant *variant, clb_operand_role role, size_t i0,
                           size_t k);

/* Enqueue the packing of a chunk. `flag`: split families' range flag, a cl_uint; else NULL. */
clb_status clb_gemm_pack(struct clb_queue_set *queue_set, const struct clb_gemm_variant *variant,
                         clb_operand_role role, const struct clb_chunk *chunk, size_t w, size_t k,
                         cl_mem packed, cl_ulong offset, cl_mem flag,
                         struct clb_order order) CLB_MUST_CHECK;

/* Split families: scale each row of A or column of B of a chunk in place by its own power of two,
 * and write the exponents to first[0] + i and first[1] + i. Elements that get too small are packed
 * as out of range. */
clb_status clb_gemm_scale(struct clb_queue_set *queue_set, const struct clb_gemm_variant *variant,
                          const struct clb_chunk *chunk, size_t w, size_t k, cl_mem exponents,
                          const cl_ulong first[2], struct clb_order order) CLB_MUST_CHECK;

/* Parts of a product that are zero or not wanted, as in kernels/cpu_product.h, for families with
 * has_skip. The conditions are about elements (i, p) of A, (p, j) of B, (i, j) of C. */
enum {
    CLB_SKIP_A_END = 1,   /* A is zero for p > i + a */
    CLB_SKIP_A_BEGIN = 2, /* for p < i + a */
    CLB_SKIP_B_END = 4,   /* B is zero for p > j + b */
    CLB_SKIP_B_BEGIN = 8, /* for p < j + b */
    CLB_SKIP_LOWER = 16,  /* C is wanted for i + c >= j */
    CLB_SKIP_UPPER = 32,  /* for i + c <= j */
    /* Both operands are packed in pieces of `a` depths, whole steps, which are `b` complex numbers,
     * or real ones, apart; only where b is an operand of A's form, without the kinds of A and B. */
    CLB_SKIP_PIECES = 64
};
struct clb_skip {
    unsigned kind; /* 0: the product is computed in full */
    ptrdiff_t a, b, c;
};

/* parts.c: how much of the depth one work-group computes. Where C has fewer tiles than half of the
 * device's units, the depth is divided into parts, whose products are added up in their order. This
 * depends on the arguments alone, which must be those of a whole problem and not of one of its
 * launches, so that each entry has the same bits whatever the launches.
 *
 * clb_part_depth: the depth of a part, a multiple of clb_gemm_depth_unit, for an m x n product of
 * launches that are k deep on so many units; 0: undivided. clb_part_bytes: of the memory that a
 * launch of m x n x k with such parts needs; 0: none; clb_scaled_bytes: of that of scaled operands,
 * which needs memory for one part at least. clb_part_most: the most that launches with up to m rows
 * and n columns need, whatever their depth. */
size_t clb_part_find_depth(const struct clb_gemm_variant *variant, size_t units, size_t m, size_t n,
                           size_t k);
size_t clb_part_find_most(const struct clb_gemm_variant *variant, size_t units, size_t m, size_t n);
static inline size_t clb_part_depth(const struct clb_gemm_variant *variant, size_t units, size_t m,
                                    size_t n, size_t k)
{
    return variant->family->has_parts ? clb_part_find_depth(variant, units, m, n, k) : 0;
}
static inline size_t clb_part_most(const struct clb_gemm_variant *variant, size_t units, size_t m,
                                   size_t n)
{
    return variant->family->has_parts ? clb_part_find_most(variant, units, m, n) : 0;
}
size_t clb_part_bytes(const struct clb_gemm_variant *variant, size_t part, size_t m, size_t n,
                      size_t k);
size_t clb_scaled_bytes(const struct clb_gemm_variant *variant, size_t part, size_t m, size_t n,
                        size_t k);

/* Whether kernels read both operands unpacked, with the same sums. */
static inline bool clb_gemm_reads_raw(const struct clb_gemm_variant *variant)
{
    return variant->family->raw_items != 0 && variant->tuning.value[CLB_PARAM_RAW] != 0;
}

/* A product of packed operands: C (m x n, ldc) = A*B, C += A*B or C -= A*B. C begins with element
 * c_offset of its buffer. If ldb is not 0, B is not packed: element (p, j) is at b_offset + p +
 * j*ldb, in elements of the problem. With `raw` neither is, and both have an offset, a leading
 * dimension and a contiguous direction. If b_op_of_a is not CLB_OP_N, `b` holds a matrix packed as
 * A, and B is its transpose or adjoint. */
struct clb_product {
    size_t m, n, k;
    cl_mem a, b, c;
    cl_ulong a_offset, b_offset, ldb;
    size_t c_offset, ldc;
    bool raw; /* only where clb_gemm_reads_raw, or A's rows and B's depths are contiguous and
                 has_direct */
    bool a_depth_contiguous, b_depth_contiguous;
    bool a_conjugated, b_conjugated; /* of `raw`; ignored for real precisions */
    cl_mem flag;                     /* of `raw`, of split families: as in clb_gemm_pack */
    cl_ulong lda;
    /* clb_part_depth and memory of clb_part_bytes, which no other launch that may run at the same
     * time uses. Ignored with in_order, cut and b_op_of_a. */
    size_t part;
    cl_mem parts;
    clb_op b_op_of_a; /* CLB_OP_T or CLB_OP_C only where has_skip; else CLB_OP_N */
    bool add, subtract;
    /* With subtract: subtract products of elements one after the other. Not for split families. */
    bool in_order;
    bool negate; /* C = -A*B, C += -A*B */
    /* Exponents of the operands' scales, of row 0 and of column 0 of the product; NULL: not scaled.
     * `parts` is memory of clb_scaled_bytes; only C = A*B and C += A*B. */
    cl_mem exponents;
    cl_ulong a_exponents, b_exponents;
    struct clb_skip cut;
};
clb_status clb_gemm_multiply(struct clb_queue_set *queue_set,
                             const struct clb_gemm_variant *variant,
                             const struct clb_product *product,
                             struct clb_order order) CLB_MUST_CHECK;

/* ---- what launch.c and parts.c use of each other ---- */

size_t clb_gemm_tiles(const struct clb_gemm_variant *variant, size_t m, size_t n);

/* The factors of a product and of C, two numbers of the kernels' real type; and one of them. */
clb_scalar clb_product_factors(const struct clb_gemm_variant *variant,
                               const struct clb_product *product);
#define CLB_FACTOR(precision, factors, i)                                             \
    (clb_precision_real_size(precision) == sizeof(cl_float) ? CLB_ARG((factors).s[i]) \
                                                            : CLB_ARG((factors).d[i]))

/* The products of parts of `depth_of_part` depths: where that is less than k, C is a matrix for
 * each of them, one behind the other; these and their sum, of scaled operands also of one part. */
clb_status clb_product_launch(struct clb_queue_set *queue_set,
                              const struct clb_gemm_variant *variant,
                              const struct clb_product *product, size_t depth_of_part,
                              struct clb_order order) CLB_MUST_CHECK;
clb_status clb_product_in_parts(struct clb_queue_set *queue_set,
                                const struct clb_gemm_variant *variant,
                                const struct clb_product *product,
                                struct clb_order order) CLB_MUST_CHECK;

#endif
