/* Which functions of the shim run in one call, and how deep the stack is at its first kernel.
 * SPDX-License-Identifier: BSD-3-Clause
 *   walk dgemm|dgetrf N device|next
 *
 * For a library that is built with -finstrument-functions and preloaded (walk.sh does both). The
 * call is made again and again until one has launched a kernel (device) or until some have not
 * (next), twice more, and then recorded, on all threads. Prints the addresses of the functions that
 * were entered, one a line, relative to the library, and then "depth D": the calls on the stack of
 * the calling thread, the entry included, when it first launched a kernel. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void dgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b, const int *ldb,
            const double *beta, double *c, const int *ldc);
void dgetrf_(const int *m, const int *n, double *a, const int *lda, int *ipiv, int *info);

#define MAX_FUNCTIONS 8192
static _Atomic(void *) functions[MAX_FUNCTIONS];
static atomic_bool recording;
static void *launch; /* the function that launches kernels */
static atomic_long launches;
static _Thread_local int depth;
static int depth_at_launch;

#define UNTRACED __attribute__((no_instrument_function))

UNTRACED void __cyg_profile_func_enter(void *function, void *site)
{
    (void)site;
    depth++;
    if (function == launch)
        atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed);
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

struct problem {
    const char *routine;
    int n, *ipiv;
    double *a, *b, *c;
};

/* Whether the call has launched a kernel. */
UNTRACED static int call(const struct problem *p)
{
    const double one = 1, zero = 0;
    const int n = p->n;
    int info;
    for (long i = 0; i < (long)n * n; i++)
        p->a[i] = p->b[i] = (double)((i * 7919) % 1000) / 1000 + (i % (n + 1) == 0 ? n : 0);
    long before = atomic_load(&launches);
    if (strcmp(p->routine, "dgemm") == 0)
        dgemm_("N", "N", &n, &n, &n, &one, p->a, &n, p->b, &n, &zero, p->c, &n);
    else
        dgetrf_(&n, &n, p->a, &n, p->ipiv, &info);
    return atomic_load(&launches) != before;
}

/* Until a call was the device's, or 40 were not. */
UNTRACED static int settle(const struct problem *p, int device)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    for (int i = 0; i < (device ? 300 : 40); i++) {
        if (call(p) && device)
            return 1;
        if (device)
            nanosleep(&pause, NULL);
    }
    return !device;
}

UNTRACED int main(int argc, char **argv)
{
    struct problem p = {.routine = argc > 1 ? argv[1] : "dgemm",
                        .n = argc > 2 ? atoi(argv[2]) : 1500};
    int device = argc < 4 || strcmp(argv[3], "next") != 0;
    size_t size = (size_t)p.n * (size_t)p.n;
    p.a = malloc(size * sizeof *p.a), p.b = malloc(size * sizeof *p.b),
    p.c = calloc(size, sizeof *p.c);
    p.ipiv = malloc((size_t)p.n * sizeof *p.ipiv);
    const char *offset = getenv("WALK_LAUNCH_OFFSET");
    Dl_info info;
    if (p.a == NULL || p.b == NULL || p.c == NULL || p.ipiv == NULL || offset == NULL)
        return 2;
    void *entry = dlsym(RTLD_DEFAULT, "dgemm_");
    if (entry == NULL || dladdr(entry, &info) == 0 ||
        strstr(info.dli_fname, "clblas_shim") == NULL) {
        fprintf(stderr, "walk: dgemm_ is not the shim's\n");
        return 2;
    }
    launch = (char *)info.dli_fbase + strtoull(offset, NULL, 16);
    if (!settle(&p, device)) {
        fprintf(stderr, "walk: no call has run on the device\n");
        return 1;
    }
    call(&p);
    depth = 0;
    atomic_store(&recording, 1);
    int launched = call(&p);
    atomic_store(&recording, 0);
    if (launched != device) {
        fprintf(stderr, "walk: the recorded call was on the other side\n");
        return 1;
    }
    for (size_t i = 0; i < MAX_FUNCTIONS; i++) {
        void *function = atomic_load(&functions[i]);
        if (function != NULL)
            printf("0x%zx\n", (size_t)((char *)function - (char *)info.dli_fbase));
    }
    printf("depth %d\n", depth_at_launch);
    return 0;
}
