/* SPDX-License-Identifier: BSD-3-Clause
 * xGEMM_BATCH and xGEMM_BATCH_STRIDED: a call, with one turn on the device, that is decided by the
 * group with the most work, taken as often as makes the work of all. Results are as of products one
 * after the other. Where the device has memory of its own, those that don't depend on each other
 * are streamed. The next library computes products of other groups that are faster there, and after
 * a failure what is left. */
#include "engine/gemm/gemm.h"
#include "profile.h"
#include "route.h"

#include <math.h>

/* ---- the products ---- */

static int64_t integer_at(const struct clb_entry *entry, const void *array, int64_t index)
{
    return clb_integer_get(array, (size_t)index, entry->target->ilp64);
}

static int64_t groups_of(const struct clb_entry *entry)
{
    return entry->batch->count != NULL ? integer_at(entry, entry->batch->count, 0) : 1;
}

static clb_op op_at(const struct clb_entry *entry, const void *array, int64_t group)
{
    return clb_op_of_letter(entry->symbol->next.abi != CLB_ABI_C
                                ? ((const char *)array)[group]
                                : clb_letter_of_cblas(((const int *)array)[group], 111, "NTC"));
}

/* A matrix of a product: the number of the product in the batch. */
static void *matrix_at(const struct clb_entry *entry, const void *matrices, const void *stride,
                       int64_t number)
{
    const size_t size = clb_precision_size(clb_routines[entry->symbol->routine].precision);
    if (stride == NULL)
        return ((void *const *)matrices)[number];
    return (char *)(uintptr_t)matrices + number * integer_at(entry, stride, 0) * (int64_t)size;
}

/* A product of a group, by columns; without matrices where its number is negative. */
static struct clb_call product_of(const struct clb_entry *entry, int64_t group, int64_t number)
{
    const struct clb_batch *x = entry->batch;
    const clb_precision precision = clb_routines[entry->symbol->routine].precision;
    const int64_t scalar = group * (int64_t)clb_precision_size(precision);
    struct clb_call call = {.transa = op_at(entry, x->transa, group),
                            .transb = op_at(entry, x->transb, group),
                            .m = (size_t)integer_at(entry, x->m, group),
                            .n = (size_t)integer_at(entry, x->n, group),
                            .k = (size_t)integer_at(entry, x->k, group),
                            .lda = (size_t)integer_at(entry, x->lda, group),
                            .ldb = (size_t)integer_at(entry, x->ldb, group),
                            .ldc = (size_t)integer_at(entry, x->ldc, group),
                            .alpha = (const char *)x->alpha + scalar,
                            .beta = (const char *)x->beta + scalar};
    if (number >= 0) {
        call.a = matrix_at(entry, x->a, x->stridea, number);
        call.b = matrix_at(entry, x->b, x->strideb, number);
        call.c = matrix_at(entry, x->c, x->stridec, number);
    }
    clb_call_set_routine(&call, (clb_routine)(CLB_ROUTINE_sgemm + (int)precision));
    if (entry->layout == CLB_ROW_MAJOR)
        clb_call_turn(&call, NULL);
    else if (entry->layout != 0 && entry->layout != CLB_COL_MAJOR)
        call.invalid = 'l';
    return call;
}

/* Where a walk through the products is. */
struct place {
    int64_t group, left, number; /* left: in the group; number: of the next product */
};
static const struct place before_all = {-1, 0, 0};

/* The next product of a valid batch; false: there is none. */
static bool next_product(const struct clb_entry *entry, struct place *at, struct clb_call *product)
{
    while (at->left == 0) {
        if (++at->group >= groups_of(entry))
            return false;
        at->left = integer_at(entry, entry->batch->sizes, at->group);
    }
    at->left--;
    *product = product_of(entry, at->group, at->number++);
    return true;
}

static double work_of(const struct clb_call *call)
{
    return clb_call_is_quick(call)
               ? 0
               : clb_work_of(CLB_STEM_gemm, (double)call->m, (double)call->n, (double)call->k);
}

