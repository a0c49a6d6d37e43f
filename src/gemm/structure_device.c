/* Expansion of symmetric, Hermitian and triangular operands by a kernel, on a device that shares
 * the host's memory; and the checks of that kernel and of those that skip parts of a product. */
#include "structure.h"

#include "kernel/check.h"
#include "kernel/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As in kernels/structure.cl. */
#define KIND_UPPER      1u
#define KIND_HERMITIAN  2u
#define KIND_TRIANGULAR 4u
#define KIND_UNIT       8u
#define KIND_SCALED     16u
#define GROUP           ((size_t)64)

static cl_uint kind_of(const struct clb_operand *x)
{
    if (x->shape == CLB_STRUCTURE_GENERAL)
        return KIND_SCALED;
    return (x->upper ? KIND_UPPER : 0) |
           (x->shape == CLB_STRUCTURE_HERMITIAN ? KIND_HERMITIAN : 0) |
           (x->shape == CLB_STRUCTURE_TRIANGULAR ? KIND_TRIANGULAR | (x->unit ? KIND_UNIT : 0) : 0);
}

static size_t group_of(const struct clb_device *device)
{
    return clb_min(GROUP, device->max_group);
}

clb_status clb_structure_make(struct clb_queue_set *queue_set, struct clb_program *program,
                              const struct clb_gemm_variant *variant, const struct clb_operand *x,
                              size_t i0, size_t p0, size_t w, size_t k, cl_mem to,
                              struct clb_queue *queue)
{
    clb_precision precision = variant->precision;
    bool single = clb_precision_real_size(precision) == sizeof(float);
    const void *scale = x->scale != NULL ? x->scale : clb_scalar_one(precision);
    clb_scalar factor = {{0}};
    memcpy(&factor, scale, clb_precision_size(precision));
    const cl_ulong offset = x->offset, ld = x->ld;
    const cl_ulong row = x->depth_contiguous ? p0 : i0, col = x->depth_contiguous ? i0 : p0;
    const cl_uint rows = (cl_uint)(x->depth_contiguous ? k : w);
    const cl_uint cols = (cl_uint)(x->depth_contiguous ? w : k), kind = kind_of(x);
    const struct clb_argument arguments[] = {CLB_ARG(x->mem),
                                             CLB_ARG(offset),
                                             CLB_ARG(ld),
                                             CLB_ARG(row),
                                             CLB_ARG(col),
                                             CLB_ARG(rows),
                                             CLB_ARG(cols),
                                             CLB_ARG(kind),
                                             single ? CLB_ARG(factor.s[0]) : CLB_ARG(factor.d[0]),
                                             single ? CLB_ARG(factor.s[1]) : CLB_ARG(factor.d[1]),
                                             CLB_ARG(to)};
    /* The number of groups is always the same; see prelaunch.c for the reason. */
    const size_t local =
        variant->tuning.family == CLB_FAMILY_CPU ? 1 : group_of(&queue_set->runtime->device);
    const size_t global = local * clb_max(64, 8 * (size_t)queue_set->runtime->device.units);
    cl_kernel kernel;
    clb_status status = clb_queue_set_kernel(queue_set, program, "clb_structure", &kernel);
    if (status != CLB_OK)
        return status;
    return clb_queue_launch(queue, kernel, "clb_structure", arguments, CLB_COUNT_OF(arguments), 1,
                            &global, &local, 0, NULL, NULL);
}

/* ---- the check: parts across the diagonal must be what the CPU makes of them ----------------- */

/* Parts begin at (I0, P0) of a matrix of this order. */
#define I0    ((size_t)3)
#define P0    ((size_t)11)
#define ORDER ((size_t)45)

struct structure_device_check {
    struct clb_queue_set *queue_set;
    struct clb_program *program;
    const struct clb_gemm_variant *variant;
    struct clb_buffer *source, *result;
    unsigned char *host; /* the source, the device's result, the CPU's result */
    size_t bytes;        /* of each of these three */
};

/* Small integers, which a factor of small integers does not round. */
static void structure_device_fill(const struct structure_device_check *check)
{
    clb_precision precision = check->variant->precision;
    size_t count = check->bytes / clb_precision_real_size(precision);
    uint64_t state = 20261121;
    for (size_t i = 0; i < count; i++)
        clb_check_put(precision, check->host, i, floor(4096 * clb_check_random(&state)));
}

/* The size of a part. */
struct structure_device_part {
    size_t width, depth;
};

static clb_status check_one(const struct structure_device_check *check, struct clb_operand *x,
                            struct structure_device_part part)
{
    clb_precision precision = check->variant->precision;
    unsigned char *device = check->host + check->bytes, *cpu = device + check->bytes;
    size_t w = part.width, k = part.depth, used = w * k * x->element;
    x->host = (const char *)check->host;
    x->mem = check->source->mem;
    clb_status status = clb_structure_make(check->queue_set, check->program, check->variant, x, I0,
                                           P0, w, k, check->result->mem, check->queue_set->queue);
    if (status == CLB_OK)
        status = clb_queue_read_now(check->queue_set->queue, check->result->mem, 0, used, device);
    if (status != CLB_OK)
        return status;
    clb_operand_make(precision, x, I0, P0, w, k, 0, x->depth_contiguous ? w : k, cpu);
    return memcmp(device, cpu, used) == 0 ? CLB_OK : CLB_ERR_BUILD;
}

