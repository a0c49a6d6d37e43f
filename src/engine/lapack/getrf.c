/* LAPACK xGETRF and xGESV in the caller's memory: how the matrix gets to the device and back, and
 * the choice between the ways. getrf.h has the scheme. */
#include "engine/transfer/transfer_queue.h"
#include "getrf.h"

#include <stdlib.h>
#include <string.h>

/* ---- unified memory -------------------------------------------------------------------------
 *
 * The matrix is copied to memory of the shim that the CPU can access too, so that the CPU factors
 * panels in place. The device copies the caller's columns in and applies the first step's
 * interchanges in doing so; the CPU copies them out and applies those of the later steps. So
 * neither costs a pass of its own. */

struct getrf_unified {
    struct clb_getrf_run lu; /* first: the context of its functions */
    struct clb_dmat caller;  /* the caller's matrix; without memory where the device can't access it
                              * or the columns after the first panel have been copied */
};

/* Strip [j, j + width) of the panel [k, end) has been factored. Apply its step to the rest of the
 * panel, and its interchanges to the strips on its left. */
static clb_status follow_strip(struct clb_getrf_run *lu, size_t k, size_t end, size_t j,
                               size_t width)
{
    const struct clb_dmat left = clb_dmat_part(&lu->x, 0, k, lu->x.rows, j - k);
    size_t first = j + width;
    clb_status status =
        first < end ? clb_getrf_prepare(lu, j, width) : clb_getrf_send_moves(lu, j, width);
    if (status == CLB_OK)
        status = clb_dmat_move(&lu->run.workspace, &left, lu->moves);
    if (status == CLB_OK && first < end)
        status = clb_getrf_apply(lu, j, width, first, end - first, false);
    return status;
}

static bool is_in_strips(const void *context, size_t k)
{
    const struct clb_getrf_run *lu = context;
    return clb_getrf_is_on_device(lu, k) || clb_getrf_width(lu, k) > lu->strip;
}

/* The CPU factors a panel in strips, because the device's other threads have no work while it
 * factors on one of them. The transfer of a strip's moves is complete when the next strip is
 * mapped, and at the end. */
static clb_status factor_strips(void *context, size_t k, size_t width)
{
    struct clb_getrf_run *lu = context;
    clb_status status = CLB_OK;
    if (clb_getrf_is_on_device(lu, k))
        return clb_getrf_factor_on_device(lu, k, width);
    for (size_t j = k; j < k + width && status == CLB_OK; j += lu->strip) {
        size_t cols = clb_min(lu->strip, k + width - j);
        status = clb_panels_factor_mapped(&lu->panels, j, cols);
        if (status == CLB_OK)
            status = follow_strip(lu, k, k + width, j, cols);
    }
    return status == CLB_OK ? clb_job_complete(&lu->run) : status;
}

static clb_status prepare_and_copy(void *context, size_t k, size_t width)
{
    struct getrf_unified *unified = context;
    struct clb_getrf_run *lu = &unified->lu;
    size_t first = k + width, count = lu->x.cols - first;
    clb_status status = clb_getrf_prepare(lu, k, width);
    if (status != CLB_OK || count == 0 || unified->caller.mem == NULL)
        return status;
    const struct clb_dmat from = clb_dmat_part(&unified->caller, 0, first, lu->x.rows, count);
    const struct clb_dmat to = clb_dmat_part(&lu->x, 0, first, lu->x.rows, count);
    status = clb_dmat_move_copy(&lu->run.workspace, &from, &to, lu->moves);
    unified->caller.mem = NULL;
    lu->moves = 0;
    return status;
}

