/* SPDX-License-Identifier: BSD-3-Clause
 * A program with error handlers of its own that calls xGEMMTR and batches with wrong arguments,
 * over a library without these: the handlers get the routine's name and the position of each. */
#include "check.h"

#include <dlfcn.h>
#include <stdarg.h>

static int position;
static char name[40];

void xerbla_(const char *routine, const blas_int *info, size_t length);
void cblas_xerbla(blas_int info, const char *routine, const char *format, ...);

void xerbla_(const char *routine, const blas_int *info, size_t length)
{
    position = (int)*info;
    snprintf(name, sizeof name, "%.*s", (int)length, routine);
}

void cblas_xerbla(blas_int info, const char *routine, const char *format, ...)
{
    (void)format;
    position = (int)info;
    snprintf(name, sizeof name, "%s", routine);
}

typedef void fortran(const char *uplo, const char *transa, const char *transb, const blas_int *n,
                     const blas_int *k, const double *alpha, const double *a, const blas_int *lda,
                     const double *b, const blas_int *ldb, const double *beta, double *c,
                     const blas_int *ldc, size_t, size_t, size_t);
typedef void c_form(int layout, int uplo, int transa, int transb, blas_int n, blas_int k,
                    double alpha, const double *a, blas_int lda, const double *b, blas_int ldb,
                    double beta, double *c, blas_int ldc);

static int failures;

static void expect_report(const char *routine, int expected)
{
    if (position != expected || strcmp(name, routine) != 0) {
        fprintf(stderr, "%s: %d of %s, not %d\n", routine, position, name, expected);
        failures++;
    }
    position = 0;
    name[0] = '\0';
}

/* A wrong value for one argument at a time, the rest valid for either layout. */
static const struct {
    char uplo, transa, transb;
    blas_int n, k, lda, ldb, ldc;
    int position;
} wrong[] = {
    {'X', 'N', 'N', 5, 5, 5, 5, 5, 1},  {'U', 'X', 'N', 5, 5, 5, 5, 5, 2},
    {'L', 'N', 'X', 5, 5, 5, 5, 5, 3},  {'U', 'N', 'N', -1, 5, 5, 5, 5, 4},
    {'U', 'N', 'N', 5, -1, 5, 5, 5, 5}, {'U', 'N', 'N', 5, 5, 4, 5, 5, 8},
    {'U', 'N', 'N', 5, 5, 5, 4, 5, 10}, {'U', 'N', 'N', 5, 5, 5, 5, 4, 13},
};

static int option(char letter, const char *letters, int first)
{
    const char *found = strchr(letters, letter);
    return found != NULL ? first + (int)(found - letters) : 7;
}

/* ---- batches ---- */

typedef void groups_fortran(const char *transa, const char *transb, const blas_int *m,
                            const blas_int *n, const blas_int *k, const double *alpha,
                            double *const *a, const blas_int *lda, double *const *b,
                            const blas_int *ldb, const double *beta, double *const *c,
                            const blas_int *ldc, const blas_int *count, const blas_int *sizes,
                            size_t, size_t);
typedef void groups_c(int layout, const int *transa, const int *transb, const blas_int *m,
                      const blas_int *n, const blas_int *k, const double *alpha, double *const *a,
                      const blas_int *lda, double *const *b, const blas_int *ldb,
                      const double *beta, double *const *c, const blas_int *ldc, blas_int count,
                      const blas_int *sizes);
typedef void strided_c(int layout, int transa, int transb, blas_int m, blas_int n, blas_int k,
                       double alpha, const double *a, blas_int lda, blas_int stride_a,
                       const double *b, blas_int ldb, blas_int stride_b, double beta, double *c,
                       blas_int ldc, blas_int stride_c, blas_int count);

/* The second of two groups is wrong; positions in the lists of groups and of strides. */
static const struct {
    char transa, transb;
    blas_int m, n, k, lda, ldb, ldc, size;
    int position, strided;
} wrong_batch[] = {{'X', 'N', 5, 5, 5, 5, 5, 5, 1, 1, 1},   {'N', 'X', 5, 5, 5, 5, 5, 5, 1, 2, 2},
                   {'N', 'N', -1, 5, 5, 5, 5, 5, 1, 3, 3},  {'N', 'N', 5, -1, 5, 5, 5, 5, 1, 4, 4},
                   {'N', 'N', 5, 5, -1, 5, 5, 5, 1, 5, 5},  {'N', 'N', 5, 5, 5, 4, 5, 5, 1, 8, 8},
                   {'N', 'N', 5, 5, 5, 5, 4, 5, 1, 10, 11}, {'N', 'N', 5, 5, 5, 5, 5, 4, 1, 13, 15},
                   {'N', 'N', 5, 5, 5, 5, 5, 5, -1, 15, 17}};

