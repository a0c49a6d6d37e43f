/* Calls of any routine of the table: random operands, and the next library's result. */
#include "any_call.h"

#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { M = 45, N = 37, K = 29, RIGHT = 21, PAD = 3, MATRICES = 3, WORK = 64 * (M + N) };

/* ---- operands -------------------------------------------------------------------------------- */

struct operands {
    char *data[MATRICES];
    size_t bytes[MATRICES], ld[MATRICES];
    struct clb_shape shape[MATRICES];
    char tau[16 * M], work[16 * WORK];
    int64_t ipiv[M], info;
};

static double element_at(const struct clb_call *call, const char *at, size_t part)
{
    const bool single = clb_precision_real_size(call->precision) == sizeof(float);
    return single ? (double)((const float *)(const void *)at)[part]
                  : ((const double *)(const void *)at)[part];
}

static void put_element(const struct clb_call *call, char *at, double re, double im)
{
    const double parts[2] = {re, im};
    const bool single = clb_precision_real_size(call->precision) == sizeof(float);
    for (size_t part = 0; part < clb_precision_parts(call->precision); part++) {
        if (single)
            ((float *)(void *)at)[part] = (float)parts[part];
        else
            ((double *)(void *)at)[part] = parts[part];
    }
}

static char *at_of(const struct clb_call *call, const struct operands *x, size_t matrix, size_t i,
                   size_t j)
{
    return x->data[matrix] + (i + j * x->ld[matrix]) * clb_precision_size(call->precision);
}

static bool is_of(const struct clb_call *call, const char *stems)
{
    return strstr(stems, clb_routines[call->routine].stem) != NULL;
}

/* Triangles, factors and what is definite are well conditioned. */
static void fill_matrix(const struct clb_call *call, struct operands *x, size_t matrix,
                        uint64_t *seed)
{
    const struct clb_shape *shape = &x->shape[matrix];
    const bool dominant = matrix == 0 && (shape->triangle || is_of(call, "getrs getri gesv"));
    for (size_t j = 0; j < shape->cols; j++) {
        for (size_t i = 0; i < shape->rows; i++) {
            double re = random_uniform(seed), im = random_uniform(seed);
            if (dominant && i == j)
                re = 2 + re * re, im = 0;
            else if (dominant)
                re /= 2 * N, im /= 2 * N;
            put_element(call, at_of(call, x, matrix, i, j), re, im);
        }
    }
}

/* H = I - tau*v*v^H with tau = 2/|v|^2. */
static void fill_tau(const struct clb_call *call, struct operands *x)
{
    const bool lq = clb_routine_has_flag(call->routine, 'l');
    const size_t rows = x->shape[0].rows, cols = x->shape[0].cols;
    for (size_t j = 0; j < call->k && j < clb_min(rows, cols); j++) {
        double norm = 1;
        for (size_t i = j + 1; i < (lq ? cols : rows); i++) {
            const char *at = lq ? at_of(call, x, 0, j, i) : at_of(call, x, 0, i, j);
            for (size_t part = 0; part < clb_precision_parts(call->precision); part++)
                norm += element_at(call, at, part) * element_at(call, at, part);
        }
        put_element(call, x->tau + j * clb_precision_size(call->precision), 2 / norm, 0);
    }
}

static void connect(struct clb_call *call, struct operands *x)
{
    call->a = x->data[0];
    call->b = x->data[1];
    call->c = x->data[2];
    call->lda = x->ld[0];
    call->ldb = x->ld[1];
    call->ldc = x->ld[2];
    call->ipiv = x->ipiv;
    call->tau = x->tau;
    call->work = x->work;
    call->lwork = WORK;
    call->info = &x->info;
}

