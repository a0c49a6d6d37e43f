/* Triangular systems in the caller's memory.
 *
 * B is cut into parts that don't depend on each other, blocks of columns (left) or rows (right).
 * For each the CPU copies alpha*B into the shim's memory, the device solves there, and the CPU
 * copies X back, which is the only write to the caller's memory: a part of B is either old or new,
 * and what is not written yet can be computed elsewhere from what is left. Here for devices that
 * share the host's memory: A is used in place, copying overlaps with solving in two slots. */
#include "dmat.h"
#include "lapack.h"

/* Right-hand sides of a part, and what they are multiples of. */
#define PART      ((size_t)512)
#define PART_UNIT ((size_t)32)

struct slot {
    struct clb_buffer *buffer;
    void *mapped;
    cl_event ready; /* solved, and readable by the CPU */
};

struct run {
    struct clb_runtime *runtime;
    const struct clb_trsm *problem;
    struct clb_gemm_progress *progress;
    struct clb_engine engine;
    struct clb_dmat_triangle triangle;
    struct slot slot[2];
    size_t part, ld; /* right-hand sides of a part; of a slot */
    cl_mem a;
};

/* ---- parts ----------------------------------------------------------------------------------- */

static size_t order_of(const struct clb_trsm *problem)
{
    return problem->right ? problem->n : problem->m;
}

static size_t extent_of(const struct clb_trsm *problem)
{
    return problem->right ? problem->m : problem->n;
}

struct clb_trsm clb_trsm_part(const struct clb_trsm *problem, const struct clb_rect *rect)
{
    struct clb_trsm part = *problem;
    size_t element = clb_precision_size(problem->precision);
    part.m = rect->rows;
    part.n = rect->cols;
    part.b = (char *)problem->b + (rect->row + rect->col * problem->ldb) * element;
    return part;
}

static struct clb_rect rect_of(const struct run *run, size_t index)
{
    const struct clb_trsm *problem = run->problem;
    size_t first = index * run->part, count = clb_min(run->part, extent_of(problem) - first);
    return problem->right ? (struct clb_rect){first, 0, count, problem->n}
                          : (struct clb_rect){0, first, problem->m, count};
}

static size_t part_extent(const struct clb_gemm_variant *variant, size_t extent)
{
    size_t wanted = variant->tuning.value[CLB_PARAM_TRSM_PART];
    size_t parts = clb_div_up(extent, wanted != 0 ? wanted : PART);
    return wanted != 0 ? wanted : clb_round_up(clb_div_up(extent, parts), PART_UNIT);
}

static clb_status make_parts(struct run *run)
{
    clb_status status =
        clb_gemm_progress_make(run->progress, clb_div_up(extent_of(run->problem), run->part));
    for (size_t i = 0; i < run->progress->parts; i++)
        run->progress->part[i] = rect_of(run, i);
    return status;
}

/* ---- one part -------------------------------------------------------------------------------- */

static struct clb_dmat slot_matrix(const struct run *run, size_t index)
{
    struct clb_rect rect = rect_of(run, index);
    return (struct clb_dmat){run->slot[index % 2].buffer->mem, 0, rect.rows, rect.cols, run->ld};
}

static clb_status enqueue_map(struct run *run, struct slot *slot, bool blocking)
{
    cl_int error;
    slot->mapped = clb_cl.EnqueueMapBuffer(run->engine.queue, slot->buffer->mem, blocking,
                                           CL_MAP_READ | CL_MAP_WRITE, 0, slot->buffer->size, 0,
                                           NULL, blocking ? NULL : &slot->ready, &error);
    return clb_cl_check(error, "clEnqueueMapBuffer");
}

static clb_status enqueue_unmap(struct run *run, struct slot *slot)
{
    return clb_cl_check(clb_cl.EnqueueUnmapMemObject(run->engine.queue, slot->buffer->mem,
                                                     slot->mapped, 0, NULL, NULL),
                        "clEnqueueUnmapMemObject");
}

static clb_status enqueue_part(struct run *run, size_t index)
{
    struct slot *slot = &run->slot[index % 2];
    struct clb_dmat x = slot_matrix(run, index);
    struct clb_rect rect = rect_of(run, index);
    struct clb_trsm part = clb_trsm_part(run->problem, &rect);
    clb_merge_tile(part.precision, part.m, part.n, part.alpha, part.b, part.ldb,
                   clb_scalar_zero(part.precision), slot->mapped, run->ld);
    clb_status status = enqueue_unmap(run, slot);
    if (status == CLB_OK)
        status = clb_dmat_solve(&run->engine, &run->triangle, &x);
    if (status == CLB_OK)
        status = enqueue_map(run, slot, false);
    if (status == CLB_OK)
        status = clb_cl_check(clb_cl.Flush(run->engine.queue), "clFlush");
    return status;
}

