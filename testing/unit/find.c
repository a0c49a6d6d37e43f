/* SPDX-License-Identifier: BSD-3-Clause
 * The next layer: finding, with libraries built for the purpose. */
#include "shim/next/next.h"
#include "tap.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct clb_symbol *const fortran = &clb_symbols[CLB_SYMBOL_sgemm_plain];
static struct clb_symbol *const c_name = &clb_symbols[CLB_SYMBOL_sgemm_cblas];
static struct clb_symbol nobody = {
    .next = {.name = "nobody_has_this_", .probe = "isamax_", .abi = CLB_ABI_FORTRAN}};

/* Where libtool put a library of the tests. */
static const char *built(const char *name)
{
    static char paths[4][512];
    static int turn;
    char *path = paths[turn++ % 4];
    const char *build = getenv("builddir");
    snprintf(path, sizeof paths[0], "%s/testing/unit/.libs/%s", build != NULL ? build : ".", name);
    return path;
}

static const struct clb_target *find(struct clb_symbol *symbol)
{
    return clb_next_get_target(symbol, __builtin_return_address(0));
}

static void expect_library(struct clb_symbol *symbol, const char *library, bool ilp64)
{
    const struct clb_target *target = find(symbol);
    expect(strstr(target->library, library) == target->library, "%s: %s, not %s", symbol->next.name,
           target->library, library);
    expect(target->ilp64 == ilp64, "%s of %s: %d-bit integers", symbol->next.name, target->library,
           target->ilp64 ? 64 : 32);
    expect(find(symbol) == target, "another answer");
}

struct configured {
    const char *name, *next, *fortran_library, *c_library;
    bool fortran_wide, c_wide;
};

static void check_configured(void *argument)
{
    const struct configured *test = argument;
    char list[2048] = "";
    /* Words that name a library of the tests become its path. */
    for (const char *item = test->next; *item != '\0';) {
        size_t length = strcspn(item, ":");
        char word[200];
        snprintf(word, sizeof word, "%.*s", (int)length, item);
        strcat(list, strncmp(word, "next", 4) == 0 ? built(word) : word);
        item += length;
        if (*item == ':') {
            strcat(list, ":");
            item++;
        }
    }
    setenv("CLBLAS_SHIM_NEXT", list, 1);
    if (test->fortran_library != NULL)
        expect_library(fortran, test->fortran_library, test->fortran_wide);
    if (test->c_library != NULL)
        expect_library(c_name, test->c_library, test->c_wide);
    /* The history compares addresses. */
    const char *a = find(fortran)->library, *b = find(c_name)->library;
    expect((a == b) == (strcmp(a, b) == 0), "%s has two names", a);
}

static const struct configured configurations[] = {
    {"a library with 32-bit integers", "next32.so", "next32.so", "next32.so", false, false},
    {"a library with 64-bit integers under plain names", "next64.so", "next64.so", "next64.so",
     true, true},
    {"the first of a list", "next64.so:next32.so", "next64.so", "next64.so", true, true},
    {"each name of the first library that has it", "next_sgemm.so:next64.so", "next_sgemm.so",
     "next64.so", false, true},
    {"libraries that are not there", "/nonexistent.so::next32.so", "next32.so", "next32.so", false,
     false},
    {"a list without the name falls back", "next_sgemm.so", "next_sgemm.so", "libblas.so", false,
     false},
    {"the default", "", "libblas.so", "libblas.so", false, false},
};

/* The shim named as its own next library is passed over. */
static void never_itself(void *unused)
{
    char path[600];
    const char *build = getenv("builddir");
    (void)unused;
    snprintf(path, sizeof path, "%s/.libs/libclblas_shim.so.0", build != NULL ? build : ".");
    setenv("CLBLAS_SHIM_NEXT", path, 1);
    void *shim = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!expect(shim != NULL, "%s", dlerror()))
        return;
    void (*sgemm)(const char *, const char *, const int *, const int *, const int *, const float *,
                  const float *, const int *, const float *, const int *, const float *, float *,
                  const int *, size_t, size_t);
    void *address = dlsym(shim, "sgemm_");
    memcpy(&sgemm, &address, sizeof sgemm);
    const int one = 1;
    const float two = 2, zero = 0;
    float c = 7;
    sgemm("N", "N", &one, &one, &one, &two, &two, &one, &two, &one, &zero, &c, &one, 1, 1);
    expect(c == 8, "C = %g", (double)c);
}

