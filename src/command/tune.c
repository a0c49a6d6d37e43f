/* clblas-shim tune: measures calls on the device and in the next library, for `auto` to decide by.
 *
 * Each side is a child process that opens the library with CLBLAS_SHIM_LEARN=1 and makes calls of
 * growing size: the library writes the profile when the child ends. One before them makes a single
 * call on the device: the first start on a machine takes several times as long as others, and those
 * are what the profile's is for. */
#include "measure.h"
#include "trial.h"
#include "route/profile.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS           5 /* of a size; the median counts */
#define CALLS_LONG      3 /* of calls that take longer than LONG */
#define LONG            0.02
#define FIRST_CLASS     2
#define LAST_CLASS      12
#define SECONDS         55  /* of a side */
#define SECONDS_QUICK   5   /* with --quick */
#define SECONDS_KERNELS 120 /* with --kernels */
#define LONGEST         1.0 /* a family whose calls take longer gets no larger ones; */
#define LONGEST_QUICK   0.1

/* What --quick measures. */
static const clb_routine quick_routines[] = {
    CLB_ROUTINE_dgemm, CLB_ROUTINE_sgemm,  CLB_ROUTINE_zgemm,  CLB_ROUTINE_dsyrk,
    CLB_ROUTINE_dtrsm, CLB_ROUTINE_dgetrf, CLB_ROUTINE_dpotrf, CLB_ROUTINE_dgeqrf};

static bool is_quick(clb_routine routine)
{
    for (size_t i = 0; i < CLB_COUNT_OF(quick_routines); i++) {
        if (quick_routines[i] == routine)
            return true;
    }
    return false;
}

/* The routine that a family is called after, else the first of it, in each precision. Others of the
 * family may be missing in the next library, as xGEMMTR is. */
static bool stands_for_family(clb_routine routine)
{
    const clb_cost_family family = clb_cost_family_of(routine);
    int first = -1;
    for (int r = 0; r < CLB_ROUTINES; r++) {
        if (clb_routines[r].precision != clb_routines[routine].precision ||
            clb_cost_family_of((clb_routine)r) != family)
            continue;
        if (strcmp(clb_routines[r].stem, clb_cost_family_name(family)) == 0)
            return r == (int)routine;
        if (first < 0)
            first = r;
    }
    return first == (int)routine;
}

/* The order whose square call has about the class's work. Programs' sizes are seldom odd, which
 * leaves edges, or multiples of 64, where columns compete for the same cache lines. */
static int64_t order_of(clb_routine routine, int class)
{
    const double order = clb_cost_order(clb_cost_family_of(routine), clb_cost_class_work(class));
    const int64_t n = 8 * (int64_t)(order / 8 + 0.5);
    return n % 64 == 0 ? n + 8 : n;
}

/* Whether the library has no device. */
static bool lacks_device(void *handle)
{
    typedef size_t report_function(char *, size_t);
    static char text[1 << 16];
    report_function *report;
    void *symbol = dlsym(handle, "clblas_shim_report");
    memcpy(&report, &symbol, sizeof report);
    return report == NULL || report(text, sizeof text) == 0 ||
           strstr(text, "\"device\":\"none\"") != NULL;
}

/* The sides, and a start that is not measured. */
static const char first_start[] = "start", device_side[] = "device", next_side[] = "next";

