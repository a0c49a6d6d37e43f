/* The rungs of the LU factorisation: lu.cl. All pivot as LAPACK does, and all are
 * timed from and to ordinary memory. SPDX-License-Identifier: BSD-3-Clause */
#include "ladder.h"
#include "shim/next/next.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PANEL 64 /* lu.cl */
#define ITEMS 256
#define BLOCK 64
#define SIDE  16

struct lu {
    struct ladder *ladder;
    struct clb_program *program;
    struct clb_buffer *a, *pivots; /* the device's matrix, and its pivots from 0 */
    struct clb_buffer *panel;      /* the host's copy of a panel, and of its pivots */
    const struct clb_target *getrf;
    cl_uint *pivot; /* the result */
};

/* Bytes of a panel, whose columns are contiguous and whole. */
static size_t panel_bytes(const struct lu *lu)
{
    return PANEL * lu->ladder->n * lu->ladder->size;
}

/* ---- on the CPU alone ---- */

#define SEQUENTIAL(real)                                                                   \
    static void sequential_##real(size_t n, real *a, cl_uint *pivot)                       \
    {                                                                                      \
        for (size_t k = 0; k < n; k++) {                                                   \
            size_t row = k;                                                                \
            for (size_t i = k + 1; i < n; i++)                                             \
                row = fabs((double)a[i + k * n]) > fabs((double)a[row + k * n]) ? i : row; \
            pivot[k] = (cl_uint)row;                                                       \
            for (size_t j = 0; j < n; j++) {                                               \
                real x = a[k + j * n];                                                     \
                a[k + j * n] = a[row + j * n];                                             \
                a[row + j * n] = x;                                                        \
            }                                                                              \
            for (size_t i = k + 1; i < n; i++)                                             \
                a[i + k * n] /= a[k + k * n];                                              \
            for (size_t j = k + 1; j < n; j++) {                                           \
                for (size_t i = k + 1; i < n; i++)                                         \
                    a[i + j * n] -= a[i + k * n] * a[k + j * n];                           \
            }                                                                              \
        }                                                                                  \
    }
SEQUENTIAL(float)
SEQUENTIAL(double)

static clb_status run_sequential(void *argument)
{
    struct lu *lu = argument;
    size_t n = lu->ladder->n;
    memcpy(lu->ladder->c, lu->ladder->a, lu->ladder->bytes);
    if (lu->ladder->measure.precision == CLB_S)
        sequential_float(n, lu->ladder->c, lu->pivot);
    else
        sequential_double(n, lu->ladder->c, lu->pivot);
    return CLB_OK;
}

/* ---- launches ---- */

/* Kernels with the arguments n, k, [first,] a, [pivots]; a work-item computes `part` x `part`
 * elements. */
static const struct lu_kernel {
    const char *name;
    size_t local[2], part;
    bool has_first, has_pivots;
} column = {"column", {ITEMS, 1}, 1, false, true}, rank_one = {"rank_one", {0}, 1, false, false},
  swap_rows = {"swap_rows", {PANEL, 1}, 1, false, true},
  solve = {"solve", {PANEL, 1}, 1, false, false},
  update_tiles = {"update_tiles", {SIDE, SIDE}, 1, true, false},
  update_blocks = {"update_blocks", {SIDE, SIDE}, BLOCK / SIDE, true, false};

static clb_status launch(const struct lu *lu, const struct lu_kernel *kernel, size_t at,
                         size_t from, size_t x, size_t y, clb_event after, clb_event *event)
{
    const cl_uint n = (cl_uint)lu->ladder->n, k = (cl_uint)at, first = (cl_uint)from;
    const struct clb_geometry geometry = {
        {x / kernel->part, y / kernel->part}, {kernel->local[0], kernel->local[1]}, 2};
    return clb_kernel_launch(
        lu->ladder->measure.queue_set, lu->program, kernel->name, &geometry,
        (struct clb_order){NULL, after, event},
        CLB_ARGUMENTS(CLB_ARG(n), CLB_ARG(k), CLB_ARG_IF(kernel->has_first, first),
                      CLB_ARG(lu->a->mem), CLB_ARG_IF(kernel->has_pivots, lu->pivots->mem)));
}

static clb_status send_matrix(const struct lu *lu)
{
    const struct ladder *ladder = lu->ladder;
    return clb_queue_write_now(ladder->queue, lu->a->mem, 0, ladder->bytes, ladder->a);
}