static void make_operands(struct clb_call *call, struct operands *x, uint64_t *seed)
{
    memset(x, 0, sizeof *x);
    for (size_t i = 0; i < MATRICES; i++) {
        if (!clb_call_shape(call, (char)('A' + i), &x->shape[i]))
            continue;
        x->ld[i] = x->shape[i].rows + PAD;
        /* With a column behind the last one. */
        x->bytes[i] = x->ld[i] * (x->shape[i].cols + 1) * clb_precision_size(call->precision);
        x->data[i] = calloc(1, x->bytes[i]);
        if (x->data[i] == NULL)
            abort();
        fill_matrix(call, x, i, seed);
    }
    fill_tau(call, x);
    for (size_t i = 0; i < N; i++) { /* in the narrow width of the reference */
        const int32_t pivot = (int32_t)(i + 1 + random_below(seed, N - i));
        memcpy((char *)x->ipiv + i * sizeof pivot, &pivot, sizeof pivot);
    }
}

static void free_operands(struct operands *x)
{
    for (size_t i = 0; i < MATRICES; i++)
        free(x->data[i]);
}

/* The same contents in memory of its own. */
static void copy_operands(const struct operands *x, struct operands *copy)
{
    *copy = *x;
    for (size_t i = 0; i < MATRICES; i++) {
        if (x->data[i] == NULL)
            continue;
        copy->data[i] = malloc(x->bytes[i]);
        if (copy->data[i] == NULL)
            abort();
        memcpy(copy->data[i], x->data[i], x->bytes[i]);
    }
}

/* By the next library, all arguments by reference. */
#define LIST_OF(type)                                                                              \
    type, type, type, type, type, type, type, type, type, type, type, type, type, type, type,      \
        type, type, type, type, type
typedef void any_function(LIST_OF(const void *));

static void call_next(const struct clb_target *target, const struct clb_call *call)
{
    static const char letters[] = "NTC";
    const void *list[20] = {0};
    size_t count = 0;
    any_function *function;
    memcpy(&function, &target->function, sizeof function);
    for (const char *s = clb_routines[call->routine].signature; *s != '\0'; s++) {
        const void *const one[] = {*s == 's'   ? (call->right ? "R" : "L")
                                   : *s == 'u' ? (call->upper ? "U" : "L")
                                   : *s == 'd' ? (call->unit ? "U" : "N")
                                   : *s == 't' ? &letters[call->transa]
                                   : *s == 'T' ? &letters[call->transb]
                                   : *s == 'm' ? (const void *)&call->m
                                   : *s == 'n' ? &call->n
                                   : *s == 'k' ? &call->k
                                   : *s == 'r' ? &call->nrhs
                                   : *s == '*' ? call->alpha
                                   : *s == '+' ? call->beta
                                   : *s == 'A' ? call->a
                                   : *s == 'B' ? call->b
                                   : *s == 'C' ? call->c
                                   : *s == 'p' ? call->ipiv
                                   : *s == 'q' ? call->tau
                                   : *s == 'w' ? call->work
                                               : call->info};
        list[count++] = one[0];
        if (*s == 'A' || *s == 'B' || *s == 'C' || *s == 'w')
            list[count++] = *s == 'A'   ? (const void *)&call->lda
                            : *s == 'B' ? &call->ldb
                            : *s == 'C' ? (const void *)&call->ldc
                                        : &call->lwork;
    }
    function(list[0], list[1], list[2], list[3], list[4], list[5], list[6], list[7], list[8],
             list[9], list[10], list[11], list[12], list[13], list[14], list[15], list[16],
             list[17], list[18], list[19]);
}

/* The greater one: `worst`, or the deviation of an element; NaN is the greatest. */
static double worse(const struct clb_call *call, double worst, const char *at, const char *expected)
{
    for (size_t part = 0; part < clb_precision_parts(call->precision); part++) {
        const double wanted = element_at(call, expected, part);
        const double error = fabs(element_at(call, at, part) - wanted) / (1 + fabs(wanted));
        worst = error <= worst || isnan(worst) ? worst : error;
    }
    return worst;
}

/* The greatest deviation of what is written, relative to 1 + its magnitude; infinity where anything
 * else has changed, or where INFO or pivots differ. */
