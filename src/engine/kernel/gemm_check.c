/* Checks of the kernels of products, by packing and multiplying matrices in device memory, and
 * their rate. */
#include "check.h"
#include "kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- products in full, on random data -------------------------------------------------------- */

enum { CHECK_MAX = 400 };

/* The operands begin behind so many elements of their buffers: matrices of callers are aligned to
 * their elements only. */
#define BEGIN ((size_t)1)

/* Exponents are those of scaled operands: of A's rows, then of B's columns. */
enum { A_SOURCE, B_SOURCE, A_PACKED, B_PACKED, RESULT, FLAG, EXPONENTS, PARTS_OF_C, FULL_BUFFERS };

struct full_check {
    struct clb_queue_set *queue_set;
    const struct clb_gemm_variant *variant;
    size_t m, n, k, ldc;
    bool direct;     /* B is read unpacked */
    size_t parts;    /* real numbers of an element */
    char *a, *b, *c; /* the operands, and the result */
    struct clb_buffer *memory[FULL_BUFFERS];
};

/* How a product is computed: the ops of the operands, whether both are read unpacked, whether rows
 * of A and columns of B have extreme scales, and the depth of the parts that are summed, 0 for
 * undivided products. */
struct way {
    clb_op op_a, op_b;
    bool raw, scaled;
    size_t part;
};

/* Scales of rows and columns that are out of split families' range on either side; products are in
 * that of single precision. */
static const int row_scales[] = {0, -70, 58}, column_scales[] = {0, 58};

/* Elements of rows or columns x elements along them, one after the other where `along`. */
static void set_operand(const struct full_check *check, char *operand, size_t extent, bool along,
                        const int *scales, size_t count, uint64_t *state)
{
    const size_t elements = extent * check->k;
    for (size_t e = 0; e < elements * check->parts; e++) {
        const size_t element = e / check->parts, i = along ? element / check->k : element % extent;
        clb_check_put(check->variant->precision, operand, BEGIN * check->parts + e,
                      ldexp(clb_check_random(state), scales != NULL ? scales[i % count] : 0));
    }
}

static void set_operands(const struct full_check *check, const struct way *way)
{
    uint64_t state = 20261120;
    set_operand(check, check->a, check->m, way->op_a != CLB_OP_N, way->scaled ? row_scales : NULL,
                CLB_COUNT_OF(row_scales), &state);
    set_operand(check, check->b, check->n, way->op_b == CLB_OP_N,
                way->scaled ? column_scales : NULL, CLB_COUNT_OF(column_scales), &state);
}

/* Judge C as `times` the product, entry by entry. */
static clb_status full_judge(const struct full_check *check, const struct way *way, double times)
{
    const clb_precision precision = check->variant->precision;
    const size_t element = clb_precision_size(precision);
    const struct clb_before before[CLB_CALL_MATRICES] = {{0}};
    struct clb_call call = clb_call_of(clb_routine_of(CLB_KIND_gemm, precision, false));
    struct clb_verdict verdict;
    clb_scalar alpha = {.d = {0}};
    clb_check_put(precision, &alpha, 0, times);
    call.transa = way->op_a;
    call.transb = way->op_b;
    call.m = check->m;
    call.n = check->n;
    call.k = check->k;
    call.alpha = &alpha;
    call.beta = clb_scalar_zero(precision);
    call.a = check->a + BEGIN * element;
    call.b = check->b + BEGIN * element;
    call.c = check->c;
    call.lda = way->op_a == CLB_OP_N ? check->m : check->k;
    call.ldb = way->op_b == CLB_OP_N ? check->k : check->n;
    call.ldc = check->ldc;
    const struct clb_judged judged = {.call = &call,
                                      .before = before,
                                      .entries = true,
                                      .rounded = clb_families[check->variant->tuning.family].math ==
                                                 CLB_MATH_FAST};
    clb_status status = clb_judge(&judged, &verdict);
    if (status == CLB_OK && (verdict.failed != NULL || verdict.left > 0))
        status = CLB_ERR_BUILD;
    return status;
}

