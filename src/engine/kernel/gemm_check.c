/* SPDX-License-Identifier: BSD-3-Clause
 * Checks of the kernels of products, in device memory; their rate, and the link's. */
#include "check.h"
#include "host/process.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- products in full, on random data ---- */

enum { CHECK_MAX = 400 };

/* Exponents are those of scaled operands: of A's rows, then of B's columns. */
enum { A_PACKED, B_PACKED, FLAG, EXPONENTS, PARTS_OF_C, BUFFERS };

/* A product whose matrices are a trial's. */
struct full_check {
    struct clb_queue_set *queue_set;
    const struct clb_gemm_variant *variant;
    size_t m, n, k;
    bool direct; /* B is read unpacked */
    bool turned; /* the variant's program for A contiguous in depth is checked */
    const struct clb_program_check *program;
    struct clb_trial trial;
    struct clb_buffer *memory[BUFFERS];
};

/* The operands' ops, whether both are read unpacked or have extreme scales, and the depth of the
 * parts that are summed, 0 for undivided products. */
struct way {
    clb_op op_a, op_b;
    bool raw, scaled;
    size_t part;
};

/* The first element of a matrix in its memory. */
static size_t first_of(const struct full_check *check, size_t index)
{
    return check->trial.begin[index] / clb_precision_size(check->variant->precision);
}

/* Pack rows of A or columns of B, depths [p0, p0 + k), in launches of at most `most`. */
static clb_status full_pack(const struct full_check *check, clb_operand_role role,
                            const struct way *way, size_t p0, size_t k, size_t most)
{
    const bool is_a = role == CLB_OPERAND_A;
    const clb_op op = is_a ? way->op_a : way->op_b;
    const bool along = is_a == (op != CLB_OP_N);
    const size_t extent = is_a ? check->m : check->n;
    const struct clb_buffer *packed = check->memory[is_a ? A_PACKED : B_PACKED];
    struct clb_chunk chunk = {.mem = check->trial.memory[is_a ? 0 : 1]->mem,
                              .ld = is_a ? check->trial.call.lda : check->trial.call.ldb,
                              .depth_contiguous = along,
                              .conjugated = op == CLB_OP_C};
    clb_status status = CLB_OK;
    for (size_t i = 0; i < extent && status == CLB_OK; i += clb_min(most, extent - i)) {
        const size_t count = clb_min(most, extent - i);
        const cl_ulong first = i + (is_a ? 0 : check->m), places[2] = {first, first};
        chunk.offset =
            first_of(check, is_a ? 0 : 1) + (along ? p0 + i * chunk.ld : i + p0 * chunk.ld);
        if (way->scaled)
            status = clb_gemm_scale(check->queue_set, check->variant, &chunk, count, k,
                                    check->memory[EXPONENTS]->mem, places, (struct clb_order){0});
        CLB_THEN(status,
                 clb_gemm_pack(check->queue_set, check->variant, role, &chunk, count, k,
                               packed->mem, clb_packed_offset(check->variant, role, i, k),
                               check->memory[FLAG] != NULL ? check->memory[FLAG]->mem : NULL,
                               (struct clb_order){0}));
    }
    return status;
}