/* In a child process. */
static void start_device(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    void *symbol = handle != NULL ? dlsym(handle, "dgemm_") : NULL;
    if (symbol == NULL)
        exit(EXIT_FAILURE);
    const int64_t n = (int64_t)cbrt(clb_cost_class_work(FIRST_CLASS));
    struct clb_call call = clb_trial_make(CLB_ROUTINE_dgemm, n, n, n, n);
    struct clb_target target = {.ilp64 = false};
    memcpy(&target.function, &symbol, sizeof target.function);
    clb_trial_run(&call, &target, 1, INFINITY);
    fflush(stdout);
    exit(lacks_device(handle) ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* In a child process: calls of all families, small ones first. */
static void measure_side(const char *library, bool quick, const char *side)
{
    static double took[CLB_ROUTINES]; /* at the size before */
    const double longest = quick ? SECONDS_QUICK : SECONDS;
    const double slow = quick ? LONGEST_QUICK : LONGEST;
    double end = INFINITY; /* the first calls of a kind may wait for kernels */
    void *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    size_t count = 0;
    for (int class = FIRST_CLASS; class <= LAST_CLASS; class ++) {
        for (int r = 0; handle != NULL && r < CLB_ROUTINES; r++) {
            char name[32];
            const clb_routine routine = (clb_routine)r;
            snprintf(name, sizeof name, "%s_", clb_routines[r].name);
            void *symbol = dlsym(handle, name);
            if (symbol == NULL || took[r] > slow || clb_now() > end ||
                !stands_for_family(routine) || (quick && !is_quick(routine)))
                continue;
            const int64_t n = order_of(routine, class);
            struct clb_call call = clb_trial_make(routine, n, n, n, n);
            struct clb_target target = {.ilp64 = false};
            memcpy(&target.function, &symbol, sizeof target.function);
            const size_t calls = took[r] > LONG ? CALLS_LONG : CALLS;
            took[r] = clb_trial_run(&call, &target, calls, INFINITY).median;
            clb_bar_clear();
            printf("%-6s %-8s %6lld %10.3f ms\n", side, clb_routines[r].name, (long long)n,
                   1e3 * took[r]);
            count++;
            fflush(stdout);
            const double left = fmin(end - clb_now(), longest);
            clb_bar_draw(1 - left / longest, "%s: %.1f GFLOP/s, at most %.0f s left", side,
                         1e-9 * clb_call_flops(routine, (size_t)n) / took[r], left);
        }
        if (class == FIRST_CLASS)
            end = clb_now() + longest;
    }
    clb_bar_clear();
    fflush(stdout);
    const bool failed = count == 0 || (side == device_side && lacks_device(handle));
    exit(failed ? EXIT_FAILURE : EXIT_SUCCESS);
}

static bool measure(const char *library, bool quick, const char *side, const char *mode)
{
    int status;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        setenv("CLBLAS_SHIM", mode, 1);
        setenv("CLBLAS_SHIM_LEARN", side == first_start ? "0" : "1", 1);
        unsetenv("CLBLAS_SHIM_REPRODUCIBLE"); /* which would write nothing */
        unsetenv("CLBLAS_SHIM_STATS");
        if (side == first_start)
            start_device(library);
        measure_side(library, quick, side);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == EXIT_SUCCESS;
}

/* The seconds of --seconds; 0: no number. */
static double parse_seconds(const char *text)
{
    char *end;
    const double seconds = strtod(text, &end);
    return *end == '\0' && seconds >= 1 && seconds <= 1e6 ? seconds : 0;
}

int clb_command_tune(int argc, char **argv)
{
    static const char letters[] = "sdcz";
    bool quick = false, kernels = false;
    const char *precision = "d", *seconds = NULL;
    for (int letter; (letter = clb_option_next(argc, argv)) >= 0;) {
        if (letter == 'd')
            setenv("CLBLAS_SHIM_DEVICE", optarg, 1);
        else if (letter == 'n')
            setenv("CLBLAS_SHIM_NEXT", optarg, 1);
        else if (letter == 'p')
            precision = optarg;
        else if (letter == 't')
            seconds = optarg;
        else if (letter == 'k')
            kernels = true;
        else
            quick = true;
    }
    if (strlen(precision) != 1 || strchr(letters, precision[0]) == NULL)
        return clb_fail(CLB_EXIT_USAGE, "%s is no precision: s, d, c or z", precision);
    if (seconds != NULL && parse_seconds(seconds) <= 0)
        return clb_fail(CLB_EXIT_USAGE, "%s is no number of seconds", seconds);
    const char *library = clb_find_library();
    if (library == NULL)
        return CLB_EXIT_FAILED;
    if (optind < argc)
        return clb_fail(CLB_EXIT_USAGE, "there is nothing to do with %s", argv[optind]);
    unsetenv("LD_PRELOAD");
    if (kernels)
        return clb_tune_kernels((clb_precision)(strchr(letters, precision[0]) - letters),
                                seconds != NULL ? parse_seconds(seconds) : SECONDS_KERNELS);
    /* The device first: the cache then knows it, and so does the process that does not start it. */
    if (!measure(library, quick, first_start, "always") ||
        !measure(library, quick, device_side, "always") ||
        !measure(library, quick, next_side, "off"))
        return clb_fail(CLB_EXIT_FAILED, "the measurement has failed, or there is no device");
    return EXIT_SUCCESS;
}