/* Pack rows of A or columns of B, depths [p0, p0 + k), in launches of at most `most`. */
static clb_status full_pack(const struct full_check *check, clb_operand_role role,
                            const struct way *way, size_t p0, size_t k, size_t most)
{
    const bool is_a = role == CLB_OPERAND_A;
    const clb_op op = is_a ? way->op_a : way->op_b;
    const bool along = is_a == (op != CLB_OP_N);
    size_t extent = is_a ? check->m : check->n;
    const struct clb_buffer *packed = is_a ? check->memory[A_PACKED] : check->memory[B_PACKED];
    struct clb_chunk chunk = {.mem =
                                  (is_a ? check->memory[A_SOURCE] : check->memory[B_SOURCE])->mem,
                              .ld = along ? check->k : extent,
                              .depth_contiguous = along,
                              .conjugated = op == CLB_OP_C};
    clb_status status = CLB_OK;
    for (size_t i = 0; i < extent && status == CLB_OK; i += clb_min(most, extent - i)) {
        const size_t count = clb_min(most, extent - i);
        const cl_ulong first = i + (is_a ? 0 : check->m), places[2] = {first, first};
        chunk.offset = BEGIN + (along ? p0 + i * chunk.ld : i + p0 * chunk.ld);
        if (way->scaled)
            status = clb_gemm_scale(check->queue_set, check->variant, &chunk, count, k,
                                    check->memory[EXPONENTS]->mem, places, (struct clb_order){0});
        if (status == CLB_OK)
            status = clb_gemm_pack(check->queue_set, check->variant, role, &chunk, count, k,
                                   packed->mem, clb_packed_offset(check->variant, role, i, k),
                                   check->memory[FLAG] != NULL ? check->memory[FLAG]->mem : NULL,
                                   (struct clb_order){0});
    }
    return status;
}

/* C = op(A)*op(B) or C += op(A)*op(B) in launches of at most most_m x most_n, as wide and as deep
 * as the callers of the kernels make them at most. */
static clb_status full_multiply(const struct full_check *check, const struct way *way, bool add,
                                size_t most_m, size_t most_n)
{
    const struct clb_gemm_variant *variant = check->variant;
    const bool raw = way->raw, direct = check->direct, along_a = way->op_a != CLB_OP_N,
               along_b = way->op_b == CLB_OP_N;
    const size_t ld_a = along_a ? check->k : check->m, ld_b = along_b ? check->k : check->n;
    size_t slab = clb_round_up(clb_max(variant->tuning.value[CLB_PARAM_SLAB], 1),
                               clb_gemm_depth_unit(variant));
    struct clb_product product = {
        .a = (raw ? check->memory[A_SOURCE] : check->memory[A_PACKED])->mem,
        .b = (raw || direct ? check->memory[B_SOURCE] : check->memory[B_PACKED])->mem,
        .c = check->memory[RESULT]->mem,
        .raw = raw,
        .a_depth_contiguous = along_a,
        .b_depth_contiguous = along_b,
        .lda = raw ? ld_a : 0,
        .ldb = raw || direct ? ld_b : 0,
        .part = way->part,
        .parts = check->memory[PARTS_OF_C] != NULL ? check->memory[PARTS_OF_C]->mem : NULL,
        .exponents = way->scaled ? check->memory[EXPONENTS]->mem : NULL,
        .ldc = check->ldc};
    clb_status status = CLB_OK;
    for (size_t p0 = 0; p0 < check->k && status == CLB_OK; p0 += product.k) {
        product.k = clb_min(slab, check->k - p0);
        product.add = add || p0 > 0;
        if (!raw)
            status = full_pack(check, CLB_OPERAND_A, way, p0, product.k, most_m);
        if (status == CLB_OK && !raw && !direct)
            status = full_pack(check, CLB_OPERAND_B, way, p0, product.k, most_n);
        for (size_t j = 0; j < check->n && status == CLB_OK; j += product.n) {
            product.n = clb_min(most_n, check->n - j);
            product.b_exponents = check->m + j;
            product.b_offset = raw || direct
                                   ? BEGIN + (along_b ? p0 + j * ld_b : j + p0 * ld_b)
                                   : clb_packed_offset(variant, CLB_OPERAND_B, j, product.k);
            for (size_t i = 0; i < check->m && status == CLB_OK; i += product.m) {
                product.m = clb_min(most_m, check->m - i);
                product.a_offset = raw ? BEGIN + (along_a ? p0 + i * ld_a : i + p0 * ld_a)
                                       : clb_packed_offset(variant, CLB_OPERAND_A, i, product.k);
                product.a_exponents = i;
                product.c_offset = i + j * check->ldc;
                status =
                    clb_gemm_multiply(check->queue_set, variant, &product, (struct clb_order){0});
            }
        }
    }
    return status;
}

