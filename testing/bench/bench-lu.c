/* Factorisations (LU, Cholesky, QR), triangular systems, inverses of triangles and what of Level 3
 * is not GEMM on the device, next to OpenBLAS, in one process.
 *
 * usage: bench-lu [--routines getrf,trsm,getrs,potrf,geqrf,ormqr,orgqr,syrk,herk,syr2k,her2k,
 *                             symm,hemm,trmm,trtri,lauum,potri]
 *                 [--sizes N,N,...]
 *                 [--precisions s,d,c,z] [--forms LN,LT,...]
 *                 [--threads 1,2] [--panel-threads N] [--pin 0|1|both] [--rhs N] [--reps N]
 *                 [--upper 0|1] [--seconds S] [--pause MS] [--core NAME] [--alone 1] [--ladder]
 *
 * It differs from bench-gemm in that it calls the algo layer, with OpenBLAS as the next library, so
 * that the panels and the rates they are compared with are the same library's. Matrices are square;
 * trsm is left, lower, not transposed, with as many right-hand sides as rows unless --rhs says
 * otherwise; ormqr is Q^H*C with as many columns, and --rhs is the columns of geqrf and orgqr too.
 * Level 3's have one line for each form (their letters: UPLO and TRANS, or SIDE and UPLO, and
 * TRANS), or for those that --forms lists; beta is 0. The forms of inverses are UPLO.
 * --panel-threads has the panels of the shim's factorisations computed by so many
 * threads of OpenBLAS, whose idle threads spin for a while after each and take CPUs from the device
 * where that is the CPU. The calls alternate, and so does who is first; the ratio is the median of
 * the ratios of neighbours. Everything that a call does is in its time. Threads and pauses are as
 * bench-gemm's.
 *
 * --alone leaves OpenBLAS's calls out. With CLBLAS_SHIM_TRACE=FILE, timeline.py FILE shows what ran
 * when; noting that costs some time.
 *
 * Factors are checked by |P*A*v - L*(U*v)| or |A*v - L*(L^H*v)| / (n |A| |v| u) with a random v,
 * solutions by |B - A*X| likewise in one random combination of the columns. CLBLAS_SHIM_PARAMS
 * chooses what is measured; QR as lu_qr.c says. --ladder has another table instead, see
 * lu_ladder.c.
 */
#include "beside.h"
#include "lapack_peer.h"
#include "lu.h"
#include "lu_ladder.h"
#include "start.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef void potrf_function(const char *, const int *, void *, const int *, int *, size_t);
typedef void trsm_function(const char *, const char *, const char *, const char *, const int *,
                           const int *, const void *, const void *, const int *, void *,
                           const int *, size_t, size_t, size_t, size_t);

static struct bench_common common = {"1000,2000,4000", "s,d", "1,2", "0", NULL, 0, 5, -1};
static struct {
    const char *routines, *forms;
    int rhs, panel_threads, alone, upper;
    bool ladder;
} options = {.routines = "getrf"};

static void *openblas;

/* ---- OpenBLAS -------------------------------------------------------------------------------- */

static trsm_function *trsm_of(clb_precision precision)
{
    char name[16];
    snprintf(name, sizeof name, "%ctrsm_", BENCH_PRECISIONS[precision]);
    return (trsm_function *)bench_symbol(openblas, name);
}

void (*function_of(clb_precision precision, const char *routine))(void)
{
    return peer_function(openblas, precision, routine);
}

void set_panel_threads(bool panel)
{
    typedef void set_threads(int);
    if (options.panel_threads > 0)
        ((set_threads *)bench_symbol(openblas, "openblas_set_num_threads"))(
            panel ? options.panel_threads : atoi(getenv("OPENBLAS_NUM_THREADS")));
}

static size_t next_getrf(const struct clb_host_blas *host, const struct clb_getrf *problem,
                         int64_t *ipiv)
{
    set_panel_threads(true);
    size_t info = peer_next_getrf(host, problem, ipiv);
    set_panel_threads(false);
    return info;
}