static void missing_symbol(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_NEXT", built("next32.so"), 1);
    expect(clb_next_try(&nobody.next, __builtin_return_address(0)) == NULL, "found by trying");
    find(&nobody);
    expect(false, "found");
}

/* A name that no library has gets the first of others that one has; its own comes before these. */
static void fallbacks(void *unused)
{
    struct clb_symbol *const composed = &clb_symbols[CLB_SYMBOL_sgemmtr_plain];
    (void)unused;
    setenv("CLBLAS_SHIM_NEXT", built("next64.so"), 1);
    const struct clb_target *target = find(composed);
    if (target->fallback == 0)
        return; /* the system's library has it */
    expect(target->fallback == 2 && target->function == find(fortran)->function &&
               strcmp(target->library, "next64.so") == 0 && target->ilp64,
           "stand-in %u of %s", target->fallback, target->library);
    expect(find(composed) == target, "another answer");
    expect(find(fortran)->fallback == 0, "the other symbol's own target was changed");
}

/* The routine that each function of struct clb_host_blas stands for. */
static void host_functions(void *unused)
{
    static const struct {
        clb_symbol_id called;
        clb_kind kind;
        clb_routine plain, adjoint; /* adjoint: plain where there is none */
    } expected[] = {
        {CLB_SYMBOL_dgetrf_plain, CLB_KIND_getrf, CLB_ROUTINE_dgetrf, CLB_ROUTINE_dgetrf},
        /* Reference xGETRF calls xGETRF2 for all of a small matrix. */
        {CLB_SYMBOL_dgetrf2_plain, CLB_KIND_getrf, CLB_ROUTINE_dgetrf2, CLB_ROUTINE_dgetrf2},
        {CLB_SYMBOL_cpotrf2_plain, CLB_KIND_potrf, CLB_ROUTINE_cpotrf2, CLB_ROUTINE_cpotrf2},
        {CLB_SYMBOL_dgetrf2_plain, CLB_KIND_trsm, CLB_ROUTINE_dtrsm, CLB_ROUTINE_dtrsm},
        {CLB_SYMBOL_zgesv_plain, CLB_KIND_getrf, CLB_ROUTINE_zgetrf, CLB_ROUTINE_zgetrf},
        {CLB_SYMBOL_spotri_plain, CLB_KIND_potri, CLB_ROUTINE_spotri, CLB_ROUTINE_spotri},
        {CLB_SYMBOL_cgemm3m_plain, CLB_KIND_gemm, CLB_ROUTINE_cgemm3m, CLB_ROUTINE_cgemm3m},
        {CLB_SYMBOL_zgeqrf_plain, CLB_KIND_ormqr, CLB_ROUTINE_zunmqr, CLB_ROUTINE_zunmqr},
        {CLB_SYMBOL_dgelqf_plain, CLB_KIND_geqrf, CLB_ROUTINE_dgeqrf, CLB_ROUTINE_dgelqf},
        {CLB_SYMBOL_zgelqf_plain, CLB_KIND_ormqr, CLB_ROUTINE_zunmqr, CLB_ROUTINE_zunmlq},
        {CLB_SYMBOL_sorglq_plain, CLB_KIND_orgqr, CLB_ROUTINE_sorgqr, CLB_ROUTINE_sorglq},
    };
    const struct clb_target target = {.library = "none"};
    (void)unused;
    for (size_t i = 0; i < CLB_COUNT_OF(expected); i++) {
        struct clb_symbol *symbol = &clb_symbols[expected[i].called];
        const clb_kind kind = expected[i].kind;
        const struct clb_entry entry = {
            .symbol = symbol, .target = &target, .caller = __builtin_return_address(0)};
        const bool adjoint = expected[i].adjoint != expected[i].plain;
        struct clb_next_blas next;
        clb_next_blas_open(&next, &entry, 1U << kind);
        expect(next.routine[kind][0] == expected[i].plain, "%s asks for %s", symbol->next.name,
               clb_routines[next.routine[kind][0]].name);
        expect(!adjoint || next.routine[kind][1] == expected[i].adjoint, "%s asks for %s",
               symbol->next.name, clb_routines[next.routine[kind][1]].name);
        if (expected[i].plain == symbol->routine)
            expect(next.target[kind][0] == &target, "%s: another library", symbol->next.name);
    }
}

