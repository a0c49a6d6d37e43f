/* The shim's memory beyond the operands where the device shares the host's: at most 64 MiB and a
 * tenth of them, also while buffers of earlier calls with other shapes are kept. Pages that the
 * system may take at any time (MADV_FREE) are not counted: it is made to take them before a call.
 * SPDX-License-Identifier: BSD-3-Clause */
#include "host/host.h"
#include "report.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21 /* Linux 5.4 */
#endif

#define MIB ((size_t)1 << 20)

/* What malloc and the driver may take for a call besides: events, commands, pages of stacks. */
#define SLACK (2 * MIB)

typedef void gemm(const char *, const char *, const int *, const int *, const int *, const void *,
                  const void *, const int *, const void *, const int *, const void *, void *,
                  const int *, size_t, size_t);
gemm sgemm_, dgemm_, cgemm_, zgemm_;

static const struct routine {
    const char *symbol;
    gemm *call;
    size_t element;
} routines[] = {
    {"sgemm_", sgemm_, 4}, {"dgemm_", dgemm_, 8}, {"cgemm_", cgemm_, 8}, {"zgemm_", zgemm_, 16}};

enum { S, D, C, Z };

/* Shapes whose buffers have other sizes each time, and the first again. */
static const struct shape {
    int routine;
    const char *transa, *transb;
    int m, n, k;
} shapes[] = {
    {D, "N", "N", 2048, 2048, 2048}, {S, "N", "T", 2048, 2048, 2048},
    {D, "T", "N", 3500, 300, 2000},  {C, "N", "N", 1400, 1400, 1400},
    {D, "N", "N", 300, 2500, 2500},  {Z, "C", "T", 1000, 1100, 1200},
    {D, "N", "T", 1900, 1900, 1900}, {S, "T", "N", 2500, 2500, 700},
    {D, "N", "N", 2048, 2048, 2048},
};

/* A line of /proc/self/status, in bytes. */
static size_t status_of(const char *name)
{
    char line[256];
    size_t kilobytes = 0, length = strlen(name);
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && kilobytes == 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, length) == 0 && line[length] == ':')
            kilobytes = strtoul(line + length + 1, NULL, 10);
    }
    if (file != NULL)
        fclose(file);
    return kilobytes * 1024;
}

/* The peak begins anew with what is resident now. */
static bool reset_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    bool good = file != NULL && fputs("5", file) >= 0;
    if (file != NULL)
        good = fclose(file) == 0 && good;
    return good;
}

/* Have the system take the pages that it may, as it does when memory is short. */
static void reclaim_free_pages(void)
{
    char line[256];
    unsigned long from, to, begin = 0, end = 0, kilobytes;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            begin = from, end = to;
        else if (sscanf(line, "LazyFree: %lu kB", &kilobytes) == 1 && kilobytes > 0)
            (void)madvise((void *)begin, end - begin, MADV_PAGEOUT);
    }
    if (file != NULL)
        fclose(file);
}

static void call(const struct shape *shape, const void *a, const void *b, void *c)
{
    const double one[2] = {1, 0}, zero[2] = {0, 0};
    const float one_s[2] = {1, 0}, zero_s[2] = {0, 0};
    bool single = shape->routine == S || shape->routine == C;
    bool plain_a = *shape->transa == 'N', plain_b = *shape->transb == 'N';
    routines[shape->routine].call(
        shape->transa, shape->transb, &shape->m, &shape->n, &shape->k,
        single ? (const void *)one_s : one, a, plain_a ? &shape->m : &shape->k, b,
        plain_b ? &shape->k : &shape->n, single ? (const void *)zero_s : zero, c, &shape->m, 1, 1);
}

static size_t operand_bytes(const struct shape *shape, size_t rows, size_t cols)
{
    return rows * cols * routines[shape->routine].element;
}

/* Resident memory, all of it the program's own; for zeros the compiler would take calloc. */
static void *resident(size_t bytes)
{
    unsigned char *memory = malloc(bytes);
    if (memory == NULL)
        abort();
    memset(memory, 1, bytes);
    return memory;
}

static void measure(const struct shape *shape, size_t base, const void *a, const void *b, void *c)
{
    size_t m = (size_t)shape->m, n = (size_t)shape->n, k = (size_t)shape->k;
    size_t operands =
        operand_bytes(shape, m, k) + operand_bytes(shape, k, n) + operand_bytes(shape, m, n);
    reclaim_free_pages();
    reset_peak();
    call(shape, a, b, c);
    size_t peak = status_of("VmHWM"), beyond = peak > base ? peak - base : 0;
    size_t bound = 64 * MIB + operands / 10 + SLACK;
    tap_note("%s %zux%zux%zu: %.1f MiB beyond operands of %.1f MiB, the bound is %.1f",
             routines[shape->routine].symbol, m, n, k, (double)beyond / (double)MIB,
             (double)operands / (double)MIB, (double)bound / (double)MIB);
    expect(beyond <= bound, "%.1f MiB", (double)beyond / (double)MIB);
}

static void body(void *unused)
{
    const char *symbols[CLB_COUNT_OF(routines)];
    size_t largest = 0;
    (void)unused;
    setenv("CLBLAS_SHIM", "always", 1);
    setenv("CLBLAS_SHIM_KERNEL", "cpu", 1);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    for (size_t i = 0; i < CLB_COUNT_OF(shapes); i++) {
        const struct shape *s = &shapes[i];
        size_t m = (size_t)s->m, n = (size_t)s->n, k = (size_t)s->k;
        largest = clb_max(largest, operand_bytes(s, m, k));
        largest = clb_max(largest, operand_bytes(s, k, n));
        largest = clb_max(largest, operand_bytes(s, m, n));
    }
    void *a = resident(largest), *b = resident(largest), *c = resident(largest);
    for (int routine = S; routine <= Z; routine++) {
        const struct shape small[] = {{routine, "N", "N", 40, 40, 40},
                                      {routine, "T", "T", 40, 40, 40}};
        symbols[routine] = routines[routine].symbol;
        call(&small[0], a, b, c);
        call(&small[1], a, b, c);
    }
    size_t base = status_of("VmRSS");
    for (size_t i = 0; i < CLB_COUNT_OF(shapes); i++)
        measure(&shapes[i], base, a, b, c);
    expect_on_device(symbols, CLB_COUNT_OF(symbols));
    free(a);
    free(b);
    free(c);
}

int main(void)
{
    const char *sanitizers = getenv("SANITIZE");
    if (sanitizers != NULL && *sanitizers != '\0')
        tap_skip("sanitizers take memory of their own", "cpu");
    else if (status_of("VmHWM") == 0 || !reset_peak())
        tap_skip("the kernel does not tell a process its peak", "cpu");
    else
        tap_child("cpu", 300, body, NULL);
    return tap_done();
}