static size_t next_potrf(const struct clb_host_blas *host, const struct clb_potrf *problem)
{
    const int n = (int)problem->n, ld = (int)problem->lda;
    int info;
    set_panel_threads(true);
    (*(potrf_function *const *)host->context)(problem->upper ? "U" : "L", &n, problem->a, &ld,
                                              &info, 1);
    set_panel_threads(false);
    return (size_t)info;
}

/* ---- a problem ------------------------------------------------------------------------------- */

static const char *const names[ROUTINES] = {"getrf", "trsm", "getrs", "potrf", "geqrf", "ormqr",
                                            "orgqr", "syrk", "herk",  "syr2k", "her2k", "symm",
                                            "hemm",  "trmm", "trtri", "lauum", "potri"};

static struct clb_runtime *runtime;

static void need(clb_status status, const char *what)
{
    if (status != CLB_OK)
        bench_fail("%s: %s", what, clb_status_name(status));
}

static void call_shim(const struct problem *p, void *x)
{
    const struct clb_gemm_variant *variant;
    need(clb_gemm_variant_get(runtime, p->precision, &variant), "kernels");
    if (p->routine == GETRF) {
        peer_getrf_function *function = peer_getrf(openblas, p->precision);
        const struct clb_getrf problem = {p->precision, p->n, p->n, x, p->n};
        const struct clb_host_blas next = {.context = &function, .getrf = next_getrf};
        struct clb_getrf_result result = {.ipiv = p->ipiv};
        need(clb_getrf_run(runtime, variant, &problem, &next, &result), "getrf");
        return;
    }
    if (p->routine == POTRF) {
        potrf_function *function = (potrf_function *)function_of(p->precision, "potrf");
        const struct clb_potrf problem = {p->precision, options.upper != 0, p->n, x, p->n};
        const struct clb_host_blas next = {.context = &function, .potrf = next_potrf};
        struct clb_potrf_result result;
        need(clb_potrf_run(runtime, variant, &problem, &next, &result), "potrf");
        return;
    }
    if (is_level3(p)) {
        need(level3_shim(p, runtime, variant, x), names[p->routine]);
        return;
    }
    if (is_inverse(p)) {
        need(inverse_shim(p, runtime, variant, x), names[p->routine]);
        return;
    }
    if (is_qr(p)) {
        need(qr_shim(p, runtime, variant, x), names[p->routine]);
        return;
    }
    struct clb_gemm_progress progress;
    if (p->routine == TRSM) {
        const struct clb_trsm problem = {.precision = p->precision,
                                         .m = p->n,
                                         .n = p->rhs,
                                         .alpha = clb_scalar_one(p->precision),
                                         .a = p->a,
                                         .b = x,
                                         .lda = p->n,
                                         .ldb = p->n};
        need(clb_trsm_run(runtime, variant, &problem, &progress), "trsm");
    } else {
        const struct clb_getrs problem = {.precision = p->precision,
                                          .n = p->n,
                                          .nrhs = p->rhs,
                                          .a = p->a,
                                          .lda = p->n,
                                          .ipiv = p->ipiv,
                                          .b = x,
                                          .ldb = p->n};
        need(clb_getrs_run(runtime, variant, &problem, &progress), "getrs");
    }
    clb_gemm_progress_free(&progress);
}

static void call_openblas(const struct problem *p, void *x)
{
    const int n = (int)p->n, rhs = (int)p->rhs;
    int info;
    if (is_level3(p))
        level3_openblas(p, names[p->routine], x);
    else if (is_inverse(p))
        inverse_openblas(p, names[p->routine], x);
    else if (is_qr(p))
        qr_openblas(p, x);
    else if (p->routine == GETRF)
        peer_getrf(openblas, p->precision)(&n, &n, x, &n, p->pivots, &info);
    else if (p->routine == POTRF)
        ((potrf_function *)function_of(p->precision, "potrf"))(options.upper != 0 ? "U" : "L", &n,
                                                               x, &n, &info, 1);
    else if (p->routine == TRSM)
        trsm_of(p->precision)("L", "L", "N", "N", &n, &rhs, clb_scalar_one(p->precision), p->a, &n,
                              x, &n, 1, 1, 1, 1);
    else
        peer_getrs(openblas, p->precision)("N", &n, &rhs, p->a, &n, p->pivots, x, &n, &info, 1);
}

