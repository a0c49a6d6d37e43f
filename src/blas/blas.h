/* blas: the problems of BLAS and LAPACK as the layers above describe them, and what the CPU does
 * with the caller's matrices.
 *
 * Matrices belong to the caller and are column-major in host memory; of a rows x cols operand only
 * its (cols-1)*ld + rows elements are touched. SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_BLAS_H
#define CLB_BLAS_H

#include "host/host.h"

struct clb_rect {
    size_t row, col, rows, cols;
};

/* ---- products ---- */

/* How an operand is stored. Of the last three only one triangle is read; on the diagonal of a
 * Hermitian matrix only the real parts, on that of a unit triangular one nothing. */
typedef enum {
    CLB_STRUCTURE_GENERAL,
    CLB_STRUCTURE_SYMMETRIC,
    CLB_STRUCTURE_HERMITIAN,
    CLB_STRUCTURE_TRIANGULAR
} clb_structure;

typedef union clb_scalar {
    float s[2]; /* re, im */
    double d[2];
} clb_scalar;

/* A, B and C of a product in a batch. */
struct clb_matrices {
    char *of[3];
};

struct clb_gemm_operand {
    const void *data;
    size_t ld;
    clb_op op; /* CLB_OP_N for symmetric and Hermitian operands */
    clb_structure shape;
    bool upper, unit; /* as stored, before op */
};

typedef enum { CLB_REGION_FULL, CLB_REGION_UPPER, CLB_REGION_LOWER } clb_region;

/* C := sum over terms of alpha[t]*op(A[t])*op(B[t]) + beta*C, on the region of C only. op(A) is m x
 * k, op(B) k x n, C m x n; m = n where the region is a triangle. None of m, n, k is 0.
 *
 *   gemm           one term, general operands, all of C
 *   symm, hemm     one operand is symmetric or Hermitian
 *   syrk, herk     a = A, b = A^T or A^H (ops N and T or C, or T or C and N), a triangle
 *   syr2k, her2k   two terms: A*B^T + B*A^T; alpha[1] is alpha[0], for her2k its conjugate
 *   trmm           one operand is triangular, in_place, beta = 0
 *   gemmtr         general operands, a triangle
 *
 * A batch of gemm is `count` products that differ only in their matrices. It is planned as one of
 * block-diagonal matrices: product p has the rows of C from p*m and the columns from p*n on.
 *
 * Any combination is computed, with these limits: at most one operand of a term is not general; an
 * operand in place is general and not transposed; two different alphas are conjugates, and then the
 * two terms without alpha are adjoints of each other, as in her2k. */
struct clb_gemm {
    clb_precision precision;
    size_t m, n, k, terms;
    struct clb_gemm_operand a[2], b[2];
    clb_scalar alpha[2], beta;
    void *c;
    size_t ldc;
    clb_region region;
    bool real_diagonal;               /* herk, her2k: C's diagonal is read and written as real */
    bool in_place;                    /* trmm: c is b[0]'s memory (left), or a[0]'s (right) */
    size_t count;                     /* of a batch; 0: it is none */
    const struct clb_matrices *batch; /* of which the first are those above */
};

/* ---- merge.c ---- */

/* Y(i, j) = X(order[i], j), for `rows` rows of Y. */
void clb_copy_ordered(clb_precision precision, size_t rows, size_t cols, const uint32_t *order,
                      const void *x, size_t ldx, void *y, size_t ldy);

/* Minus one, zero or one in a precision. */
const void *clb_scalar_of(clb_precision precision, int x);
bool clb_scalar_equal(clb_precision precision, const void *x, const void *y);

/* C = alpha*P + beta*C for a finished tile P (ldp). With beta = 0 C is not read. */
void clb_merge_tile(clb_precision precision, size_t m, size_t n, const void *alpha, const void *p,
                    size_t ldp, const void *beta, void *c, size_t ldc);

bool clb_tile_is_finite(clb_precision precision, size_t m, size_t n, const void *p, size_t ldp);