static clb_status run_unified(struct clb_getrf_run *unopened)
{
    static const struct clb_panel_work work = {.width = clb_getrf_width,
                                               .factor = clb_getrf_factor,
                                               .is_in_place = is_in_strips,
                                               .factor_in_place = factor_strips,
                                               .prepare = prepare_and_copy,
                                               .apply = clb_getrf_apply};
    struct getrf_unified unified = {.lu = *unopened};
    struct clb_getrf_run *lu = &unified.lu;
    struct clb_job *run = &lu->run;
    void *mapped;
    clb_status status = clb_getrf_open(lu);
    lu->panels = (struct clb_panels){.run = run,
                                     .work = &work,
                                     .context = &unified,
                                     .x = &lu->x,
                                     .end = lu->inner,
                                     .cols = lu->x.cols};
    if (status == CLB_OK)
        status = clb_job_matrix(run, &lu->x);
    if (status == CLB_OK)
        status = clb_job_copy_in(run, &lu->x, clb_getrf_width(lu, 0), &unified.caller);
    if (status == CLB_OK)
        status = clb_panels_run(&lu->panels);
    if (status == CLB_OK)
        status = clb_job_map_result(run, &lu->x, &mapped);
    if (status == CLB_OK) {
        status = clb_getrf_write_back(lu, mapped, run->runtime->device.units);
        clb_status unmapped = clb_job_unmap(run, &lu->x, mapped);
        status = status != CLB_OK ? status : unmapped;
    }
    status = clb_job_end(run, status);
    clb_getrf_close(lu);
    return status;
}

/* ---- discrete memory ------------------------------------------------------------------------
 *
 * The first panel is factored from a copy in pinned memory while the other columns are uploaded,
 * and the first step is applied to them in groups as they arrive (job.h). Where the device
 * factors the panels getrf_lookahead.c runs the steps. When the last step is done the device copies
 * columns, with their rows in the final order, to one of a few chunks of memory, from which the
 * transfer queue writes them to the caller's matrix, from left to right. */

/* Chunks being downloaded at once. */
#define CHUNKS ((size_t)4)

struct getrf_discrete {
    struct clb_getrf_run lu;            /* first: the context of its functions */
    struct clb_gemm_progress *progress; /* of the right-hand sides, if any */
    struct clb_buffer *chunk[CHUNKS], *order;
    cl_uint *order_host; /* row order of a panel's columns at write-back */
    bool ahead;          /* the device factors the panels */
};

/* Add the downloads. A chunk has columns of one panel only, so that it has one row order. Columns
 * after the last panel have no such limit. */
static void add_chunks(struct getrf_discrete *discrete, size_t chunk_cols)
{
    struct clb_getrf_run *lu = &discrete->lu;
    size_t m = lu->x.rows, n = lu->x.cols;
    for (size_t k = 0, end; k < n; k = end) {
        end = k < lu->inner ? k + clb_getrf_width(lu, k) : n;
        for (size_t j = k; j < end; j += chunk_cols) {
            const struct clb_dmat x = {.rows = m, .cols = clb_min(chunk_cols, end - j), .ld = m};
            clb_job_add_columns(&lu->run, true, &x, j)->extent = x.cols;
        }
    }
}

/* All memory, before anything is enqueued. */
static clb_status discrete_open(struct getrf_discrete *discrete)
{
    struct clb_getrf_run *lu = &discrete->lu;
    struct clb_job *run = &lu->run;
    clb_status status = clb_getrf_open(lu);
    if (status != CLB_OK)
        return status;
    size_t m = lu->x.rows, n = lu->x.cols;
    size_t chunk_cols = clb_max(CLB_PIECE_BYTES / (m * run->element), 1);
    discrete->ahead = clb_getrf_is_on_device(lu, 0);
    lu->panels.end = lu->inner;
    lu->panels.cols = n;
    status = clb_job_matrix(run, &lu->x);
    if (status == CLB_OK && !discrete->ahead)
        status = clb_panels_open(&lu->panels,
                                 clb_max(clb_getrf_width(lu, 0), clb_min(lu->tail, lu->inner)));
    if (status == CLB_OK)
        status = clb_job_plan(run, CLB_PANELS_UPLOADS + 2 * n);
    if (status != CLB_OK)
        return status;
    if (discrete->ahead)
        clb_lookahead_add_uploads(lu);
    else
        clb_panels_add_uploads(&lu->panels, lu->nb);
    add_chunks(discrete, chunk_cols);
    for (size_t i = 0; i < clb_min(CHUNKS, run->downloads) && status == CLB_OK; i++)
        status = clb_job_buffer(run, CLB_MEMORY_DEVICE, m * chunk_cols * run->element,
                                &discrete->chunk[i]);
    if (status == CLB_OK)
        status = clb_job_buffer(run, CLB_MEMORY_DEVICE, m * sizeof(cl_uint), &discrete->order);
    discrete->order_host = calloc(m, sizeof *discrete->order_host);
    if (status == CLB_OK && discrete->order_host == NULL)
        status = CLB_ERR_NOMEM;
    return status;
}