static double cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double time_call(const struct problem *p, int library, double *cpu)
{
    memcpy(p->x[library], is_factored(p) ? p->a : p->b, p->bytes);
    usleep((useconds_t)common.pause * 1000);
    double begin = bench_now(), cpu_begin = cpu_now();
    if (library == 0)
        call_shim(p, p->x[0]);
    else
        call_openblas(p, p->x[1]);
    double time = bench_now() - begin;
    *cpu = cpu_now() - cpu_begin;
    if (library == 0 && clb_trace_wanted())
        clb_trace_since("call", clb_now() - time);
    return time;
}

static double take_turn(void *problem, bool shim, double *cpu)
{
    *cpu = NAN;
    return options.alone && !shim ? (double)NAN : time_call(problem, shim ? 0 : 1, cpu);
}

/* ---- is it right? ---------------------------------------------------------------------------- */

struct complex_number {
    double re, im;
};

static struct complex_number get(const struct problem *p, const void *x, size_t i, size_t j)
{
    size_t parts = (size_t)bench_parts((int)p->precision), at = (i + j * p->n) * parts;
    if (bench_real_size((int)p->precision) == sizeof(float)) {
        const float *e = (const float *)x + at;
        return (struct complex_number){e[0], parts > 1 ? e[1] : 0};
    }
    const double *e = (const double *)x + at;
    return (struct complex_number){e[0], parts > 1 ? e[1] : 0};
}

enum part { WHOLE, LOWER, LOWER_UNIT, UPPER };

/* y = M*v for a part of a matrix, and its norm, the largest sum of a column. */
static void apply(const struct problem *p, const void *x, size_t cols, enum part part,
                  const struct complex_number *v, struct complex_number *y, double *norm)
{
    memset(y, 0, p->n * sizeof *y);
    *norm = 0;
    for (size_t j = 0; j < cols; j++) {
        double sum = 0;
        for (size_t i = 0; i < p->n; i++) {
            struct complex_number e = get(p, x, i, j);
            if ((part == UPPER && i > j) || (part >= LOWER && part <= LOWER_UNIT && i < j))
                continue;
            if (part == LOWER_UNIT && i == j)
                e = (struct complex_number){1, 0};
            sum += fabs(e.re) + fabs(e.im);
            y[i].re += e.re * v[j].re - e.im * v[j].im;
            y[i].im += e.re * v[j].im + e.im * v[j].re;
        }
        *norm = fmax(*norm, sum);
    }
}

/* y = M^H*v for a triangle. */
static void apply_adjoint(const struct problem *p, const void *x, enum part part,
                          const struct complex_number *v, struct complex_number *y)
{
    memset(y, 0, p->n * sizeof *y);
    for (size_t j = 0; j < p->n; j++) {
        for (size_t i = part == LOWER ? j : 0; i < (part == LOWER ? p->n : j + 1); i++) {
            const struct complex_number e = get(p, x, i, j);
            y[j].re += e.re * v[i].re + e.im * v[i].im;
            y[j].im += e.re * v[i].im - e.im * v[i].re;
        }
    }
}

static double distance(const struct problem *p, const struct complex_number *x,
                       const struct complex_number *y, double scale)
{
    double worst = 0,
           unit = bench_real_size((int)p->precision) == sizeof(float) ? 0x1p-24 : 0x1p-53;
    for (size_t i = 0; i < p->n; i++) {
        double d = fabs(x[i].re - y[i].re) + fabs(x[i].im - y[i].im);
        worst = d <= worst ? worst : d;
    }
    return worst / ((double)p->n * unit * scale);
}