/* Read C, and split families' range flag, and compare. */
static clb_status full_compare(const struct full_check *check, const struct way *way, double times)
{
    struct clb_queue *queue = check->queue_set->queue;
    size_t bytes = check->ldc * check->n * clb_precision_size(check->variant->precision);
    cl_uint out_of_range = 0;
    clb_status status = clb_queue_read_now(queue, check->memory[RESULT]->mem, 0, bytes, check->c);
    if (status == CLB_OK && check->memory[FLAG] != NULL)
        status = clb_queue_read_now(queue, check->memory[FLAG]->mem, 0, sizeof out_of_range,
                                    &out_of_range);
    if (status == CLB_OK && out_of_range != 0)
        status = CLB_ERR_BUILD;
    return status == CLB_OK ? full_judge(check, way, times) : status;
}

/* The depth of the parts with which a product is checked, two or three where its depth has so many
 * steps; 0: it has one. */
static size_t part_of(const struct full_check *check)
{
    size_t unit = clb_gemm_depth_unit(check->variant);
    size_t part = clb_round_up(clb_div_up(check->k, 3), unit);
    return check->variant->family->has_parts && part < check->k ? part : 0;
}

static clb_status write_operands(const struct full_check *check)
{
    const size_t element = clb_precision_size(check->variant->precision);
    struct clb_queue *queue = check->queue_set->queue;
    clb_status status = clb_queue_write_now(queue, check->memory[A_SOURCE]->mem, 0,
                                            (BEGIN + check->m * check->k) * element, check->a);
    if (status == CLB_OK)
        status = clb_queue_write_now(queue, check->memory[B_SOURCE]->mem, 0,
                                     (BEGIN + check->k * check->n) * element, check->b);
    return status;
}

/* C = op(A)*op(B) in launches as wide as possible, over a C of NaNs; then C += op(A)*op(B) in
 * launches for halves of C, which begin behind the first element of what they read and write. */
static clb_status check_way(const struct full_check *check, const struct way *way)
{
    const struct clb_gemm_variant *variant = check->variant;
    struct clb_queue *queue = check->queue_set->queue;
    size_t element = clb_precision_size(variant->precision),
           bytes = check->ldc * check->n * element;
    size_t unit_m = clb_gemm_unit(variant, CLB_OPERAND_A);
    size_t unit_n = clb_gemm_unit(variant, CLB_OPERAND_B);
    size_t most_m = clb_gemm_widest(variant, CLB_OPERAND_A);
    size_t most_n = clb_gemm_widest(variant, CLB_OPERAND_B);
    set_operands(check, way);
    memset(check->c, 0xff, bytes);
    clb_status status = write_operands(check);
    if (status == CLB_OK)
        status = clb_queue_write_now(queue, check->memory[RESULT]->mem, 0, bytes, check->c);
    if (status == CLB_OK)
        status = full_multiply(check, way, false, most_m, most_n);
    if (status == CLB_OK)
        status = full_compare(check, way, 1);
    if (status == CLB_OK && way->scaled) /* in place */
        status = write_operands(check);
    if (status == CLB_OK)
        status = full_multiply(check, way, true,
                               clb_min(most_m, clb_round_up(clb_div_up(check->m, 2), unit_m)),
                               clb_min(most_n, clb_round_up(clb_div_up(check->n, 2), unit_n)));
    return status == CLB_OK ? full_compare(check, way, 2) : status;
}

