/* Blocks of reflectors, see larfb.h. SPDX-License-Identifier: BSD-3-Clause */
#include "larfb.h"

#include <complex.h>
#include <string.h>

struct clb_workspace_limits clb_reflectors_limits(size_t order, size_t nb, bool right,
                                                  size_t extent)
{
    size_t most = clb_max(extent, nb);
    if (right)
        return (struct clb_workspace_limits){
            .m = most, .n = nb, .k = order, .other_m = most, .other_n = order, .other_k = nb};
    return (struct clb_workspace_limits){
        .m = nb, .n = most, .k = order, .other_m = order, .other_n = most, .other_k = nb};
}

/* ---- copies ---- */

clb_status clb_dmat_trapezoid(struct clb_workspace *workspace, const struct clb_dmat *x,
                              const struct clb_dmat *y, bool below)
{
    clb_precision precision = workspace->variant->precision;
    const struct clb_argument one = {clb_precision_size(precision), clb_scalar_of(precision, 1)};
    const cl_uint copies = below;
    return clb_workspace_launch(workspace, "clb_trapezoid",
                                CLB_ARGUMENTS(CLB_PLACE(x), CLB_PLACE(y), CLB_ARG(y->rows),
                                              CLB_ARG(y->cols), one, CLB_ARG(copies)));
}

clb_status clb_dmat_triangle_copy(struct clb_workspace *workspace, const struct clb_dmat *x,
                                  const struct clb_dmat *y, bool upper)
{
    const cl_uint above = upper;
    return clb_workspace_launch(
        workspace, "clb_triangle",
        CLB_ARGUMENTS(CLB_PLACE(x), CLB_PLACE(y), CLB_ARG(y->cols), CLB_ARG(above)));
}

/* ---- memory ---- */

/* Place a matrix at element `at` of a buffer; returns the end of it. */
static size_t reflect_place(struct clb_dmat *x, size_t at, size_t rows, size_t cols, size_t element)
{
    *x = (struct clb_dmat){.offset = at, .rows = rows, .cols = cols};
    x->ld = clb_dmat_ld(rows, element);
    return at + x->ld * cols;
}

clb_status clb_reflectors_open(struct clb_reflectors *reflectors, struct clb_workspace *workspace,
                               size_t extent)
{
    size_t nb = reflectors->nb, count = reflectors->a.cols, at;
    bool right = reflectors->right;
    reflectors->workspace = workspace;
    reflectors->element = clb_precision_size(workspace->variant->precision);
    reflectors->loaded = SIZE_MAX;
    at = reflect_place(&reflectors->v, 0, reflectors->a.rows, nb, reflectors->element);
    for (size_t i = 0; i < CLB_COUNT_OF(reflectors->w); i++)
        at = reflect_place(&reflectors->w[i], at, right ? extent : nb, right ? nb : extent,
                           reflectors->element);
    at = reflect_place(&reflectors->t, at, nb, count, reflectors->element);
    CLB_TRY(clb_buffer_get(workspace->runtime, CLB_MEMORY_DEVICE, at * reflectors->element,
                           &reflectors->memory));
    CLB_TRY(clb_buffer_get(workspace->runtime, CLB_MEMORY_HOST,
                           reflectors->t.ld * count * reflectors->element, &reflectors->host));
    reflectors->v.mem = reflectors->t.mem = reflectors->memory->mem;
    reflectors->w[0].mem = reflectors->w[1].mem = reflectors->memory->mem;
    return CLB_OK;
}

void clb_reflectors_close(struct clb_reflectors *reflectors, bool idle)
{
    if (reflectors->workspace == NULL)
        return;
    clb_buffer_end(reflectors->workspace->runtime, reflectors->memory, idle);
    clb_buffer_end(reflectors->workspace->runtime, reflectors->host, idle);
}

/* ---- T ---- */

/* C's own products of complex numbers look for NaN, which costs as much again. */
static double complex times_z(double complex x, double complex y)
{
    return __builtin_complex(creal(x) * creal(y) - cimag(x) * cimag(y),
                             creal(x) * cimag(y) + cimag(x) * creal(y));
}

static float complex times_c(float complex x, float complex y)
{
    return __builtin_complex(crealf(x) * crealf(y) - cimagf(x) * cimagf(y),
                             crealf(x) * cimagf(y) + cimagf(x) * crealf(y));
}

#define TIMES(x, y) ((x) * (y))

/* T from S = V^H*V in place, n x n, upper triangular with zeros below the diagonal: T(0:j-1, j) =
 * -tau(j) * T(0:j-1, 0:j-1) * S(0:j-1, j), T(j, j) = tau(j), by multiples of T's columns. */
#define FORM_T(name, number, times)                                     \
    static void name(size_t n, const number *tau, number *t, size_t ld) \
    {                                                                   \
        for (size_t j = 0; j < n; j++) {                                \
            number *restrict y = t + j * ld;                            \
            for (size_t p = 0; p < j; p++) {                            \
                const number *restrict column = t + p * ld;             \
                const number factor = times(-tau[j], y[p]);             \
                CLB_SIMD                                                \
                for (size_t i = 0; i < p; i++)                          \
                    y[i] += times(factor, column[i]);                   \
                y[p] = times(factor, column[p]);                        \
            }                                                           \
            y[j] = tau[j];                                              \
            memset(y + j + 1, 0, (n - j - 1) * sizeof *y);              \
        }                                                               \
    }
