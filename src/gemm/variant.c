/* Variants, kernel families with their parameters: built and checked on the device at their first
 * use. */
#include "gemm.h"
#include "kernel/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct selection {
    struct clb_check check;
    struct clb_gemm_variant variant, plain;
    struct clb_program *shapes;
};

static struct selection selections[CLB_PRECISIONS];

/* ---- self-check: C = op(A)*op(B) on random data, against sums in double ---------------------- */

enum { CHECK_MAX = 400 };

/* Families that round their operands are as exact in long sums as in sums of so many terms. */
#define ROUNDED_DEPTH ((size_t)32)

/* All numbers are stored as complex ones; real precisions use the first of `parts`. */
struct variant_check {
    clb_precision precision;
    size_t parts;
    size_t m, n, k;
    size_t least_depth; /* the bound for sums is at least that of so many terms */
    double *a, *b; /* values that both precisions represent: op(A)(i, p) at a + parts*(i + p*m) */
    void *a_typed, *b_typed, *c_typed;
};

/* Store a random element of an operand; `typed` gets its conjugate if the device reads the operand
 * conjugated. */
static void set_element(const struct variant_check *check, double *value, void *typed, size_t index,
                        clb_op op, uint64_t *state)
{
    for (size_t part = 0; part < check->parts; part++) {
        double number = value[part] = clb_check_random(state);
        clb_check_put(check->precision, typed, index * check->parts + part,
                      part == 1 && op == CLB_OP_C ? -number : number);
    }
}

static void variant_set_operands(const struct variant_check *check, clb_op op)
{
    bool plain = op == CLB_OP_N;
    uint64_t state = 20261120;
    for (size_t p = 0; p < check->k; p++) {
        for (size_t i = 0; i < check->m; i++)
            set_element(check, check->a + check->parts * (i + p * check->m), check->a_typed,
                        plain ? i + p * check->m : p + i * check->k, op, &state);
        for (size_t j = 0; j < check->n; j++)
            set_element(check, check->b + check->parts * (p + j * check->k), check->b_typed,
                        plain ? p + j * check->k : j + p * check->n, op, &state);
    }
}

/* The real part (part 0) or imaginary part of an entry, and the sum of its terms' absolute
 * values. */
static double sum_entry(const struct variant_check *check, size_t i, size_t j, size_t part,
                        double *size)
{
    double sum = 0;
    *size = 0;
    for (size_t p = 0; p < check->k; p++) {
        const double *a = check->a + check->parts * (i + p * check->m);
        const double *b = check->b + check->parts * (p + j * check->k);
        double first = a[0] * b[part], second = 0;
        if (check->parts > 1)
            second = part == 0 ? -a[1] * b[1] : a[1] * b[0];
        sum += first + second;
        *size += fabs(first) + fabs(second);
    }
    return sum;
}

static bool check_result(const struct variant_check *check)
{
    double unit = clb_check_unit(check->precision);
    double depth = (double)clb_max(check->k * check->parts, check->least_depth);
    for (size_t j = 0; j < check->n; j++) {
        for (size_t i = 0; i < check->m * check->parts; i++) {
            double size, sum = sum_entry(check, i / check->parts, j, i % check->parts, &size);
            double got =
                clb_check_get(check->precision, check->c_typed, i + j * check->m * check->parts);
            if (!(fabs(got - sum) <= 2 * depth * unit * size))
                return false;
        }
    }
    return true;
}

static clb_status check_ops(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                            struct variant_check *check, clb_op op)
{
    bool plain = op == CLB_OP_N;
    variant_set_operands(check, op);
    memset(check->c_typed, 0xff, check->m * check->n * clb_precision_size(check->precision));
    struct clb_gemm problem = {.precision = check->precision,
                               .transa = op,
                               .transb = op,
                               .m = check->m,
                               .n = check->n,
                               .k = check->k,
                               .alpha = clb_scalar_one(check->precision),
                               .beta = clb_scalar_zero(check->precision),
                               .a = check->a_typed,
                               .b = check->b_typed,
                               .c = check->c_typed,
                               .lda = plain ? check->m : check->k,
                               .ldb = plain ? check->k : check->n,
                               .ldc = check->m};
    struct clb_gemm_progress progress;
    clb_status status = clb_gemm_run(runtime, variant, &problem, &progress);
    clb_gemm_progress_free(&progress);
    if (status == CLB_OK && !check_result(check))
        status = CLB_ERR_BUILD;
    return status;
}