static clb_status write_part(struct run *run, size_t index)
{
    struct slot *slot = &run->slot[index % 2];
    struct clb_rect rect = rect_of(run, index);
    struct clb_trsm part = clb_trsm_part(run->problem, &rect);
    clb_status status = clb_cl_check(clb_cl.WaitForEvents(1, &slot->ready), "clWaitForEvents");
    clb_cl.ReleaseEvent(slot->ready);
    slot->ready = NULL;
    if (status != CLB_OK)
        return status;
    clb_merge_tile(part.precision, part.m, part.n, clb_scalar_one(part.precision), slot->mapped,
                   run->ld, clb_scalar_zero(part.precision), part.b, part.ldb);
    run->progress->written[index] = true;
    return CLB_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

static clb_status open_slots(struct run *run)
{
    struct clb_rect rect = rect_of(run, 0);
    size_t element = clb_precision_size(run->problem->precision);
    run->ld = clb_dmat_ld(rect.rows, element);
    clb_status status = CLB_OK;
    for (size_t i = 0; i < clb_min(run->progress->parts, 2) && status == CLB_OK; i++) {
        status = clb_buffer_get(run->runtime, CLB_MEMORY_HOST, run->ld * rect.cols * element,
                                &run->slot[i].buffer);
        if (status == CLB_OK)
            status = enqueue_map(run, &run->slot[i], true);
    }
    return status;
}

static clb_status open_triangle(struct run *run)
{
    const struct clb_trsm *problem = run->problem;
    size_t n = order_of(problem), bytes;
    clb_status status =
        clb_extent_bytes(n, n, problem->lda, clb_precision_size(problem->precision), &bytes);
    if (status == CLB_OK)
        status = clb_buffer_wrap(run->runtime, problem->a, bytes, &run->a);
    if (status != CLB_OK)
        return status;
    run->triangle = (struct clb_dmat_triangle){.a = {run->a, 0, n, n, problem->lda},
                                               .right = problem->right,
                                               .upper = problem->upper,
                                               .unit = problem->unit,
                                               .op = problem->trans};
    return clb_dmat_pack_triangle(&run->engine, &run->triangle);
}

static clb_status run_parts(struct run *run)
{
    clb_status status = open_slots(run);
    if (status == CLB_OK)
        status = open_triangle(run);
    for (size_t i = 0; i <= run->progress->parts && status == CLB_OK; i++) {
        if (i < run->progress->parts)
            status = enqueue_part(run, i);
        if (i > 0 && status == CLB_OK)
            status = write_part(run, i - 1);
    }
    for (size_t i = 0; i < clb_min(run->progress->parts, 2) && status == CLB_OK; i++)
        status = enqueue_unmap(run, &run->slot[i]);
    return status;
}

static void end_run(struct run *run)
{
    bool idle = clb_engine_finish(&run->engine);
    for (size_t i = 0; i < CLB_COUNT_OF(run->slot); i++) {
        if (run->slot[i].ready != NULL)
            clb_cl.ReleaseEvent(run->slot[i].ready);
        clb_buffer_end(run->runtime, run->slot[i].buffer, idle);
    }
    if (run->a != NULL && idle)
        clb_cl.ReleaseMemObject(run->a);
    clb_engine_close(&run->engine, idle);
}

static clb_status run_inplace(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                              const struct clb_trsm *problem, struct clb_gemm_progress *progress)
{
    struct run run = {.runtime = runtime, .problem = problem, .progress = progress};
    run.part = part_extent(variant, extent_of(problem));
    const struct clb_engine_limits limits =
        clb_solve_limits(order_of(problem), problem->right, clb_min(run.part, extent_of(problem)));
    clb_status status = clb_engine_open(&run.engine, runtime, variant, &limits);
    if (status != CLB_OK)
        return status;
    progress->kernel = run.engine.variant->name;
    status = make_parts(&run);
    if (status == CLB_OK)
        status = run_parts(&run);
    end_run(&run);
    return status;
}

clb_status clb_trsm_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_trsm *problem, struct clb_gemm_progress *progress)
{
    *progress = (struct clb_gemm_progress){0};
    if (!runtime->device.unified || variant->tuning.value[CLB_PARAM_STREAM] != 0)
        return CLB_ERR_UNSUPPORTED;
    return run_inplace(runtime, variant, problem, progress);
}