static clb_status fetch_matrix(const struct lu *lu)
{
    const struct ladder *ladder = lu->ladder;
    CLB_TRY(clb_queue_finish(ladder->queue));
    return clb_queue_read_now(ladder->queue, lu->a->mem, 0, ladder->bytes, ladder->c);
}

/* ---- two kernels a column ---- */

static clb_status run_naive(void *argument)
{
    struct lu *lu = argument;
    const size_t n = lu->ladder->n;
    CLB_TRY(send_matrix(lu));
    for (size_t k = 0; k < n; k++) {
        CLB_TRY(launch(lu, &column, k, 0, ITEMS, 1, NULL, NULL));
        CLB_TRY(launch(lu, &rank_one, k, 0, n, n, NULL, NULL));
    }
    CLB_TRY(fetch_matrix(lu));
    return clb_queue_read_now(lu->ladder->queue, lu->pivots->mem, 0, n * sizeof(cl_uint),
                              lu->pivot);
}

/* ---- blocked: the CPU factors panels ---- */

/* The next LAPACK factors rows k and below of the panel in host memory; its pivots become rows of
 * the matrix, from 0. */
static void factor_panel(const struct lu *lu, size_t k)
{
    size_t n = lu->ladder->n, size = lu->ladder->size;
    int64_t ipiv[PANEL];
    struct clb_call call = {.m = n - k, .n = PANEL, .lda = n, .ipiv = ipiv};
    call.routine = lu->ladder->measure.precision == CLB_S ? CLB_ROUTINE_sgetrf : CLB_ROUTINE_dgetrf;
    call.a = (char *)lu->panel->host + k * size;
    clb_next_call(lu->getrf, CLB_ABI_FORTRAN, &call);
    for (size_t i = 0; i < PANEL; i++)
        lu->pivot[k + i] = (cl_uint)(k + (size_t)clb_integer_get(ipiv, i, lu->getrf->ilp64) - 1);
}

/* Nothing overlaps: a panel comes down, is factored, goes up, and the rest is updated. */
static clb_status run_synchronous(void *argument)
{
    struct lu *lu = argument;
    struct clb_queue *queue = lu->ladder->queue;
    size_t n = lu->ladder->n;
    CLB_TRY(send_matrix(lu));
    for (size_t k = 0; k < n; k += PANEL) {
        size_t offset = k * n * lu->ladder->size, rest = n - k - PANEL;
        CLB_TRY(clb_queue_read_now(queue, lu->a->mem, offset, panel_bytes(lu), lu->panel->host));
        factor_panel(lu, k);
        CLB_TRY(clb_queue_write_now(queue, lu->a->mem, offset, panel_bytes(lu), lu->panel->host));
        CLB_TRY(clb_queue_write_now(queue, lu->pivots->mem, k * sizeof(cl_uint),
                                    PANEL * sizeof(cl_uint), lu->pivot + k));
        CLB_TRY(launch(lu, &swap_rows, k, 0, n, 1, NULL, NULL));
        if (rest > 0) {
            CLB_TRY(launch(lu, &solve, k, 0, rest, 1, NULL, NULL));
            CLB_TRY(launch(lu, &update_tiles, k, k + PANEL, rest, rest, NULL, NULL));
        }
        CLB_TRY(clb_queue_finish(queue));
    }
    return fetch_matrix(lu);
}

/* Look-ahead: the columns of the next panel are updated first and come down on another queue; while
 * the CPU factors them the device updates the rest. */
static clb_status pipeline_step(struct lu *lu, size_t k)
{
    struct clb_queue_set *set = lu->ladder->measure.queue_set;
    size_t n = lu->ladder->n, offset = k * n * lu->ladder->size, next = k + PANEL;
    clb_event sent = NULL, ready = NULL, fetched = NULL;
    factor_panel(lu, k);
    clb_status status = clb_queue_write(set->upload, lu->pivots->mem,
                                        CLB_LINE(k * sizeof(cl_uint), PANEL * sizeof(cl_uint)),
                                        lu->pivot + k, NULL, NULL);
    CLB_THEN(status, clb_queue_write(set->upload, lu->a->mem, CLB_LINE(offset, panel_bytes(lu)),
                                     lu->panel->host, NULL, &sent));
    CLB_THEN(status, clb_queue_flush(set->upload));
    CLB_THEN(status, launch(lu, &swap_rows, k, 0, n, 1, sent, NULL));
    if (next < n) {
        CLB_THEN(status, launch(lu, &solve, k, 0, n - next, 1, NULL, NULL));
        CLB_THEN(status, launch(lu, &update_blocks, k, next, n - next, PANEL, NULL, &ready));
    }
    if (next + PANEL < n)
        CLB_THEN(status, launch(lu, &update_blocks, k, next + PANEL, n - next, n - next - PANEL,
                                NULL, NULL));
    CLB_THEN(status, clb_queue_flush(set->queue));
    if (next < n) {
        CLB_THEN(status, clb_queue_read(set->upload, lu->a->mem,
                                        CLB_LINE(offset + panel_bytes(lu), panel_bytes(lu)),
                                        lu->panel->host, ready, &fetched));
        CLB_THEN(status, clb_event_wait(fetched));
    }
    clb_event_drop(&sent);
    clb_event_drop(&ready);
    clb_event_drop(&fetched);
    return status;
}

