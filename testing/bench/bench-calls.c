/* SPDX-License-Identifier: BSD-3-Clause
 * Any routine through the shim's public names, next to OpenBLAS, in one process.
 *
 * usage: bench-calls [--routines gemm,getrf,...] [--sizes N,N,...] [--precisions s,d,c,z]
 *                    [--trans NN] [--right 0|1] [--upper 0|1] [--rhs N] [--depth K]
 *                    [--threads 1,2] [--pin 0|1|both] [--reps N] [--seconds S] [--pause MS]
 *                    [--clock wall|cpu] [--core NAME] [--alone 1]
 *
 * Matrices are square but for --rhs, the right-hand sides of solves, and --depth, the inner
 * dimension of products and of syrk and its like. --trans has the letters of both operands; side
 * and uplo are left and lower unless --right or --upper say otherwise.
 *
 * The calls alternate, and so does who is first; the ratio is the median of the ratios of
 * neighbours, because machines are shared and speeds drift. All that a call does is in its time.
 * Threads are set by POCL_MAX_PTHREAD_COUNT and OPENBLAS_NUM_THREADS, in a process for each number;
 * with one thread the process may be pinned to one CPU as well, since the shim's calling thread
 * copies while the device computes.
 *
 * With several threads there is a pause before every call: OpenBLAS's idle threads keep spinning
 * for 2^26 cycles after a call, and would take a CPU from whoever is next. --pause sets it in
 * milliseconds. --clock cpu counts the CPU time of all the process's threads instead of the time
 * that passes: on a machine that others use too, and with one thread only.
 *
 * The last column is the largest difference of the two results, in units of n times the precision's
 * roundoff times the largest element; whether results are right the tests say. The shim's report
 * has to say that its calls ran on the device: exit status 1 when not, or when the difference is
 * large.
 *
 * --alone leaves OpenBLAS's calls out; with CLBLAS_SHIM_TRACE=FILE, timeline.py FILE shows what ran
 * when. OpenBLAS runs its kernels for --core, SkylakeX where the CPU has AVX-512: an OpenBLAS that
 * is older than the CPU would take its slowest ones. CLBLAS_SHIM_PARAMS and others choose what is
 * measured; BENCH_SHIM and BENCH_OPENBLAS name the libraries. */
#include "beside.h"
#include "tools/command/trial.h"
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_DIFFERENT 100

static struct bench_common common = {"256,512,1024,2048", "s,d", "1,2", "0", NULL, 0, 3, -1};
static struct {
    const char *routines, *trans, *clock;
    int right, upper, rhs, depth, alone;
} options = {.routines = "gemm", .trans = "NN", .clock = "wall"};

static void *shim, *openblas;

/* ---- a call ---- */

struct problem {
    struct clb_call call;
    struct clb_target target[2]; /* OpenBLAS's, the shim's */
    size_t shim_calls;
    void *result[2];
    size_t elements; /* real numbers of the result */
};

static double take_turn(void *argument, bool by_shim, double *cpu)
{
    struct problem *p = argument;
    const bool single = clb_precision_real_size(p->call.precision) == sizeof(float);
    struct clb_shape shape;
    *cpu = NAN;
    if (options.alone != 0 && !by_shim)
        return NAN;
    usleep((useconds_t)common.pause * 1000);
    const struct clb_trial_time time = clb_trial_run(&p->call, &p->target[by_shim], 0, 1, INFINITY);
    p->shim_calls += by_shim;
    *cpu = time.cpu;
    for (char name = 'A'; name <= 'C'; name++) {
        const void *matrix = name == 'A' ? p->call.a : name == 'B' ? p->call.b : p->call.c;
        if (clb_call_shape(&p->call, name, &shape) && shape.written)
            memcpy(p->result[by_shim], matrix,
                   p->elements * (single ? sizeof(float) : sizeof(double)));
    }
    return strcmp(options.clock, "cpu") == 0 ? time.cpu : time.median;
}

/* The largest difference, see above. */
static double difference(const struct problem *p)
{
    const bool single = clb_precision_real_size(p->call.precision) == sizeof(float);
    double worst = 0, largest = 0, unit = single ? 0x1p-24 : 0x1p-53;
    for (size_t i = 0; i < p->elements && options.alone == 0; i++) {
        double x =
            single ? (double)((const float *)p->result[0])[i] : ((const double *)p->result[0])[i];
        double y =
            single ? (double)((const float *)p->result[1])[i] : ((const double *)p->result[1])[i];
        worst = fabs(x - y) <= worst ? worst : fabs(x - y); /* a NaN stays */
        largest = fmax(largest, fabs(x));
    }
    return largest > 0 ? worst / (largest * unit * (double)p->call.n) : worst;
}

static bool all_on_device(const struct problem *p)
{
    typedef size_t report_function(char *, size_t);
    static char report[1 << 20];
    char name[32];
    snprintf(name, sizeof name, "%s_", clb_routines[p->call.routine].name);
    ((report_function *)bench_symbol(shim, "clblas_shim_report"))(report, sizeof report);
    return report_number(report, name, "device") == report_number(report, name, "calls");
}

/* ---- one row ---- */

