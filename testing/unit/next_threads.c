/* The next library's threads are one while anybody needs that, and then as many as before. */
#include "next/next.h"
#include "tap.h"

#include <dlfcn.h>
#include <stdlib.h>

static const char *const openblas[] = {
    "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
    "/usr/lib/aarch64-linux-gnu/openblas-pthread/libopenblas.so.0", "libopenblas.so.0"};

static int (*get_threads)(void);
static void *dgetrf;

static void nesting(void *unused)
{
    (void)unused;
    expect(get_threads() == 2, "%d threads", get_threads());
    bool outer = clb_next_single(dgetrf);
    expect(outer && get_threads() == 1, "%d threads inside", get_threads());
    bool inner = clb_next_single(dgetrf);
    expect(inner && get_threads() == 1, "%d threads further inside", get_threads());
    clb_next_single_end(outer);
    expect(get_threads() == 1, "%d threads while one call is left", get_threads());
    clb_next_single_end(inner);
    expect(get_threads() == 2, "%d threads afterwards", get_threads());
}

/* A library that has no such thing, here the C library, is left alone. */
static void others(void *unused)
{
    (void)unused;
    bool held = clb_next_single(dlsym(RTLD_DEFAULT, "qsort"));
    expect(!held && get_threads() == 2, "the C library has threads of OpenBLAS");
    clb_next_single_end(held);
    expect(get_threads() == 2, "%d threads afterwards", get_threads());
}

int main(void)
{
    void *library = NULL;
    setenv("OPENBLAS_NUM_THREADS", "2", 1);
    for (size_t i = 0; library == NULL && i < CLB_COUNT_OF(openblas); i++)
        library = dlopen(openblas[i], RTLD_NOW | RTLD_LOCAL);
    void *get = library != NULL ? dlsym(library, "openblas_get_num_threads") : NULL;
    dgetrf = library != NULL ? dlsym(library, "dgetrf_") : NULL;
    if (get == NULL || dgetrf == NULL) {
        tap_skip("OpenBLAS is not installed", "threads of the next library");
        return tap_done();
    }
    *(void **)(void *)&get_threads = get;
    if (get_threads() != 2) {
        tap_skip("OpenBLAS has one thread here", "threads of the next library");
        return tap_done();
    }
    tap_child("one thread inside, two outside", 60, nesting, NULL);
    tap_child("another library is left alone", 60, others, NULL);
    return tap_done();
}
