/* Calls by public names on made-up matrices. SPDX-License-Identifier: BSD-3-Clause */
#include "trial.h"
#include "host/process.h"
#include "engine/kernel/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Of a workspace: the most that the shim or LAPACK asks for. */
#define WORK_COLUMNS 256

/* Memory is kept from case to case. Its first `filled` bytes are the random block's of `real`. */
static struct arena {
    char *data;
    size_t bytes, filled, real;
} arenas[CLB_CALL_MATRICES], workspace, pivots, taus;

static void make_room(struct arena *arena, size_t bytes)
{
    if (arena->bytes >= bytes)
        return;
    if (arena->data != NULL)
        munmap(arena->data, arena->bytes);
    arena->data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena->data == MAP_FAILED) {
        fputs("out of memory\n", stderr);
        exit(EXIT_FAILURE);
    }
    arena->bytes = bytes;
    arena->filled = 0;
}

/* ---- contents ---- */

/* No column length divides it, so that columns differ. */
#define BLOCK ((size_t)8 * 524287)

/* Small numbers, so that triangles with a diagonal of ones are well conditioned. */
static const char *random_block(size_t real)
{
    static struct arena blocks[2];
    struct arena *block = &blocks[real == sizeof(double)];
    uint32_t state = 1;
    if (block->data != NULL)
        return block->data;
    make_room(block, BLOCK);
    for (size_t i = 0; i < BLOCK / real; i++) {
        state = state * 1664525 + 1013904223;
        clb_check_put(real == sizeof(double) ? CLB_D : CLB_S, block->data, i,
                      ((double)state - 0x1p31) * 0x1p-46);
    }
    return block->data;
}

/* The real parts of elements that are so many apart. */
static void put(double value, char *data, size_t count, size_t step, clb_precision precision)
{
    for (size_t i = 0; i < count; i++)
        clb_check_put(precision, data, i * step * clb_precision_parts(precision), value);
}

static bool needs_diagonal(const struct clb_call *call)
{
    struct clb_shape shape;
    return (clb_call_shape(call, 'A', &shape) && shape.triangle) || call->kind == CLB_KIND_getrs ||
           call->kind == CLB_KIND_getri;
}

/* Only what is not there already is copied. The call may change what it writes. */
static void fill(const struct clb_call *call, int i, const struct clb_shape *shape)
{
    const size_t size = clb_precision_size(call->precision),
                 real = clb_precision_real_size(call->precision), rows = clb_max(shape->rows, 1),
                 bytes = rows * clb_max(shape->cols, 1) * size;
    struct arena *arena = &arenas[i];
    const char *block = random_block(real);
    size_t at = arena->real == real ? arena->filled : 0;
    for (size_t part; at < bytes; at += part) {
        part = clb_min(BLOCK - at % BLOCK, bytes - at);
        memcpy(arena->data + at, block + at % BLOCK, part);
    }
    arena->real = real;
    arena->filled = shape->written ? 0 : at;
    if (i == 0 && needs_diagonal(call)) {
        put(1, arena->data, clb_min(rows, shape->cols), rows + 1, call->precision);
        arena->filled = 0;
    }
}

/* ---- a call ---- */

void clb_trial_fill(struct clb_call *call, bool ilp64)
{
    const clb_precision precision = call->precision;
    const size_t size = clb_precision_size(precision),
                 most =
                     clb_max(clb_max(clb_max(call->m, call->n), clb_max(call->k, call->nrhs)), 1);
    for (int i = 0; i < CLB_CALL_MATRICES; i++) {
        struct clb_shape shape;
        if (!clb_call_shape(call, (char)('A' + i), &shape))
            continue;
        /* OpenBLAS 0.3.26's xGEMMT refuses a leading dimension that is less than n or k. */
        const bool padded = call->kind == CLB_KIND_gemmtr && i < 2;
        const size_t rows = padded ? most : clb_max(shape.rows, 1);
        shape.rows = rows;
        make_room(&arenas[i], rows * clb_max(shape.cols, 1) * size);
        fill(call, i, &shape);
        *(i == 0 ? &call->lda : i == 1 ? &call->ldb : &call->ldc) = rows;
        *(i == 0 ? &call->a : i == 1 ? &call->b : &call->c) = arenas[i].data;
    }
    call->lwork = (int64_t)(WORK_COLUMNS * most);
    make_room(&workspace, WORK_COLUMNS * most * size);
    make_room(&pivots, most * sizeof(int64_t));
    make_room(&taus, most * size);
    call->work = workspace.data;
    call->ipiv = pivots.data;
    call->tau = taus.data;
    for (size_t i = 0; i < most; i++)
        clb_integer_set(pivots.data, i, ilp64, (int64_t)i + 1);
    /* So that I - tau v v' is unitary, since v is hardly longer than its first element, which is
     * one. Results of others are not verified, and so would be at each call. */
    memset(taus.data, 0, most * size);
    put(2, taus.data, most, 1, precision);
}

/* What the call before has overwritten. Products leave nothing behind that the next one reads. */
static void fill_again(const struct clb_call *call)
{
    for (int i = 0; i < CLB_CALL_MATRICES; i++) {
        struct clb_shape shape;
        if (clb_call_shape(call, (char)('A' + i), &shape) && shape.written &&
            !(i == 2 && clb_signature_has(call, '+')))
            fill(call, i, &shape);
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double clb_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

struct clb_call clb_trial_make(clb_routine routine, int64_t m, int64_t n, int64_t k, int64_t nrhs)
{
    struct clb_call call = {.m = (size_t)m, .n = (size_t)n, .k = (size_t)k, .nrhs = (size_t)nrhs};
    clb_call_set_routine(&call, routine);
    call.alpha = clb_scalar_of(call.precision, 1);
    call.beta = clb_scalar_of(call.precision, 0);
    return call;
}

struct clb_trial_time clb_trial_run(struct clb_call *call, const struct clb_target *target,
                                    size_t uncounted, size_t calls, double limit)
{
    static double seconds[CLB_TRIAL_CALLS], cpu[CLB_TRIAL_CALLS];
    clb_trial_fill(call, target->ilp64);
    calls = clb_min(clb_max(calls, 1), CLB_TRIAL_CALLS);
    const double end = clb_now() + limit;
    size_t done = 0;
    double all = 0;
    for (size_t i = 0; done < calls && (i <= uncounted || clb_now() < end); i++) {
        if (i > 0)
            fill_again(call);
        const double cpu_begin = clb_cpu_now(), begin = clb_now();
        clb_next_call(target, CLB_ABI_FORTRAN, call);
        seconds[done] = clb_now() - begin;
        cpu[done] = clb_cpu_now() - cpu_begin;
        all += i >= uncounted ? seconds[done] : 0;
        done += i >= uncounted;
    }
    const double median = clb_median(seconds, done);
    return (struct clb_trial_time){median, seconds[0], clb_median(cpu, done), all, done};
}

bool clb_trial_product_is_right(clb_precision precision, size_t m, size_t n, size_t k, void *a,
                                void *b, void *c)
{
    const struct clb_before before[CLB_CALL_MATRICES] = {{NULL, 0}};
    struct clb_call call = clb_trial_make(clb_routine_of(CLB_KIND_gemm, precision, false),
                                          (int64_t)m, (int64_t)n, (int64_t)k, 0);
    const struct clb_judged question = {.call = &call, .before = before};
    struct clb_verdict verdict;
    call.a = a;
    call.b = b;
    call.c = c;
    call.lda = call.ldc = m;
    call.ldb = k;
    return clb_judge(&question, &verdict) == CLB_OK && verdict.failed == NULL;
}
