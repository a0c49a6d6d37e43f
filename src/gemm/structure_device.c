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
    return clb_queue_set_launch(queue, kernel, "clb_structure", arguments, CLB_COUNT_OF(arguments),
                                1, &global, &local, 0, NULL, NULL);
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

/* ---- the check of products that skip something ----------------------------------------------- */

/* The operands are packed n x n matrices A and B of small integers, with zeros where the skipped
 * parts are. */
struct product_check {
    struct clb_queue_set *queue_set;
    const struct clb_gemm_variant *variant;
    struct clb_buffer *source, *a, *b, *c;
    size_t n, bytes;
    unsigned char *host; /* the source, C with the skip, C without */
};

/* Elements (i, p) of the source for A and (p, j) for B. */
static void fill_source(const struct product_check *check, unsigned kind)
{
    size_t n = check->n, parts = clb_precision_parts(check->variant->precision);
    for (size_t e = 0; e < n * n * parts; e++) {
        size_t row = e / parts % n, col = e / parts / n;
        bool zero = (kind & (CLB_SKIP_A_END | CLB_SKIP_B_BEGIN)) != 0   ? col > row
                    : (kind & (CLB_SKIP_A_BEGIN | CLB_SKIP_B_END)) != 0 ? col < row
                                                                        : false;
        clb_check_put(check->variant->precision, check->host, e,
                      zero ? 0 : (double)((e * 7 + row * 5) % 13) - 6);
    }
}

static clb_status write_source(const struct product_check *check)
{
    return clb_queue_write_now(check->queue_set->queue, check->source->mem, 0, check->bytes,
                               check->host);
}

static clb_status structure_device_multiply(const struct product_check *check, struct clb_skip cut,
                                            clb_op b_op_of_a, unsigned char *to)
{
    struct clb_product product = {.m = check->n,
                                  .n = check->n,
                                  .k = check->n,
                                  .a = check->a->mem,
                                  .b = b_op_of_a != CLB_OP_N ? check->a->mem : check->b->mem,
                                  .c = check->c->mem,
                                  .ldc = check->n,
                                  .b_op_of_a = b_op_of_a,
                                  .cut = cut};
    clb_status status =
        clb_gemm_multiply(check->queue_set, check->variant, &product, (struct clb_order){0});
    product.add = true; /* the second product adds to the first, to check beta */
    if (status == CLB_OK)
        status =
            clb_gemm_multiply(check->queue_set, check->variant, &product, (struct clb_order){0});
    if (status == CLB_OK)
        status = clb_queue_read_now(check->queue_set->queue, check->c->mem, 0, check->bytes, to);
    return status;
}

/* Pack A as it is stored, and B. */
static clb_status pack_both(const struct product_check *check, unsigned kind,
                            const struct clb_chunk *b)
{
    static const struct clb_order order = {0};
    const struct clb_chunk a = {.mem = check->source->mem, .ld = check->n};
    size_t n = check->n;
    fill_source(check, kind);
    clb_status status = write_source(check);
    if (status == CLB_OK)
        status = clb_gemm_pack(check->queue_set, check->variant, CLB_OPERAND_A, &a, n, n,
                               check->a->mem, 0, NULL, order);
    if (status == CLB_OK)
        status = clb_gemm_pack(check->queue_set, check->variant, CLB_OPERAND_B, b, n, n,
                               check->b->mem, 0, NULL, order);
    return status;
}

/* Compare with the full product: the bits must be the same in the wanted part. */
static clb_status compare(const struct product_check *check, unsigned kind, clb_op b_op_of_a)
{
    size_t n = check->n, element = clb_precision_size(check->variant->precision);
    unsigned char *other = check->host + check->bytes, *all = other + check->bytes;
    clb_status status = structure_device_multiply(check, (struct clb_skip){0}, CLB_OP_N, all);
    if (status == CLB_OK)
        status =
            structure_device_multiply(check, (struct clb_skip){.kind = kind}, b_op_of_a, other);
    for (size_t e = 0; e < n * n && status == CLB_OK; e++) {
        bool wanted = kind == CLB_SKIP_LOWER   ? e % n >= e / n
                      : kind == CLB_SKIP_UPPER ? e % n <= e / n
                                               : true;
        if (wanted && memcmp(other + e * element, all + e * element, element) != 0)
            status = CLB_ERR_BUILD;
    }
    return status;
}

static clb_status check_cut(const struct product_check *check, unsigned kind)
{
    const struct clb_chunk b = {
        .mem = check->source->mem, .ld = check->n, .depth_contiguous = true};
    clb_status status = pack_both(check, kind, &b);
    return status == CLB_OK ? compare(check, kind, CLB_OP_N) : status;
}

