/* Which functions of the shim run in one call, and how deep the stack is at its first kernel.
 *
 *   walk dgemm|dgetrf N
 *
 * For a library that is built with -finstrument-functions and preloaded (walk.sh does both). The
 * call is made twice to warm everything up and then recorded, on all threads. Prints the addresses
 * of the functions that were entered, one a line, relative to the library, and then "depth D": the
 * calls on the stack of the calling thread, the entry included, when it first launched a kernel. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b, const int *ldb,
            const double *beta, double *c, const int *ldc);
void dgetrf_(const int *m, const int *n, double *a, const int *lda, int *ipiv, int *info);

#define MAX_FUNCTIONS 8192
static _Atomic(void *) functions[MAX_FUNCTIONS];
static atomic_bool recording;
static void *launch; /* the function that launches kernels */
static _Thread_local int depth;
static int depth_at_launch;

#define UNTRACED __attribute__((no_instrument_function))

UNTRACED void __cyg_profile_func_enter(void *function, void *site)
{
    (void)site;
    depth++;
    if (!atomic_load_explicit(&recording, memory_order_relaxed))
        return;
    size_t at = ((uintptr_t)function >> 4) % MAX_FUNCTIONS;
    for (;; at = (at + 1) % MAX_FUNCTIONS) {
        void *there = NULL;
        if (atomic_compare_exchange_strong(&functions[at], &there, function) || there == function)
            break;
    }
    if (function == launch && depth_at_launch == 0)
        depth_at_launch = depth;
}

UNTRACED void __cyg_profile_func_exit(void *function, void *site)
{
    (void)function;
    (void)site;
    depth--;
}

UNTRACED static void call(const char *routine, int n, double *a, double *b, double *c, int *ipiv)
{
    const double one = 1, zero = 0;
    int info;
    for (long i = 0; i < (long)n * n; i++)
        a[i] = b[i] = (double)((i * 7919) % 1000) / 1000 + (i % (n + 1) == 0 ? n : 0);
    if (strcmp(routine, "dgemm") == 0)
        dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);
    else
        dgetrf_(&n, &n, a, &n, ipiv, &info);
}

UNTRACED int main(int argc, char **argv)
{
    const char *routine = argc > 1 ? argv[1] : "dgemm";
    int n = argc > 2 ? atoi(argv[2]) : 1500;
    size_t size = (size_t)n * (size_t)n;
    double *a = malloc(size * sizeof *a), *b = malloc(size * sizeof *b),
           *c = calloc(size, sizeof *c);
    int *ipiv = malloc((size_t)n * sizeof *ipiv);
    const char *offset = getenv("WALK_LAUNCH_OFFSET");
    Dl_info info;
    if (a == NULL || b == NULL || c == NULL || ipiv == NULL || offset == NULL)
        return 2;
    void *entry = dlsym(RTLD_DEFAULT, "dgemm_");
    if (entry == NULL || dladdr(entry, &info) == 0 ||
        strstr(info.dli_fname, "clblas_shim") == NULL) {
        fprintf(stderr, "walk: dgemm_ is not the shim's\n");
        return 2;
    }
    launch = (char *)info.dli_fbase + strtoull(offset, NULL, 16);
    call(routine, n, a, b, c, ipiv);
    call(routine, n, a, b, c, ipiv);
    depth = 0;
    atomic_store(&recording, 1);
    call(routine, n, a, b, c, ipiv);
    atomic_store(&recording, 0);
    for (size_t i = 0; i < MAX_FUNCTIONS; i++) {
        void *function = atomic_load(&functions[i]);
        if (function != NULL)
            printf("0x%zx\n", (size_t)((char *)function - (char *)info.dli_fbase));
    }
    printf("depth %d\n", depth_at_launch);
    return 0;
}