FORM_T(form_s, float, TIMES)
FORM_T(form_d, double, TIMES)
FORM_T(form_c, float complex, times_c)
FORM_T(form_z, double complex, times_z)

static void form_t(clb_precision precision, size_t n, const void *tau, void *t, size_t ld)
{
    switch (precision) {
    case CLB_S:
        form_s(n, tau, t, ld);
        break;
    case CLB_D:
        form_d(n, tau, t, ld);
        break;
    case CLB_C:
        form_c(n, tau, t, ld);
        break;
    default:
        form_z(n, tau, t, ld);
    }
}

static size_t count_at(const struct clb_reflectors *reflectors, size_t k)
{
    return clb_min(reflectors->nb, reflectors->a.cols - k);
}

/* V of the block that begins with column k: the rows from k on. */
static struct clb_dmat vectors(const struct clb_reflectors *reflectors, size_t k)
{
    return clb_dmat_part(&reflectors->v, 0, 0, reflectors->a.rows - k, count_at(reflectors, k));
}

static struct clb_dmat reflect_factor(const struct clb_reflectors *reflectors, size_t k)
{
    size_t count = count_at(reflectors, k);
    return clb_dmat_part(&reflectors->t, 0, k, count, count);
}

static clb_status load(struct clb_reflectors *reflectors, size_t k)
{
    const struct clb_dmat v = vectors(reflectors, k);
    const struct clb_dmat from = clb_dmat_part(&reflectors->a, k, k, v.rows, v.cols);
    if (reflectors->loaded == k)
        return CLB_OK;
    reflectors->loaded = k;
    return clb_dmat_trapezoid(reflectors->workspace, &from, &v, true);
}

static clb_status enqueue_s(struct clb_reflectors *reflectors, size_t k)
{
    clb_status status = load(reflectors, k);
    const struct clb_dmat_update product = {.a = vectors(reflectors, k),
                                            .op_a = CLB_OP_C,
                                            .b = vectors(reflectors, k),
                                            .c = reflect_factor(reflectors, k),
                                            .assign = true};
    return status == CLB_OK ? clb_dmat_update(reflectors->workspace, &product) : status;
}

void *clb_reflectors_host_t(const struct clb_reflectors *reflectors, size_t k)
{
    return (char *)reflectors->host->host + k * reflectors->t.ld * reflectors->element;
}

clb_status clb_reflectors_send(struct clb_reflectors *reflectors, size_t first, size_t end)
{
    const struct clb_dmat *t = &reflectors->t;
    const size_t column = t->ld * reflectors->element;
    return clb_queue_write(
        reflectors->workspace->queue, t->mem,
        CLB_LINE(t->offset * reflectors->element + first * column, (end - first) * column),
        clb_reflectors_host_t(reflectors, first), NULL, NULL);
}

clb_status clb_reflectors_form(struct clb_reflectors *reflectors, size_t first, size_t end)
{
    struct clb_queue *queue = reflectors->workspace->queue;
    const struct clb_dmat *t = &reflectors->t;
    size_t element = reflectors->element, bytes = (end - first) * t->ld * element;
    size_t offset = (t->offset + first * t->ld) * element;
    char *host = clb_reflectors_host_t(reflectors, first);
    clb_status status = CLB_OK;
    for (size_t k = first; k < end && status == CLB_OK; k += reflectors->nb)
        status = enqueue_s(reflectors, k);
    CLB_THEN(status, clb_queue_read_now(queue, t->mem, offset, bytes, host));
    for (size_t k = first; k < end && status == CLB_OK; k += reflectors->nb)
        form_t(reflectors->workspace->variant->precision, count_at(reflectors, k),
               (const char *)reflectors->tau + k * element, host + (k - first) * t->ld * element,
               t->ld);
    return status == CLB_OK ? clb_reflectors_send(reflectors, first, end) : status;
}

/* ---- products ---- */

clb_status clb_reflectors_apply(struct clb_reflectors *reflectors, size_t k, clb_op op,
                                const struct clb_dmat *c)
{
    const bool right = reflectors->right;
    const struct clb_dmat v = vectors(reflectors, k), t = reflect_factor(reflectors, k);
    const size_t rows = right ? c->rows : v.cols, cols = right ? v.cols : c->cols;
    const struct clb_dmat before = clb_dmat_part(&reflectors->w[0], 0, 0, rows, cols);
    const struct clb_dmat after = clb_dmat_part(&reflectors->w[1], 0, 0, rows, cols);
    const struct clb_dmat_update steps[2][3] = {
        {{.a = v, .op_a = CLB_OP_C, .b = *c, .c = before, .assign = true},
         {.a = t, .op_a = op, .b = before, .c = after, .assign = true},
         {.a = v, .b = after, .c = *c}},
        {{.a = *c, .b = v, .c = before, .assign = true},
         {.a = before, .b = t, .op_b = op, .c = after, .assign = true},
         {.a = after, .b = v, .op_b = CLB_OP_C, .c = *c}}};
    if (c->rows == 0 || c->cols == 0)
        return CLB_OK;
    clb_status status = load(reflectors, k);
    for (size_t i = 0; i < 3 && status == CLB_OK; i++)
        status = clb_dmat_update(reflectors->workspace, &steps[right][i]);
    return status;
}