/* A wrong group is the call's; without any work it is a call of size 0. */
double clb_batch_describe(struct clb_entry *entry)
{
    const int64_t groups = groups_of(entry);
    struct clb_call *call = &entry->call;
    double most = 0, all = 0;
    *call = (struct clb_call){.lda = 1, .ldb = 1, .ldc = 1, .invalid = groups < 0 ? 'l' : '\0'};
    for (int64_t group = 0, first = 0; group < groups && most < INFINITY; group++) {
        const int64_t size = integer_at(entry, entry->batch->sizes, group);
        struct clb_call product = product_of(entry, group, size > 0 ? first : -1);
        const bool wrong = clb_call_first_wrong(&product) != 0;
        if (size < 0 && !wrong)
            product.invalid = 'l';
        const double work = wrong || size < 0 ? INFINITY : (double)size * work_of(&product);
        if (work > most)
            *call = product;
        most = fmax(most, work);
        all += work;
        first += size;
    }
    if (isfinite(all) && most > 0)
        call->nrhs = (size_t)fmax(1, round(all / work_of(call)));
    clb_call_set_routine(call, entry->symbol->routine);
    return all;
}

/* ---- on the device ---- */

/* The record of one product, whose calls of the engine and of the judge are those of xGEMM. */
static struct clb_run run_of(const struct clb_run *batch, struct clb_call *product)
{
    struct clb_run run = *batch;
    run.ops = &clb_gemm_ops;
    run.call = product;
    run.work = work_of(product);
    run.progress = (struct clb_gemm_progress){0};
    return run;
}

static bool is_for_host(const struct clb_run *run, const struct clb_call *product)
{
    const struct clb_call *call = run->call;
    if (clb_call_is_quick(product) || clb_call_overlaps(product))
        return true;
    if (!clb_run_is_auto(run) ||
        (product->m == call->m && product->n == call->n && product->k == call->k))
        return false;
    const struct clb_cost_machine owner = {.device = &run->runtime->device, .next = run->next};
    const struct clb_cost_call cost = clb_cost_describe(product);
    const struct clb_prediction alone = clb_profile_predict(&owner, &cost);
    return clb_prediction_is_known(&alone) && !clb_prediction_is_for_device(&alone);
}

/* After a failure the batch's progress has the parts that are written. A result that is wrong is
 * undone. */
static clb_status run_product(struct clb_run *batch, struct clb_call *product)
{
    struct clb_run run = run_of(batch, product);
    batch->chunk = 1;
    if (clb_verify_begin(&run) != CLB_REASONS)
        return CLB_ERR_NOMEM;
    run.status = run.ops->run(&run);
    if (run.status == CLB_OK && run.verification != NULL && !clb_verify_end(&run)) {
        run.status = CLB_ERR_OPENCL;
        clb_gemm_progress_free(&run.progress);
    }
    if (run.verification != NULL)
        clb_verify_free(&run);
    batch->progress = run.progress;
    return run.status;
}

enum { MOST = 64 }; /* at once */

/* Whether a result is an operand of either product, or the other's result. Matrices that lie
 * between each other's columns count. */
static bool depend(const struct clb_matrices *x, const struct clb_matrices *y, const size_t *bytes)
{
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = i == 2 ? 0 : 2; j < 3; j++) {
            if (x->of[i] < y->of[j] + bytes[j] && y->of[j] < x->of[i] + bytes[i] &&
                (x != y || i != j))
                return true;
        }
    }
    return false;
}

/* How many products of a group, from this one on, don't depend on each other. */
static size_t collect(const struct clb_run *run, const struct clb_call *first, struct place next,
                      struct clb_matrices *taken)
{
    struct clb_call product = *first;
    size_t bytes[3] = {0}, count = 0;
    for (size_t i = 0; i < 3; i++) {
        struct clb_shape x = {0};
        (void)clb_call_shape(first, (char)('A' + i), &x);
        bytes[i] = ((x.cols - 1) * x.ld + x.rows) * clb_precision_size(first->precision);
    }
    do {
        taken[count] = (struct clb_matrices){{product.a, product.b, product.c}};
        for (size_t i = 0; i <= count; i++) {
            if (depend(&taken[i], &taken[count], bytes))
                return count;
        }
        count++;
    } while (count < MOST && next.left > 0 && next_product(run->entry, &next, &product));
    return count;
}

