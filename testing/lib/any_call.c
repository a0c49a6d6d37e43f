/* SPDX-License-Identifier: BSD-3-Clause
 * Calls of any routine of the table: random operands, and the next library's result. */
#include "any_call.h"

#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { M = 45, N = 37, K = 29, RIGHT = 21, PAD = 3, WORK_COLUMNS = 64, PATTERN = 0x5a };

/* ---- elements ---- */

static double element_at(clb_precision precision, const char *at, size_t part)
{
    const bool single = clb_precision_real_size(precision) == sizeof(float);
    return single ? (double)((const float *)(const void *)at)[part]
                  : ((const double *)(const void *)at)[part];
}

static void put_element(clb_precision precision, char *at, double re, double im)
{
    const double parts[2] = {re, im};
    const bool single = clb_precision_real_size(precision) == sizeof(float);
    for (size_t part = 0; part < clb_precision_parts(precision); part++) {
        if (single)
            ((float *)(void *)at)[part] = (float)parts[part];
        else
            ((double *)(void *)at)[part] = parts[part];
    }
}

static char *at_of(clb_precision precision, const struct any_matrix *x, size_t i, size_t j)
{
    return x->data + (x->rows ? j + i * x->ld : i + j * x->ld) * clb_precision_size(precision);
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL)
        abort();
    memset(memory, PATTERN, bytes);
    return memory;
}

/* ---- operands ---- */

static bool is_of(const struct clb_call *call, const char *stems)
{
    return strstr(stems, clb_routines[call->routine].stem) != NULL;
}

static bool is_singular(const struct clb_call *call, const struct any_options *options)
{
    return options->singular && is_of(call, "getrf getrf2 gesv potrf potrf2 posv");
}

/* With a column, and a row, behind the last one. */
static void make_matrix(const struct clb_call *call, struct any_matrix *x, bool rows)
{
    x->rows = rows;
    x->ld = (rows ? x->shape.cols : x->shape.rows) + PAD;
    x->bytes =
        x->ld * ((rows ? x->shape.rows : x->shape.cols) + 1) * clb_precision_size(call->precision);
    x->data = allocate(x->bytes);
}

/* Triangles, factors and what is definite are well conditioned. */
static void fill_matrix(const struct clb_call *call, const struct any_options *options,
                        struct any_matrix *x, size_t matrix, uint64_t *seed)
{
    const size_t rows = x->shape.rows, cols = x->shape.cols;
    const bool dominant = matrix == 0 && (x->shape.triangle || is_of(call, "getrs getri gesv"));
    const size_t bad = matrix == 0 && is_singular(call, options) && cols > 0
                           ? random_below(seed, clb_min(rows, cols))
                           : SIZE_MAX;
    for (size_t j = 0; j < cols; j++) {
        for (size_t i = 0; i < rows; i++) {
            double re = random_uniform(seed), im = random_uniform(seed);
            if (dominant && i == j)
                re = 2 + re * re, im = 0;
            else if (dominant)
                re /= 2 * (double)rows, im /= 2 * (double)rows;
            if (j == bad && x->shape.triangle)
                re = i == j ? -1 : re;
            else if (j == bad)
                re = im = 0;
            put_element(call->precision, at_of(call->precision, x, i, j), re, im);
        }
    }
}

/* H = I - tau*v*v^H with tau = 2/|v|^2. */
static void fill_tau(const struct clb_call *call, struct any_operands *x)
{
    const bool lq = clb_routine_has_flag(call->routine, 'l');
    const struct any_matrix *a = &x->matrix[0];
    for (size_t j = 0; j < x->taus; j++) {
        double norm = 1;
        for (size_t i = j + 1; i < (lq ? a->shape.cols : a->shape.rows); i++) {
            const char *at = at_of(call->precision, a, lq ? j : i, lq ? i : j);
            for (size_t part = 0; part < clb_precision_parts(call->precision); part++)
                norm +=
                    element_at(call->precision, at, part) * element_at(call->precision, at, part);
        }
        put_element(call->precision, x->tau + j * clb_precision_size(call->precision), 2 / norm, 0);
    }
}

static void connect(struct clb_call *call, struct any_operands *x)
{
    call->a = x->matrix[0].data;
    call->b = x->matrix[1].data;
    call->c = x->matrix[2].data;
    call->lda = x->matrix[0].ld;
    call->ldb = x->matrix[1].ld;
    call->ldc = x->matrix[2].ld;
    call->ipiv = x->ipiv;
    call->tau = x->tau;
    call->work = x->work;
    call->lwork = (int64_t)x->works;
    call->info = &x->info;
    call->wide = x->wide;
}

