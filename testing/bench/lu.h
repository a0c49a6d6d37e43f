/* lu.h: a problem of bench-lu, for its parts. */
#ifndef LU_H
#define LU_H

#include "engine/lapack/lapack.h"
#include "engine/gemm/gemm.h"
#include "bench.h"

enum routine {
    GETRF,
    TRSM,
    GETRS,
    POTRF,
    GEQRF,
    ORMQR,
    ORGQR,
    SYRK,
    HERK,
    SYR2K,
    HER2K,
    SYMM,
    HEMM,
    TRMM,
    TRTRI,
    LAUUM,
    POTRI,
    ROUTINES
};

struct problem {
    enum routine routine;
    const char *form; /* of Level 3, see level3_forms */
    clb_precision precision;
    size_t n, rhs, bytes; /* of what is overwritten */
    void *a, *b;          /* as they are made; A holds factors where the routine takes them */
    void *x[2];           /* what a call overwrites, and tau: by the shim, by OpenBLAS */
    void *tau[2];
    int64_t *ipiv;
    int *pivots;
};

static inline bool is_qr(const struct problem *p)
{
    return p->routine >= GEQRF && p->routine <= ORGQR;
}

static inline bool is_level3(const struct problem *p)
{
    return p->routine >= SYRK && p->routine <= TRMM;
}

static inline bool is_inverse(const struct problem *p)
{
    return p->routine >= TRTRI;
}

/* A is overwritten, not B. */
static inline bool is_factored(const struct problem *p)
{
    return p->routine == GETRF || p->routine == POTRF || p->routine == GEQRF ||
           p->routine == ORGQR || is_inverse(p);
}

/* OpenBLAS's function of a precision ("getrf"), and its threads for the shim's panels. */
void (*function_of(clb_precision precision, const char *routine))(void);
void set_panel_threads(bool panel);

/* lu_qr.c: A is n x rhs for geqrf and orgqr, n x n for ormqr. */
void qr_make(struct problem *p);
clb_status qr_shim(const struct problem *p, struct clb_runtime *runtime,
                   const struct clb_gemm_variant *variant, void *x);
void qr_openblas(const struct problem *p, void *x);
double qr_error(const struct problem *p, int library);
double qr_work(const struct problem *p); /* operations, of real problems */

/* lu_level3.c: C is n x n and not read; of trmm it is B. The forms are a list with commas. */
const char *level3_forms(enum routine routine, clb_precision precision);
clb_status level3_shim(const struct problem *p, struct clb_runtime *runtime,
                       const struct clb_gemm_variant *variant, void *x);
void level3_openblas(const struct problem *p, const char *name, void *x);
double level3_error(const struct problem *p); /* between the two results */
double level3_work(const struct problem *p);

/* lu_inverse.c: the forms are L and U. */
void inverse_make(struct problem *p);
clb_status inverse_shim(const struct problem *p, struct clb_runtime *runtime,
                        const struct clb_gemm_variant *variant, void *x);
void inverse_openblas(const struct problem *p, const char *name, void *x);
double inverse_work(const struct problem *p);

#endif