/* Both operands unpacked, as they may be stored. */
static clb_status check_raw(const struct full_check *check)
{
    clb_status status = CLB_OK;
    for (int ops = 0; ops < 4 && status == CLB_OK; ops++) {
        const struct way way = {.op_a = (clb_op)(ops / 2), .op_b = (clb_op)(ops % 2), .raw = true};
        status = check_way(check, &way);
    }
    return status;
}

/* Operands of extreme scale, as they may be stored, undivided and in parts. */
static clb_status check_scaled(const struct full_check *check)
{
    const struct way plain = {.op_a = CLB_OP_N, .scaled = true};
    const struct way transposed = {
        .op_a = CLB_OP_T, .op_b = CLB_OP_T, .scaled = true, .part = part_of(check)};
    clb_status status = check_way(check, &plain);
    return status == CLB_OK ? check_way(check, &transposed) : status;
}

/* Every way to pack the operands; where B is read unpacked, packed A and A unpacked. Also the depth
 * in parts, both operands unpacked, and operands that are scaled, if the variant has kernels for
 * that. */
static clb_status check_ops(const struct full_check *check)
{
    static const cl_uint clean = 0;
    const clb_op last = check->direct ? CLB_OP_N : check->parts > 1 ? CLB_OP_C : CLB_OP_T;
    const struct way in_parts = {.part = part_of(check)};
    clb_status status = CLB_OK;
    if (check->memory[FLAG] != NULL)
        status = clb_queue_write_now(check->queue_set->queue, check->memory[FLAG]->mem, 0,
                                     sizeof clean, &clean);
    for (int op = CLB_OP_N; op <= (int)last && status == CLB_OK; op++) {
        const struct way way = {.op_a = (clb_op)op, .op_b = (clb_op)op};
        status = check_way(check, &way);
    }
    if (status == CLB_OK && check->direct)
        status = check_way(check, &(struct way){.op_a = CLB_OP_N, .raw = true});
    if (status == CLB_OK && in_parts.part != 0)
        status = check_way(check, &in_parts);
    if (status == CLB_OK && clb_gemm_reads_raw(check->variant))
        status = check_raw(check);
    return status == CLB_OK && check->memory[EXPONENTS] != NULL ? check_scaled(check) : status;
}

static clb_status get_buffers(struct full_check *check)
{
    const struct clb_gemm_variant *variant = check->variant;
    const size_t element = clb_precision_size(variant->precision);
    const size_t part = part_of(check),
                 bytes[] = {
                     [A_SOURCE] = (BEGIN + check->m * check->k) * element,
                     [B_SOURCE] = (BEGIN + check->k * check->n) * element,
                     [A_PACKED] = clb_packed_bytes(variant, CLB_OPERAND_A, check->m, check->k),
                     [B_PACKED] = clb_packed_bytes(variant, CLB_OPERAND_B, check->n, check->k),
                     [RESULT] = check->ldc * check->n * element,
                     [FLAG] = variant->split ? sizeof(cl_uint) : 0,
                     [EXPONENTS] = variant->split ? (check->m + check->n) * sizeof(cl_int) : 0,
                     [PARTS_OF_C] =
                         variant->split
                             ? clb_scaled_bytes(variant, part, check->m, check->n, check->k)
                             : clb_part_bytes(variant, part, check->m, check->n, check->k)};
    return clb_check_memory(check->queue_set->runtime, bytes, check->memory, FULL_BUFFERS);
}

/* Wait for the commands, and return the memory. False when they may still be outstanding. */
static bool end_buffers(struct full_check *check)
{
    const bool idle = clb_queue_set_settle(check->queue_set);
    clb_check_memory_end(check->queue_set->runtime, check->memory, FULL_BUFFERS, idle);
    return idle;
}

/* What products of all sizes are checked with. */
struct products_check {
    const struct clb_gemm_variant *variant;
    struct clb_queue_set *queue_set;
    bool direct;
};