static void call_batches(double *a, double *c)
{
    groups_fortran *fortran_groups;
    groups_c *c_groups;
    strided_c *c_strided;
    *(void **)&fortran_groups = dlsym(RTLD_DEFAULT, "dgemm_batch_");
    *(void **)&c_groups = dlsym(RTLD_DEFAULT, "cblas_dgemm_batch");
    *(void **)&c_strided = dlsym(RTLD_DEFAULT, "cblas_dgemm_batch_strided");
    REQUIRE(fortran_groups != NULL && c_groups != NULL && c_strided != NULL);
    for (size_t i = 0; i < sizeof wrong_batch / sizeof *wrong_batch; i++) {
        const char transa[] = {'N', wrong_batch[i].transa}, transb[] = {'N', wrong_batch[i].transb};
        const blas_int m[] = {5, wrong_batch[i].m}, n[] = {5, wrong_batch[i].n},
                       k[] = {5, wrong_batch[i].k}, lda[] = {5, wrong_batch[i].lda},
                       ldb[] = {5, wrong_batch[i].ldb}, ldc[] = {5, wrong_batch[i].ldc},
                       sizes[] = {1, wrong_batch[i].size}, count = 2;
        const double scalar[] = {1, 1};
        double *const as[] = {a, a}, *const cs[] = {c, c};
        fortran_groups(transa, transb, m, n, k, scalar, as, lda, as, ldb, scalar, cs, ldc, &count,
                       sizes, 1, 1);
        expect_report("DGEMM_BATCH", wrong_batch[i].position);
        for (int layout = 101; layout <= 103; layout++) {
            const int options[2][2] = {{111, option(transa[1], "NTC", 111)},
                                       {111, option(transb[1], "NTC", 111)}};
            if (layout == 103 && i > 1)
                break;
            c_groups(layout, options[0], options[1], m, n, k, scalar, as, lda, as, ldb, scalar, cs,
                     ldc, count, sizes);
            expect_report("cblas_dgemm_batch", layout == 103 ? 1 : wrong_batch[i].position + 1);
            c_strided(layout, options[0][1], options[1][1], m[1], n[1], k[1], 1, a, lda[1], 0, a,
                      ldb[1], 0, 1, c, ldc[1], 0, sizes[1]);
            expect_report("cblas_dgemm_batch_strided",
                          layout == 103 ? 1 : wrong_batch[i].strided + 1);
        }
    }
}

int main(void)
{
    double a[25] = {0}, b[25] = {0}, c[25];
    const double one = 1;
    fortran *dgemmtr;
    c_form *cblas_dgemmtr;
    *(void **)&dgemmtr = dlsym(RTLD_DEFAULT, "dgemmtr_");
    *(void **)&cblas_dgemmtr = dlsym(RTLD_DEFAULT, "cblas_dgemmtr");
    REQUIRE(dgemmtr != NULL && cblas_dgemmtr != NULL);
    for (size_t i = 0; i < 25; i++)
        c[i] = guard;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dgemmtr(&wrong[i].uplo, &wrong[i].transa, &wrong[i].transb, &wrong[i].n, &wrong[i].k, &one,
                a, &wrong[i].lda, b, &wrong[i].ldb, &one, c, &wrong[i].ldc, 1, 1, 1);
        expect_report("DGEMMTR", wrong[i].position);
        for (int layout = 101; layout <= 103; layout++) {
            if (layout == 103 && i > 1)
                break;
            cblas_dgemmtr(layout, option(wrong[i].uplo, "UL", 121),
                          option(wrong[i].transa, "NTC", 111), option(wrong[i].transb, "NTC", 111),
                          wrong[i].n, wrong[i].k, 1, a, wrong[i].lda, b, wrong[i].ldb, 1, c,
                          wrong[i].ldc);
            expect_report("cblas_dgemmtr", layout == 103 ? 1 : wrong[i].position + 1);
        }
    }
    call_batches(a, c);
    for (size_t i = 0; i < 25; i++)
        REQUIRE(c[i] == guard);
    return failures != 0;
}