static void make_arrays(const struct clb_call *call, struct any_operands *x, bool least_work)
{
    const size_t size = clb_precision_size(call->precision);
    const size_t least = (size_t)clb_call_size(call, clb_routines[call->routine].sizes[1]);
    const size_t count = clb_min(call->m, call->n);
    memset(&x->info, PATTERN, sizeof x->info);
    x->pivots = count;
    x->ipiv = allocate((count + 1) * sizeof(int64_t));
    x->taus = clb_signature_has(call, 'k') ? call->k : count;
    x->tau = allocate((x->taus + 1) * size);
    x->works = clb_max(least, 1) * (least_work ? 1 : WORK_COLUMNS);
    x->work = allocate((x->works + 1) * size);
}

/* By columns and with narrow integers. */
static void make_operands(const struct clb_call *call, const struct any_options *options,
                          struct any_operands *x, uint64_t *seed)
{
    memset(x, 0, sizeof *x);
    for (size_t i = 0; i < ANY_MATRICES; i++) {
        if (!clb_call_shape(call, (char)('A' + i), &x->matrix[i].shape))
            continue;
        make_matrix(call, &x->matrix[i], false);
        fill_matrix(call, options, &x->matrix[i], i, seed);
    }
    make_arrays(call, x, false);
    if (clb_signature_has(call, 'k') && clb_signature_has(call, 'q'))
        fill_tau(call, x);
    for (size_t i = 0; is_of(call, "getrs getri") && i < x->pivots; i++)
        clb_integer_set(x->ipiv, i, false, (int64_t)(i + 1 + random_below(seed, x->pivots - i)));
}

/* The same contents in the caller's form. */
static void copy_operands(const struct clb_call *call, const struct any_options *options,
                          const struct any_operands *from, struct any_operands *x)
{
    const size_t size = clb_precision_size(call->precision);
    *x = *from;
    make_arrays(call, x, options->least_work);
    x->wide = options->wide;
    memcpy(x->tau, from->tau, (x->taus + 1) * size);
    for (size_t i = 0; is_of(call, "getrs getri") && i < x->pivots; i++)
        clb_integer_set(x->ipiv, i, x->wide, clb_integer_get(from->ipiv, i, false));
    for (size_t m = 0; m < ANY_MATRICES; m++) {
        struct any_matrix *to = &x->matrix[m];
        if (to->data != NULL)
            make_matrix(call, to, options->rows);
        for (size_t j = 0; to->data != NULL && j < to->shape.cols; j++) {
            for (size_t i = 0; i < to->shape.rows; i++)
                memcpy(at_of(call->precision, to, i, j),
                       at_of(call->precision, &from->matrix[m], i, j), size);
        }
    }
}

static void free_operands(struct any_operands *x)
{
    for (size_t i = 0; i < ANY_MATRICES; i++)
        free(x->matrix[i].data);
    free(x->tau);
    free(x->work);
    free(x->ipiv);
}

/* ---- the next library ---- */

static const void *a_caller(void)
{
    return __builtin_return_address(0);
}

/* All arguments by reference. */
#define LIST_OF(type)                                                                         \
    type, type, type, type, type, type, type, type, type, type, type, type, type, type, type, \
        type, type, type, type, type
typedef void any_function(LIST_OF(const void *));

static void call_target(const struct clb_target *target, const struct clb_call *call)
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

/* The library's own function, or one of the same arguments that computes the same. A batch's
 * product is xGEMM's. */
static const struct clb_target *find_target(clb_routine routine)
{
    if (clb_routine_has_flag(routine, 'b'))
        routine = clb_routine_of(CLB_KIND_gemm, clb_routines[routine].precision, false);
    const struct clb_routine_info *info = &clb_routines[routine];
    const struct clb_target *found = clb_next_try(&clb_symbol_at(routine, 0)->next, a_caller());
    for (int r = 0; found == NULL && r < CLB_ROUTINES; r++) {
        const struct clb_routine_info *other = &clb_routines[r];
        if (other->kind == info->kind && other->precision == info->precision &&
            strcmp(other->signature, info->signature) == 0 &&
            strcmp(other->flags, info->flags) == 0)
            found = clb_next_try(&clb_symbol_at((clb_routine)r, 0)->next, a_caller());
    }
    return found != NULL && !found->ilp64 ? found : NULL;
}

