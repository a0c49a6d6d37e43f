/* SPDX-License-Identifier: BSD-3-Clause
 * Every allocation of the built library fails once: the call's result is right all the same,
 * nothing is leaked and nothing crashes. The program's own malloc tells the library's calls from
 * others by their return address, so that the driver's and the next library's succeed. */
#include "tap.h"

#include "host/host.h"

#include <errno.h>
#include <link.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- malloc ---- */

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define OWN_MALLOC 0
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define OWN_MALLOC 0
#endif
#endif
#if !defined OWN_MALLOC && defined __GLIBC__
#define OWN_MALLOC 1
#elif !defined OWN_MALLOC
#define OWN_MALLOC 0
#endif

static uintptr_t library_begin, library_end;
static _Atomic long fail_at; /* this allocation of the library fails, 1 is the next; 0: none */
static _Atomic long made;    /* allocations since fail_at was set, failed ones included */
static _Atomic long failed;
static _Atomic long live; /* allocations of the library that it has not freed */

#if OWN_MALLOC
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void __libc_free(void *memory);

#define IS_LIBRARYS \
    ((uintptr_t)__builtin_return_address(0) - library_begin < library_end - library_begin)

/* Count an allocation of the library. False when it is to fail. */
static bool count_one(void)
{
    if (atomic_fetch_add(&made, 1) + 1 == atomic_load(&fail_at)) {
        atomic_fetch_add(&failed, 1);
        errno = ENOMEM;
        return false;
    }
    return true;
}

CLB_PUBLIC void *malloc(size_t size)
{
    if (!IS_LIBRARYS)
        return __libc_malloc(size);
    if (!count_one())
        return NULL;
    atomic_fetch_add(&live, 1);
    return __libc_malloc(size);
}

CLB_PUBLIC void *calloc(size_t count, size_t size)
{
    if (!IS_LIBRARYS)
        return __libc_calloc(count, size);
    if (!count_one())
        return NULL;
    atomic_fetch_add(&live, 1);
    return __libc_calloc(count, size);
}

CLB_PUBLIC void *realloc(void *memory, size_t size)
{
    if (!IS_LIBRARYS)
        return __libc_realloc(memory, size);
    if (!count_one())
        return NULL;
    atomic_fetch_add(&live, memory == NULL);
    return __libc_realloc(memory, size);
}

CLB_PUBLIC char *strdup(const char *text)
{
    if (IS_LIBRARYS) {
        if (!count_one())
            return NULL;
        atomic_fetch_add(&live, 1);
    }
    char *copy = __libc_malloc(strlen(text) + 1);
    return copy != NULL ? strcpy(copy, text) : NULL;
}

CLB_PUBLIC void free(void *memory)
{
    if (IS_LIBRARYS && memory != NULL)
        atomic_fetch_sub(&live, 1);
    __libc_free(memory);
}
#endif

static int find_library(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (strstr(info->dlpi_name, "libclblas_shim.so") == NULL)
        return 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && (header->p_flags & PF_X) != 0) {
            library_begin = info->dlpi_addr + header->p_vaddr;
            library_end = library_begin + header->p_memsz;
        }
    }
    return 1;
}

/* ---- calls ---- */

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *,
            const double *, const int *, const double *, const int *, const double *, double *,
            const int *, size_t, size_t);
void dtrsm_(const char *, const char *, const char *, const char *, const int *, const int *,
            const double *, const double *, const int *, double *, const int *, size_t, size_t,
            size_t, size_t);
void dgetrf_(const int *, const int *, double *, const int *, int *, int *);
void dpotrf_(const char *, const int *, double *, const int *, int *, size_t);
void dgeqrf_(const int *, const int *, double *, const int *, double *, double *, const int *,
             int *);

enum { N = 150, BLOCK = N * N };

/* The operands of a call, and what it may change. */
struct operands {
    double a[BLOCK], b[BLOCK], c[BLOCK], tau[N], work[64 * N];
    int ipiv[N], info;
};

static const double one = 1;
static const int order = N, work_size = 64 * N;

static void call_gemm(struct operands *x)
{
    dgemm_("N", "T", &order, &order, &order, &one, x->a, &order, x->b, &order, &one, x->c, &order,
           1, 1);
}

static void call_trsm(struct operands *x)
{
    dtrsm_("L", "L", "N", "N", &order, &order, &one, x->a, &order, x->c, &order, 1, 1, 1, 1);
}

static void call_getrf(struct operands *x)
{
    dgetrf_(&order, &order, x->b, &order, x->ipiv, &x->info);
}

static void call_potrf(struct operands *x)
{
    dpotrf_("L", &order, x->a, &order, &x->info, 1);
}

static void call_geqrf(struct operands *x)
{
    dgeqrf_(&order, &order, x->a, &order, x->tau, x->work, &work_size, &x->info);
}

static const struct family {
    const char *name, *params;
    void (*call)(struct operands *x);
} families[] = {
    {"gemm, shared memory", "", call_gemm},
    {"gemm, own memory", "gemm.stream=1", call_gemm},
    {"trsm", "", call_trsm},
    {"trsm, own memory", "gemm.stream=1", call_trsm},
    {"getrf, shared memory", "", call_getrf},
    {"getrf, own memory", "gemm.stream=1", call_getrf},
    {"getrf, panels by the device", "gemm.stream=1,getrf.panel=2", call_getrf},
    {"potrf, shared memory", "", call_potrf},
    {"potrf, own memory", "gemm.stream=1", call_potrf},
    {"geqrf, shared memory", "", call_geqrf},
    {"geqrf, own memory", "gemm.stream=1", call_geqrf},
};