/* Check B = A^T or A^H, read from the panels of A. */
static clb_status check_shared(const struct product_check *check, clb_op op)
{
    const struct clb_chunk b = {
        .mem = check->source->mem, .ld = check->n, .conjugated = op == CLB_OP_C};
    clb_status status = pack_both(check, 0, &b);
    if (status == CLB_OK)
        status = compare(check, 0, op);
    return status == CLB_OK ? compare(check, CLB_SKIP_UPPER, op) : status;
}

/* Element (i, p) of a triangular operand of small numbers. Elements that must not be read are NaN,
 * or with `made` the value that they stand for. */
static float triangle_element(const struct clb_chunk *x, size_t i, size_t p, size_t part, bool made)
{
    ptrdiff_t behind = (ptrdiff_t)p - (ptrdiff_t)i - x->diagonal;
    if (x->triangle & CLB_TRIANGLE_LOW ? behind > 0 : behind < 0)
        return made ? 0 : NAN;
    if (behind == 0 && x->triangle & CLB_TRIANGLE_UNIT)
        return !made ? NAN : part == 0 ? 1 : 0;
    return (float)((i * 3 + p * 7 + part) % 4) - 1.5F;
}

static void fill_triangle(const struct product_check *check, const struct clb_chunk *x, bool made)
{
    size_t n = check->n, parts = clb_precision_parts(check->variant->precision);
    for (size_t e = 0; e < n * n * parts; e++) {
        size_t row = e / parts % n, col = e / parts / n;
        clb_check_put(check->variant->precision, check->host, e,
                      triangle_element(x, x->depth_contiguous ? col : row,
                                       x->depth_contiguous ? row : col, e % parts, made));
    }
}

/* A packed triangle must give the same product as the general matrix that it stands for, and
 * nothing outside the triangle may be read. The other operand is the one that was packed before. */
static clb_status check_triangle(const struct product_check *check, clb_operand_role role,
                                 const struct clb_chunk *x)
{
    static const struct clb_order order = {0};
    bool of_a = role == CLB_OPERAND_A, low = (x->triangle & CLB_TRIANGLE_LOW) != 0;
    const struct clb_skip cut = {.kind = of_a ? (low ? CLB_SKIP_A_END : CLB_SKIP_A_BEGIN)
                                              : (low ? CLB_SKIP_B_END : CLB_SKIP_B_BEGIN),
                                 .a = x->diagonal,
                                 .b = x->diagonal};
    cl_mem packed = of_a ? check->a->mem : check->b->mem;
    unsigned char *triangle = check->host + check->bytes, *general = triangle + check->bytes;
    clb_status status = CLB_OK;
    for (int made = 0; made < 2 && status == CLB_OK; made++) {
        struct clb_chunk chunk = *x;
        chunk.triangle = made ? 0 : x->triangle;
        fill_triangle(check, x, made);
        status = write_source(check);
        if (status == CLB_OK)
            status = clb_gemm_pack(check->queue_set, check->variant, role, &chunk, check->n,
                                   check->n, packed, 0, NULL, order);
        if (status == CLB_OK)
            status = structure_device_multiply(check, cut, CLB_OP_N, made ? general : triangle);
    }
    if (status == CLB_OK && memcmp(triangle, general, check->bytes) != 0)
        status = CLB_ERR_BUILD;
    return status;
}

static clb_status check_triangles(const struct product_check *check)
{
    static const ptrdiff_t diagonals[] = {0, 5, -1};
    clb_status status = check_cut(check, 0);
    for (unsigned i = 0; i < 16 && status == CLB_OK; i++) {
        const struct clb_chunk x = {.mem = check->source->mem,
                                    .ld = check->n,
                                    .depth_contiguous = i & 2,
                                    .conjugated = i & 8,
                                    .triangle = (i & 4 ? CLB_TRIANGLE_LOW : CLB_TRIANGLE_HIGH) |
                                                (i % 3 == 0 ? CLB_TRIANGLE_UNIT : 0),
                                    .diagonal = i & 4 ? diagonals[i % CLB_COUNT_OF(diagonals)]
                                                      : -diagonals[i / 8]};
        status = check_triangle(check, i & 1 ? CLB_OPERAND_B : CLB_OPERAND_A, &x);
    }
    return status;
}

size_t clb_gemm_check_order(const struct clb_gemm_variant *variant)
{
    const size_t *value = variant->tuning.value;
    return clb_min(clb_max(value[CLB_PARAM_KC], 2 * value[CLB_PARAM_MR]), 400) + 5;
}

/* The last op for which B may be op(A): T, or C for complex precisions; CLB_OP_N where the variant
 * does not share panels. */