/* The triangle of a product: not every library has xGEMMTR, and OpenBLAS 0.3.26's is wrong. */
static void call_gemm(const struct clb_call *call)
{
    const size_t size = clb_precision_size(call->precision), n = call->n;
    struct clb_call product = *call;
    clb_call_set_routine(&product, clb_routine_of(CLB_KIND_gemm, call->precision, false));
    char *c = product.c = allocate(n * n * size), *to = call->c;
    product.m = product.ldc = n;
    for (size_t j = 0; j < n; j++)
        memcpy(c + j * n * size, to + j * call->ldc * size, n * size);
    call_target(find_target(product.routine), &product);
    for (size_t j = 0; j < n; j++) {
        const size_t from = call->upper ? 0 : j, count = call->upper ? j + 1 : n - j;
        memcpy(to + (from + j * call->ldc) * size, c + (from + j * n) * size, count * size);
    }
    free(c);
}

static void call_next(const struct clb_call *call)
{
    if (call->kind == CLB_KIND_gemmtr)
        call_gemm(call);
    else
        call_target(find_target(call->routine), call);
}

_Atomic long any_host_calls;
_Atomic size_t any_host_entries;
void (*any_host_hook)(void);

/* Its integers are narrow. */
static size_t compute(const struct clb_host_blas *host, const struct clb_call *p)
{
    const size_t count = clb_min(p->m, p->n);
    struct clb_call call = *p;
    int32_t info = 0, *ipiv = allocate((count + 1) * sizeof *ipiv);
    struct clb_shape shape = {0};
    for (char matrix = 'A'; matrix <= 'C' && !shape.written; matrix++)
        (void)clb_call_shape(p, matrix, &shape);
    any_host_calls++;
    any_host_entries += shape.rows * shape.cols;
    if (any_host_hook != NULL)
        any_host_hook();
    for (size_t i = 0; is_of(p, "getrs getri") && i < count; i++)
        ipiv[i] = (int32_t)clb_integer_get(p->ipiv, i, p->wide);
    call.ipiv = ipiv;
    call.info = &info;
    call.work = host->work;
    call.lwork = host->lwork;
    call_next(&call);
    for (size_t i = 0; is_of(p, "getrf getrf2 gesv") && i < count; i++)
        clb_integer_set(p->ipiv, i, p->wide, ipiv[i]);
    free(ipiv);
    return info > 0 ? (size_t)info : 0;
}

struct clb_host_blas any_call_host(void)
{
    struct clb_host_blas host = {0};
    for (int kind = 0; kind < CLB_KINDS; kind++)
        host.of[kind] = compute;
    return host;
}

/* ---- comparison ---- */

/* The greater one: `worst`, or the deviation of an element; NaN is the greatest. */
static double worse(clb_precision precision, double worst, const char *at, const char *expected)
{
    for (size_t part = 0; part < clb_precision_parts(precision); part++) {
        const double wanted = element_at(precision, expected, part);
        const double error = fabs(element_at(precision, at, part) - wanted) / (1 + fabs(wanted));
        worst = error <= worst || isnan(worst) ? worst : error;
    }
    return worst;
}

/* Infinity where anything has changed that is not to be written. Of Cholesky's factor, columns up
 * to the first bad pivot are defined. */
static double matrix_deviation(const struct any_call *call, size_t m)
{
    const struct clb_call *p = &call->entry.call;
    const struct any_matrix *x = &call->x.matrix[m], *before = &call->before.matrix[m];
    const struct clb_shape *shape = &x->shape;
    const size_t size = clb_precision_size(p->precision);
    const int64_t info = clb_integer_get(&call->expected.info, 0, false);
    const bool factored = is_of(p, "getrf getrf2 gesv potrf potrf2 posv") && info > 0;
    const size_t defined = factored && shape->triangle ? (size_t)info - 1 : SIZE_MAX;
    double worst = 0;
    for (size_t at = 0; at < x->bytes / size; at++) {
        const size_t inner = at % x->ld, outer = at / x->ld, i = x->rows ? outer : inner,
                     j = x->rows ? inner : outer;
        const bool written = shape->written && i < shape->rows && j < shape->cols &&
                             !(factored && m > 0) &&
                             (!shape->triangle || (p->upper ? i <= j : i >= j));
        if (!written && memcmp(x->data + at * size, before->data + at * size, size) != 0)
            return INFINITY;
        if (written && i < defined && j < defined)
            worst = worse(p->precision, worst, x->data + at * size,
                          at_of(p->precision, &call->expected.matrix[m], i, j));
    }
    return worst;
}