/* A name that says so has 64-bit integers, whatever the probe would answer. */
static void wide_by_name(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_NEXT", built("next32.so"), 1);
    fortran->next.always_ilp64 = true;
    expect_library(fortran, "next32.so", true);
}

static void probes(void *unused)
{
    static const struct {
        const char *library;
        bool wide;
    } known[] = {{"libblas.so.3", false},
                 {"libopenblas.so.0", false},
                 {"libblas64.so.3", true},
                 {"libopenblas64.so.0", true},
                 {"libmkl_rt.so", false}};
    (void)unused;
    setenv("OPENBLAS_CORETYPE", "Haswell", 1);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        void *handle = dlopen(known[i].library, RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL)
            continue;
        void *sgemm = dlsym(handle, "sgemm_"), *cblas = dlsym(handle, "cblas_sgemm");
        void (*f)(void);
        memcpy(&f, &sgemm, sizeof f);
        expect(clb_next_probe_ilp64(f, "isamax_", CLB_ABI_FORTRAN) == known[i].wide, "%s",
               known[i].library);
        memcpy(&f, &cblas, sizeof f);
        if (f != NULL)
            expect(clb_next_probe_ilp64(f, "cblas_isamax", CLB_ABI_C) == known[i].wide, "%s, cblas",
                   known[i].library);
        tap_note("%s probed", known[i].library);
    }
}

/* Holding nests, and the number is what it was when the last holder has gone, or what the program
 * has set since. A forked child has no holders: its next call gives back what they have taken. */
static void threads(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_NEXT", built("next32.so"), 1);
    const struct clb_target *target = find(fortran);
    if (!expect(target->get_threads != NULL, "the library has no threads"))
        return;
    expect(target->optimised, "a library with threads is made for speed");
    expect(clb_next_hold_threads(target, 1) && target->get_threads() == 1, "first holder");
    expect(clb_next_hold_threads(target, 1) && target->get_threads() == 1, "second holder");
    pid_t child = fork();
    if (child == 0) {
        const bool early = target->get_threads() != 1;
        clb_next_settle_threads();
        _exit(early || target->get_threads() != 5);
    }
    int status = -1;
    expect(waitpid(child, &status, 0) == child && status == 0,
           "set in the midst of a fork, or not by the next call: %d", status);
    clb_next_release_threads();
    expect(target->get_threads() == 1, "given back too early");
    clb_next_release_threads();
    expect(target->get_threads() == 5, "not given back");
    expect(clb_next_hold_threads(target, 4) && target->get_threads() == 4, "third holder");
    target->set_threads(3);
    clb_next_release_threads();
    expect(target->get_threads() == 3, "the program's number was replaced");
    target->set_threads(1);
    expect(!clb_next_hold_threads(target, 1), "held where there is one thread");
}

/* A library that can't be asked is left alone, and OpenMP, which has a number for each thread. */
static void no_threads(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_NEXT", built("next_sgemm.so"), 1);
    expect(!clb_next_hold_threads(find(fortran), 1) && !find(fortran)->optimised, "held");
    setenv("CLBLAS_SHIM_NEXT", built("next64.so"), 1);
    expect(!clb_next_hold_threads(find(c_name), 1) && find(c_name)->optimised, "held OpenMP");
}

