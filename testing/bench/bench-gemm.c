/* GEMM through the shim, next to OpenBLAS and the reference BLAS, in one process.
 *
 * usage: bench-gemm [--sizes N,N,...] [--precisions s,d,c,z] [--threads 1,2] [--trans NN]
 *                   [--reps N] [--pin 0|1|both] [--core NAME] [--reference-max N] [--seconds S]
 *                   [--pause MS] [--clock wall|cpu] [--json FILE]
 *
 * The calls alternate, and so does who is first; the ratio is the median of the ratios of
 * neighbours, because machines are shared and speeds drift. All copies and the packing are in the
 * shim's time. C is either memory that was written before (`warm`) or fresh from the system
 * (`fresh`), which every library has to fault in. Threads are set by POCL_MAX_PTHREAD_COUNT and
 * OPENBLAS_NUM_THREADS, in a process for each number; with one thread the process may be pinned to
 * one CPU as well, since the shim's calling thread copies while the device computes.
 *
 * With several threads there is a pause before every call: OpenBLAS's idle threads keep spinning
 * for 2^26 cycles after a call, and would take a CPU from whoever is next. --pause sets it in
 * milliseconds.
 *
 * --clock cpu counts the CPU time of all the process's threads instead of the time that passes: on
 * a machine that others use too, and with one thread only, since OpenBLAS's others spin.
 *
 * Every result is compared with OpenBLAS's, and the shim's own report has to say that its calls ran
 * on the device. Exit status 1 when not.
 *
 * OpenBLAS runs its kernels for --core, SkylakeX where the CPU has AVX-512: an OpenBLAS that is
 * older than the CPU would take its slowest ones. BENCH_SHIM, BENCH_OPENBLAS and BENCH_REFERENCE
 * name the libraries. */
#include "beside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef void gemm(const char *, const char *, const int *, const int *, const int *, const void *,
                  const void *, const int *, const void *, const int *, const void *, void *,
                  const int *, size_t, size_t);

#define PRECISIONS 4

static const char *const names[PRECISIONS] = {"sgemm_", "dgemm_", "cgemm_", "zgemm_"};

static struct bench_common common = {"256,512,1024,2048", "s,d", "1,2", "both", NULL, 0, 3, -1};
static struct {
    const char *trans, *json;
    int reference_max;
    clockid_t clock;
} options = {"NN", NULL, 1024, CLOCK_MONOTONIC};

enum { SHIM, OPENBLAS, REFERENCE, LIBRARIES };

static struct {
    void *handle;
    void (*gemm[PRECISIONS])(void); /* sgemm_, dgemm_, cgemm_, zgemm_ */
} libraries[LIBRARIES];

static size_t shim_calls[PRECISIONS];

struct problem {
    int n, precision;
    void *a, *b, *c[LIBRARIES];
    size_t bytes;
    bool fresh; /* C is, before each call */
};

static bool is_single(int precision)
{
    return bench_real_size(precision) == sizeof(float);
}

/* ---- one call ---- */