/* In launches of most_m x most_n, deep as callers' are. */
static clb_status full_multiply(const struct full_check *check, const struct way *way, bool add,
                                size_t most_m, size_t most_n)
{
    const struct clb_gemm_variant *variant = check->variant;
    const bool raw = way->raw, direct = check->direct, along_a = way->op_a != CLB_OP_N,
               along_b = way->op_b == CLB_OP_N;
    const struct clb_call *call = &check->trial.call;
    const size_t ld_a = call->lda, ld_b = call->ldb;
    struct clb_buffer *const *source = check->trial.memory;
    size_t slab = clb_round_up(clb_max(variant->tuning.value[CLB_PARAM_SLAB], 1),
                               clb_gemm_depth_unit(variant));
    struct clb_product product = {
        .a = (raw ? source[0] : check->memory[A_PACKED])->mem,
        .b = (raw || direct ? source[1] : check->memory[B_PACKED])->mem,
        .c = source[2]->mem,
        .raw = raw,
        .a_depth_contiguous = along_a,
        .b_depth_contiguous = along_b,
        .a_conjugated = way->op_a == CLB_OP_C,
        .b_conjugated = way->op_b == CLB_OP_C,
        .lda = raw ? ld_a : 0,
        .ldb = raw || direct ? ld_b : 0,
        .flag = check->memory[FLAG] != NULL ? check->memory[FLAG]->mem : NULL,
        .part = way->part,
        .parts = check->memory[PARTS_OF_C] != NULL ? check->memory[PARTS_OF_C]->mem : NULL,
        .exponents = way->scaled ? check->memory[EXPONENTS]->mem : NULL,
        .ldc = call->ldc};
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
                                   ? first_of(check, 1) + (along_b ? p0 + j * ld_b : j + p0 * ld_b)
                                   : clb_packed_offset(variant, CLB_OPERAND_B, j, product.k);
            for (size_t i = 0; i < check->m && status == CLB_OK; i += product.m) {
                product.m = clb_min(most_m, check->m - i);
                product.a_offset =
                    raw ? first_of(check, 0) + (along_a ? p0 + i * ld_a : i + p0 * ld_a)
                        : clb_packed_offset(variant, CLB_OPERAND_A, i, product.k);
                product.a_exponents = i;
                product.c_offset = i + j * call->ldc;
                status =
                    clb_gemm_multiply(check->queue_set, variant, &product, (struct clb_order){0});
            }
        }
    }
    return status;
}

/* The depth of two or three parts; 0: there are too few steps. */
static size_t part_of(const struct full_check *check)
{
    size_t unit = clb_gemm_depth_unit(check->variant);
    size_t part = clb_round_up(clb_div_up(check->k, 3), unit);
    return check->variant->family->has_parts && part < check->k ? part : 0;
}

/* Split families raise their flag when an element is out of range, and none is. */
static clb_status judge_full(const struct full_check *check)
{
    cl_uint out_of_range = 0;
    clb_status status = CLB_OK;
    if (check->memory[FLAG] != NULL)
        status = clb_queue_read_now(check->queue_set->queue, check->memory[FLAG]->mem, 0,
                                    sizeof out_of_range, &out_of_range);
    CLB_THEN(status, out_of_range != 0 ? CLB_ERR_BUILD : clb_trial_judge(&check->trial));
    return status;
}

/* C = op(A)*op(B) in launches as wide as possible, over a C of NaNs; then C += op(A)*op(B) in
 * launches for halves of C, which begin behind the first element of what they read and write. In
 * the latter, operands that are read unpacked and their columns are aligned to four elements. */
static clb_status check_way(struct full_check *check, const struct way *way)
{
    const struct clb_gemm_variant *variant = check->variant;
    const clb_precision precision = variant->precision;
    struct clb_trial_numbers numbers = {.seed = 20261120,
                                        .scale = 1,
                                        .spoils = true,
                                        .extreme = way->scaled,
                                        .sampled = check->program->known,
                                        .rounded = clb_families[variant->tuning.family].math ==
                                                   CLB_MATH_FAST};
    struct clb_call call = clb_call_of(clb_routine_of(CLB_KIND_gemm, precision, false));
    const size_t unit_m = clb_gemm_unit(variant, CLB_OPERAND_A);
    const size_t unit_n = clb_gemm_unit(variant, CLB_OPERAND_B);
    size_t most_m = clb_gemm_widest(variant, CLB_OPERAND_A);
    size_t most_n = clb_gemm_widest(variant, CLB_OPERAND_B);
    clb_status status = CLB_OK;
    call.transa = way->op_a;
    call.transb = way->op_b;
    call.m = check->m;
    call.n = check->n;
    call.k = check->k;
    call.alpha = clb_scalar_of(precision, 1);
    call.ldc = clb_round_up(check->m, 128 / clb_precision_size(precision));
    for (int add = 0; add < 2 && status == CLB_OK; add++) {
        call.beta = add ? clb_scalar_of(precision, 1) : clb_scalar_of(precision, 0);
        numbers.begins_later = !(way->raw && add);
        if (!numbers.begins_later) {
            call.lda = clb_round_up((way->op_a == CLB_OP_N ? check->m : check->k) + 1, 4);
            call.ldb = clb_round_up((way->op_b == CLB_OP_N ? check->k : check->n) + 1, 4);
        }
        status = clb_trial_open(&check->trial, check->queue_set->runtime, check->queue_set->queue,
                                &call, &numbers);
        CLB_THEN(status, full_multiply(check, way, add, most_m, most_n));
        CLB_THEN(status, judge_full(check));
        clb_trial_close(&check->trial, clb_queue_set_settle(check->queue_set));
        most_m = clb_min(most_m, clb_round_up(clb_div_up(check->m, 2), unit_m));
        most_n = clb_min(most_n, clb_round_up(clb_div_up(check->n, 2), unit_n));
    }
    return status;
}