/* Without memory the search ends with an answer, not the process. */
static void no_memory(void *unused)
{
    const struct rlimit none = {1 << 20, 1 << 20};
    (void)unused;
    setenv("CLBLAS_SHIM_NEXT", built("next32.so"), 1);
    if (!expect(clb_next_try(&c_name->next, __builtin_return_address(0)) != NULL, "not found") ||
        !expect(setrlimit(RLIMIT_AS, &none) == 0, "no limit"))
        return;
    void **blocks = NULL;
    for (size_t size = 4096; size >= 16; size /= 2) {
        for (void **block; (block = malloc(size)) != NULL; blocks = block)
            *block = blocks;
    }
    const struct clb_target *target = find(fortran);
    const bool right = target != NULL && target->function != NULL && !target->ilp64;
    const bool none_found = clb_next_try(&nobody.next, __builtin_return_address(0)) == NULL;
    while (blocks != NULL) {
        void **next = *blocks;
        free(blocks);
        blocks = next;
    }
    expect(right, "not found without memory");
    expect(none_found, "found what there is not");
    expect_library(fortran, "", false);
}

static _Atomic bool is_searching;

static void *search_on(void *unused)
{
    (void)unused;
    while (is_searching) {
        struct clb_next_symbol unknown = {
            .name = "nobody_has_this_", .probe = "isamax_", .abi = CLB_ABI_FORTRAN};
        expect(clb_next_try(&unknown, __builtin_return_address(0)) == NULL, "found");
    }
    return NULL;
}

/* Children that were forked while another thread searched find what they call first. */
static void forked(void *unused)
{
    pthread_t thread;
    (void)unused;
    setenv("CLBLAS_SHIM_NEXT", built("next32.so"), 1);
    is_searching = true;
    if (!expect(pthread_create(&thread, NULL, search_on, NULL) == 0, "no thread"))
        return;
    int right = 0;
    for (int i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            _exit(strcmp(find(fortran)->library, "next32.so") != 0);
        }
        int status = -1;
        right += waitpid(child, &status, 0) == child && status == 0;
    }
    is_searching = false;
    pthread_join(thread, NULL);
    expect(right == 100, "%d of 100 children", right);
}

static void absent_library(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_NEXT", "/nonexistent.so", 1);
    expect_library(fortran, "libblas.so", false);
    expect_library(c_name, "libblas.so", false);
}

int main(void)
{
    char text[4096];
    for (size_t i = 0; i < sizeof configurations / sizeof *configurations; i++)
        tap_child(configurations[i].name, 30, check_configured,
                  (void *)(uintptr_t)&configurations[i]);
    tap_child("never the shim itself", 30, never_itself, NULL);
    int status = run_child(30, absent_library, NULL, text, sizeof text);
    char *end = strchr(text, '\n');
    tap_ok(status == 0 && strstr(text, "/nonexistent.so") != NULL && end != NULL && end[1] == '\0',
           "a library that is not there is named once");
    status = run_child(30, missing_symbol, NULL, text, sizeof text);
    end = strchr(text, '\n');
    tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 127 &&
               strstr(text, "nobody_has_this_") != NULL && end != NULL && end[1] == '\0',
           "a name that nobody has ends with status 127 and one line");
    const char *sanitizers = getenv("SANITIZE");
    if (sanitizers != NULL &&
        sanitizers[0] != '\0') /* they end a process whose memory is used up */
        tap_skip("sanitizers", "no memory");
    else
        tap_child("no memory", 30, no_memory, NULL);
    tap_child("stand-ins for what no library has", 30, fallbacks, NULL);
    tap_child("functions for algorithms", 30, host_functions, NULL);
    tap_child("children forked during a search", 60, forked, NULL);
    tap_child("the next library's threads", 30, threads, NULL);
    tap_child("a next library without threads", 30, no_threads, NULL);
    tap_child("names with 64-bit integers", 30, wide_by_name, NULL);
    tap_child("integer width of installed libraries", 30, probes, NULL);
    return tap_done();
}
