/* LAPACKE under other names, HIGH(name) and WORK(name): it passes calls on to the plain ones. */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

#define PASS(from, to, parameters, arguments)                                                      \
    int64_t to parameters;                                                                         \
    EXPORT int64_t from parameters;                                                                \
    int64_t from parameters                                                                        \
    {                                                                                              \
        return to arguments;                                                                       \
    }
#define BOTH(name, parameters, arguments)                                                          \
    PASS(HIGH(name), LAPACKE_##name, parameters, arguments)                                        \
    PASS(WORK(name), LAPACKE_##name##_work, parameters, arguments)
#define ROUTINES(x)                                                                                \
    BOTH(x##getrf, (int layout, int64_t m, int64_t n, void *a, int64_t lda, void *ipiv),           \
         (layout, m, n, a, lda, ipiv))                                                             \
    BOTH(x##getrs,                                                                                 \
         (int layout, char trans, int64_t n, int64_t nrhs, void *a, int64_t lda, void *ipiv,       \
          void *b, int64_t ldb),                                                                   \
         (layout, trans, n, nrhs, a, lda, ipiv, b, ldb))                                           \
    PASS(HIGH(x##getri), LAPACKE_##x##getri,                                                       \
         (int layout, int64_t n, void *a, int64_t lda, void *ipiv), (layout, n, a, lda, ipiv))     \
    PASS(WORK(x##getri), LAPACKE_##x##getri_work,                                                  \
         (int layout, int64_t n, void *a, int64_t lda, void *ipiv, void *work, int64_t lwork),     \
         (layout, n, a, lda, ipiv, work, lwork))                                                   \
    BOTH(x##gesv,                                                                                  \
         (int layout, int64_t n, int64_t nrhs, void *a, int64_t lda, void *ipiv, void *b,          \
          int64_t ldb),                                                                            \
         (layout, n, nrhs, a, lda, ipiv, b, ldb))
ROUTINES(s)
ROUTINES(d)
ROUTINES(c)
ROUTINES(z)