/* Every way to pack the operands, with B unpacked also A; also the depth in parts, and scaled
 * operands, if the variant has kernels for that. Where it reads both unpacked, every way that one
 * of its programs has. */
static clb_status check_ways(struct full_check *check)
{
    const bool complex = clb_precision_parts(check->variant->precision) > 1;
    const bool raw = clb_gemm_reads_raw(check->variant);
    const clb_op last = check->direct ? CLB_OP_N : complex ? CLB_OP_C : CLB_OP_T;
    const size_t part = part_of(check);
    struct way ways[12];
    size_t count = 0;
    for (int op = CLB_OP_N; op <= (int)last && !raw; op++)
        ways[count++] = (struct way){.op_a = (clb_op)op, .op_b = (clb_op)op};
    for (int op = CLB_OP_N; op <= (int)last && raw; op++)
        ways[count++] = (struct way){check->turned ? last : CLB_OP_N, (clb_op)op, .raw = true};
    if (check->direct)
        ways[count++] = (struct way){.op_a = CLB_OP_N, .raw = true};
    if (part != 0)
        ways[count++] = (struct way){(clb_op)check->turned, CLB_OP_N, .raw = raw, .part = part};
    if (check->memory[EXPONENTS] != NULL && !raw) {
        ways[count++] = (struct way){.op_a = CLB_OP_N, .scaled = true};
        ways[count++] = (struct way){CLB_OP_T, CLB_OP_T, .scaled = true, .part = part};
    }
    clb_status status = CLB_OK;
    for (size_t i = 0; i < count && status == CLB_OK; i++)
        status = check_way(check, &ways[i]);
    return status;
}

static clb_status get_buffers(struct full_check *check)
{
    static const cl_uint clean = 0;
    const struct clb_gemm_variant *variant = check->variant;
    const size_t m = check->m, n = check->n, k = check->k, part = part_of(check);
    const size_t bytes[] = {[A_PACKED] = clb_packed_bytes(variant, CLB_OPERAND_A, m, k),
                            [B_PACKED] = clb_packed_bytes(variant, CLB_OPERAND_B, n, k),
                            [FLAG] = variant->split ? sizeof clean : 0,
                            [EXPONENTS] = variant->split ? (m + n) * sizeof(cl_int) : 0,
                            [PARTS_OF_C] = variant->split ? clb_scaled_bytes(variant, part, m, n, k)
                                                          : clb_part_bytes(variant, part, m, n, k)};
    clb_status status = clb_check_memory(check->queue_set->runtime, bytes, check->memory, BUFFERS);
    return status == CLB_OK && variant->split
               ? clb_queue_write_now(check->queue_set->queue, check->memory[FLAG]->mem, 0,
                                     sizeof clean, &clean)
               : status;
}

static clb_status check_size(void *context, struct clb_check_size size)
{
    struct full_check check = *(const struct full_check *)context;
    check.m = clb_min(clb_max(size.m, 1), CHECK_MAX);
    check.n = clb_min(clb_max(size.n, 1), CHECK_MAX);
    /* Products of smaller depth use another kernel. */
    check.k = clb_max(clb_min(clb_max(size.k, 1), CHECK_MAX),
                      check.variant->tuning.value[CLB_PARAM_MIN_K]);
    clb_status status = get_buffers(&check);
    CLB_THEN(status, check_ways(&check));
    clb_check_memory_end(check.queue_set->runtime, check.memory, BUFFERS,
                         clb_queue_set_settle(check.queue_set));
    return status;
}

/* Sizes around the edges of the kernel's tile, depth steps and a work-group's part. The first is
 * the small size that later processes check. */