static clb_op last_shared(const struct clb_gemm_variant *variant)
{
    return !clb_gemm_shares_panels(variant)              ? CLB_OP_N
           : clb_precision_parts(variant->precision) > 1 ? CLB_OP_C
                                                         : CLB_OP_T;
}

/* All checks with operands of order n. */
static clb_status check_order(const struct product_check *of, size_t n)
{
    static const unsigned kinds[] = {CLB_SKIP_A_END,   CLB_SKIP_A_BEGIN, CLB_SKIP_B_END,
                                     CLB_SKIP_B_BEGIN, CLB_SKIP_LOWER,   CLB_SKIP_UPPER};
    const struct clb_gemm_variant *variant = of->variant;
    struct product_check check = *of;
    clb_status status = CLB_OK;
    check.n = n;
    check.bytes = n * n * clb_precision_size(variant->precision);
    for (size_t i = 0; i < CLB_COUNT_OF(kinds) && status == CLB_OK; i++)
        status = check_cut(&check, kinds[i]);
    if (status == CLB_OK)
        status = check_triangles(&check);
    for (int op = CLB_OP_T; op <= (int)last_shared(variant) && status == CLB_OK; op++)
        status = check_shared(&check, (clb_op)op);
    return status;
}

/* Orders around the edges of micro-tiles; the last has several micro-tiles and several passes of
 * depth. */
static clb_status check_orders(const struct product_check *check)
{
    const struct clb_gemm_variant *variant = check->variant;
    size_t m = clb_gemm_unit(variant, CLB_OPERAND_A), n = clb_gemm_unit(variant, CLB_OPERAND_B);
    const size_t orders[] = {n + 1, 1, 2, n - 1, n, m - 1, m, m + 1, 2 * m + 3, check->n};
    const struct clb_check_programs programs = {
        "triangular products 1", check->queue_set->runtime, {variant->program, *variant->shapes}};
    bool all = clb_check_tries_all(&programs);
    clb_status status = CLB_OK;
    for (size_t i = 0; i < (all ? CLB_COUNT_OF(orders) : 1) && status == CLB_OK; i++)
        status = check_order(check, clb_min(clb_max(orders[i], 1), check->n));
    if (all && status == CLB_OK)
        clb_check_note_passed(&programs);
    return status;
}

static clb_status run_product_check(struct clb_runtime *runtime,
                                    const struct clb_gemm_variant *variant)
{
    size_t n = clb_gemm_check_order(variant);
    struct product_check check = {
        .variant = variant, .n = n, .bytes = n * n * clb_precision_size(variant->precision)};
    check.host = calloc(3, check.bytes);
    if (check.host == NULL)
        return CLB_ERR_NOMEM;
    clb_status status = clb_queue_set_acquire(runtime, &check.queue_set);
    if (status == CLB_OK)
        status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, check.bytes, &check.source);
    if (status == CLB_OK)
        status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE,
                                clb_packed_bytes(variant, CLB_OPERAND_A, n, n), &check.a);
    if (status == CLB_OK)
        status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE,
                                clb_packed_bytes(variant, CLB_OPERAND_B, n, n), &check.b);
    if (status == CLB_OK)
        status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, check.bytes, &check.c);
    if (status == CLB_OK)
        status = clb_gemm_prelaunch_cut(check.queue_set, variant);
    for (int op = CLB_OP_T; op <= (int)last_shared(variant) && status == CLB_OK; op++)
        status = clb_gemm_prelaunch_shared(check.queue_set, variant, (clb_op)op);
    if (status == CLB_OK)
        status = check_orders(&check);
    bool idle = end_queue_set(check.queue_set);
    clb_buffer_end(runtime, check.source, idle);
    clb_buffer_end(runtime, check.a, idle);
    clb_buffer_end(runtime, check.b, idle);
    clb_buffer_end(runtime, check.c, idle);
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

static clb_status build_and_check_cut(void *argument)
{
    const struct structure_device_task *task = argument;
    clb_status status = clb_gemm_variant_get_structured(task->runtime, task->variant);
    return status == CLB_OK ? run_product_check(task->runtime, task->variant) : status;
}

static bool has_triangle(const struct clb_gemm *problem)
{
    const struct clb_level3 *level3 = problem->level3;
    return level3->region != CLB_REGION_FULL || level3->a[0].shape == CLB_STRUCTURE_TRIANGULAR ||
           level3->b[0].shape == CLB_STRUCTURE_TRIANGULAR;
}

clb_status clb_skip_prepare(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    static struct clb_check checks[CLB_PRECISIONS];
    struct structure_device_task task = {.runtime = runtime, .variant = variant};
    if (!variant->family->has_skip)
        return CLB_OK;
    return clb_check_once(&checks[variant->precision], "triangular products are not the device's",
                          build_and_check_cut, &task);
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
