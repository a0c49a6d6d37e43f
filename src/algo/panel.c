/* Panels of LU on the device. A panel is cut into strips of columns; each is factored in one
 * launch, then the other columns follow: interchanges everywhere, a solve and an update on the
 * right. */
#include "panel.h"

#include "kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of a work-group: a row's rest is in registers. */
#define GROUP_NVIDIA ((size_t)512)
#define GROUP_OTHER  ((size_t)256)
#define FOLLOW_GROUP ((size_t)64)

/* What the kernels say. */
enum { STATE_INFO, STATE_FAILED, STATE_IPIV };

/* Work-groups that wait for each other must all be resident, so there is one such launch at a time
 * on the device. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

/* ---- open and close -------------------------------------------------------------------------- */

/* 32-bit words of a row and the position behind it, as they are exchanged. */
static size_t slot_words(const struct clb_panel *panel, clb_precision precision)
{
    return panel->width * clb_precision_size(precision) / sizeof(cl_uint) + 1;
}

/* Groups of other devices may be run one after the other. */
static bool groups_progress(const struct clb_device *device)
{
    return (device->type & CL_DEVICE_TYPE_GPU) != 0 && strstr(device->vendor, "NVIDIA") != NULL;
}

/* (H200, 2026-11: dgetrf, n = 8192, host to host, in 85 ms; with panels by 16 CPUs in 480 ms.) */
bool clb_panel_is_faster(const struct clb_device *device)
{
    return groups_progress(device);
}

static clb_status get_program(struct clb_panel *panel, struct clb_engine *engine)
{
    clb_precision precision = engine->variant->precision;
    bool progress = groups_progress(&engine->runtime->device);
    char options[160];
    /* 64 registers for the row; PoCL compiles wide ones for many seconds. */
    panel->width = !progress ? 8 : precision == CLB_Z ? 16 : 32;
    panel->group =
        clb_min(progress ? GROUP_NVIDIA : GROUP_OTHER, engine->runtime->device.max_group);
    panel->most_groups = progress ? engine->runtime->device.units : 1;
    snprintf(options, sizeof options,
             "-DCLB_DOUBLE=%d -DCLB_COMPLEX=%d -DCLB_WIDTH=%zu -DCLB_PANEL_WG=%zu "
             "-DCLB_SHUFFLE=%d -DCLB_TAPER=%d",
             clb_precision_real_size(precision) == sizeof(double),
             clb_precision_parts(precision) > 1, panel->width, panel->group, progress, progress);
    return clb_program_get(engine->runtime, &clb_kernel_getrf_panel, options, &panel->program);
}

static clb_status get_memory(struct clb_panel *panel, struct clb_engine *engine, size_t rows,
                             size_t cols)
{
    size_t groups = clb_div_up(rows, panel->group);
    size_t words = 2 * groups * slot_words(panel, engine->variant->precision);
    clb_status status = clb_buffer_get(engine->runtime, CLB_MEMORY_DEVICE,
                                       groups * panel->group * panel->width *
                                           clb_precision_size(engine->variant->precision),
                                       &panel->aside);
    if (status == CLB_OK)
        status = clb_buffer_get(engine->runtime, CLB_MEMORY_DEVICE, words * sizeof(cl_ulong),
                                &panel->exchange);
    if (status == CLB_OK)
        status = clb_buffer_get(engine->runtime, CLB_MEMORY_DEVICE,
                                (STATE_IPIV + cols) * sizeof(cl_int), &panel->state);
    panel->state_host = calloc(STATE_IPIV + cols, sizeof(cl_int));
    cl_ulong *clean = calloc(words, sizeof *clean);
    if (status == CLB_OK && (panel->state_host == NULL || clean == NULL))
        status = CLB_ERR_NOMEM;
    /* No word may have a tag of this run. */
    if (status == CLB_OK)
        status =
            clb_cl_check(clb_cl.EnqueueWriteBuffer(engine->queue, panel->exchange->mem, CL_TRUE, 0,
                                                   words * sizeof *clean, clean, 0, NULL, NULL),
                         "clEnqueueWriteBuffer");
    panel->tag = 0;
    free(clean);
    return status;
}