static clb_status run_pipelined(void *argument)
{
    struct lu *lu = argument;
    struct clb_queue_set *set = lu->ladder->measure.queue_set;
    CLB_TRY(send_matrix(lu));
    CLB_TRY(clb_queue_read_now(set->queue, lu->a->mem, 0, panel_bytes(lu), lu->panel->host));
    for (size_t k = 0; k < lu->ladder->n; k += PANEL)
        CLB_TRY(pipeline_step(lu, k));
    CLB_TRY(clb_queue_finish(set->upload));
    return fetch_matrix(lu);
}

/* ---- all of them ---- */

static const struct lu_rung {
    const char *name, *adds, *options;
    clb_status (*run)(void *lu);
    double limit;
} rungs[] = {
    {"sequential", "three loops in C, one CPU", "", run_sequential, 1},
    {"two kernels a column", "rank-one updates on the device", "", run_naive, 1},
    {"with native reciprocals", "no division, perhaps fewer bits", " -DNATIVE", run_naive, 0x1p13},
    {"blocked, synchronous", "panels on the CPU, tiles on the device", "", run_synchronous, 1},
    {"blocked, pipelined", "look-ahead, two queues, register tiles", "", run_pipelined, 1},
};

static clb_status climb_rung(struct lu *lu, const struct lu_rung *rung)
{
    struct ladder *ladder = lu->ladder;
    struct rung result = {rung->name, rung->adds, NAN, NAN, rung->limit};
    char options[64];
    memset(ladder->c, 0xff, ladder->bytes);
    snprintf(options, sizeof options, "-DCLB_DOUBLE=%d%s", ladder->measure.precision == CLB_D,
             rung->options);
    /* There are no native functions of doubles. */
    const bool exists = *rung->options == '\0' || ladder->measure.precision == CLB_S;
    if (exists) {
        CLB_TRY(clb_program_get(ladder->measure.runtime, &kernel_ladder_lu, options, &lu->program));
        result.seconds = clb_measure_seconds(rung->run, lu, false);
    }
    if (isfinite(result.seconds))
        result.error = ladder_error(ladder, ladder->a, lu->pivot, ladder->c, 'L', ladder->c, 'U');
    ladder_add(ladder, &result);
    return CLB_OK;
}

clb_status ladder_climb_lu(struct ladder *ladder)
{
    struct clb_measure *measure = &ladder->measure;
    struct lu lu = {.ladder = ladder};
    const size_t n = ladder->n;
    struct clb_symbol *symbol =
        clb_symbol_at(measure->precision == CLB_S ? CLB_ROUTINE_sgetrf : CLB_ROUTINE_dgetrf, 0);
    lu.getrf = clb_next_get_target(symbol, __builtin_return_address(0));
    lu.pivot = calloc(n, sizeof *lu.pivot);
    clb_status status = lu.pivot == NULL ? CLB_ERR_NOMEM : CLB_OK;
    CLB_THEN(status, clb_buffer_get(measure->runtime, CLB_MEMORY_DEVICE, ladder->bytes, &lu.a));
    CLB_THEN(status,
             clb_buffer_get(measure->runtime, CLB_MEMORY_DEVICE, n * sizeof(cl_uint), &lu.pivots));
    CLB_THEN(status,
             clb_buffer_get(measure->runtime, CLB_MEMORY_HOST, panel_bytes(&lu), &lu.panel));
    for (size_t i = 0; i < CLB_COUNT_OF(rungs) && status == CLB_OK; i++)
        status = climb_rung(&lu, &rungs[i]);
    bool idle = clb_queue_set_settle(measure->queue_set);
    clb_buffer_end(measure->runtime, lu.a, idle);
    clb_buffer_end(measure->runtime, lu.pivots, idle);
    clb_buffer_end(measure->runtime, lu.panel, idle);
    free(lu.pivot);
    return status;
}