static void interchange(const struct problem *p, int library, struct complex_number *v)
{
    for (size_t i = 0; i < p->n; i++) {
        size_t other = (size_t)(library == 0 ? p->ipiv[i] : p->pivots[i]) - 1;
        struct complex_number held = v[i];
        v[i] = v[other];
        v[other] = held;
    }
}

/* A*v against L*(L^H*v) or U^H*(U*v). */
static double definite_error_of(const struct problem *p, int library)
{
    uint64_t state = 7;
    double norm, unused;
    struct complex_number *v = calloc(4 * p->n, sizeof *v), *y = v + p->n, *z = y + p->n,
                          *w = z + p->n;
    if (v == NULL)
        bench_fail("no memory");
    for (size_t i = 0; i < p->n; i++)
        v[i] = (struct complex_number){bench_random(&state), 0};
    apply(p, p->a, p->n, WHOLE, v, y, &norm);
    if (options.upper != 0) {
        apply(p, p->x[library], p->n, UPPER, v, w, &unused);
        apply_adjoint(p, p->x[library], UPPER, w, z);
    } else {
        apply_adjoint(p, p->x[library], LOWER, v, w);
        apply(p, p->x[library], p->n, LOWER, w, z, &unused);
    }
    double error = distance(p, y, z, norm);
    free(v);
    return error;
}

/* P*A*v against L*(U*v), or L*(U*(X*v)) against P*B*v, where A has no factors A*(X*v) against B*v.
 */
static double error_of(const struct problem *p, int library)
{
    uint64_t state = 7;
    double norm, unused, scale = 0;
    struct complex_number *memory = calloc(4 * (p->n + p->rhs), sizeof *memory);
    if (memory == NULL)
        bench_fail("no memory");
    struct complex_number *v = memory, *w = v + p->n + p->rhs, *y = w + p->n, *z = y + p->n;
    for (size_t i = 0; i < p->n + p->rhs; i++)
        v[i] = (struct complex_number){bench_random(&state), 0};
    const void *factors = p->routine == GETRF ? p->x[library] : p->a;
    if (p->routine == GETRF) {
        apply(p, p->a, p->n, WHOLE, v, y, &norm);
        apply(p, factors, p->n, UPPER, v, w, &unused);
    } else {
        apply(p, p->b, p->rhs, WHOLE, v, y, &unused);
        apply(p, p->x[library], p->rhs, WHOLE, v, z, &unused);
        apply(p, factors, p->n, p->routine == TRSM ? LOWER : UPPER, z, w, &norm);
        for (size_t i = 0; i < p->n; i++)
            scale = fmax(scale, fabs(z[i].re) + fabs(z[i].im));
    }
    if (p->routine != TRSM) {
        interchange(p, library, y);
        apply(p, factors, p->n, LOWER_UNIT, w, z, &unused);
    } else {
        memcpy(z, w, p->n * sizeof *z);
    }
    double error = distance(p, y, z, norm * fmax(scale, 1));
    free(memory);
    return error;
}

/* ---- one row --------------------------------------------------------------------------------- */

static double work_of(const struct problem *p)
{
    double n = (double)p->n, parts = bench_parts((int)p->precision);
    double real = is_level3(p)          ? level3_work(p)
                  : is_inverse(p)       ? inverse_work(p)
                  : is_qr(p)            ? qr_work(p)
                  : p->routine == GETRF ? 2.0 / 3 * n * n * n
                  : p->routine == POTRF ? 1.0 / 3 * n * n * n
                  : p->routine == TRSM  ? n * n * (double)p->rhs
                                        : 2 * n * n * (double)p->rhs;
    return 1e-9 * real * parts * parts;
}