bool clb_panel_takes(const struct clb_panel *panel, size_t rows)
{
    return panel->program != NULL && clb_div_up(rows, panel->group) <= panel->most_groups;
}

clb_status clb_panel_prepare(struct clb_panel *panel, struct clb_engine *engine, size_t rows,
                             size_t cols)
{
    *panel = (struct clb_panel){0};
    clb_status status = get_program(panel, engine);
    if (status == CLB_OK)
        status = get_memory(panel, engine, clb_min(rows, panel->most_groups * panel->group), cols);
    if (status != CLB_OK)
        clb_panel_close(panel, engine, true);
    return status;
}

clb_status clb_panel_open(struct clb_panel *panel, struct clb_engine *engine, size_t rows,
                          size_t cols)
{
    clb_status status = clb_panel_prepare(panel, engine, rows, cols);
    if (status != CLB_OK)
        return status;
    status = clb_panel_check(engine->runtime, engine->variant, panel->group, panel->most_groups,
                             panel->width);
    if (status != CLB_OK)
        clb_panel_close(panel, engine, true);
    return status;
}

void clb_panel_close(struct clb_panel *panel, struct clb_engine *engine, bool idle)
{
    clb_buffer_end(engine->runtime, panel->aside, idle);
    clb_buffer_end(engine->runtime, panel->exchange, idle);
    clb_buffer_end(engine->runtime, panel->state, idle);
    free(panel->state_host);
    *panel = (struct clb_panel){0};
}

/* ---- a strip --------------------------------------------------------------------------------- */

static clb_status launch(struct clb_engine *engine, struct clb_panel *panel, const char *name,
                         const struct clb_argument *arguments, size_t count, size_t groups,
                         size_t local)
{
    size_t global = groups * local;
    cl_kernel kernel;
    clb_status status = clb_lane_kernel(engine->lane, panel->program, name, &kernel);
    if (status != CLB_OK)
        return status;
    return clb_lane_launch(engine->queue, kernel, name, arguments, count, 1, &global, &local, 0,
                           NULL, NULL);
}

static clb_status factor_strip(struct clb_panel *panel, struct clb_engine *engine,
                               const struct clb_dmat *x, size_t column)
{
    size_t groups = clb_div_up(x->rows, panel->group);
    const cl_uint m = (cl_uint)x->rows, n = (cl_uint)x->cols, first = (cl_uint)column;
    const cl_uint tag = panel->tag + 1;
    const cl_ulong offset = x->offset, ld = x->ld;
    const struct clb_argument arguments[] = {
        CLB_ARG(m),
        CLB_ARG(n),
        CLB_ARG(x->mem),
        CLB_ARG(offset),
        CLB_ARG(ld),
        CLB_ARG(panel->state->mem),
        CLB_ARG(first),
        CLB_ARG(panel->aside->mem),
        CLB_ARG(panel->exchange->mem),
        CLB_ARG(tag),
        {groups * slot_words(panel, engine->variant->precision) * sizeof(cl_uint), NULL}};
    panel->tag += (cl_uint)panel->width;
    return launch(engine, panel, "clb_getrf_panel", arguments, CLB_COUNT_OF(arguments), groups,
                  panel->group);
}