static double deviation(const struct clb_call *call, const struct operands *x,
                        const struct operands *expected, const struct operands *before)
{
    double worst = 0;
    for (size_t matrix = 0; matrix < MATRICES; matrix++) {
        const struct clb_shape *shape = &x->shape[matrix];
        for (size_t j = 0; x->data[matrix] != NULL && j <= shape->cols; j++) {
            for (size_t i = 0; i < x->ld[matrix]; i++) {
                const char *at = at_of(call, x, matrix, i, j);
                const bool written = shape->written && i < shape->rows && j < shape->cols &&
                                     (!shape->triangle || (call->upper ? i <= j : i >= j));
                if (!written && memcmp(at, at_of(call, before, matrix, i, j),
                                       clb_precision_size(call->precision)) != 0)
                    return INFINITY;
                if (written)
                    worst = worse(call, worst, at, at_of(call, expected, matrix, i, j));
            }
        }
    }
    for (size_t j = 0; j < M; j++) {
        const size_t at = j * clb_precision_size(call->precision);
        worst = worse(call, worst, x->tau + at, expected->tau + at);
    }
    const bool same = (int32_t)x->info == (int32_t)expected->info &&
                      memcmp(x->ipiv, expected->ipiv, sizeof x->ipiv) == 0;
    return same ? worst : INFINITY;
}

/* ---- one call -------------------------------------------------------------------------------- */

void (*any_call_routes)(bool begins);

static const void *a_caller(void)
{
    return __builtin_return_address(0);
}

static bool open_call(struct clb_entry *entry, clb_routine routine, uint64_t *seed)
{
    struct clb_call *call = &entry->call;
    struct clb_symbol *symbol = clb_symbol_at(routine, 0);
    const struct clb_routine_info *info = &clb_routines[routine];
    static const double one_d[2] = {1}, half_d[2] = {0.5};
    static const float one_s[2] = {1}, half_s[2] = {0.5F};
    const bool single = clb_precision_real_size(info->precision) == sizeof(float);
    *entry = (struct clb_entry){.symbol = symbol, .caller = a_caller()};
    *call = (struct clb_call){.routine = routine,
                              .precision = info->precision,
                              .right = random_below(seed, 2),
                              .upper = random_below(seed, 2),
                              .m = M,
                              .n = N,
                              .k = K,
                              .nrhs = RIGHT,
                              .alpha = single ? (const void *)one_s : one_d,
                              .beta = single ? (const void *)half_s : half_d};
    if (strcmp(info->limits, "mn km") == 0) { /* rows of Q */
        call->m = N;
        call->n = M;
    }
    if (info->trans[0] != '\0') {
        call->transa = info->trans[random_below(seed, strlen(info->trans))] == 'N' ? CLB_OP_N
                       : strchr(info->trans, 'C') != NULL                          ? CLB_OP_C
                                                                                   : CLB_OP_T;
        call->transb = call->transa;
        if (call->transa == CLB_OP_C && strchr(info->flags, 'h') == NULL &&
            strchr(info->trans, 'T') != NULL)
            call->transb = CLB_OP_T;
    }
    entry->target = clb_next_try(&symbol->next, entry->caller);
    return entry->target != NULL && !entry->target->ilp64;
}

double any_call_run(clb_routine routine, uint64_t *seed)
{
    struct clb_entry entry;
    struct clb_call *call = &entry.call;
    struct operands x, expected, before;
    if (!open_call(&entry, routine, seed))
        return -1;
    make_operands(call, &x, seed);
    copy_operands(&x, &expected);
    copy_operands(&x, &before);
    connect(call, &expected);
    call_next(entry.target, call);
    connect(call, &x);
    if (any_call_routes != NULL)
        any_call_routes(true);
    const bool taken = clb_route(&entry, NULL);
    if (any_call_routes != NULL)
        any_call_routes(false);
    if (!taken)
        call_next(entry.target, call);
    const double worst = deviation(call, &x, &expected, &before);
    free_operands(&x);
    free_operands(&expected);
    free_operands(&before);
    return worst;
}

double any_call_tolerance(clb_routine routine)
{
    return clb_precision_real_size(clb_routines[routine].precision) == sizeof(float) ? 0.1 : 1e-7;
}

bool any_call_reads_beyond(clb_routine routine)
{
#ifdef __SANITIZE_ADDRESS__
    return strcmp(clb_routines[routine].name, "zlauum") == 0 ||
           strcmp(clb_routines[routine].name, "zpotri") == 0;
#else
    (void)routine;
    return false;
#endif
}