static clb_status check_variant(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                struct variant_check *check)
{
    clb_status status = check_ops(runtime, variant, check, CLB_OP_N);
    if (status == CLB_OK)
        status = check_ops(runtime, variant, check, CLB_OP_T);
    if (status == CLB_OK && check->parts > 1)
        status = check_ops(runtime, variant, check, CLB_OP_C);
    return status;
}

struct variant_size {
    size_t m, n, k;
};

/* Check with B packed and, if the family has a kernel for that, unpacked. */
static clb_status check_memory(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                               struct variant_check *check)
{
    struct clb_gemm_variant other = *variant;
    other.tuning.value[CLB_PARAM_DIRECT] = 0;
    clb_status status = check_variant(runtime, &other, check);
    other.tuning.value[CLB_PARAM_DIRECT] = check->m;
    if (status == CLB_OK && variant->family->has_direct &&
        variant->tuning.value[CLB_PARAM_DIRECT] != 0)
        status = check_ops(runtime, &other, check, CLB_OP_N);
    return status;
}

static clb_status check_size(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                             struct variant_size size)
{
    const size_t *value = variant->tuning.value;
    struct variant_check check = {.precision = variant->precision,
                                  .parts = clb_precision_parts(variant->precision),
                                  .m = clb_min(clb_max(size.m, 1), CHECK_MAX),
                                  .n = clb_min(clb_max(size.n, 1), CHECK_MAX),
                                  .k = clb_min(clb_max(size.k, 1), CHECK_MAX)};
    if (clb_family_math(variant->tuning.family) == CLB_MATH_FAST)
        check.least_depth = ROUNDED_DEPTH;
    check.k =
        clb_max(check.k, value[CLB_PARAM_MIN_K]); /* products of smaller depth use another kernel */
    size_t a = check.m * check.k * check.parts, b = check.k * check.n * check.parts;
    size_t c = check.m * check.n * check.parts;
    double *memory = calloc(2 * (a + b) + c, sizeof *memory);
    if (memory == NULL)
        return CLB_ERR_NOMEM;
    check.a = memory;
    check.b = check.a + a;
    check.a_typed = check.b + b;
    check.b_typed = (double *)check.a_typed + a;
    check.c_typed = (double *)check.b_typed + b;
    clb_status status = check_memory(runtime, variant, &check);
    free(memory);
    return status;
}

/* Check sizes around the edges of the kernel's tile, of its depth steps and of a work-group's part,
 * with B packed and unpacked. The first is the small size that later processes check. */
static clb_status self_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    const size_t *value = variant->tuning.value;
    size_t parts = clb_precision_parts(variant->precision);
    size_t m = clb_gemm_unit(variant, CLB_OPERAND_A), n = clb_gemm_unit(variant, CLB_OPERAND_B);
    size_t step = clb_gemm_depth_unit(variant);
    size_t deep = clb_max(value[CLB_PARAM_KC] / parts, value[CLB_PARAM_MIN_K]);
    size_t rows = clb_max(value[CLB_PARAM_MC] / parts, m), cols = clb_max(value[CLB_PARAM_NC], n);
    const struct variant_size sizes[] = {{m + 1, n + 1, step + 1},
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
    const struct clb_check_programs programs = {value[CLB_PARAM_DIRECT] != 0 ? "products in place 1"
                                                                             : "products 1",
                                                runtime,
                                                {variant->program}};
    bool all = clb_check_tries_all(&programs);
    clb_status status = CLB_OK;
    for (size_t i = 0; i < (all ? CLB_COUNT_OF(sizes) : 1) && status == CLB_OK; i++)
        status = check_size(runtime, variant, sizes[i]);
    if (all && status == CLB_OK)
        clb_check_note_passed(&programs);
    return status;
}

/* ---- selection ------------------------------------------------------------------------------- */

static char *build_options(const struct clb_gemm_variant *variant, bool shapes)
{
    struct clb_text options = {0};
    clb_text_addf(&options, "-DCLB_DOUBLE=%d -DCLB_COMPLEX=%d",
                  clb_precision_real_size(variant->precision) == sizeof(double),
                  clb_precision_parts(variant->precision) > 1);
    for (int i = 0; i < CLB_PARAMS; i++) {
        const char *define = clb_param_define((clb_param)i);
        if (define != NULL && variant->tuning.value[i] != 0)
            clb_text_addf(&options, " -D%s=%zu", define, variant->tuning.value[i]);
    }
    if (shapes)
        clb_text_addf(&options, " -DCLB_SHAPES=1");
    if (options.failed)
        clb_text_free(&options);
    return options.data;
}

