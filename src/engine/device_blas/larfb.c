/* Blocks of reflectors applied to matrices on the device, see larfb.h. */
#include "larfb.h"

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

/* ---- memory ---------------------------------------------------------------------------------- */

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
    clb_status status = clb_buffer_get(workspace->runtime, CLB_MEMORY_DEVICE,
                                       at * reflectors->element, &reflectors->memory);
    if (status == CLB_OK)
        status = clb_buffer_get(workspace->runtime, CLB_MEMORY_HOST,
                                reflectors->t.ld * count * reflectors->element, &reflectors->host);
    if (status != CLB_OK)
        return status;
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

/* ---- T --------------------------------------------------------------------------------------- */

size_t clb_reflectors_count(const struct clb_reflectors *reflectors, size_t k)
{
    return clb_min(reflectors->nb, reflectors->a.cols - k);
}

/* V of the block that begins with column k: the rows from k on. */
static struct clb_dmat vectors(const struct clb_reflectors *reflectors, size_t k)
{
    return clb_dmat_part(&reflectors->v, 0, 0, reflectors->a.rows - k,
                         clb_reflectors_count(reflectors, k));
}

static struct clb_dmat reflect_factor(const struct clb_reflectors *reflectors, size_t k)
{
    size_t count = clb_reflectors_count(reflectors, k);
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

clb_status clb_reflectors_form(struct clb_reflectors *reflectors, size_t first, size_t end)
{
    struct clb_queue *queue = reflectors->workspace->queue;
    const struct clb_dmat *t = &reflectors->t;
    size_t element = reflectors->element, bytes = (end - first) * t->ld * element;
    size_t offset = (t->offset + first * t->ld) * element;
    char *host = (char *)reflectors->host->host + first * t->ld * element;
    clb_status status = CLB_OK;
    for (size_t k = first; k < end && status == CLB_OK; k += reflectors->nb)
        status = enqueue_s(reflectors, k);
    if (status == CLB_OK)
        status = clb_queue_read_now(queue, t->mem, offset, bytes, host);
    for (size_t k = first; k < end && status == CLB_OK; k += reflectors->nb)
        clb_form_t(reflectors->workspace->variant->precision, clb_reflectors_count(reflectors, k),
                   (const char *)reflectors->tau + k * element,
                   host + (k - first) * t->ld * element, t->ld);
    if (status == CLB_OK)
        status = clb_queue_write(queue, t->mem, offset, bytes, host, 0, NULL, NULL);
    return status;
}

/* ---- products -------------------------------------------------------------------------------- */

static void describe_left(const struct clb_dmat *v, const struct clb_dmat *t, clb_op op,
                          const struct clb_dmat *w, const struct clb_dmat *c,
                          struct clb_dmat_update step[3])
{
    const struct clb_dmat before = clb_dmat_part(&w[0], 0, 0, v->cols, c->cols);
    const struct clb_dmat after = clb_dmat_part(&w[1], 0, 0, v->cols, c->cols);
    step[0] =
        (struct clb_dmat_update){.a = *v, .op_a = CLB_OP_C, .b = *c, .c = before, .assign = true};
    step[1] =
        (struct clb_dmat_update){.a = *t, .op_a = op, .b = before, .c = after, .assign = true};
    step[2] = (struct clb_dmat_update){.a = *v, .b = after, .c = *c};
}

static void describe_right(const struct clb_dmat *v, const struct clb_dmat *t, clb_op op,
                           const struct clb_dmat *w, const struct clb_dmat *c,
                           struct clb_dmat_update step[3])
{
    const struct clb_dmat before = clb_dmat_part(&w[0], 0, 0, c->rows, v->cols);
    const struct clb_dmat after = clb_dmat_part(&w[1], 0, 0, c->rows, v->cols);
    step[0] = (struct clb_dmat_update){.a = *c, .b = *v, .c = before, .assign = true};
    step[1] =
        (struct clb_dmat_update){.a = before, .b = *t, .op_b = op, .c = after, .assign = true};
    step[2] = (struct clb_dmat_update){.a = after, .b = *v, .op_b = CLB_OP_C, .c = *c};
}

clb_status clb_reflectors_apply(struct clb_reflectors *reflectors, size_t k, clb_op op,
                                const struct clb_dmat *c)
{
    const struct clb_dmat v = vectors(reflectors, k), t = reflect_factor(reflectors, k);
    struct clb_dmat_update step[3];
    if (c->rows == 0 || c->cols == 0)
        return CLB_OK;
    if (reflectors->right)
        describe_right(&v, &t, op, reflectors->w, c, step);
    else
        describe_left(&v, &t, op, reflectors->w, c, step);
    clb_status status = load(reflectors, k);
    for (size_t i = 0; i < CLB_COUNT_OF(step) && status == CLB_OK; i++)
        status = clb_dmat_update(reflectors->workspace, &step[i]);
    return status;
}
