/* names.h: the names under which a routine of routines.def is exported.
 *
 * CLB_NAMES_sdcz(X, stem, ...) and so on expand X(name, precision, ...) for the precisions of a
 * row: X(sgemm, S, ...), X(dgemm, D, ...).
 *
 * CLB_FORMS_BLAS(X, routine) and CLB_FORMS_LAPACKE(X, routine) expand X(routine, form, prefix,
 * suffix, abi, always_ilp64) for the names of a library's routine; the name is
 * prefix##routine##suffix. Plain names take the integer width of the library that the caller would
 * have reached without the shim. */
#ifndef CLB_NAMES_H
#define CLB_NAMES_H

#define CLB_NAMES_sdcz(X, stem, ...)                                                               \
    CLB_NAMES_sd(X, stem, __VA_ARGS__) CLB_NAMES_cz(X, stem, __VA_ARGS__)
#define CLB_NAMES_sd(X, stem, ...) X(s##stem, S, __VA_ARGS__) X(d##stem, D, __VA_ARGS__)
#define CLB_NAMES_cz(X, stem, ...) X(c##stem, C, __VA_ARGS__) X(z##stem, Z, __VA_ARGS__)

#define CLB_FORMS_BLAS(X, routine)    CLB_FORMS_FORTRAN(X, routine) CLB_FORMS_C(X, routine)
#define CLB_FORMS_LAPACKE(X, routine) CLB_FORMS_FORTRAN(X, routine) CLB_FORMS_LAPACK_C(X, routine)

/* Reference BLAS, OpenBLAS, MKL; builds with 64-bit integers; the OpenBLAS in numpy's wheels. */
#define CLB_FORMS_FORTRAN(X, routine)                                                              \
    X(routine, plain, , _, FORTRAN, false)                                                         \
    X(routine, ilp64, , _64_, FORTRAN, true)                                                       \
    X(routine, scipy, scipy_, _, FORTRAN, false)                                                   \
    X(routine, scipy_ilp64, scipy_, _64_, FORTRAN, true)

/* CBLAS: OpenBLAS writes cblas_dgemm64_ and the reference cblas_dgemm_64. */
#define CLB_FORMS_C(X, routine)                                                                    \
    X(routine, cblas, cblas_, , C, false)                                                          \
    X(routine, cblas_ilp64, cblas_, 64_, C, true)                                                  \
    X(routine, cblas_ilp64_ref, cblas_, _64, C, true)                                              \
    X(routine, scipy_cblas, scipy_cblas_, , C, false)                                              \
    X(routine, scipy_cblas_ilp64, scipy_cblas_, 64_, C, true)

/* LAPACKE: each routine has a function that checks for NaN and allocates the workspace, and one
 * that does neither. */
#define CLB_FORMS_LAPACK_C(X, routine)                                                             \
    CLB_FORMS_LAPACK_HIGH(X, routine) CLB_FORMS_LAPACK_WORK(X, routine)
#define CLB_FORMS_LAPACK_HIGH(X, routine)                                                          \
    X(routine, lapacke, LAPACKE_, , LAPACKE, false)                                                \
    X(routine, lapacke_ilp64, LAPACKE_, 64_, LAPACKE, true)                                        \
    X(routine, lapacke_ilp64_ref, LAPACKE_, _64, LAPACKE, true)                                    \
    X(routine, scipy_lapacke, scipy_LAPACKE_, , LAPACKE, false)                                    \
    X(routine, scipy_lapacke_ilp64, scipy_LAPACKE_, 64_, LAPACKE, true)
#define CLB_FORMS_LAPACK_WORK(X, routine)                                                          \
    X(routine, lapacke_work, LAPACKE_, _work, LAPACKE, false)                                      \
    X(routine, lapacke_work_ilp64, LAPACKE_, _work64_, LAPACKE, true)                              \
    X(routine, lapacke_work_ilp64_ref, LAPACKE_, _work_64, LAPACKE, true)                          \
    X(routine, scipy_lapacke_work, scipy_LAPACKE_, _work, LAPACKE, false)                          \
    X(routine, scipy_lapacke_work_ilp64, scipy_LAPACKE_, _work64_, LAPACKE, true)

#endif