clb_status clb_gemm_check_full(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
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
    struct clb_program_check program = {direct ? "products in place 6" : "products 6", runtime,
                                        variant->program, false};
    struct full_check check = {.variant = variant, .direct = direct, .program = &program};
    CLB_TRY(clb_queue_set_acquire(runtime, &check.queue_set));
    clb_status status = clb_check_sizes(&program, sizes, CLB_COUNT_OF(sizes), check_size, &check);
    if ((program.program = variant->turned) != NULL) {
        check.turned = true;
        CLB_THEN(status, clb_check_sizes(&program, sizes, CLB_COUNT_OF(sizes), check_size, &check));
    }
    return clb_check_end(check.queue_set) || status != CLB_OK ? status : CLB_ERR_OPENCL;
}

/* ---- the rate of products ---- */

/* Orders, of real numbers, grow until a product takes long enough; long ones are not repeated. */
#define FIRST_ORDER    64
#define LARGEST_SHARED 1024 /* host memory is scarce */
#define LARGEST_OWN    4096
#define GROWTH_OWN     4                 /* times; of those that share memory twice */
#define MOST_RANDOM    ((size_t)4 << 20) /* bytes, which larger operands repeat */
#define LONG_ENOUGH    0.0025            /* of CPU time; others are waited for, some ms more */
#define LEAST_WALL     0.001             /* less is mostly the work of waking threads */
#define TOO_LONG       0.1
#define REPETITIONS    4 /* the first to warm up; half where memory is shared and order grows */

/* A CPU device works in this process, which others may keep waiting: its time is CPU time, of one
 * core. The system counts a thread's time when it has gone to sleep, which is waited for. */
static double read_clock(const struct clb_device *device)
{
    const bool in_process = (device->type & CL_DEVICE_TYPE_CPU) != 0;
    if (in_process)
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    return in_process ? clb_cpu_now() : clb_now();
}

static clb_status write_random(struct full_check *check)
{
    const clb_precision precision = check->variant->precision;
    const size_t operand = (CLB_TRIAL_BEGIN + check->m * check->k) * clb_precision_size(precision);
    const size_t block = clb_min(operand, MOST_RANDOM);
    const size_t bytes[CLB_CALL_MATRICES] = {operand, operand,
                                             check->m * check->n * clb_precision_size(precision)};
    struct clb_trial *trial = &check->trial;
    void *values = malloc(block);
    uint64_t state = 20261123;
    trial->runtime = check->queue_set->runtime;
    trial->call.lda = trial->call.ldc = check->m;
    trial->call.ldb = check->k;
    clb_status status = values == NULL ? CLB_ERR_NOMEM
                                       : clb_check_memory(check->queue_set->runtime, bytes,
                                                          trial->memory, CLB_CALL_MATRICES);
    for (size_t i = 0; i < block / clb_precision_real_size(precision) && status == CLB_OK; i++)
        clb_check_put(precision, values, i, clb_check_random(&state));
    for (size_t at = 0; at < operand && status == CLB_OK; at += block) {
        const size_t size = clb_min(block, operand - at);
        for (int i = 0; i < 2 && status == CLB_OK; i++)
            status = clb_queue_write_now(check->queue_set->queue, trial->memory[i]->mem, at, size,
                                         values);
    }
    free(values);
    return status;
}

