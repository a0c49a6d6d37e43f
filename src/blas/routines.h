/* routines: the rows of routines.def, one for each precision. */
#ifndef CLB_ROUTINES_H
#define CLB_ROUTINES_H

#include "blas.h"
#include "names.h"

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
    clb_precision precision;
    const char *signature, *shapes, *limits;
    const char *trans; /* letters allowed in this precision */
    const char *flags, *sizes, *ops, *others;
};

extern const struct clb_routine_info clb_routines[CLB_ROUTINES];

/* The work formula of a row, for the sizes that it names. */
double clb_work_of(clb_stem row, double m, double n, double k);

/* ---- call.c: what a signature says of a call --------------------------------------------------
 *
 * A decoded call of any routine: the arguments under their names. Integers are as the caller passed
 * them. C names may pass row-major matrices, see `layout`: clb_route turns calls of BLAS with them,
 * and copies matrices of LAPACK. */

#define CLB_OP_INVALID ((clb_op)-1)

enum { CLB_ROW_MAJOR = 101, CLB_COL_MAJOR = 102 }; /* CBLAS_LAYOUT, LAPACK_ROW_MAJOR */

struct clb_call {
    clb_routine routine;
    clb_precision precision;
    struct clb_symbol *symbol;
    const struct clb_target *target; /* the next library's function of that name */
    const void *caller;              /* the address that the call returns to */
    bool wide;                       /* ipiv and info are 64-bit */
    char invalid; /* the first side, uplo or diag that is none, as in the signature; l: layout */

    bool right, upper, unit;
    clb_op transa, transb; /* transa also where there is one trans; CLB_OP_INVALID: none */
    int64_t m, n, k, nrhs, lda, ldb, ldc, lwork;
    const void *alpha, *beta;
    void *a, *b, *c, *ipiv, *tau;
    void *work; /* NULL: a C name of LAPACK that passes no workspace */
    void *info;

    int layout;  /* of C names; 0: a Fortran name */
    bool checks; /* C names of LAPACK: look for NaN in the input */

    clb_scalar turned; /* where alpha may point to: see clb_call_turn */

    /* Set by clb_route where it declines the call. */
    bool timed;       /* the time that the next library takes is wanted: clb_next_begin; */
    bool learnt;      /* for the profile, */
    bool compared;    /* for later calls like this one; */
    bool outer;       /* calls that it makes are part of it */
    double cpu_begin; /* the process's CPU time then, where that counts; else NaN */
};

/* Whether the routine has an argument of this letter, or the flag: see routines.def. */
bool clb_signature_has(const struct clb_call *call, char letter);
bool clb_routine_has_flag(clb_routine routine, char flag);

/* The value of a letter of `shapes`, `limits` or `sizes`. */
int64_t clb_call_size(const struct clb_call *call, char letter);

/* A matrix as `shapes` has it: its name, A, B or C. False: the routine has no such matrix. */
struct clb_shape {
    int64_t rows, cols;
    bool written, triangle;
};
bool clb_call_shape(const struct clb_call *call, char matrix, struct clb_shape *shape);

/* False when beta is zero, so that C is only written; routines without a beta read what they write.
 */
bool clb_call_reads_c(const struct clb_call *call);

/* The position of the first wrong argument in Fortran's list, from 1, by the checks of reference
 * BLAS and LAPACK; 0 when all are right. */
int clb_call_first_wrong(const struct clb_call *call);
/* Whether a matrix that a valid call writes shares memory with another one of it, which BLAS and
 * LAPACK don't allow. Triangles count as squares. */
bool clb_call_overlaps(const struct clb_call *call);
/* True when a valid call leaves nothing to compute on a device: a size is zero, or alpha is. */
bool clb_call_is_quick(const struct clb_call *call);
/* Options and sizes for the log, "NT m=5 n=6 k=7". */
void clb_call_describe(const struct clb_call *call, char *text, size_t size);

/* Turn a row-major call of BLAS into the column-major call on the same memory. */
void clb_call_turn(struct clb_call *call);

/* Scalars. `real`: of the precision's real type. */
clb_scalar clb_scalar_get(clb_precision precision, bool real, const void *value);
clb_scalar clb_scalar_conjugate(clb_precision precision, clb_scalar scalar);
bool clb_scalar_is_zero(clb_precision precision, const void *value);

/* Elements of an array of Fortran integers, 64-bit ones if `wide`. */
int64_t clb_integer_get(const void *array, size_t index, bool wide);
void clb_integer_set(void *array, size_t index, bool wide, int64_t value);

#endif