static clb_status variant_build(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                bool shapes, struct clb_program **program)
{
    char *options = build_options(variant, shapes);
    if (options == NULL)
        return CLB_ERR_NOMEM;
    clb_status status = clb_program_get(runtime, variant->family->source, options, program);
    free(options);
    return status;
}

static clb_status variant_prepare(struct clb_runtime *runtime, struct clb_gemm_variant *variant)
{
    const size_t *value = variant->tuning.value;
    variant->family = clb_gemm_family_get(variant->tuning.family);
    snprintf(variant->name, sizeof variant->name, "gemm-%s-%zux%zu",
             clb_family_name(variant->tuning.family), value[CLB_PARAM_MR], value[CLB_PARAM_NR]);
    /* The padding of the depth must not separate re and im. */
    if (!variant->family->fits(value, &runtime->device,
                               clb_precision_real_size(variant->precision)) ||
        value[CLB_PARAM_KU] % clb_precision_parts(variant->precision) != 0)
        return CLB_ERR_UNSUPPORTED;
    return variant_build(runtime, variant, false, &variant->program);
}

struct variant_task {
    struct clb_runtime *runtime;
    struct clb_gemm_variant *variant;
};

static clb_status variant_make(void *argument)
{
    const struct variant_task *task = argument;
    clb_status status = variant_prepare(task->runtime, task->variant);
    if (status == CLB_OK)
        status = clb_gemm_prelaunch(task->runtime, task->variant);
    if (status == CLB_OK)
        status = self_check(task->runtime, task->variant);
    return status;
}

clb_status clb_gemm_variant_make(struct clb_runtime *runtime, clb_precision precision,
                                 const struct clb_gemm_tuning *tuning,
                                 struct clb_gemm_variant *variant)
{
    struct variant_task task = {.runtime = runtime, .variant = variant};
    *variant = (struct clb_gemm_variant){.precision = precision, .tuning = *tuning};
    return clb_check_run(variant_make, &task);
}

/* Choose the first row of the table, with families of at most `math`, that works on the device. */
static clb_status variant_choose(struct clb_runtime *runtime, clb_precision precision,
                                 clb_math math, struct clb_gemm_variant *variant)
{
    for (size_t skip = 0;; skip++) {
        struct clb_gemm_tuning tuning;
        clb_status status = clb_tuning_gemm(&runtime->device, precision, math, skip, &tuning);
        if (status != CLB_OK)
            return status;
        status = clb_gemm_variant_make(runtime, precision, &tuning, variant);
        if (status == CLB_OK || status == CLB_ERR_NOMEM)
            return status;
        clb_log(CLB_LOG_WARN, "%s is not used on %s: %s", variant->name, runtime->device.name,
                clb_status_name(status));
    }
}

struct choice {
    struct clb_runtime *runtime;
    clb_precision precision;
    struct selection *selection;
};

/* Choose a precision's variant; for a split family also the plain one for what it can't compute.
 * Run by clb_check_once. */
static clb_status select_variant(void *argument)
{
    const struct choice *choice = argument;
    struct clb_runtime *runtime = choice->runtime;
    clb_precision precision = choice->precision;
    struct selection *selection = choice->selection;
    clb_status status =
        variant_choose(runtime, precision, clb_config_get()->math, &selection->variant);
    selection->variant.shapes = &selection->shapes;
    if (status != CLB_OK || !clb_gemm_is_split(&selection->variant))
        return status;
    selection->variant.plain = &selection->plain;
    status = variant_choose(runtime, precision, CLB_MATH_STRICT, &selection->plain);
    selection->plain.shapes = &selection->shapes; /* split families have none themselves */
    return status;
}

clb_status clb_gemm_variant_get_structured(struct clb_runtime *runtime,
                                           const struct clb_gemm_variant *variant)
{
    if (variant->shapes == NULL || !variant->family->has_skip)
        return CLB_ERR_UNSUPPORTED;
    return variant_build(runtime, variant, true, variant->shapes);
}

clb_status clb_gemm_variant_get(struct clb_runtime *runtime, clb_precision precision,
                                const struct clb_gemm_variant **variant)
{
    struct selection *selection = &selections[precision];
    struct choice choice = {runtime, precision, selection};
    *variant = &selection->variant;
    return clb_check_once(&selection->check, "no kernels for products", select_variant, &choice);
}
