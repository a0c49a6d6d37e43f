/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls names of BLAS and LAPACK, most of them none of the shim's, whose arguments and results use
 * every kind of register and the stack. Prints nothing when the results are right.
 *
 * provided [names | threads | first | missing] */
#include <complex.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern float sdot_(const int *, const float *, const int *, const float *, const int *);
extern double dnrm2_(const int *, const double *, const int *);
extern double complex zdotc_(const int *, const double complex *, const int *,
                             const double complex *, const int *);
extern int lsame_(const char *, const char *, size_t, size_t);
extern int ilaenv_(const int *, const char *, const char *, const int *, const int *, const int *,
                   const int *, size_t, size_t);
extern void drotg_(double *, double *, double *, double *);
extern double cblas_ddot(int, const double *, int, const double *, int);
extern void cblas_drotm(int, double *, int, double *, int, const double *);
extern void cblas_dsbmv(int, int, int, int, double, const double *, int, const double *, int,
                        double, double *, int);
extern void cblas_drot(int, double *, int, double *, int, double, double);
extern void dsyev_(const char *, const char *, const int *, double *, const int *, double *,
                   double *, const int *, int *, size_t, size_t);
extern void dgesvd_(const char *, const char *, const int *, const int *, double *, const int *,
                    double *, double *, const int *, double *, const int *, double *, const int *,
                    int *, size_t, size_t);
extern void openblas_set_num_threads(int), goto_set_num_threads(int);
extern int openblas_get_num_threads(void), openblas_get_num_procs(void),
    openblas_get_parallel(void);
extern char *openblas_get_config(void), *openblas_get_corename(void);
extern void bli_thread_set_num_threads(long);
extern long bli_thread_get_num_threads(void);
extern int RowMajorStrg, CBLAS_CallFromC;
extern void dcombssq_(double *, const double *);

#define REQUIRE(condition)                                             \
    do {                                                               \
        if (!(condition)) {                                            \
            printf("%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                   \
        }                                                              \
    } while (0)

static int near(double a, double b)
{
    return fabs(a - b) < 1e-5 * (1 + fabs(b));
}

static void call_blas(void)
{
    const int n = 3, one = 1;
    const float x[] = {1, 2, 3};
    double d[] = {2, 3, 6}, e[] = {1, 1, 1}, y[] = {1, 2, 3}, a = 3, b = 4, c, s;
    const double complex z[] = {1 + 2 * I, 3 - I, I}, w[] = {2, I, 1 - I};
    REQUIRE(sdot_(&n, x, &one, x, &one) == 14);
    REQUIRE(near(dnrm2_(&n, d, &one), 7));
    REQUIRE(cabs(zdotc_(&n, z, &one, w, &one) - (2 - 4 * I + (3 + I) * I - I * (1 - I))) < 1e-12);
    REQUIRE(lsame_("n", "N", 1, 1) && !lsame_("n", "T", 1, 1));
    drotg_(&a, &b, &c, &s);
    REQUIRE(near(fabs(a), 5) && near(c * c + s * s, 1));
    REQUIRE(cblas_ddot(3, d, 1, e, 1) == 11);
    cblas_drot(3, d, 1, e, 1, 0, 2); /* two scalars beside four integers and pointers */
    REQUIRE(d[2] == 2 && e[2] == -12);
    d[0] = 2, d[1] = 3, d[2] = 6, e[0] = e[1] = e[2] = 1;
    cblas_dsbmv(102, 121, 3, 0, 2, d, 1, e, 1, 10, y,
                1); /* y = 2 diag(d) e + 10 y, with five on the stack */
    REQUIRE(y[0] == 14 && y[1] == 26 && y[2] == 42);
}

/* The second difference's eigenvalues are known. */
static void call_lapack(void)
{
    enum { N = 150 };
    const double pi = acos(-1);
    const int n = N, lwork = 40 * N;
    int info = -1;
    double *a = calloc(N * N, sizeof *a), *work = malloc(lwork * sizeof *work), w[N], none;
    for (int pass = 0; pass < 2; pass++) {
        memset(a, 0, N * N * sizeof *a);
        for (int i = 0; i < N; i++) {
            a[i * N + i] = 2;
            if (i > 0)
                a[i * N + i - 1] = a[(i - 1) * N + i] = -1;
        }
        if (pass == 0)
            dsyev_("V", "L", &n, a, &n, w, work, &lwork, &info, 1, 1);
        else
            dgesvd_("N", "N", &n, &n, a, &n, w, &none, &n, &none, &n, work, &lwork, &info, 1, 1);
        REQUIRE(info == 0);
        for (int i = 0; i < N; i++) {
            const int k = pass == 0 ? i + 1 : N - i;
            REQUIRE(near(w[i], 2 - 2 * cos(k * pi / (N + 1))));
        }
    }
    free(a);
    free(work);
}

static void *call_all(void *barrier)
{
    pthread_barrier_wait(barrier);
    call_blas();
    call_lapack();
    return NULL;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "names";
    const int n = 1, one = 1;
    double pair[4] = {0};
    if (strcmp(mode, "names") == 0) {
        call_blas();
        call_lapack();
        RowMajorStrg = CBLAS_CallFromC = 0;
        REQUIRE(ilaenv_(&one, "DGETRF", " ", &n, &n, &n, &n, 6, 1) > 0);
    }
    if (strcmp(mode, "first") == 0) { /* all threads' first calls at once */
        enum { THREADS = 8 };
        pthread_t threads[THREADS];
        pthread_barrier_t barrier;
        pthread_barrier_init(&barrier, NULL, THREADS);
        for (int i = 0; i < THREADS; i++)
            REQUIRE(pthread_create(&threads[i], NULL, call_all, &barrier) == 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    if (strcmp(mode, "threads") == 0) {
        goto_set_num_threads(2);
        bli_thread_set_num_threads(1);
        openblas_set_num_threads(1);
        printf("%d %ld %d %d %s\n", openblas_get_num_threads(), bli_thread_get_num_threads(),
               openblas_get_num_procs() > 0, openblas_get_parallel(), openblas_get_config());
        REQUIRE(openblas_get_corename() != NULL);
    }
    if (strcmp(mode, "missing") == 0)
        dcombssq_(pair, pair + 2); /* LAPACK 3.9 alone had it */
    return 0;
}