/* Columns of the panel outside the strip, from its first row on: those on the right are solved. */
static clb_status follow(struct clb_panel *panel, struct clb_engine *engine,
                         const struct clb_dmat *columns, const struct clb_dmat *strip,
                         size_t column, bool solve)
{
    const cl_ulong offset = columns->offset, ld = columns->ld, of_strip = strip->offset;
    const cl_uint cols = (cl_uint)columns->cols, first = (cl_uint)column, solves = solve;
    const cl_uint width = (cl_uint)clb_min(strip->cols, strip->rows);
    const struct clb_argument arguments[] = {CLB_ARG(columns->mem),
                                             CLB_ARG(offset),
                                             CLB_ARG(ld),
                                             CLB_ARG(cols),
                                             CLB_ARG(of_strip),
                                             CLB_ARG(width),
                                             CLB_ARG(panel->state->mem),
                                             CLB_ARG(first),
                                             CLB_ARG(solves)};
    if (cols == 0)
        return CLB_OK;
    return launch(engine, panel, "clb_getrf_follow", arguments, CLB_COUNT_OF(arguments),
                  engine->groups, FOLLOW_GROUP);
}

static clb_status do_strip(struct clb_panel *panel, struct clb_engine *engine,
                           const struct clb_dmat *x, size_t k)
{
    size_t width = clb_min(panel->width, x->cols - k), right = x->cols - k - width;
    size_t rows = x->rows - k, below = rows - clb_min(rows, width);
    const struct clb_dmat strip = clb_dmat_part(x, k, k, rows, width);
    const struct clb_dmat before = clb_dmat_part(x, k, 0, rows, k);
    const struct clb_dmat after = clb_dmat_part(x, k, k + width, rows, right);
    const struct clb_dmat_update update = {.a = clb_dmat_part(x, k + width, k, below, width),
                                           .b = clb_dmat_part(x, k, k + width, width, right),
                                           .c =
                                               clb_dmat_part(x, k + width, k + width, below, right),
                                           .keep = true};
    clb_status status = factor_strip(panel, engine, &strip, k);
    if (status == CLB_OK)
        status = follow(panel, engine, &before, &strip, k, false);
    if (status == CLB_OK)
        status = follow(panel, engine, &after, &strip, k, true);
    if (status == CLB_OK && right > 0 && below > 0)
        status = clb_dmat_update(engine, &update);
    return status;
}

/* ---- a panel --------------------------------------------------------------------------------- */

static clb_status do_strips(struct clb_panel *panel, struct clb_engine *engine,
                            const struct clb_dmat *x)
{
    static const cl_int clean[STATE_IPIV] = {0};
    size_t inner = clb_min(x->rows, x->cols);
    clb_status status =
        clb_cl_check(clb_cl.EnqueueWriteBuffer(engine->queue, panel->state->mem, CL_FALSE, 0,
                                               sizeof clean, clean, 0, NULL, NULL),
                     "clEnqueueWriteBuffer");
    for (size_t k = 0; k < inner && status == CLB_OK; k += panel->width)
        status = do_strip(panel, engine, x, k);
    if (status != CLB_OK)
        return status;
    return clb_cl_check(clb_cl.EnqueueReadBuffer(engine->queue, panel->state->mem, CL_TRUE, 0,
                                                 (STATE_IPIV + inner) * sizeof(cl_int),
                                                 panel->state_host, 0, NULL, NULL),
                        "clEnqueueReadBuffer");
}

clb_status clb_panel_factor(struct clb_panel *panel, struct clb_engine *engine,
                            const struct clb_dmat *x, int64_t *ipiv, size_t *info)
{
    size_t inner = clb_min(x->rows, x->cols);
    bool several = x->rows > panel->group;
    if (several)
        pthread_mutex_lock(&one_at_a_time);
    clb_status status = do_strips(panel, engine, x);
    if (several)
        pthread_mutex_unlock(&one_at_a_time);
    if (status != CLB_OK)
        return status;
    if (panel->state_host[STATE_FAILED] != 0) {
        clb_log(CLB_LOG_WARN, "a work-group waited in vain for another");
        return CLB_ERR_OPENCL;
    }
    /* Each strip counts from its own first row. */
    for (size_t i = 0; i < inner; i++)
        ipiv[i] = (int64_t)(i / panel->width * panel->width) + panel->state_host[STATE_IPIV + i];
    *info = (size_t)panel->state_host[STATE_INFO];
    return CLB_OK;
}