static clb_status send_order(struct getrf_discrete *discrete, size_t k, size_t width)
{
    const struct clb_getrf_run *lu = &discrete->lu;
    clb_getrf_order(lu, k + width, lu->inner, discrete->order_host);
    return clb_queue_write_now(lu->run.workspace.queue, discrete->order->mem, 0,
                               lu->x.rows * sizeof(cl_uint), discrete->order_host);
}

static clb_status send_chunk(struct getrf_discrete *discrete, size_t index, size_t first)
{
    struct clb_job *run = &discrete->lu.run;
    struct clb_transfer *transfer = &run->transfer[run->uploads + index];
    const struct clb_dmat from =
        clb_dmat_part(&discrete->lu.x, 0, first, discrete->lu.x.rows, transfer->x.cols);
    clb_status status = CLB_OK;
    if (index >= CHUNKS)
        status = clb_transfer_queue_await_arrival(run->transfers, run->uploads + index - CHUNKS);
    transfer->x.mem = discrete->chunk[index % CHUNKS]->mem;
    if (status == CLB_OK)
        status = clb_dmat_permute(&run->workspace, &from, &transfer->x, discrete->order->mem);
    if (status == CLB_OK)
        status = clb_queue_confirm(run->workspace.queue);
    return status == CLB_OK ? clb_job_publish(run, index) : status;
}

static clb_status discrete_write_back(struct getrf_discrete *discrete)
{
    const struct clb_getrf_run *lu = &discrete->lu;
    size_t chunk = 0, n = lu->result->info == 0 ? lu->x.cols : lu->call->n;
    clb_status status = CLB_OK;
    for (size_t k = 0, width; k < n && status == CLB_OK; k += width) {
        width = k < lu->inner ? clb_getrf_width(lu, k) : n - k;
        status = send_order(discrete, k, width);
        for (size_t j = k; j < k + width && status == CLB_OK; chunk++) {
            size_t cols = lu->run.transfer[lu->run.uploads + chunk].x.cols;
            status = send_chunk(discrete, chunk, j);
            j += cols;
        }
    }
    return status;
}

static clb_status discrete_run_steps(struct getrf_discrete *discrete)
{
    struct clb_getrf_run *lu = &discrete->lu;
    if (discrete->ahead)
        return clb_lookahead_run(lu);
    clb_panels_copy_in(&lu->panels);
    return clb_panels_run(&lu->panels);
}

/* The parts of B in the progress are the chunks after A's last column. */
static clb_status discrete_make_parts(struct getrf_discrete *discrete)
{
    const struct clb_job *run = &discrete->lu.run;
    size_t n = discrete->lu.call->n, first = 0, parts = 0;
    const struct clb_transfer *chunk = run->transfer + run->uploads;
    if (!discrete->lu.solves)
        return CLB_OK;
    while (first < n)
        first += chunk++->x.cols;
    parts = (size_t)(run->transfer + run->uploads + run->downloads - chunk);
    clb_status status = clb_gemm_progress_make(discrete->progress, parts);
    for (size_t i = 0, j = 0; i < discrete->progress->parts; j += chunk[i++].x.cols)
        discrete->progress->part[i] = (struct clb_rect){0, j, discrete->lu.x.rows, chunk[i].x.cols};
    return status;
}

/* Note in the results what has been written to the caller's matrices. */
static void discrete_note_written(struct getrf_discrete *discrete)
{
    struct clb_gemm_progress *progress = discrete->progress;
    struct clb_factors *result = discrete->lu.result;
    size_t written = clb_job_written(&discrete->lu.run), n = discrete->lu.call->n;
    result->columns_written = clb_min(written, n);
    if (!discrete->lu.solves)
        return;
    for (size_t i = 0; i < progress->parts; i++)
        progress->written[i] = n + progress->part[i].col < written;
    progress->kernel = result->kernel;
    if (result->info != 0)
        clb_gemm_progress_free(progress);
}

/* `progress` is that of the right-hand sides, if any. *begun: some command for the matrix was
 * enqueued. */