/* The least seconds of a product, packing included; *enough: no larger one need be timed. */
static clb_status time_products(struct full_check *check, double *seconds, bool *enough)
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
        CLB_THEN(status, clb_queue_finish(check->queue_set->queue));
        *seconds = fmin(*seconds, read_clock(device) - begin);
        least_wall = fmin(least_wall, clb_now() - wall);
        *enough =
            *seconds >= (device->unified ? LONG_ENOUGH : TOO_LONG) && least_wall >= LEAST_WALL;
        if (*seconds >= TOO_LONG || (i + 1 >= REPETITIONS / 2 && device->unified && !*enough))
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
         n <= largest / parts && status == CLB_OK && idle && !enough;
         n *= runtime->device.unified ? 2 : GROWTH_OWN) {
        double seconds = INFINITY;
        struct full_check check = {.queue_set = queue_set,
                                   .variant = variant,
                                   .m = n,
                                   .n = n,
                                   .k = clb_max(n, variant->tuning.value[CLB_PARAM_MIN_K])};
        status = get_buffers(&check);
        CLB_THEN(status, time_products(&check, &seconds, &enough));
        idle = clb_queue_set_settle(queue_set);
        clb_check_memory_end(runtime, check.memory, BUFFERS, idle);
        clb_trial_close(&check.trial, idle);
        double flops = (parts > 1 ? 8.0 : 2.0) * (double)n * (double)n * (double)check.k;
        if (status == CLB_OK && seconds > 0)
            *gflops = fmax(*gflops, 1e-9 * flops / seconds);
    }
    clb_queue_set_end(queue_set, idle);
    /* Smaller ones have been timed where there is no memory for a larger one. */
    return status == CLB_ERR_NOMEM && *gflops > 0 ? CLB_OK : status;
}

#define LINK_BYTES ((size_t)16 << 20)

void clb_link_measure(struct clb_runtime *runtime, double rate[2])
{
    const struct clb_box *all = CLB_LINE(0, LINK_BYTES);
    struct clb_queue_set *queue_set;
    struct clb_buffer *host = NULL, *own = NULL;
    rate[0] = rate[1] = 0;
    if (runtime->device.unified || clb_queue_set_acquire(runtime, &queue_set) != CLB_OK)
        return;
    struct clb_queue *queue = queue_set->queue;
    clb_status status = clb_buffer_get(runtime, CLB_MEMORY_HOST, LINK_BYTES, &host);
    CLB_THEN(status, clb_buffer_get(runtime, CLB_MEMORY_DEVICE, LINK_BYTES, &own));
    for (int i = 0; i < 2 * REPETITIONS && status == CLB_OK; i++) {
        const double begin = clb_now();
        status = i % 2 == 0 ? clb_queue_write(queue, own->mem, all, host->host, NULL, NULL)
                            : clb_queue_read(queue, own->mem, all, host->host, NULL, NULL);
        CLB_THEN(status, clb_queue_finish(queue));
        rate[i % 2] = fmax(rate[i % 2], (double)LINK_BYTES / (clb_now() - begin));
    }
    const bool idle = clb_queue_set_settle(queue_set);
    clb_buffer_end(runtime, host, idle);
    clb_buffer_end(runtime, own, idle);
    clb_queue_set_end(queue_set, idle);
    if (status != CLB_OK)
        rate[0] = rate[1] = 0;
}

/* ---- the check of products that skip something ---- */

/* Products of n x n matrices of small integers, which no sum rounds: the device's result with parts
 * skipped, triangles packed or panels shared must have the bits of its plain product. */
struct skip_check {
    struct clb_queue_set *queue_set;
    const struct clb_gemm_variant *variant;
    struct clb_buffer *memory[4]; /* the source, A, B, C */
    size_t n, bytes;
    unsigned char *host; /* the source, C with the skip, C without */
};

/* What is skipped, and the operands: triangles, or, unless `packs`, the general matrices that they
 * stand for. `shared` is b_op_of_a. */
struct skip_way {
    struct clb_skip cut;
    struct clb_chunk a, b;
    bool packs;
    clb_op shared;
};

/* Element (i, p) of an operand; in triangles what must not be read is NaN, unless `made`. */
static double element_of(const struct clb_chunk *x, size_t i, size_t p, size_t part, bool made,
                         uint64_t seed)
{
    const ptrdiff_t behind = (ptrdiff_t)p - (ptrdiff_t)i - x->diagonal;
    const bool one = behind == 0 && x->triangle & CLB_TRIANGLE_UNIT;
    uint64_t state = seed + (i * 1000 + p) * 2 + part;
    if (one || (x->triangle & CLB_TRIANGLE_LOW && behind > 0) ||
        (x->triangle & CLB_TRIANGLE_HIGH && behind < 0))
        return !made ? NAN : one && part == 0 ? 1 : 0;
    (void)clb_check_random(&state);
    return floor(13 * clb_check_random(&state));
}

