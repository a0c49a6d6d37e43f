/* A LAPACK under other names, those of the libraries in numpy's wheels and of builds with 64-bit
 * integers: ROUTINE(name) is what each routine is called here. It passes calls on to the names
 * without prefix and suffix. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

#define ROUTINES(x)                                                                                \
    void x##getrf_(void *, void *, void *, void *, void *, void *);                                \
    EXPORT void ROUTINE(x##getrf)(void *m, void *n, void *a, void *lda, void *ipiv, void *info);   \
    void ROUTINE(x##getrf)(void *m, void *n, void *a, void *lda, void *ipiv, void *info)           \
    {                                                                                              \
        x##getrf_(m, n, a, lda, ipiv, info);                                                       \
    }                                                                                              \
    void x##getrs_(void *, void *, void *, void *, void *, void *, void *, void *, void *,         \
                   size_t);                                                                        \
    EXPORT void ROUTINE(x##getrs)(void *trans, void *n, void *nrhs, void *a, void *lda,            \
                                  void *ipiv, void *b, void *ldb, void *info, size_t length);      \
    void ROUTINE(x##getrs)(void *trans, void *n, void *nrhs, void *a, void *lda, void *ipiv,       \
                           void *b, void *ldb, void *info, size_t length)                          \
    {                                                                                              \
        x##getrs_(trans, n, nrhs, a, lda, ipiv, b, ldb, info, length);                             \
    }                                                                                              \
    void x##getri_(void *, void *, void *, void *, void *, void *, void *);                        \
    EXPORT void ROUTINE(x##getri)(void *n, void *a, void *lda, void *ipiv, void *work,             \
                                  void *lwork, void *info);                                        \
    void ROUTINE(x##getri)(void *n, void *a, void *lda, void *ipiv, void *work, void *lwork,       \
                           void *info)                                                             \
    {                                                                                              \
        x##getri_(n, a, lda, ipiv, work, lwork, info);                                             \
    }                                                                                              \
    void x##gesv_(void *, void *, void *, void *, void *, void *, void *, void *);                 \
    EXPORT void ROUTINE(x##gesv)(void *n, void *nrhs, void *a, void *lda, void *ipiv, void *b,     \
                                 void *ldb, void *info);                                           \
    void ROUTINE(x##gesv)(void *n, void *nrhs, void *a, void *lda, void *ipiv, void *b, void *ldb, \
                          void *info)                                                              \
    {                                                                                              \
        x##gesv_(n, nrhs, a, lda, ipiv, b, ldb, info);                                             \
    }                                                                                              \
    void x##potrf_(void *, void *, void *, void *, void *, size_t);                                \
    EXPORT void ROUTINE(x##potrf)(void *uplo, void *n, void *a, void *lda, void *info);            \
    void ROUTINE(x##potrf)(void *uplo, void *n, void *a, void *lda, void *info)                    \
    {                                                                                              \
        x##potrf_(uplo, n, a, lda, info, 1);                                                       \
    }                                                                                              \
    void x##potrs_(void *, void *, void *, void *, void *, void *, void *, void *, size_t);        \
    EXPORT void ROUTINE(x##potrs)(void *uplo, void *n, void *nrhs, void *a, void *lda, void *b,    \
                                  void *ldb, void *info);                                          \
    void ROUTINE(x##potrs)(void *uplo, void *n, void *nrhs, void *a, void *lda, void *b,           \
                           void *ldb, void *info)                                                  \
    {                                                                                              \
        x##potrs_(uplo, n, nrhs, a, lda, b, ldb, info, 1);                                         \
    }                                                                                              \
    void x##potri_(void *, void *, void *, void *, void *, size_t);                                \
    EXPORT void ROUTINE(x##potri)(void *uplo, void *n, void *a, void *lda, void *info);            \
    void ROUTINE(x##potri)(void *uplo, void *n, void *a, void *lda, void *info)                    \
    {                                                                                              \
        x##potri_(uplo, n, a, lda, info, 1);                                                       \
    }                                                                                              \
    void x##lauum_(void *, void *, void *, void *, void *, size_t);                                \
    EXPORT void ROUTINE(x##lauum)(void *uplo, void *n, void *a, void *lda, void *info);            \
    void ROUTINE(x##lauum)(void *uplo, void *n, void *a, void *lda, void *info)                    \
    {                                                                                              \
        x##lauum_(uplo, n, a, lda, info, 1);                                                       \
    }                                                                                              \
    void x##trtri_(void *, void *, void *, void *, void *, void *, size_t, size_t);                \
    EXPORT void ROUTINE(x##trtri)(void *uplo, void *diag, void *n, void *a, void *lda,             \
                                  void *info);                                                     \
    void ROUTINE(x##trtri)(void *uplo, void *diag, void *n, void *a, void *lda, void *info)        \
    {                                                                                              \
        x##trtri_(uplo, diag, n, a, lda, info, 1, 1);                                              \
    }                                                                                              \
    void x##posv_(void *, void *, void *, void *, void *, void *, void *, void *, size_t);         \
    EXPORT void ROUTINE(x##posv)(void *uplo, void *n, void *nrhs, void *a, void *lda, void *b,     \
                                 void *ldb, void *info);                                           \
    void ROUTINE(x##posv)(void *uplo, void *n, void *nrhs, void *a, void *lda, void *b, void *ldb, \
                          void *info)                                                              \
    {                                                                                              \
        x##posv_(uplo, n, nrhs, a, lda, b, ldb, info, 1);                                          \
    }                                                                                              \
    void x##trsm_(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,  \
                  void *, size_t, size_t, size_t, size_t);                                         \
    EXPORT void ROUTINE(x##trsm)(void *side, void *uplo, void *trans, void *diag, void *m,         \
                                 void *n, void *alpha, void *a, void *lda, void *b, void *ldb);    \
    void ROUTINE(x##trsm)(void *side, void *uplo, void *trans, void *diag, void *m, void *n,       \
                          void *alpha, void *a, void *lda, void *b, void *ldb)                     \
    {                                                                                              \
        x##trsm_(side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb, 1, 1, 1, 1);                \
    }                                                                                              \
    void x##gemm_(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,  \
                  void *, void *, void *, size_t, size_t);                                         \
    EXPORT void ROUTINE(x##gemm)(void *ta, void *tb, void *m, void *n, void *k, void *alpha,       \
                                 void *a, void *lda, void *b, void *ldb, void *beta, void *c,      \
                                 void *ldc);                                                       \
    void ROUTINE(x##gemm)(void *ta, void *tb, void *m, void *n, void *k, void *alpha, void *a,     \
                          void *lda, void *b, void *ldb, void *beta, void *c, void *ldc)           \
    {                                                                                              \
        x##gemm_(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, 1, 1);                      \
    }
ROUTINES(s)
ROUTINES(d)
ROUTINES(c)
ROUTINES(z)

/* By which the width of its integers is asked. */
int isamax_(void *n, void *x, void *step);
EXPORT int ROUTINE(isamax)(void *n, void *x, void *step);
int ROUTINE(isamax)(void *n, void *x, void *step)
{
    return isamax_(n, x, step);
}
