/* Cholesky on a device that shares the host's memory: the matrix is in memory of the shim, into
 * which the CPU copies the stated triangle, and from which it copies the factor out. */
#include "chol.h"

#include <stdatomic.h>

/* Columns that a thread takes at once. */
#define SHARE ((size_t)32)

/* The stated triangle's columns [0, cols) from or to the caller's matrix. */
struct carrier {
    const struct clb_chol *chol;
    char *memory; /* the shim's */
    bool out;
    size_t cols;
    atomic_size_t next; /* column */
};

static void carry(void *argument)
{
    struct carrier *carrier = argument;
    const struct clb_chol *chol = carrier->chol;
    for (;;) {
        size_t begin = atomic_fetch_add(&carrier->next, SHARE);
        if (begin >= carrier->cols)
            return;
        size_t cols = clb_min(SHARE, carrier->cols - begin), ld = chol->problem->lda;
        char *here = clb_chol_host(chol, 0, begin);
        char *there = carrier->memory + begin * chol->x.ld * chol->element;
        clb_copy_trapezoid(chol->problem->precision, chol->problem->upper, (ptrdiff_t)begin,
                           chol->n, cols, carrier->out ? there : here,
                           carrier->out ? chol->x.ld : ld, carrier->out ? here : there,
                           carrier->out ? ld : chol->x.ld);
    }
}

/* By as many threads as the device has. Nothing of it can fail. */
static void carry_all(struct carrier *carrier)
{
    size_t shares = clb_div_up(carrier->cols, SHARE);
    size_t threads = clb_min(shares, carrier->chol->runtime->device.units);
    struct clb_workers workers;
    clb_workers_lend(&workers, clb_min(clb_max(threads, 1) - 1, CLB_MAX_WORKERS), false);
    for (size_t i = 0; i < workers.count; i++)
        clb_workers_start(&workers, i, carry, carrier);
    carry(carrier);
    clb_workers_return(&workers);
}

static clb_status move(struct clb_chol *chol, bool out, size_t cols)
{
    cl_command_queue queue = chol->engine.queue;
    size_t bytes = ((chol->n - 1) * chol->x.ld + chol->n) * chol->element;
    struct carrier carrier = {.chol = chol, .out = out, .cols = cols};
    cl_int error;
    carrier.memory = clb_cl.EnqueueMapBuffer(queue, chol->x.mem, CL_TRUE,
                                             out ? CL_MAP_READ : CL_MAP_READ | CL_MAP_WRITE, 0,
                                             bytes, 0, NULL, NULL, &error);
    clb_status status = clb_cl_check(error, "clEnqueueMapBuffer");
    if (status != CLB_OK)
        return status;
    carry_all(&carrier);
    if (out)
        chol->result->columns_written = cols;
    return clb_cl_check(
        clb_cl.EnqueueUnmapMemObject(queue, chol->x.mem, carrier.memory, 0, NULL, NULL),
        "clEnqueueUnmapMemObject");
}

/* Everything is brought in with the first panel. */
static clb_status bring(void *context, size_t k, size_t width)
{
    struct clb_chol *chol = context;
    (void)width;
    return k == 0 ? move(chol, false, chol->n) : CLB_OK;
}

clb_status clb_potrf_run_shared(struct clb_chol *chol, const struct clb_gemm_variant *variant)
{
    size_t bytes;
    clb_status status = clb_chol_open(chol, variant);
    if (status == CLB_OK)
        status = clb_extent_bytes(chol->n, chol->n, chol->x.ld, chol->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(chol->runtime, CLB_MEMORY_HOST, bytes, &chol->memory);
    if (status == CLB_OK) {
        chol->x.mem = chol->memory->mem;
        status = clb_chol_factor(chol, bring, chol);
    }
    if (status == CLB_OK && clb_chol_columns(chol) > 0)
        status = move(chol, true, clb_chol_columns(chol));
    clb_chol_close(chol, clb_engine_finish(&chol->engine));
    return status;
}