static void open_problem(struct problem *p, clb_routine routine, size_t n)
{
    char name[32];
    struct clb_shape shape;
    const int64_t order = (int64_t)n;
    const int64_t rhs = options.rhs > 0 ? options.rhs : order;
    *p = (struct problem){.call = clb_trial_make(routine, order, order,
                                                 options.depth > 0 ? options.depth : order, rhs)};
    p->call.right = options.right != 0;
    p->call.upper = options.upper != 0;
    p->call.transa = options.trans[0] == 'T'   ? CLB_OP_T
                     : options.trans[0] == 'C' ? CLB_OP_C
                                               : CLB_OP_N;
    p->call.transb = strchr("TC", options.trans[1]) == NULL || options.trans[1] == '\0' ? CLB_OP_N
                     : options.trans[1] == 'T'                                          ? CLB_OP_T
                                                                                        : CLB_OP_C;
    for (char matrix = 'A'; matrix <= 'C'; matrix++) {
        if (clb_call_shape(&p->call, matrix, &shape) && shape.written)
            p->elements = shape.rows * shape.cols * clb_precision_parts(p->call.precision);
    }
    for (int i = 0; i < 2; i++)
        p->result[i] = bench_memory(p->elements * sizeof(double));
    snprintf(name, sizeof name, "%s_", clb_routines[routine].name);
    p->target[0].function = bench_symbol(openblas, name);
    p->target[1].function = bench_symbol(shim, name);
}

static bool measure(clb_routine routine, size_t n, const char *threads)
{
    struct problem p;
    struct bench_turns turns = {.call = take_turn, .problem = &p};
    open_problem(&p, routine, n);
    take_turn(&p, true, &(double){0}); /* compiles */
    bench_take_turns(&common, &turns);
    const size_t reps = turns.count;
    const struct clb_routine_info *info = &clb_routines[routine];
    const double best[2] = {bench_best(turns.other, reps), bench_best(turns.shim, reps)};
    double size[3];
    for (size_t i = 0; i < 3; i++)
        size[i] = (double)clb_call_size(&p.call, info->sizes[i]);
    const double work = 1e-9 * (clb_precision_parts(info->precision) == 2 ? 8 : 2) *
                        clb_work_of(info->row, size[0], size[1], size[2]);
    const double different = difference(&p);
    const bool good = different <= MOST_DIFFERENT && all_on_device(&p);
    printf("%-9s %6zu %-5s %10.3f %10.3f %9.1f %9.1f %7.3f %7.3f %7.3f %9.2g%s\n", info->name, n,
           threads, 1e3 * bench_median(turns.shim, reps), 1e3 * bench_median(turns.other, reps),
           work / best[1], work / best[0], bench_median(turns.ratio, reps), best[0] / best[1],
           bench_median(turns.cpu_ratio, reps), different,
           good                          ? ""
           : different <= MOST_DIFFERENT ? "  not on the device"
                                         : "  DIFFERENT");
    fflush(stdout);
    for (int i = 0; i < 2; i++)
        bench_release(p.result[i], p.elements * sizeof(double));
    return good;
}

/* ---- one process for each number of threads ---- */

static int run_child(const char *threads)
{
    bool good = true;
    int n;
    if (common.pause < 0)
        common.pause = atoi(threads) > 1 ? 40 : 0;
    openblas = bench_open(bench_openblas());
    shim = bench_open(bench_shim());
    printf("# %s threads, OpenBLAS core %s\n", threads, bench_core(openblas));
    fflush(stdout);
    for (size_t routine = 0; routine < CLB_ROUTINES; routine++) {
        const struct clb_routine_info *info = &clb_routines[routine];
        const char letter[] = {BENCH_PRECISIONS[info->precision], '\0'};
        if (!bench_is_listed(options.routines, info->stem) || strchr(info->flags, 'b') != NULL ||
            !bench_is_listed(common.precisions, letter))
            continue;
        for (const char *sizes = common.sizes; bench_next_number(&sizes, &n);)
            good &= measure((clb_routine)routine, (size_t)n, threads);
    }
    return good ? 0 : 1;
}

static int run_parent(char **arguments)
{
    if (bench_openblas() == NULL || bench_shim() == NULL)
        bench_fail("OpenBLAS or the shim is missing (BENCH_OPENBLAS, BENCH_SHIM)");
    setenv("CLBLAS_SHIM", "always", 0);
    setenv("CLBLAS_SHIM_NEXT", bench_openblas(), 0);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 0);
    printf("# %s\n# OpenBLAS %s, shim %s\n", bench_cpu(), bench_openblas(), bench_shim());
    printf("# times in ms, rates in GFLOP/s; ratio = shim / OpenBLAS\n");
    printf("%-9s %6s %-5s %10s %10s %9s %9s %7s %7s %7s %9s\n", "routine", "n", "thr", "shim med",
           "OB med", "shim best", "OB best", "ratio", "best", "cpu", "differ");
    return bench_run_processes(&common, arguments);
}

int main(int count, char **arguments)
{
    const char *threads = getenv("BENCH_THREADS");
    const struct bench_option table[] = {
        {"--routines", BENCH_TEXT, &options.routines}, {"--trans", BENCH_TEXT, &options.trans},
        {"--clock", BENCH_TEXT, &options.clock},       {"--right", BENCH_NUMBER, &options.right},
        {"--upper", BENCH_NUMBER, &options.upper},     {"--rhs", BENCH_NUMBER, &options.rhs},
        {"--depth", BENCH_NUMBER, &options.depth},     {"--alone", BENCH_NUMBER, &options.alone},
    };
    (void)count;
    bench_parse(&common, table, sizeof table / sizeof *table, "bench-calls.c", arguments);
    return threads != NULL ? run_child(threads) : run_parent(arguments);
}