static bool has_same_integers(const struct any_call *call)
{
    const struct any_operands *x = &call->x, *expected = &call->expected;
    const size_t used = x->pivots * (x->wide ? sizeof(int64_t) : sizeof(int32_t));
    bool same = memcmp(x->ipiv + used, call->before.ipiv + used,
                       (x->pivots + 1) * sizeof(int64_t) - used) == 0;
    for (size_t i = 0; i < x->pivots && clb_signature_has(&call->entry.call, 'p'); i++)
        same = same &&
               clb_integer_get(x->ipiv, i, x->wide) == clb_integer_get(expected->ipiv, i, false);
    if (!clb_signature_has(&call->entry.call, 'i'))
        return same;
    return same && clb_integer_get(&x->info, 0, x->wide) == (int32_t)expected->info &&
           (x->wide || x->info >> 32 == call->before.info >> 32);
}

/* Of a guard: nothing behind the last element was written. */
static bool is_behind_intact(const struct any_call *call)
{
    const size_t size = clb_precision_size(call->entry.call.precision);
    const struct any_operands *x = &call->x, *before = &call->before;
    return memcmp(x->tau + x->taus * size, before->tau + x->taus * size, size) == 0 &&
           memcmp(x->work + x->works * size, before->work + x->works * size, size) == 0;
}

double any_call_deviation(const struct any_call *call)
{
    const clb_precision precision = call->entry.call.precision;
    double worst = has_same_integers(call) && is_behind_intact(call) ? 0 : INFINITY;
    for (size_t m = 0; m < ANY_MATRICES && !(worst > 1e30); m++) {
        const double here = call->x.matrix[m].data != NULL ? matrix_deviation(call, m) : 0;
        worst = here <= worst || isnan(worst) ? worst : here;
    }
    for (size_t j = 0; j < call->x.taus; j++) {
        const size_t at = j * clb_precision_size(precision);
        worst = worse(precision, worst, call->x.tau + at, call->expected.tau + at);
    }
    return worst;
}

bool any_call_is_intact(const struct any_call *call)
{
    const size_t size = clb_precision_size(call->entry.call.precision);
    const struct any_operands *x = &call->x, *before = &call->before;
    bool same = x->info == before->info && memcmp(x->tau, before->tau, (x->taus + 1) * size) == 0 &&
                memcmp(x->work, before->work, (x->works + 1) * size) == 0 &&
                memcmp(x->ipiv, before->ipiv, (x->pivots + 1) * sizeof(int64_t)) == 0;
    for (size_t m = 0; m < ANY_MATRICES; m++)
        same = same && (x->matrix[m].data == NULL ||
                        memcmp(x->matrix[m].data, before->matrix[m].data, x->matrix[m].bytes) == 0);
    return same;
}

void any_call_set(struct any_call *x, size_t matrix, size_t i, size_t j, double re)
{
    const clb_precision precision = x->entry.call.precision;
    put_element(precision, at_of(precision, &x->x.matrix[matrix], i, j), re, 0);
    put_element(precision, at_of(precision, &x->before.matrix[matrix], i, j), re, 0);
}

/* ---- one call ---- */

static struct clb_symbol *symbol_of(clb_routine routine, clb_form form)
{
    struct clb_symbol *symbol = clb_symbol_at(routine, 0);
    while (symbol->form != form)
        symbol++;
    return symbol;
}

static size_t draw_size(const struct any_options *options, size_t given, size_t usual,
                        uint64_t *seed)
{
    return options->most != 0 ? 1 + random_below(seed, options->most) : given != 0 ? given : usual;
}

static void draw_sizes(struct clb_call *call, const struct any_options *options, uint64_t *seed)
{
    const char *limits = clb_routines[call->routine].limits;
    const bool of_lq = strcmp(limits, "mn km") == 0; /* rows of Q */
    call->m = draw_size(options, options->m, of_lq ? N : M, seed);
    call->n = draw_size(options, options->n, of_lq ? M : N, seed);
    call->k = draw_size(options, options->k, K, seed);
    call->nrhs = draw_size(options, options->nrhs, RIGHT, seed);
    if ((strstr(limits, "nm") != NULL && call->n > call->m) ||
        (strstr(limits, "mn") != NULL && call->m > call->n)) {
        const size_t m = call->m;
        call->m = call->n;
        call->n = m;
    }
    for (const char *s = limits; *s != '\0'; s += s[2] == ' ' ? 3 : 2) {
        if (s[0] == 'k')
            call->k = clb_min(call->k, (size_t)clb_call_size(call, s[1]));
    }
    clb_call_set_routine(call, call->routine); /* m where there is none */
}