/* Hermitian, and definite by its diagonal. */
static void make_definite(struct problem *p)
{
    size_t parts = (size_t)bench_parts((int)p->precision);
    bool single = bench_real_size((int)p->precision) == sizeof(float);
    for (size_t j = 0; j < p->n; j++) {
        for (size_t at = j * (p->n + 1) * parts, i = j; i < p->n; i++, at += parts) {
            const struct complex_number e = get(p, p->a, i, j);
            size_t other = (j + i * p->n) * parts;
            for (size_t part = 0; part < parts; part++) {
                double value = part == 0 ? i == j ? e.re + (double)p->n : e.re : i == j ? 0 : -e.im;
                if (single)
                    ((float *)p->a)[other + part] = (float)value;
                else
                    ((double *)p->a)[other + part] = value;
            }
        }
    }
}

static void make_problem(struct problem *p)
{
    size_t element = (size_t)bench_parts((int)p->precision) * bench_real_size((int)p->precision);
    size_t bytes = p->n * p->n * element;
    p->bytes = p->routine == GETRF || p->routine == POTRF || is_inverse(p)
                   ? bytes
                   : p->n * p->rhs * element;
    p->tau[0] = bench_memory(p->n * element);
    p->tau[1] = bench_memory(p->n * element);
    p->a = bench_memory(bytes);
    p->b = bench_memory(p->bytes);
    p->x[0] = bench_memory(p->bytes);
    p->x[1] = bench_memory(p->bytes);
    p->ipiv = bench_memory(p->n * sizeof *p->ipiv);
    p->pivots = bench_memory(p->n * sizeof *p->pivots);
    bench_fill(p->a, p->n * p->n, (int)p->precision, 1);
    bench_fill(p->b, p->bytes / element, (int)p->precision, 2);
    if (p->routine == POTRF)
        make_definite(p);
    if (is_inverse(p))
        inverse_make(p);
    if (is_qr(p))
        qr_make(p);
    if (is_factored(p) || is_qr(p) || is_level3(p))
        return;
    /* Factors: their triangles are well conditioned. */
    peer_getrf_function *function = peer_getrf(openblas, p->precision);
    const int n = (int)p->n;
    int info;
    function(&n, &n, p->a, &n, p->pivots, &info);
    for (size_t i = 0; i < p->n; i++)
        p->ipiv[i] = p->pivots[i];
    if (p->routine != TRSM)
        return;
    for (size_t i = 0; i < p->n; i++) {
        size_t at = i * (p->n + 1) * (size_t)bench_parts((int)p->precision);
        if (bench_real_size((int)p->precision) == sizeof(float))
            ((float *)p->a)[at] = 1.5F;
        else
            ((double *)p->a)[at] = 1.5;
    }
}

/* The largest error of the shim's result and of OpenBLAS's. */
static void find_errors(const struct problem *p, double error[2])
{
    double (*const measure_error)(const struct problem *, int) = is_qr(p) ? qr_error
                                                                 : p->routine == POTRF
                                                                     ? definite_error_of
                                                                     : error_of;
    error[1] = NAN;
    if (is_level3(p) || is_inverse(p)) {
        error[0] = options.alone ? 0 : level3_error(p);
        return;
    }
    error[0] = measure_error(p, 0);
    if (!options.alone)
        error[1] = measure_error(p, 1);
}

static bool measure(enum routine routine, const char *form, clb_precision precision, size_t n,
                    const char *threads)
{
    struct problem p = {.routine = routine,
                        .form = form,
                        .precision = precision,
                        .n = n,
                        .rhs = options.rhs > 0 ? (size_t)options.rhs : n};
    struct bench_turns turns = {.call = take_turn, .problem = &p};
    double cpu;
    make_problem(&p);
    time_call(&p, 0, &cpu);
    bench_take_turns(&common, &turns);
    size_t reps = turns.count;
    double error[2], work = work_of(&p);
    find_errors(&p, error);
    double best[2] = {bench_best(turns.shim, reps), bench_best(turns.other, reps)};
    bool good = error[0] < 1;
    char what[16];
    snprintf(what, sizeof what, "%c%s %s", BENCH_PRECISIONS[precision], names[routine], form);
    printf("%-10s %6zu %-5s %9.2f %9.2f %9.1f %9.1f %7.3f %7.3f %7.3f %9.2g %9.2g%s\n", what, n,
           threads, 1e3 * bench_median(turns.shim, reps), 1e3 * bench_median(turns.other, reps),
           work / best[0], work / best[1], bench_median(turns.ratio, reps), best[1] / best[0],
           bench_median(turns.cpu_ratio, reps), error[0], error[1], good ? "" : "  WRONG");
    fflush(stdout);
    munmap(p.a, n * n * clb_precision_size(precision));
    munmap(p.b, p.bytes);
    munmap(p.x[0], p.bytes);
    munmap(p.x[1], p.bytes);
    munmap(p.tau[0], n * clb_precision_size(precision));
    munmap(p.tau[1], n * clb_precision_size(precision));
    return good;
}