static double read_clock(void)
{
    struct timespec now;
    clock_gettime(options.clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double time_call(struct problem *p, int library)
{
    const char *ta = options.trans, *tb = options.trans + 1;
    if (p->fresh) {
        munmap(p->c[library], p->bytes);
        p->c[library] = bench_memory(p->bytes);
    }
    static const float one_s[2] = {1}, zero_s[2];
    static const double one_d[2] = {1}, zero_d[2];
    bool single = is_single(p->precision);
    const void *alpha = single ? (const void *)one_s : one_d;
    const void *beta = single ? (const void *)zero_s : zero_d;
    usleep((useconds_t)common.pause * 1000);
    double begin = read_clock();
    ((gemm *)libraries[library].gemm[p->precision])(ta, tb, &p->n, &p->n, &p->n, alpha, p->a, &p->n,
                                                    p->b, &p->n, beta, p->c[library], &p->n, 1, 1);
    shim_calls[p->precision] += library == SHIM;
    return read_clock() - begin;
}

static double take_turn(void *problem, bool shim, double *cpu)
{
    *cpu = NAN;
    return time_call(problem, shim ? SHIM : OPENBLAS);
}

/* ---- one row --------------------------------------------------------------------------------- */

/* max |x - y| of two results, as a share of the bound k*u*max|a|*max|b|; complex ones have twice as
 * many terms. */
static double deviation(const struct problem *p, const void *x, const void *y)
{
    bool single = is_single(p->precision);
    double worst = 0, unit = single ? 0x1p-24 : 0x1p-53, terms = p->n * bench_parts(p->precision);
    size_t count = (size_t)p->n * (size_t)p->n * (size_t)bench_parts(p->precision);
    for (size_t i = 0; i < count; i++) {
        double d = single ? fabs((double)((const float *)x)[i] - (double)((const float *)y)[i])
                          : fabs(((const double *)x)[i] - ((const double *)y)[i]);
        if (!(d <= worst))
            worst = isnan(d) ? INFINITY : d;
    }
    return worst / (terms * unit);
}

static void print_json(FILE *json, const struct problem *p, const char *threads, const char *fresh,
                       size_t reps, const double rate[4], double reference, const double ratio[2],
                       double worst)
{
    fprintf(json,
            "%s\n {\"n\":%d,\"precision\":\"%c\",\"threads\":\"%s\",\"c\":\"%s\",\"trans\":\"%s\","
            "\"reps\":%zu,\"gflops\":{\"shim_median\":%.2f,\"shim_best\":%.2f,"
            "\"openblas_median\":%.2f,\"openblas_best\":%.2f,\"reference_best\":%.3f},"
            "\"ratio_median\":%.4f,\"ratio_best\":%.4f,\"deviation\":%.3g}",
            ftell(json) > 0 ? "," : "", p->n, BENCH_PRECISIONS[p->precision], threads, fresh,
            options.trans, reps, rate[0], rate[1], rate[2], rate[3], reference, ratio[0], ratio[1],
            worst);
    fflush(json);
}

static bool measure(int n, int precision, bool fresh, const char *threads, FILE *json)
{
    double reference = 0;
    size_t elements = (size_t)n * (size_t)n;
    struct problem p = {.n = n,
                        .precision = precision,
                        .bytes =
                            elements * (size_t)bench_parts(precision) * bench_real_size(precision)};
    struct bench_turns turns = {.call = take_turn, .problem = &p};
    p.a = bench_memory(p.bytes);
    p.b = bench_memory(p.bytes);
    bench_fill(p.a, elements, precision, 1);
    bench_fill(p.b, elements, precision, 2);
    for (int l = 0; l < LIBRARIES; l++) {
        p.c[l] = bench_memory(p.bytes);
        if (libraries[l].handle != NULL && (l != REFERENCE || n <= options.reference_max))
            reference = time_call(&p, l);
    }
    /* Further calls find compiled kernels and warm threads. */
    p.fresh = fresh;
    bench_take_turns(&common, &turns);
    size_t reps = turns.count;
    double work = 2e-9 * n * n * n * bench_parts(precision) * bench_parts(precision);
    double best[2] = {bench_best(turns.shim, reps), bench_best(turns.other, reps)};
    double rate[4] = {work / bench_median(turns.shim, reps), work / best[0],
                      work / bench_median(turns.other, reps), work / best[1]};
    double ratio[2] = {bench_median(turns.ratio, reps), best[1] / best[0]};
    bool has_reference = libraries[REFERENCE].handle != NULL && n <= options.reference_max;
    double reference_rate = has_reference ? work / reference : 0;
    double worst = deviation(&p, p.c[SHIM], p.c[OPENBLAS]);
    if (has_reference)
        worst = fmax(worst, deviation(&p, p.c[SHIM], p.c[REFERENCE]));
    bool good = worst <= 2;
    printf("%c %6d %-6s %-5s %9.1f %9.1f %9.1f %9.1f %7.3f %7.3f", BENCH_PRECISIONS[precision], n,
           threads, fresh ? "fresh" : "warm", rate[0], rate[1], rate[2], rate[3], ratio[0],
           ratio[1]);
    if (has_reference)
        printf(" %8.1f", rate[1] / reference_rate);
    else
        printf(" %8s", "-");
    printf(" %9.2g%s\n", worst, good ? "" : "  WRONG");
    fflush(stdout);
    if (json != NULL)
        print_json(json, &p, threads, fresh ? "fresh" : "warm", reps, rate, reference_rate, ratio,
                   worst);
    munmap(p.a, p.bytes);
    munmap(p.b, p.bytes);
    for (int l = 0; l < LIBRARIES; l++)
        munmap(p.c[l], p.bytes);
    return good;
}

/* ---- one process for each number of threads -------------------------------------------------- */

static void open_libraries(void)
{
    const char *paths[] = {bench_shim(), bench_openblas(), bench_reference()};
    /* OpenBLAS first: its worker threads must not inherit anything that the shim changes. */
    static const int order[] = {OPENBLAS, REFERENCE, SHIM};
    for (int i = 0; i < LIBRARIES; i++) {
        int l = order[i];
        if (l == REFERENCE && paths[l] == NULL)
            continue;
        libraries[l].handle = bench_open(paths[l]);
        for (int precision = 0; precision < PRECISIONS; precision++)
            libraries[l].gemm[precision] = bench_symbol(libraries[l].handle, names[precision]);
    }
}

/* Every call of the shim ran on the device, says its own report. */
static bool check_report(char *device, size_t size)
{
    typedef size_t report_function(char *, size_t);
    static char report[65536];
    bool good = true;
    ((report_function *)bench_symbol(libraries[SHIM].handle, "clblas_shim_report"))(report,
                                                                                    sizeof report);
    const char *name = strstr(report, "\"device\":\"");
    snprintf(device, size, "%.*s", name == NULL ? 0 : (int)strcspn(name + 10, "\""),
             name == NULL ? "" : name + 10);
    for (int precision = 0; precision < PRECISIONS; precision++) {
        const char *symbol = names[precision];
        double calls = bench_report_number(report, symbol, "device");
        if (shim_calls[precision] > 0 && calls < (double)shim_calls[precision]) {
            printf("%s: %.0f of %zu calls ran on the device: %s", symbol, calls,
                   shim_calls[precision], report);
            good = false;
        }
    }
    return good;
}

static int run_child(const char *threads)
{
    FILE *json = options.json != NULL ? fopen(options.json, "a") : NULL;
    bool good = true;
    char device[256];
    int n, precision;
    if (common.pause < 0)
        common.pause = atoi(threads) > 1 ? 40 : 0;
    if (options.clock == CLOCK_PROCESS_CPUTIME_ID && atoi(threads) > 1)
        bench_fail("CPU time is for one thread");
    open_libraries();
    printf("# %s threads, OpenBLAS core %s\n", threads, bench_core(libraries[OPENBLAS].handle));
    for (const char *precisions = common.precisions;
         bench_next_precision(&precisions, &precision);) {
        for (const char *sizes = common.sizes; bench_next_number(&sizes, &n);) {
            good &= measure(n, precision, false, threads, json);
            good &= measure(n, precision, true, threads, json);
        }
    }
    good &= check_report(device, sizeof device);
    printf("# device %s\n", device);
    if (json != NULL) {
        fprintf(json, ",\n {\"threads\":\"%s\",\"device\":\"%s\",\"core\":\"%s\"}", threads, device,
                bench_core(libraries[OPENBLAS].handle));
        fclose(json);
    }
    return good ? 0 : 1;
}

static int run_parent(char **arguments)
{
    char date[32];
    time_t now = time(NULL);
    if (bench_shim() == NULL || bench_openblas() == NULL)
        bench_fail("the shim or OpenBLAS is missing (BENCH_SHIM, BENCH_OPENBLAS)");
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    printf("# %s, %s\n# shim %s\n# OpenBLAS %s\n# rates in GFLOP/s; ratio = shim / OpenBLAS\n",
           date, bench_cpu(), bench_shim(), bench_openblas());
    printf("%s %6s %-6s %-5s %9s %9s %9s %9s %7s %7s %8s %9s\n", "p", "n", "thr", "C", "shim med",
           "shim best", "OB med", "OB best", "ratio", "best", "x ref", "deviation");
    FILE *json = options.json != NULL ? fopen(options.json, "w") : NULL;
    if (json != NULL) {
        fprintf(json, "[{\"date\":\"%s\",\"cpu\":\"%s\"}", date, bench_cpu());
        fclose(json);
    }
    setenv("CLBLAS_SHIM", "always", 1);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    setenv("CLBLAS_SHIM_NEXT", bench_openblas(), 0);
    unsetenv("OPENBLAS_L2_SIZE");
    int failed = bench_run_processes(&common, arguments);
    json = options.json != NULL ? fopen(options.json, "a") : NULL;
    if (json != NULL) {
        fprintf(json, "\n]\n");
        fclose(json);
    }
    return failed;
}

static void parse(char **arguments)
{
    const char *clock = "wall";
    const struct bench_option table[] = {
        {"--trans", BENCH_TEXT, &options.trans},
        {"--clock", BENCH_TEXT, &clock},
        {"--reference-max", BENCH_NUMBER, &options.reference_max},
        {"--json", BENCH_TEXT, &options.json},
    };
    bench_parse(&common, table, sizeof table / sizeof *table, "bench-gemm.c", arguments);
    if (strcmp(clock, "cpu") == 0)
        options.clock = CLOCK_PROCESS_CPUTIME_ID;
    if (strlen(options.trans) != 2)
        bench_fail("%s is not two letters", options.trans);
}

int main(int count, char **arguments)
{
    const char *threads = getenv("BENCH_THREADS");
    (void)count;
    parse(arguments);
    return threads != NULL ? run_child(threads) : run_parent(arguments);
}