static clb_status run_discrete(struct clb_getrf_run *unopened, struct clb_gemm_progress *progress,
                               bool *begun)
{
    static const struct clb_panel_work work = {.width = clb_getrf_width,
                                               .factor = clb_getrf_factor,
                                               .is_in_place = clb_getrf_is_on_device,
                                               .factor_in_place = clb_getrf_factor_on_device,
                                               .prepare = clb_getrf_prepare,
                                               .apply = clb_getrf_apply};
    struct getrf_discrete discrete = {.lu = *unopened, .progress = progress};
    struct clb_getrf_run *lu = &discrete.lu;
    lu->panels = (struct clb_panels){.run = &lu->run, .work = &work, .context = lu, .x = &lu->x};
    clb_status status = discrete_open(&discrete);
    if (status == CLB_OK)
        status = discrete_make_parts(&discrete);
    if (status == CLB_OK)
        status = clb_job_begin(&lu->run);
    *begun = lu->run.begun;
    if (status == CLB_OK)
        status = discrete_run_steps(&discrete);
    if (status == CLB_OK && lu->solves && lu->result->info == 0)
        status = clb_getrf_solve(lu);
    if (status == CLB_OK)
        status = clb_job_complete(&lu->run);
    if (status == CLB_OK)
        status = discrete_write_back(&discrete);
    status = clb_job_end(&lu->run, status);
    if (*begun)
        discrete_note_written(&discrete);
    free(discrete.order_host);
    clb_getrf_close(lu);
    return status;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static struct clb_getrf_run getrf_run_of(struct clb_runtime *runtime,
                                         const struct clb_gemm_variant *variant,
                                         const struct clb_call *call,
                                         const struct clb_host_blas *next,
                                         struct clb_factors *result)
{
    struct clb_getrf_run lu = {
        .run = clb_job_on(runtime, variant, call->precision,
                          (struct clb_caller){call->a, call->lda, call->n, false}),
        .call = call,
        .next = next,
        .result = result};
    *result = (struct clb_factors){.ipiv = result->ipiv, .kernel = variant->name, .blocks = 1};
    return lu;
}

clb_status clb_getrf_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, const struct clb_host_blas *next,
                         struct clb_factors *result)
{
    struct clb_getrf_run lu = getrf_run_of(runtime, variant, call, next, result);
    bool forced = variant->tuning.value[CLB_PARAM_GETRF_BLOCK] != 0, begun = false;
    if (!lu.run.discrete)
        return run_unified(&lu);
    clb_status status = forced ? CLB_ERR_NOMEM : run_discrete(&lu, NULL, &begun);
    return status == CLB_ERR_NOMEM && !begun ? clb_getrf_run_blocks(&lu) : status;
}

/* ---- xGESV: the factors stay on the device for the solve ---------------------------------------
 *
 * The right-hand sides are columns after those of A in the device's own memory. The steps of the
 * factorisation interchange their rows and solve with L, so that U*X = L^-1*P*B remains. So there
 * is one upload, and the solve with L costs the device next to nothing. The solutions are
 * downloaded after A's last column and don't depend on each other: nothing of B is written before
 * all of A is, and after a failure the columns of B that are left are computed by xGETRS.
 * Where A is singular B is not downloaded.
 *
 * A device that shares the host's memory solves with the factors in the caller's memory, and so
 * does one whose memory does not hold both matrices. */

clb_status clb_gesv_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_call *call, const struct clb_host_blas *next,
                        struct clb_factors *result, struct clb_gemm_progress *progress)
{
    struct clb_getrf_run lu = getrf_run_of(runtime, variant, call, next, result);
    clb_status status = CLB_ERR_NOMEM;
    bool begun = false;
    *progress = (struct clb_gemm_progress){0};
    lu.solves = true;
    lu.run.caller[1] = (struct clb_caller){call->b, call->ldb, call->nrhs, false};
    if (lu.run.discrete && variant->tuning.value[CLB_PARAM_GETRF_BLOCK] == 0)
        status = run_discrete(&lu, progress, &begun);
    if (status != CLB_ERR_NOMEM || begun)
        return status;
    clb_gemm_progress_free(progress);
    status = clb_getrf_run(runtime, variant, call, next, result);
    if (status != CLB_OK || result->info != 0)
        return status;
    struct clb_call with_factors = clb_call_as(call, CLB_KIND_getrs);
    with_factors.ipiv = result->ipiv;
    with_factors.wide = true;
    return clb_getrs_run(runtime, variant, &with_factors, progress);
}