static clb_status skip_pack(const struct skip_check *check, clb_operand_role role,
                            struct clb_chunk chunk, bool made, uint64_t seed)
{
    const size_t n = check->n, parts = clb_precision_parts(check->variant->precision);
    for (size_t e = 0; e < n * n * parts; e++) {
        const size_t row = e / parts % n, col = e / parts / n;
        const bool along = chunk.depth_contiguous;
        clb_check_put(
            check->variant->precision, check->host, e,
            element_of(&chunk, along ? col : row, along ? row : col, e % parts, made, seed));
    }
    chunk.mem = check->memory[0]->mem;
    chunk.ld = n;
    chunk.triangle = made ? 0 : chunk.triangle;
    clb_status status =
        clb_queue_write_now(check->queue_set->queue, chunk.mem, 0, check->bytes, check->host);
    return status == CLB_OK ? clb_gemm_pack(check->queue_set, check->variant, role, &chunk, n, n,
                                            check->memory[role == CLB_OPERAND_A ? 1 : 2]->mem, 0,
                                            NULL, (struct clb_order){0})
                            : status;
}

/* C = A*B, then C += A*B, in this way or plainly. */
static clb_status skip_multiply(const struct skip_check *check, const struct skip_way *way,
                                bool plain, unsigned char *to)
{
    const clb_op shared = plain ? CLB_OP_N : way->shared;
    struct clb_product product = {.m = check->n,
                                  .n = check->n,
                                  .k = check->n,
                                  .a = check->memory[1]->mem,
                                  .b = check->memory[shared != CLB_OP_N ? 1 : 2]->mem,
                                  .c = check->memory[3]->mem,
                                  .ldc = check->n,
                                  .b_op_of_a = shared,
                                  .cut = plain ? (struct clb_skip){0} : way->cut};
    clb_status status = skip_pack(check, CLB_OPERAND_A, way->a, plain || !way->packs, 0);
    CLB_THEN(status, skip_pack(check, CLB_OPERAND_B, way->b, plain || !way->packs,
                               way->shared == CLB_OP_N ? UINT64_C(1) << 32 : 0));
    for (int add = 0; add < 2 && status == CLB_OK; add++) {
        product.add = add;
        status =
            clb_gemm_multiply(check->queue_set, check->variant, &product, (struct clb_order){0});
    }
    return status == CLB_OK ? clb_queue_read_now(check->queue_set->queue, check->memory[3]->mem, 0,
                                                 check->bytes, to)
                            : status;
}

static clb_status check_skip(const struct skip_check *check, const struct skip_way *way)
{
    const size_t n = check->n, element = clb_precision_size(check->variant->precision);
    unsigned char *other = check->host + check->bytes, *all = other + check->bytes;
    const struct clb_chunk stale = {0}; /* what is where nothing will be packed */
    clb_status status = skip_multiply(check, way, true, all);
    CLB_THEN(status, skip_pack(check, CLB_OPERAND_A, stale, true, 1));
    CLB_THEN(status, skip_pack(check, CLB_OPERAND_B, stale, true, 1));
    CLB_THEN(status, skip_multiply(check, way, false, other));
    for (size_t e = 0; e < n * n && status == CLB_OK; e++) {
        const bool wanted = way->cut.kind == CLB_SKIP_LOWER   ? e % n >= e / n
                            : way->cut.kind == CLB_SKIP_UPPER ? e % n <= e / n
                                                              : true;
        if (wanted && memcmp(other + e * element, all + e * element, element) != 0)
            status = CLB_ERR_BUILD;
    }
    return status;
}

static struct skip_way triangular(bool of_b, bool low, struct clb_chunk x)
{
    struct skip_way way = {.b.depth_contiguous = true, .cut = {.a = x.diagonal, .b = x.diagonal}};
    x.triangle |= low ? CLB_TRIANGLE_LOW : CLB_TRIANGLE_HIGH;
    way.cut.kind = of_b ? (low ? CLB_SKIP_B_END : CLB_SKIP_B_BEGIN)
                        : (low ? CLB_SKIP_A_END : CLB_SKIP_A_BEGIN);
    *(of_b ? &way.b : &way.a) = x;
    return way;
}

