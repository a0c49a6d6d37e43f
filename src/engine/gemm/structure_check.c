/* The kernels that structured problems need and plain products don't: built and checked once for
 * each precision. */
#include "structure.h"

#include "engine/kernel/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the check: parts across the diagonal must be what the CPU makes of them ---- */

/* Parts begin at (I0, P0) of a matrix of this order. */
#define I0    ((size_t)3)
#define P0    ((size_t)11)
#define ORDER ((size_t)45)

struct structure_check {
    struct clb_queue_set *queue_set;
    struct clb_program *program;
    const struct clb_gemm_variant *variant;
    struct clb_buffer *memory[2]; /* the source, the result */
    unsigned char *host;          /* the source, the device's result, the CPU's result */
    size_t bytes;                 /* of each of these three */
};

static clb_status check_one(const struct structure_check *check, const struct clb_operand *x,
                            struct clb_check_size part)
{
    unsigned char *device = check->host + check->bytes, *cpu = device + check->bytes;
    struct clb_queue *queue = check->queue_set->queue;
    const cl_mem to = check->memory[1]->mem;
    const size_t w = part.m, k = part.n, used = w * k * x->element;
    clb_status status = clb_structure_make(check->queue_set, check->program, check->variant, x, I0,
                                           P0, w, k, to, queue);
    CLB_THEN(status, clb_queue_read_now(queue, to, 0, used, device));
    if (status != CLB_OK)
        return status;
    clb_operand_make(check->variant->precision, x, I0, P0, w, k, 0, x->depth_contiguous ? w : k,
                     cpu);
    return memcmp(device, cpu, used) == 0 ? CLB_OK : CLB_ERR_BUILD;
}

static clb_status check_part(void *context, struct clb_check_size part)
{
    static const clb_scalar factors[] = {{.s = {2, -3}}, {.d = {2, -3}}};
    const struct structure_check *check = context;
    const clb_precision precision = check->variant->precision;
    clb_status status = CLB_OK;
    for (int i = 0; i < 16 && status == CLB_OK; i++) {
        struct clb_operand x = {.host = (const char *)check->host,
                                .mem = check->memory[0]->mem,
                                .ld = ORDER,
                                .element = clb_precision_size(precision),
                                .depth_contiguous = i % 2 != 0,
                                .upper = i / 2 % 2 != 0,
                                .unit = i % 2 != 0,
                                .shape = (clb_structure)(i / 4)};
        if (x.shape == CLB_STRUCTURE_GENERAL)
            x.scale = &factors[clb_precision_real_size(precision) != sizeof(float)];
        status = check_one(check, &x, part);
    }
    return status;
}

/* Sizes around the squares of order 16 that work-items make. */
static clb_status run_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                            struct clb_program *program)
{
    static const struct clb_check_size parts[] = {
        {5, 3, 0},   {1, 1, 0},   {1, 21, 0},  {17, 1, 0},  {33, 2, 0}, {15, 16, 0},
        {16, 15, 0}, {16, 17, 0}, {17, 16, 0}, {32, 33, 0}, {40, 21, 0}};
    const struct clb_check_programs programs = {"operands 1", runtime, {program}};
    const clb_precision precision = variant->precision;
    const size_t all = ORDER * (ORDER + 1) * clb_precision_size(precision), bytes[] = {all, all};
    struct structure_check check = {
        .program = program, .variant = variant, .bytes = all, .host = calloc(3, all)};
    uint64_t state = 20261121;
    if (check.host == NULL)
        return CLB_ERR_NOMEM;
    /* Small integers, which a factor of small integers does not round. */
    for (size_t i = 0; i < all / clb_precision_real_size(precision); i++)
        clb_check_put(precision, check.host, i, floor(4096 * clb_check_random(&state)));
    clb_status status = clb_queue_set_acquire(runtime, &check.queue_set);
    CLB_THEN(status, clb_check_memory(runtime, bytes, check.memory, CLB_COUNT_OF(bytes)));
    CLB_THEN(status,
             clb_queue_write_now(check.queue_set->queue, check.memory[0]->mem, 0, all, check.host));
    CLB_THEN(status, clb_check_sizes(&programs, parts, CLB_COUNT_OF(parts), check_part, &check));
    clb_check_memory_end(runtime, check.memory, CLB_COUNT_OF(bytes),
                         clb_check_end(check.queue_set));
    free(check.host);
    return status;
}

/* ---- once for each precision ---- */

/* The check guards the program. */
static struct {
    struct clb_check check;
    struct clb_program *program;
} expanders[CLB_PRECISIONS];

struct structure_task {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
};

static clb_status build_and_check(void *argument)
{
    const struct structure_task *task = argument;
    const clb_precision precision = task->variant->precision;
    struct clb_program **program = &expanders[precision].program;
    clb_status status = clb_step_need(task->runtime, CLB_STEP_STRUCTURE, precision);
    CLB_THEN(status, clb_structure_build(task->runtime, task->variant, program));
    return status == CLB_OK ? run_check(task->runtime, task->variant, *program) : status;
}

static bool has_triangle(const struct clb_gemm *problem)
{
    return problem->region != CLB_REGION_FULL || clb_gemm_adds_zeros(problem);
}

clb_status clb_structure_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    const struct structure_task task = {runtime, variant};
    return clb_check_once(&expanders[variant->precision].check,
                          "symmetric operands are not made on the device", build_and_check, &task,
                          sizeof task);
}

clb_status clb_structure_prepare(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant,
                                 const struct clb_gemm *problem, bool on_device,
                                 struct clb_program **program)
{
    clb_status status = CLB_OK;
    if (has_triangle(problem))
        status = clb_skip_prepare(runtime, variant);
    if (status == CLB_OK && on_device && clb_gemm_is_expanded(variant, problem)) {
        status = clb_structure_check(runtime, variant);
        *program = expanders[variant->precision].program;
    }
    return status;
}