static clb_status check_size(void *context, struct clb_check_size size)
{
    struct products_check *products = context;
    const struct clb_gemm_variant *variant = products->variant;
    const size_t element = clb_precision_size(variant->precision);
    struct full_check check = {.queue_set = products->queue_set,
                               .variant = variant,
                               .m = clb_min(clb_max(size.m, 1), CHECK_MAX),
                               .n = clb_min(clb_max(size.n, 1), CHECK_MAX),
                               .k = clb_min(clb_max(size.k, 1), CHECK_MAX),
                               .direct = products->direct,
                               .parts = clb_precision_parts(variant->precision)};
    /* Products of smaller depth use another kernel. */
    check.k = clb_max(check.k, variant->tuning.value[CLB_PARAM_MIN_K]);
    check.ldc = clb_round_up(check.m, 128 / element);
    const size_t a = (BEGIN + check.m * check.k) * element;
    const size_t b = (BEGIN + check.k * check.n) * element;
    check.a = calloc(1, a + b + check.ldc * check.n * element);
    if (check.a == NULL)
        return CLB_ERR_NOMEM;
    check.b = check.a + a;
    check.c = check.b + b;
    clb_status status = get_buffers(&check);
    if (status == CLB_OK)
        status = check_ops(&check);
    end_buffers(&check);
    free(check.a);
    return status;
}

/* Check sizes around the edges of the kernel's tile, of its depth steps and of a work-group's part.
 * The first is the small size that later processes check. */
static clb_status check_sizes(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                              bool direct)
{
    const size_t *value = variant->tuning.value;
    size_t parts = clb_precision_parts(variant->precision);
    size_t m = clb_gemm_unit(variant, CLB_OPERAND_A), n = clb_gemm_unit(variant, CLB_OPERAND_B);
    size_t step = clb_gemm_depth_unit(variant);
    size_t deep = clb_max(value[CLB_PARAM_KC] / parts, value[CLB_PARAM_MIN_K]);
    size_t rows = clb_max(value[CLB_PARAM_MC] / parts, m), cols = clb_max(value[CLB_PARAM_NC], n);
    const struct clb_check_size sizes[] = {{m + 1, n + 1, step + 1},
                                           {1, 1, 1},
                                           {3, 2, step - 1},
                                           {m - 1, n + 1, step},
                                           {m, n, 2 * step + 1},
                                           {m + 1, n - 1, deep - 1},
                                           {m + 1, 1, deep},
                                           {1, n, deep + 1},
                                           {rows, cols - 1, 1},
                                           {rows + 1, cols + 1, step + 1},
                                           {m + 3, 2 * n + 1, deep + step + 1}};
    const struct clb_check_programs programs = {
        direct ? "products in place 4" : "products 4", runtime, {variant->program}};
    struct products_check check = {.variant = variant, .direct = direct};
    clb_status status = clb_queue_set_acquire(runtime, &check.queue_set);
    if (status != CLB_OK)
        return status;
    status = clb_check_sizes(&programs, sizes, CLB_COUNT_OF(sizes), check_size, &check);
    return clb_check_end(check.queue_set) || status != CLB_OK ? status : CLB_ERR_OPENCL;
}

clb_status clb_gemm_check_full(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    return check_sizes(runtime, variant, false);
}

clb_status clb_gemm_check_direct(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant)
{
    return check_sizes(runtime, variant, true);
}

/* ---- the rate of products -------------------------------------------------------------------- */

/* Products of growing order are timed, until one takes long enough to be timed well; none is
 * repeated that takes very long. Orders count real numbers. */
#define FIRST_ORDER    64
#define LARGEST_SHARED 1024 /* memory of the host is scarce */
#define LARGEST_OWN    4096
#define LONG_ENOUGH    0.0025 /* by the device's clock */
#define LEAST_WALL     0.001  /* less is mostly the work of waking threads */
#define TOO_LONG       0.1
#define REPETITIONS    4 /* of the last order, the first of them to warm up; of the others half */

/* A CPU device works in this process, which other processes may keep waiting: its time is CPU time,
 * and its rate that of one core. The system counts a thread's time when it has gone to sleep, so
 * its threads are given the time to. */