static void draw_call(struct clb_call *call, clb_routine routine, uint64_t *seed)
{
    const struct clb_routine_info *info = &clb_routines[routine];
    static const double alpha_d[][2] = {{1}, {-0.75, 0.5}}, beta_d[][2] = {{0.5, 0.25}, {0}, {1}};
    static const float alpha_s[][2] = {{1}, {-0.75F, 0.5F}},
                       beta_s[][2] = {{0.5F, 0.25F}, {0}, {1}};
    const size_t alpha = random_below(seed, 2), beta = random_below(seed, 3);
    const bool single = clb_precision_real_size(info->precision) == sizeof(float);
    *call = (struct clb_call){.routine = routine,
                              .precision = info->precision,
                              .right = random_below(seed, 2),
                              .upper = random_below(seed, 2),
                              .alpha = single ? (const void *)alpha_s[alpha] : alpha_d[alpha],
                              .beta = single ? (const void *)beta_s[beta] : beta_d[beta]};
    if (info->trans[0] != '\0') {
        call->transa = info->trans[random_below(seed, strlen(info->trans))] == 'N' ? CLB_OP_N
                       : strchr(info->trans, 'C') != NULL                          ? CLB_OP_C
                                                                                   : CLB_OP_T;
        call->transb = call->transa;
        if (call->transa == CLB_OP_C && strchr(info->flags, 'h') == NULL &&
            strchr(info->trans, 'T') != NULL)
            call->transb = CLB_OP_T;
    }
    call->unit = strchr(info->signature, 'd') != NULL && random_below(seed, 3) == 0;
}

static bool has_next(clb_routine routine)
{
    return find_target(routine) != NULL || clb_routines[routine].kind == CLB_KIND_gemmtr;
}

bool any_call_open(struct any_call *x, clb_routine routine, const struct any_options *options,
                   uint64_t *seed)
{
    struct clb_symbol *symbol = symbol_of(routine, options->form);
    struct clb_call *call = &x->entry.call;
    if (!has_next(routine))
        return false;
    *x = (struct any_call){.entry = {.symbol = symbol,
                                     .caller = a_caller(),
                                     .layout = options->rows                     ? CLB_ROW_MAJOR
                                               : options->form != CLB_FORM_plain ? CLB_COL_MAJOR
                                                                                 : 0}};
    x->entry.target = options->form == CLB_FORM_plain
                          ? clb_next_get_target(symbol, x->entry.caller)
                          : clb_next_try(&symbol->next, x->entry.caller);
    x->host = any_call_host();
    if (options->wide || options->hosted || x->entry.target == NULL)
        x->host_given = &x->host;
    draw_call(call, routine, seed);
    draw_sizes(call, options, seed);
    make_operands(call, options, &x->expected, seed);
    copy_operands(call, options, &x->expected, &x->x);
    copy_operands(call, options, &x->expected, &x->before);
    connect(call, &x->expected);
    call_next(call);
    connect(call, &x->x);
    return true;
}

void any_call_close(struct any_call *x)
{
    free_operands(&x->x);
    free_operands(&x->expected);
    free_operands(&x->before);
}

/* The entry is the call's alone: its arguments stay. */
bool any_call_route(struct any_call *x)
{
    struct clb_entry entry = x->entry;
    const bool lapacke = entry.symbol->next.abi == CLB_ABI_LAPACKE;
    return (lapacke ? clb_route_lapacke : clb_route)(&entry, x->host_given);
}

static void compute_declined(struct any_call *x)
{
    const struct clb_call *call = &x->entry.call;
    if (!call->wide) {
        call_next(call);
        return;
    }
    x->host.work = call->work;
    x->host.lwork = call->lwork;
    clb_integer_set(call->info, 0, true, (int64_t)compute(&x->host, call));
}

void (*any_call_routes)(bool begins);
struct any_options any_call_options;
size_t any_call_entries;

double any_call_run(clb_routine routine, uint64_t *seed)
{
    struct any_call call;
    if (!any_call_open(&call, routine, &any_call_options, seed))
        return -1;
    if (any_call_routes != NULL)
        any_call_routes(true);
    const bool taken = any_call_route(&call);
    if (any_call_routes != NULL)
        any_call_routes(false);
    if (!taken)
        compute_declined(&call);
    any_call_entries = 0;
    for (size_t m = 0; m < ANY_MATRICES; m++) {
        const struct clb_shape *shape = &call.x.matrix[m].shape;
        any_call_entries += shape->written ? shape->rows * shape->cols : 0;
    }
    const double worst = any_call_deviation(&call);
    any_call_close(&call);
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