/* All forms of Level 3 and inverses, or those that are asked for; others have one. */
static bool measure_forms(enum routine routine, clb_precision precision, size_t n,
                          const char *threads)
{
    bool good = true;
    if (routine < SYRK)
        return measure(routine, "", precision, n, threads);
    for (const char *form = routine < TRTRI ? level3_forms(routine, precision) : "L,U";
         *form != '\0';) {
        size_t length = strcspn(form, ",");
        char name[8];
        snprintf(name, sizeof name, "%.*s", (int)length, form);
        if (bench_is_listed(options.forms, name))
            good &= measure(routine, name, precision, n, threads);
        form += length + (form[length] == ',');
    }
    return good;
}

/* ---- one process for each number of threads -------------------------------------------------- */

static int run_child(const char *threads)
{
    bool good = true;
    int n, precision;
    if (common.pause < 0)
        common.pause = atoi(threads) > 1 ? 40 : 0;
    openblas = bench_open(bench_openblas());
    const char *core = bench_core(openblas);
    runtime = bench_start_device();
    printf("# %s threads, OpenBLAS core %s, device %s\n", threads, core, runtime->device.name);
    if (options.ladder)
        return lu_ladder(runtime, openblas) ? 0 : 1;
    for (int routine = 0; routine < ROUTINES; routine++) {
        if (!bench_is_listed(options.routines, names[routine]))
            continue;
        for (const char *list = common.precisions; bench_next_precision(&list, &precision);) {
            for (const char *sizes = common.sizes; bench_next_number(&sizes, &n);)
                good &= measure_forms((enum routine)routine, (clb_precision)precision, (size_t)n,
                                      threads);
        }
    }
    return good ? 0 : 1;
}

static void print_head(void)
{
    printf("# times in ms, rates in GFLOP/s; ratio = shim / OpenBLAS\n");
    printf("%-10s %6s %-5s %9s %9s %9s %9s %7s %7s %7s %9s %9s\n", "what", "n", "thr", "shim med",
           "OB med", "shim best", "OB best", "ratio", "best", "cpu", "error", "OB error");
}

static int run_parent(char **arguments)
{
    if (bench_openblas() == NULL)
        bench_fail("OpenBLAS is missing (BENCH_OPENBLAS)");
    printf("# %s\n# OpenBLAS %s\n", bench_cpu(), bench_openblas());
    if (!options.ladder)
        print_head();
    return bench_run_processes(&common, arguments);
}

static void parse(char **arguments)
{
    const struct bench_option table[] = {
        {"--ladder", BENCH_FLAG, &options.ladder},
        {"--routines", BENCH_TEXT, &options.routines},
        {"--forms", BENCH_TEXT, &options.forms},
        {"--rhs", BENCH_NUMBER, &options.rhs},
        {"--panel-threads", BENCH_NUMBER, &options.panel_threads},
        {"--alone", BENCH_NUMBER, &options.alone},
        {"--upper", BENCH_NUMBER, &options.upper},
    };
    bench_parse(&common, table, sizeof table / sizeof *table, "bench-lu.c", arguments);
}

int main(int count, char **arguments)
{
    const char *threads = getenv("BENCH_THREADS");
    (void)count;
    parse(arguments);
    return threads != NULL ? run_child(threads) : run_parent(arguments);
}