/* Way i: skipped parts of general matrices, triangles, C's triangles, A's panels as B; or false. */
static bool set_way(const struct skip_check *check, size_t i, struct skip_way *way)
{
    enum { GENERAL = 4, TRIANGLES = 16, REGIONS = 2 };
    static const ptrdiff_t diagonals[] = {0, 5, -1};
    const bool complex = clb_precision_parts(check->variant->precision) > 1;
    if (i < GENERAL) {
        *way = triangular(i & 1, i & 2, (struct clb_chunk){.depth_contiguous = i & 1});
        return true;
    }
    i -= GENERAL;
    if (i < TRIANGLES) {
        const struct clb_chunk x = {.depth_contiguous = i & 2,
                                    .conjugated = i & 8,
                                    .triangle = i % 3 == 0 ? CLB_TRIANGLE_UNIT : 0,
                                    .diagonal = i & 4 ? diagonals[i % CLB_COUNT_OF(diagonals)]
                                                      : -diagonals[i / 8]};
        *way = triangular(i & 1, i & 4, x);
        way->packs = true;
        return true;
    }
    i -= TRIANGLES;
    *way = (struct skip_way){.b.depth_contiguous = i < REGIONS,
                             .cut.kind = i == 0       ? CLB_SKIP_LOWER
                                         : i % 2 != 0 ? CLB_SKIP_UPPER
                                                      : 0};
    if (i < REGIONS)
        return true;
    way->shared = i / 2 == 1 ? CLB_OP_T : CLB_OP_C;
    way->b.conjugated = way->shared == CLB_OP_C;
    if (i % 2 != 0) { /* a triangle's square */
        way->cut.kind |= CLB_SKIP_A_BEGIN | CLB_SKIP_B_BEGIN;
        way->a.triangle = way->b.triangle = CLB_TRIANGLE_HIGH;
        way->packs = true;
    }
    return i < (complex ? 6 : 4);
}

size_t clb_gemm_check_order(const struct clb_gemm_variant *variant)
{
    const size_t *value = variant->tuning.value;
    return clb_min(clb_max(value[CLB_PARAM_KC], 2 * value[CLB_PARAM_MR]), 400) + 5;
}

static clb_status check_order(void *context, struct clb_check_size size)
{
    struct skip_check check = *(const struct skip_check *)context;
    struct skip_way way;
    clb_status status = CLB_OK;
    check.n = clb_min(clb_max(size.n, 1), check.n);
    check.bytes = check.n * check.n * clb_precision_size(check.variant->precision);
    for (size_t i = 0; status == CLB_OK && set_way(&check, i, &way); i++)
        status = check_skip(&check, &way);
    return status;
}

/* Orders around edges of micro-tiles; the last has several micro-tiles and passes of depth. */
clb_status clb_gemm_check_skip(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    const size_t all = clb_gemm_check_order(variant);
    const size_t m = clb_gemm_unit(variant, CLB_OPERAND_A),
                 n = clb_gemm_unit(variant, CLB_OPERAND_B);
    const struct clb_check_size sizes[] = {{.n = n + 1},     {.n = 1},     {.n = 2}, {.n = n - 1},
                                           {.n = n},         {.n = m - 1}, {.n = m}, {.n = m + 1},
                                           {.n = 2 * m + 3}, {.n = all}};
    struct clb_program_check program = {"triangular products 3", runtime, variant->program, false};
    const size_t matrix = all * all * clb_precision_size(variant->precision);
    const size_t bytes[] = {matrix, clb_packed_bytes(variant, CLB_OPERAND_A, all, all),
                            clb_packed_bytes(variant, CLB_OPERAND_B, all, all), matrix};
    struct skip_check check = {.variant = variant, .n = all, .host = calloc(3, matrix)};
    if (check.host == NULL)
        return CLB_ERR_NOMEM;
    clb_status status = clb_queue_set_acquire(runtime, &check.queue_set);
    CLB_THEN(status, clb_check_memory(runtime, bytes, check.memory, CLB_COUNT_OF(bytes)));
    CLB_THEN(status, clb_gemm_prelaunch_cut(check.queue_set, variant));
    CLB_THEN(status, clb_check_sizes(&program, sizes, CLB_COUNT_OF(sizes), check_order, &check));
    clb_check_memory_end(runtime, check.memory, CLB_COUNT_OF(bytes),
                         clb_check_end(check.queue_set));
    free(check.host);
    return status;
}