/* The product, and those that follow it where they can be streamed and need not be verified. */
static clb_status run_some(struct clb_run *run, struct clb_call *product, struct place *at,
                           bool *streams)
{
    struct clb_matrices taken[MOST];
    struct clb_run one = run_of(run, product);
    const bool tries = *streams && !clb_verify_is_due(&one);
    const size_t count = tries ? collect(run, product, *at, taken) : 0;
    if (count < 2)
        return run_product(run, product);
    const clb_status status =
        clb_product_run(run->runtime, run->variant, product, taken, count, &run->progress);
    clb_run_take_progress(run, status);
    *streams = run->written > 0 || (status != CLB_ERR_UNSUPPORTED && status != CLB_ERR_NOMEM);
    if (!*streams) {
        clb_gemm_progress_free(&run->progress);
        return run_product(run, product);
    }
    run->chunk = count;
    at->left -= (int64_t)count - 1;
    at->number += (int64_t)count - 1;
    return status;
}

static clb_status batch_run(struct clb_run *run)
{
    struct place at = before_all;
    struct clb_call product;
    clb_status status = CLB_OK;
    double device = 0;
    const char *kernel = NULL;
    bool streams = true;
    for (; next_product(run->entry, &at, &product); run->done += run->chunk) {
        run->chunk = 1;
        if (is_for_host(run, &product)) {
            clb_host_call(run->host, &product);
            continue;
        }
        status = run_some(run, &product, &at, &streams);
        if (status != CLB_OK)
            break;
        device += (double)run->chunk * work_of(&product);
        kernel = run->progress.kernel;
        clb_gemm_progress_free(&run->progress);
    }
    clb_run_take_progress(run, status);
    while (next_product(run->entry, &at, &product))
        ;
    run->written = run->done + (run->written > 0);
    run->parts = run->written > 0 ? (size_t)at.number : 0;
    run->share = device / run->work;
    run->kernel = kernel;
    return status;
}

/* Of products that failed together, the parts that are not written: see struct clb_gemm. */
static bool batch_complete(struct clb_run *run, clb_status status)
{
    const struct clb_gemm_progress *progress = &run->progress;
    const size_t begun = run->done + (progress->parts > 0 ? run->chunk : 0);
    struct place at = before_all;
    struct clb_call product;
    while (status != CLB_OK && next_product(run->entry, &at, &product)) {
        const size_t number = (size_t)at.number - 1;
        if (number >= begun)
            clb_host_call(run->host, &product);
        for (size_t p = 0; number >= run->done && number < begun && p < progress->parts; p++) {
            const size_t first = (number - run->done) * product.m;
            struct clb_rect rect = progress->part[p];
            if (progress->written[p] || rect.row < first || rect.row >= first + product.m)
                continue;
            rect.row -= first;
            rect.col -= (number - run->done) * product.n;
            const struct clb_call part = clb_call_part(&product, &rect);
            clb_host_call(run->host, &part);
        }
    }
    return status != CLB_OK;
}

CLB_OPS(batch, batch_run, batch_complete, CLB_NEEDS(gemm));

/* ---- by the next library's xGEMM ---- */

int clb_route_compose_batch(struct clb_entry *entry, struct clb_host_blas *host)
{
    enum { COUNT = 14, SIZES = 15 };
    struct clb_next_blas next;
    struct place at = before_all;
    struct clb_call product;
    const int wrong = clb_call_first_wrong(&entry->call);
    if (wrong != 0 && entry->call.invalid == 'l' &&
        (entry->layout == 0 || entry->layout == CLB_ROW_MAJOR || entry->layout == CLB_COL_MAJOR))
        return groups_of(entry) < 0 ? COUNT : SIZES;
    if (wrong != 0)
        return wrong;
    if (host == NULL) {
        clb_next_blas_open(&next, entry, CLB_NEEDS(gemm));
        host = &next.host;
    }
    while (next_product(entry, &at, &product))
        clb_host_call(host, &product);
    return 0;
}