static double read_clock(const struct clb_device *device)
{
    const bool in_process = (device->type & CL_DEVICE_TYPE_CPU) != 0;
    struct timespec now;
    if (in_process)
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    clock_gettime(in_process ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static clb_status write_random(const struct full_check *check)
{
    const clb_precision precision = check->variant->precision;
    const size_t count = BEGIN + check->m * check->k, bytes = count * clb_precision_size(precision);
    struct clb_queue *queue = check->queue_set->queue;
    void *values = malloc(bytes);
    uint64_t state = 20261123;
    if (values == NULL)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < count * check->parts; i++)
        clb_check_put(precision, values, i, clb_check_random(&state));
    clb_status status = clb_queue_write_now(queue, check->memory[A_SOURCE]->mem, 0, bytes, values);
    if (status == CLB_OK)
        status = clb_queue_write_now(queue, check->memory[B_SOURCE]->mem, 0, bytes, values);
    free(values);
    return status;
}

/* The least seconds of a product, packing included; *enough: no larger one need be timed. */
static clb_status time_products(const struct full_check *check, double *seconds, bool *enough)
{
    const struct clb_gemm_variant *variant = check->variant;
    const struct clb_device *device = &check->queue_set->runtime->device;
    const struct way plain = {.op_a = CLB_OP_N};
    double least_wall = INFINITY;
    clb_status status = write_random(check);
    *seconds = INFINITY;
    *enough = false;
    for (int i = 0; i < REPETITIONS && status == CLB_OK; i++) {
        double begin = read_clock(device), wall = clb_now();
        status = full_multiply(check, &plain, false, clb_gemm_widest(variant, CLB_OPERAND_A),
                               clb_gemm_widest(variant, CLB_OPERAND_B));
        if (status == CLB_OK)
            status = clb_queue_finish(check->queue_set->queue);
        *seconds = fmin(*seconds, read_clock(device) - begin);
        least_wall = fmin(least_wall, clb_now() - wall);
        *enough = *seconds >= LONG_ENOUGH && least_wall >= LEAST_WALL;
        if (*seconds >= TOO_LONG || (i + 1 >= REPETITIONS / 2 && !*enough))
            break;
    }
    return status;
}

clb_status clb_gemm_measure(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                            double *gflops)
{
    const size_t parts = clb_precision_parts(variant->precision);
    const size_t largest = runtime->device.unified ? LARGEST_SHARED : LARGEST_OWN;
    struct clb_queue_set *queue_set;
    bool idle = true, enough = false;
    *gflops = 0;
    clb_status status = clb_queue_set_acquire(runtime, &queue_set);
    if (status != CLB_OK)
        return status;
    for (size_t n = FIRST_ORDER / parts;
         n <= largest / parts && status == CLB_OK && idle && !enough; n *= 2) {
        double seconds = INFINITY;
        struct full_check check = {.queue_set = queue_set,
                                   .variant = variant,
                                   .m = n,
                                   .n = n,
                                   .k = clb_max(n, variant->tuning.value[CLB_PARAM_MIN_K]),
                                   .parts = parts,
                                   .ldc = n};
        status = get_buffers(&check);
        if (status == CLB_OK)
            status = time_products(&check, &seconds, &enough);
        idle = end_buffers(&check);
        double flops = (parts > 1 ? 8.0 : 2.0) * (double)n * (double)n * (double)check.k;
        if (status == CLB_OK && seconds > 0)
            *gflops = fmax(*gflops, 1e-9 * flops / seconds);
    }
    clb_queue_set_end(queue_set, idle);
    /* Smaller ones have been timed where there is no memory for a larger one. */
    return status == CLB_ERR_NOMEM && *gflops > 0 ? CLB_OK : status;
}

/* ---- the check of products that skip something ----------------------------------------------- */

/* The operands are packed n x n matrices A and B of small integers, with zeros where the skipped
 * parts are. */
struct skip_check {
    struct clb_queue_set *queue_set;
    const struct clb_gemm_variant *variant;
    struct clb_buffer *memory[4]; /* the source, A, B, C */
    size_t n, bytes;
    unsigned char *host; /* the source, C with the skip, C without */
};

/* Elements (i, p) of the source for A and (p, j) for B. */
static void fill_source(const struct skip_check *check, unsigned kind)
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

static clb_status write_source(const struct skip_check *check)
{
    return clb_queue_write_now(check->queue_set->queue, check->memory[0]->mem, 0, check->bytes,
                               check->host);
}

static clb_status skip_multiply(const struct skip_check *check, struct clb_skip cut,
                                clb_op b_op_of_a, unsigned char *to)
{
    struct clb_product product = {.m = check->n,
                                  .n = check->n,
                                  .k = check->n,
                                  .a = check->memory[1]->mem,
                                  .b = b_op_of_a != CLB_OP_N ? check->memory[1]->mem
                                                             : check->memory[2]->mem,
                                  .c = check->memory[3]->mem,
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
        status =
            clb_queue_read_now(check->queue_set->queue, check->memory[3]->mem, 0, check->bytes, to);
    return status;
}

/* Pack A as it is stored, and B. */
static clb_status skip_pack(const struct skip_check *check, unsigned kind,
                            const struct clb_chunk *b)
{
    static const struct clb_order order = {0};
    const struct clb_chunk a = {.mem = check->memory[0]->mem, .ld = check->n};
    size_t n = check->n;
    fill_source(check, kind);
    clb_status status = write_source(check);
    if (status == CLB_OK)
        status = clb_gemm_pack(check->queue_set, check->variant, CLB_OPERAND_A, &a, n, n,
                               check->memory[1]->mem, 0, NULL, order);
    if (status == CLB_OK)
        status = clb_gemm_pack(check->queue_set, check->variant, CLB_OPERAND_B, b, n, n,
                               check->memory[2]->mem, 0, NULL, order);
    return status;
}

/* Compare with the full product: the bits must be the same in the wanted part. */
static clb_status skip_compare(const struct skip_check *check, unsigned kind, clb_op b_op_of_a)
{
    size_t n = check->n, element = clb_precision_size(check->variant->precision);
    unsigned char *other = check->host + check->bytes, *all = other + check->bytes;
    clb_status status = skip_multiply(check, (struct clb_skip){0}, CLB_OP_N, all);
    if (status == CLB_OK)
        status = skip_multiply(check, (struct clb_skip){.kind = kind}, b_op_of_a, other);
    for (size_t e = 0; e < n * n && status == CLB_OK; e++) {
        bool wanted = kind == CLB_SKIP_LOWER   ? e % n >= e / n
                      : kind == CLB_SKIP_UPPER ? e % n <= e / n
                                               : true;
        if (wanted && memcmp(other + e * element, all + e * element, element) != 0)
            status = CLB_ERR_BUILD;
    }
    return status;
}

static clb_status check_skip(const struct skip_check *check, unsigned kind)
{
    const struct clb_chunk b = {
        .mem = check->memory[0]->mem, .ld = check->n, .depth_contiguous = true};
    clb_status status = skip_pack(check, kind, &b);
    return status == CLB_OK ? skip_compare(check, kind, CLB_OP_N) : status;
}

/* Check B = A^T or A^H, read from the panels of A. */
static clb_status check_shared(const struct skip_check *check, clb_op op)
{
    const struct clb_chunk b = {
        .mem = check->memory[0]->mem, .ld = check->n, .conjugated = op == CLB_OP_C};
    clb_status status = skip_pack(check, 0, &b);
    if (status == CLB_OK)
        status = skip_compare(check, 0, op);
    return status == CLB_OK ? skip_compare(check, CLB_SKIP_UPPER, op) : status;
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

static void fill_triangle(const struct skip_check *check, const struct clb_chunk *x, bool made)
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
static clb_status check_triangle(const struct skip_check *check, clb_operand_role role,
                                 const struct clb_chunk *x)
{
    static const struct clb_order order = {0};
    bool of_a = role == CLB_OPERAND_A, low = (x->triangle & CLB_TRIANGLE_LOW) != 0;
    const struct clb_skip cut = {.kind = of_a ? (low ? CLB_SKIP_A_END : CLB_SKIP_A_BEGIN)
                                              : (low ? CLB_SKIP_B_END : CLB_SKIP_B_BEGIN),
                                 .a = x->diagonal,
                                 .b = x->diagonal};
    cl_mem packed = of_a ? check->memory[1]->mem : check->memory[2]->mem;
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
            status = skip_multiply(check, cut, CLB_OP_N, made ? general : triangle);
    }
    if (status == CLB_OK && memcmp(triangle, general, check->bytes) != 0)
        status = CLB_ERR_BUILD;
    return status;
}

static clb_status check_triangles(const struct skip_check *check)
{
    static const ptrdiff_t diagonals[] = {0, 5, -1};
    clb_status status = check_skip(check, 0);
    for (unsigned i = 0; i < 16 && status == CLB_OK; i++) {
        const struct clb_chunk x = {.mem = check->memory[0]->mem,
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
static clb_status check_order(void *context, struct clb_check_size size)
{
    static const unsigned kinds[] = {CLB_SKIP_A_END,   CLB_SKIP_A_BEGIN, CLB_SKIP_B_END,
                                     CLB_SKIP_B_BEGIN, CLB_SKIP_LOWER,   CLB_SKIP_UPPER};
    struct skip_check check = *(const struct skip_check *)context;
    const struct clb_gemm_variant *variant = check.variant;
    clb_status status = CLB_OK;
    check.n = clb_min(clb_max(size.n, 1), check.n);
    check.bytes = check.n * check.n * clb_precision_size(variant->precision);
    for (size_t i = 0; i < CLB_COUNT_OF(kinds) && status == CLB_OK; i++)
        status = check_skip(&check, kinds[i]);
    if (status == CLB_OK)
        status = check_triangles(&check);
    for (int op = CLB_OP_T; op <= (int)last_shared(variant) && status == CLB_OK; op++)
        status = check_shared(&check, (clb_op)op);
    return status;
}

/* Orders around the edges of micro-tiles; the last has several micro-tiles and several passes of
 * depth. */
static clb_status check_orders(struct skip_check *check)
{
    const struct clb_gemm_variant *variant = check->variant;
    size_t m = clb_gemm_unit(variant, CLB_OPERAND_A), n = clb_gemm_unit(variant, CLB_OPERAND_B);
    const size_t orders[] = {n + 1, 1, 2, n - 1, n, m - 1, m, m + 1, 2 * m + 3, check->n};
    struct clb_check_size sizes[CLB_COUNT_OF(orders)] = {{0}};
    const struct clb_check_programs programs = {
        "triangular products 1", check->queue_set->runtime, {variant->program, *variant->shapes}};
    for (size_t i = 0; i < CLB_COUNT_OF(orders); i++)
        sizes[i].n = orders[i];
    return clb_check_sizes(&programs, sizes, CLB_COUNT_OF(sizes), check_order, check);
}

clb_status clb_gemm_check_skip(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    size_t n = clb_gemm_check_order(variant);
    struct skip_check check = {
        .variant = variant, .n = n, .bytes = n * n * clb_precision_size(variant->precision)};
    check.host = calloc(3, check.bytes);
    if (check.host == NULL)
        return CLB_ERR_NOMEM;
    clb_status status = clb_queue_set_acquire(runtime, &check.queue_set);
    const size_t bytes[] = {check.bytes, clb_packed_bytes(variant, CLB_OPERAND_A, n, n),
                            clb_packed_bytes(variant, CLB_OPERAND_B, n, n), check.bytes};
    if (status == CLB_OK)
        status = clb_check_memory(runtime, bytes, check.memory, CLB_COUNT_OF(bytes));
    if (status == CLB_OK)
        status = clb_gemm_prelaunch_cut(check.queue_set, variant);
    for (int op = CLB_OP_T; op <= (int)last_shared(variant) && status == CLB_OK; op++)
        status = clb_gemm_prelaunch_shared(check.queue_set, variant, (clb_op)op);
    if (status == CLB_OK)
        status = check_orders(&check);
    clb_check_memory_end(runtime, check.memory, CLB_COUNT_OF(bytes),
                         clb_check_end(check.queue_set));
    free(check.host);
    return status;
}