/* ---- after a failure ------------------------------------------------------------------------- */

/* Finish on the CPU, left-looking, a factorisation of which the first columns are written.
 *
 * With w columns written and k = min(w, m): undo the interchanges of later steps in the written
 * columns; apply those of the first k steps to the other columns, which are still as before the
 * factorisation; U12 = L11^-1*A12; A22 -= L21*U12; factor A22 anew, and apply its interchanges to
 * the written columns. So the pivots are a sequence as in LAPACK, even where the new ones differ
 * from the device's. */
static char *getrf_resume_at(const struct clb_call *call, size_t row, size_t col)
{
    return (char *)call->a + (row + col * call->lda) * clb_precision_size(call->precision);
}

static void swap_rows(const struct clb_call *call, size_t col, size_t i, size_t other)
{
    size_t element = clb_precision_size(call->precision);
    char held[16], *x = getrf_resume_at(call, i, col), *y = getrf_resume_at(call, other, col);
    memcpy(held, x, element);
    memcpy(x, y, element);
    memcpy(y, held, element);
}

/* Apply interchanges [i0, i1) to columns [j0, j1), or with `backward` undo them. */
static void getrf_resume_interchange(const struct clb_call *call, const int64_t *ipiv, size_t i0,
                                     size_t i1, bool backward, size_t j0, size_t j1)
{
    for (size_t j = j0; j < j1; j++) {
        for (size_t i = i0; i < i1; i++) {
            size_t row = backward ? i1 - 1 - (i - i0) : i;
            swap_rows(call, j, row, (size_t)ipiv[row] - 1);
        }
    }
}

static void getrf_resume_look_left(const struct clb_call *call, const struct clb_host_blas *next,
                                   size_t k, size_t written)
{
    struct clb_call trsm = clb_call_as(call, CLB_KIND_trsm), gemm;
    trsm.upper = false;
    trsm.unit = true;
    trsm.m = k;
    trsm.n = call->n - written;
    trsm.alpha = clb_scalar_one(call->precision);
    trsm.b = getrf_resume_at(call, 0, written);
    trsm.ldb = call->lda;
    gemm = clb_call_as(&trsm, CLB_KIND_gemm);
    gemm.m = call->m - k;
    gemm.k = k;
    gemm.alpha = clb_scalar_minus_one(call->precision);
    gemm.beta = clb_scalar_one(call->precision);
    gemm.a = getrf_resume_at(call, k, 0);
    gemm.c = getrf_resume_at(call, k, written);
    gemm.ldc = call->lda;
    clb_host_call(next, &trsm);
    if (gemm.m > 0)
        clb_host_call(next, &gemm);
}

static void factor_rest(const struct clb_call *call, const struct clb_host_blas *next,
                        struct clb_factors *result, size_t k)
{
    size_t inner = clb_min(call->m, call->n);
    int64_t *ipiv = result->ipiv + k;
    size_t info = clb_getrf_on_host(next, call, call->m - k, call->n - k,
                                    getrf_resume_at(call, k, k), call->lda, ipiv);
    for (size_t i = 0; i < inner - k; i++)
        ipiv[i] += (int64_t)k;
    getrf_resume_interchange(call, result->ipiv, k, inner, false, 0, k);
    if (result->info == 0 || result->info > k)
        result->info = info != 0 ? k + info : 0;
}

void clb_getrf_resume(const struct clb_call *call, const struct clb_host_blas *next,
                      struct clb_factors *result)
{
    size_t written = result->columns_written, inner = clb_min(call->m, call->n);
    size_t k = clb_min(written, inner);
    if (written == call->n)
        return;
    getrf_resume_interchange(call, result->ipiv, k, inner, true, 0, written);
    getrf_resume_interchange(call, result->ipiv, 0, k, false, written, call->n);
    if (k > 0)
        getrf_resume_look_left(call, next, k, written);
    if (k < inner)
        factor_rest(call, next, result, k);
    result->columns_written = call->n;
}