static struct operands *problem, *expected, *now; /* shared with children */

/* A is symmetric and dominated by its diagonal, B has A's rows in reverse order, so that all
 * routines accept them and results agree to a few digits less than the precision has, whoever
 * computes them.
 */
static void make_problem(void)
{
    uint64_t seed = 1;
    for (size_t j = 0; j < N; j++) {
        problem->a[j + j * N] = N;
        for (size_t i = j + 1; i < N; i++)
            problem->a[i + j * N] = problem->a[j + i * N] = random_uniform(&seed);
        for (size_t i = 0; i < N; i++)
            problem->c[i + j * N] = random_uniform(&seed);
    }
    for (size_t j = 0; j < N; j++) {
        for (size_t i = 0; i < N; i++)
            problem->b[i + j * N] = problem->a[N - 1 - i + j * N];
    }
}

static void expect_close(const char *what, const double *x, const double *y, size_t count)
{
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += !(fabs(x[i] - y[i]) <= 1e-10 * N);
    expect(wrong == 0, "allocation %ld: %zu wrong elements of %s", (long)fail_at, wrong, what);
}

/* The library's n-th allocation fails. Returns how many it made. */
static long run(const struct family *family, long n)
{
    memcpy(now, problem, sizeof *now);
    atomic_store(&made, 0);
    atomic_store(&failed, 0);
    atomic_store(&fail_at, n);
    family->call(now);
    expect_close("A", now->a, expected->a, BLOCK);
    expect_close("B", now->b, expected->b, BLOCK);
    expect_close("C", now->c, expected->c, BLOCK);
    expect_close("tau", now->tau, expected->tau, N);
    expect(memcmp(now->ipiv, expected->ipiv, sizeof now->ipiv) == 0 && now->info == expected->info,
           "allocation %ld: other pivots, or info %d", n, now->info);
    atomic_store(&fail_at, 0);
    return atomic_load(&made);
}

/* With the device off the next library says what is expected. */
static void start(const struct family *family, const char *mode)
{
    setenv("CLBLAS_SHIM", mode, 1);
    setenv("CLBLAS_SHIM_PARAMS", family->params, 1);
    setenv("CLBLAS_SHIM_NEXT", "libopenblas.so.0", 1);
    setenv("CLBLAS_SHIM_LOG_FILE", "/dev/null", 1);
}

static void compute_expected(void *argument)
{
    const struct family *family = argument;
    start(family, "off");
    memcpy(now, problem, sizeof *now);
    family->call(now);
    memcpy(expected, now, sizeof *now);
}

/* In a process of its own, with all kernels and memory there. */
static void fail_warm(void *argument)
{
    const struct family *family = argument;
    long n = 1;
    start(family, "always");
    for (int i = 0; i < 3; i++)
        run(family, 0);
    for (;; n++) {
        long before = atomic_load(&live), grown = 0;
        run(family, n);
        if (atomic_load(&failed) == 0)
            break;
        run(family, 0);
        if (atomic_load(&live) <= before)
            continue;
        /* More may be kept now for later calls; what grows each time is lost. */
        for (int i = 0; i < 3; i++) {
            before = atomic_load(&live);
            run(family, n);
            run(family, 0);
            grown += atomic_load(&live) > before;
        }
        expect(grown < 3, "allocation %ld leaks", n);
    }
    tap_note("%s: %ld allocations", family->name, n - 1);
}

struct cold {
    const struct family *family;
    long n;
};

static long *cold_made; /* by the last child */

static void fail_cold(void *argument)
{
    const struct cold *cold = argument;
    start(cold->family, "always");
    *cold_made = run(cold->family, cold->n);
    run(cold->family, 0);
}

/* The first call of a process, with compiled kernels from the cache. About 8 of its allocations, in
 * a sample 4: a child takes most of a second. */
static void test_cold(const struct family *family)
{
    struct cold cold = {family, 0};
    long bad = run_child(30, fail_cold, &cold, NULL, 0) != 0, tried = 0;
    const long all = *cold_made, step = 1 + all / (tap_full() ? 8 : 4);
    for (cold.n = 1; cold.n <= all; cold.n += step, tried++) {
        int status = run_child(30, fail_cold, &cold, NULL, 0);
        bad += status != 0;
        if (status != 0)
            tap_note("allocation %ld: status %#x", cold.n, status);
    }
    tap_ok(bad == 0 && all > 0, "%s: %ld of %ld allocations of the first call fail", family->name,
           tried, all);
}

int main(void)
{
    dl_iterate_phdr(find_library, NULL);
    if (!OWN_MALLOC || library_begin == library_end) {
        tap_skip("malloc can't be replaced here", "allocations of the library fail");
        return tap_done();
    }
    problem = mmap(NULL, 3 * sizeof *problem + sizeof *cold_made, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (problem == MAP_FAILED)
        return 1;
    expected = problem + 1;
    now = problem + 2;
    cold_made = (long *)(problem + 3);
    make_problem();
    for (size_t i = 0; i < CLB_COUNT_OF(families); i++) {
        char name[100];
        struct family family = families[i];
        if (run_child(30, compute_expected, &family, NULL, 0) != 0) {
            tap_ok(false, "%s: what is expected", family.name);
            continue;
        }
        snprintf(name, sizeof name, "%s: each allocation of a call fails", family.name);
        tap_child(name, 60, fail_warm, &family);
        if (i == 0 || family.call == call_getrf)
            test_cold(&family);
    }
    return tap_done();
}