static clb_status check_part(const struct structure_device_check *check,
                             struct structure_device_part part)
{
    static const float factor_s[2] = {2, -3};
    static const double factor_d[2] = {2, -3};
    bool single = clb_precision_real_size(check->variant->precision) == sizeof(float);
    clb_status status = CLB_OK;
    for (int i = 0; i < 16 && status == CLB_OK; i++) {
        struct clb_operand x = {.ld = ORDER,
                                .element = clb_precision_size(check->variant->precision),
                                .depth_contiguous = i % 2 != 0,
                                .upper = i / 2 % 2 != 0,
                                .unit = i % 2 != 0,
                                .shape = (clb_structure)(i / 4)};
        if (x.shape == CLB_STRUCTURE_GENERAL)
            x.scale = single ? (const void *)factor_s : factor_d;
        status = check_one(check, &x, part);
    }
    return status;
}

/* Sizes around the squares of order 16 that work-items make. */
static clb_status check_parts(const struct structure_device_check *check)
{
    static const struct structure_device_part parts[] = {{5, 3},   {1, 1},   {1, 21},  {17, 1},
                                                         {33, 2},  {15, 16}, {16, 15}, {16, 17},
                                                         {17, 16}, {32, 33}, {40, 21}};
    const struct clb_check_programs programs = {
        "operands 1", check->queue_set->runtime, {check->program}};
    bool all = clb_check_tries_all(&programs);
    clb_status status = clb_queue_write_now(check->queue_set->queue, check->source->mem, 0,
                                            check->bytes, check->host);
    for (size_t i = 0; i < (all ? CLB_COUNT_OF(parts) : 1) && status == CLB_OK; i++)
        status = check_part(check, parts[i]);
    if (all && status == CLB_OK)
        clb_check_note_passed(&programs);
    return status;
}

/* Release a queue set. False when commands may still be outstanding on it. */
static bool end_queue_set(struct clb_queue_set *queue_set)
{
    bool idle = queue_set == NULL || clb_queue_set_settle(queue_set);
    if (queue_set != NULL && idle)
        clb_queue_set_release(queue_set);
    else if (queue_set != NULL)
        clb_queue_set_discard(queue_set);
    return idle;
}

static clb_status run_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                            struct clb_program *program)
{
    struct structure_device_check check = {.program = program,
                                           .variant = variant,
                                           .bytes = ORDER * (ORDER + 1) *
                                                    clb_precision_size(variant->precision)};
    check.host = calloc(3, check.bytes);
    if (check.host == NULL)
        return CLB_ERR_NOMEM;
    structure_device_fill(&check);
    clb_status status = clb_queue_set_acquire(runtime, &check.queue_set);
    if (status == CLB_OK)
        status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, check.bytes, &check.source);
    if (status == CLB_OK)
        status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, check.bytes, &check.result);
    if (status == CLB_OK)
        status = check_parts(&check);
    bool idle = end_queue_set(check.queue_set);
    clb_buffer_end(runtime, check.source, idle);
    clb_buffer_end(runtime, check.result, idle);
    free(check.host);
    return status;
}

/* ---- once for each precision ----------------------------------------------------------------- */

struct structure_device_task {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    struct clb_program **program;
};

static clb_status build_and_check(void *argument)
{
    const struct structure_device_task *task = argument;
    const struct clb_gemm_variant *variant = task->variant;
    clb_precision precision = variant->precision;
    char options[80];
    snprintf(options, sizeof options, "-DCLB_DOUBLE=%d -DCLB_COMPLEX=%d -DCLB_CPU=%d -DCLB_WG=%zu",
             clb_precision_real_size(precision) == sizeof(double),
             clb_precision_parts(precision) > 1, variant->tuning.family == CLB_FAMILY_CPU,
             group_of(&task->runtime->device));
    clb_status status =
        clb_program_get(task->runtime, &clb_kernel_structure, options, task->program);
    return status == CLB_OK ? run_check(task->runtime, variant, *task->program) : status;
}

static bool has_triangle(const struct clb_gemm *problem)
{
    const struct clb_level3 *level3 = problem->level3;
    return level3->region != CLB_REGION_FULL || level3->a[0].shape == CLB_STRUCTURE_TRIANGULAR ||
           level3->b[0].shape == CLB_STRUCTURE_TRIANGULAR;
}

clb_status clb_structure_prepare(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant,
                                 const struct clb_gemm *problem, bool on_device,
                                 struct clb_program **program)
{
    static struct clb_check checks[CLB_PRECISIONS];
    static struct clb_program *programs[CLB_PRECISIONS];
    struct structure_device_task task = {runtime, variant, &programs[variant->precision]};
    clb_status status = CLB_OK;
    *program = NULL;
    if (problem->level3 == NULL)
        return CLB_OK;
    if (has_triangle(problem))
        status = clb_skip_prepare(runtime, variant);
    if (status == CLB_OK && on_device && clb_gemm_is_expanded(variant, problem)) {
        status =
            clb_check_once(&checks[variant->precision],
                           "symmetric operands are not made on the device", build_and_check, &task);
        *program = programs[variant->precision];
    }
    return status;
}