/* The parts of C that a run has written. They cover C without overlap; each is written completely
 * or not at all. No parts: nothing was begun. */
struct clb_gemm_progress {
    struct clb_rect *part;
    bool *written;
    size_t parts;
    const char *kernel; /* the variant that computed the last part */
};

/* None of the parts is written; the caller sets their rectangles. */
clb_status clb_gemm_progress_make(struct clb_gemm_progress *progress, size_t parts) CLB_MUST_CHECK;
void clb_gemm_progress_free(struct clb_gemm_progress *progress);

/* Called when a command, or clFinish at the end of a run, has failed. Parts that are written are
 * kept, since their commands reported success; but where C is not an operand all are marked as not
 * written, because some drivers report only in clFinish that a kernel was not run. Returns the
 * status that the run must return. */
clb_status clb_gemm_distrust(const struct clb_gemm *problem,
                             struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* ---- transpose.c: by as many threads as are free ---- */

/* Y = X^T or X^H for a rows x cols matrix Y; `alone`: by the calling thread. */
void clb_transpose(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                   void *y, size_t ldy, bool conjugate, bool alone);

/* By the calling thread: Y(i, j) = X(i, j) where i >= diagonal + j, or i <= diagonal + j if
 * `upper`; other entries of Y are neither read nor written. */
void clb_copy_trapezoid(clb_precision precision, bool upper, ptrdiff_t diagonal, size_t rows,
                        size_t cols, const void *x, size_t ldx, void *y, size_t ldy);

/* The rows of a column that are in a part of a matrix: 0 is all of it, 'U' and 'L' are triangles
 * with the diagonal, 'u' and 'l' without. */
static inline void clb_part_rows(char part, size_t rows, size_t col, size_t *begin, size_t *end)
{
    *begin = part == 'L' || part == 'l' ? clb_min(rows, col + (part == 'l')) : 0;
    *end = part == 'U' || part == 'u' ? clb_min(rows, col + (part == 'U')) : rows;
}

/* Whether that part of X (rows x cols) has a NaN. */
bool clb_has_nan(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                 char part);

/* Whether that part of a square matrix of order n > 0 has neither NaN nor infinity. */
bool clb_triangle_is_finite(clb_precision precision, char part, size_t n, const void *x,
                            size_t ldx);
/* Copy that part of the first `cols` columns. Nothing outside it is read or written. */
void clb_copy_part(clb_precision precision, char part, size_t rows, size_t cols, const void *x,
                   size_t ldx, void *y, size_t ldy);

/* ---- call.c: the rows of routines.def, one for each precision, and calls of them ---- */

/* What routines compute, the same for all precisions, and for Hermitian, recursive and adjoint (LQ)
 * forms; gemmtr is a triangle of a product, syrk of A*A^T, syr2k of A*B^T + B*A^T. */
#define CLB_KIND_TABLE(X) \
    X(gemm)               \
    X(gemmtr)             \
    X(syrk)               \
    X(syr2k)              \
    X(symm)               \
    X(trmm)               \
    X(trsm)               \
    X(potrf)              \
    X(potrs)              \
    X(posv)               \
    X(trtri)              \
    X(lauum)              \
    X(potri)              \
    X(getrf)              \
    X(getrs)              \
    X(getri)              \
    X(gesv)               \
    X(geqrf)              \
    X(ormqr)              \
    X(orgqr)

typedef enum clb_kind {
#define CLB_KIND(kind) CLB_KIND_##kind,
    CLB_KIND_TABLE(CLB_KIND)
#undef CLB_KIND
        CLB_KINDS
} clb_kind;

typedef enum clb_routine {
#define CLB_NAME(name, precision, library)          CLB_ROUTINE_##name,
#define CLB_ROUTINE(stem, precisions, library, ...) CLB_NAMES_##precisions(CLB_NAME, stem, library)
#include "routines.def"
#undef CLB_ROUTINE
#undef CLB_NAME
    CLB_ROUTINES
} clb_routine;

/* The rows, whatever the precision. */
typedef enum clb_stem {
#define CLB_ROUTINE(stem, ...) CLB_STEM_##stem,
#include "routines.def"
#undef CLB_ROUTINE
    CLB_STEMS
} clb_stem;

/* See routines.def. */
struct clb_routine_info {
    const char *name; /* "dgemm" */
    const char *stem; /* "gemm" */
    clb_stem row;
    clb_kind kind;
    clb_precision precision;
    const char *signature, *shapes, *limits;
    const char *trans; /* letters allowed in this precision */
    const char *flags, *sizes, *others;
};

extern const struct clb_routine_info clb_routines[CLB_ROUTINES];

/* The work formula of a row, for the sizes that it names. */
double clb_work_of(clb_stem row, double m, double n, double k);

/* Whether the routine has this letter in `flags`. */
bool clb_routine_has_flag(clb_routine routine, char flag);

/* The first routine of a kind in a precision; `adjoint`: with the flag l, if there is one. */
clb_routine clb_routine_of(clb_kind kind, clb_precision precision, bool adjoint);

/* ---- call.c: calls, and what a signature says of them ----
 *
 * A call of any routine on column-major matrices, from the entry to the algorithms, the next
 * library and the check of a result. */

#define CLB_OP_INVALID ((clb_op)-1)

struct clb_call {
    clb_routine routine;
    clb_kind kind; /* the routine's */
    clb_precision precision;
    char invalid; /* the first side, uplo or diag that is none, as in the signature; l: layout */

    bool right, upper, unit;
    clb_op transa, transb; /* transa also where there is one trans; CLB_OP_INVALID: none */
    /* Before the checks these may be negative: see clb_call_size. m = n where there is no m. */
    size_t m, n, k, nrhs, lda, ldb, ldc; /* nrhs: of a batch, so many products like this one */
    const void *alpha, *beta;
    void *a, *b, *c, *ipiv, *tau;
    void *work; /* of lwork elements, -1: only the best number is asked for */
    int64_t lwork;
    void *info;
    bool wide; /* ipiv and info have 64-bit integers */
};

/* Set the routine, kind and precision, and m where it has none. clb_call_of: without arguments. */
void clb_call_set_routine(struct clb_call *call, clb_routine routine);
struct clb_call clb_call_of(clb_routine routine);
/* The same arguments for a routine of a kind that may be another one, xGETRF in xGESV. Then its
 * options are left, N and not unit; `upper` stays. */
struct clb_call clb_call_as(const struct clb_call *call, clb_kind kind);
/* The call that computes a rectangle of C or of B, which must not depend on the rest of it: of a
 * product, a triangular routine, xORMQR; whole columns where A is factored or its factors are. */
struct clb_call clb_call_part(const struct clb_call *call, const struct clb_rect *rect);
/* LQ: what QR computes of the adjoint matrices, whose rows and columns are exchanged. */
static inline bool clb_call_is_adjoint(const struct clb_call *call)
{
    return clb_routine_has_flag(call->routine, 'l');
}

/* Whether the routine's signature has this letter: see routines.def. */
bool clb_signature_has(const struct clb_call *call, char letter);

/* The value of a letter of `shapes`, `limits` or `sizes`. */
int64_t clb_call_size(const struct clb_call *call, char letter);

/* Matrix A, B or C of a call, as `shapes` has it. False: the routine has no such matrix. */
enum { CLB_CALL_MATRICES = 3 };
struct clb_shape {
    void *data;
    size_t rows, cols, ld; /* see struct clb_call */
    bool written, triangle;
    char part; /* as in clb_copy_part; 0: all of it */
};
bool clb_call_shape(const struct clb_call *call, char matrix, struct clb_shape *shape);

/* False when beta is zero: C is only written. Routines without a beta read what they write. */
bool clb_call_reads_c(const struct clb_call *call);

/* The position of the first wrong argument in Fortran's list, from 1, by the checks of reference
 * BLAS and LAPACK; 0 when all are right. */
int clb_call_first_wrong(const struct clb_call *call);
/* Whether a matrix that a valid call writes shares memory with another of its matrices, which BLAS
 * and LAPACK don't allow. Triangles count as squares. */
bool clb_call_overlaps(const struct clb_call *call);
/* True when a valid call leaves nothing to compute on a device: a size is zero, or alpha is. */
bool clb_call_is_quick(const struct clb_call *call);
static inline clb_op clb_op_of_letter(char letter)
{
    const char upper = (char)(letter & 0xdf);
    return upper == 'N'   ? CLB_OP_N
           : upper == 'T' ? CLB_OP_T
           : upper == 'C' ? CLB_OP_C
                          : CLB_OP_INVALID;
}
/* The letter of one of CBLAS's numbers for an option, from `first` on in the order of these
 * letters; 0 for any other. */
static inline char clb_letter_of_cblas(int option, int first, const char *letters)
{
    const size_t index = (size_t)option - (size_t)first;
    return index < __builtin_strlen(letters) ? letters[index] : 0;
}
/* '?' for an invalid option. */
static inline char clb_letter_of_op(clb_op op)
{
    return op == CLB_OP_N ? 'N' : op == CLB_OP_T ? 'T' : op == CLB_OP_C ? 'C' : '?';
}
/* Options and sizes for the log, "NT m=5 n=6 k=7". */
void clb_call_describe(const struct clb_call *call, char *text, size_t size);

/* Make a row-major call of BLAS column-major, on its memory; *alpha may hold its alpha. */
void clb_call_turn(struct clb_call *call, clb_scalar *alpha);

/* Scalars. `real`: of the precision's real type. */
clb_scalar clb_scalar_get(clb_precision precision, bool real, const void *value);
clb_scalar clb_scalar_conjugate(clb_precision precision, clb_scalar scalar);

/* Elements of an array of Fortran integers, 64-bit ones if `wide`. */
int64_t clb_integer_get(const void *array, size_t index, bool wide);
void clb_integer_set(void *array, size_t index, bool wide, int64_t value);

/* ---- the next library's functions, as the algorithms of the engine are given them ---- */

struct clb_host_blas;

/* Compute a call on the host, and return info >= 0 where the routine has one; its work, lwork and
 * info are not used. xGETRF's pivots are relative to the first row. */
typedef size_t clb_host_function(const struct clb_host_blas *host, const struct clb_call *call);

/* The functions for one call: of its precision and with integers of its width. An algorithm has
 * them factor its panels, and route the rest of a result after the device has failed. */
struct clb_host_blas {
    const void *context; /* for the functions */
    bool optimised;      /* the routine called is one of an optimised library */
    const char *library; /* that library's file name, kept for good; NULL: not known */
    int threads;         /* that it uses; 0: not known */
    void *work;          /* the caller's workspace of lwork elements, for QR and xGETRI */
    int64_t lwork;       /* -1: they only set the workspace's first element to its best size */

    /* For calls of a kind; of QR, also for its adjoint form where the call that the functions are
     * for has it. NULL: the library has none, or it is not needed. Where the OpenCL device is the
     * CPU, hold the library's threads while it factors panels. */
    clb_host_function *of[CLB_KINDS];
    /* The results of xGEQRF, faster where n is small; unless t is NULL, also T of all reflectors as
     * one block, with zeros below the diagonal. False: no memory, and nothing was done. */
    bool (*geqrt)(const struct clb_host_blas *host, const struct clb_call *call, void *t,
                  size_t ldt);
    /* Let the library compute with so many threads until clb_next_release_threads: OpenBLAS's idle
     * threads spin for 25 ms (src/shim/next/host_blas.c). False: none to release. */
    bool (*hold_threads)(const struct clb_host_blas *host, int count);
};

static inline size_t clb_host_call(const struct clb_host_blas *host, const struct clb_call *call)
{
    return host->of[call->kind](host, call);
}

#endif
