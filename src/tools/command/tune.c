/* clblas-shim tune: measures calls on the device and in the next library, for `auto` to decide by.
 *
 * Each side is a child process that opens the library with CLBLAS_SHIM_LEARN=1 and makes rows of
 * the same call, in turns, so that a machine whose speed changes is as slow for both. The other
 * side is stopped, since threads of BLAS libraries and of drivers spin for a while after a call;
 * after a turn they sleep, so a row's first calls don't count. The rows' medians go to the profile.
 * Besides square calls there are thin ones, of fewer sizes (clb_cost_reference). Where the device
 * was much faster at two sizes of a routine with times (cost.def), larger ones are not measured:
 * the table's times are scaled. SPDX-License-Identifier: BSD-3-Clause */
#include "measure.h"
#include "trial.h"
#include "shim/route/profile.h"

#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURNS           3 /* of each side, for a size; the median counts */
#define LONG            0.02
#define ROW             10e-3 /* seconds of a row, unless that takes more calls than MOST_CALLS */
#define MOST_CALLS      40
#define FIRST_CALLS     10 /* of a routine's first rows, when nothing is known of it */
#define MUCH_FASTER     3.0
#define MUCH_FASTER_AT  2 /* sizes, one after the other */
#define FIRST_CLASS     2
#define FIRST_PLAIN     0 /* beside a plain library, whose rate depends on the cache */
#define LAST_CLASS      12
#define THIN_EACH       3 /* classes, of calls that are not square */
#define SECONDS         120
#define SECONDS_QUICK   7   /* with --quick */
#define SECONDS_KERNELS 120 /* with --kernels */
#define LONGEST         1.0 /* a family whose calls take longer gets no larger ones; */
#define LONGEST_QUICK   0.1

static const clb_routine quick_routines[] = {
    CLB_ROUTINE_dgemm, CLB_ROUTINE_sgemm,  CLB_ROUTINE_zgemm,  CLB_ROUTINE_dsyrk,
    CLB_ROUTINE_dtrsm, CLB_ROUTINE_dgetrf, CLB_ROUTINE_dpotrf, CLB_ROUTINE_dgeqrf};

/* The first of its family in each precision: the next library may lack others, such as xGEMMTR. */
static bool is_measured(clb_routine routine, bool quick)
{
    bool chosen = !quick;
    for (size_t i = 0; i < CLB_COUNT_OF(quick_routines); i++)
        chosen = chosen || quick_routines[i] == routine;
    return chosen && routine == clb_routine_of(clb_routines[routine].kind,
                                               clb_routines[routine].precision, false);
}

/* The nearest size that, like most programs', is neither odd, which leaves edges, nor a multiple of
 * 64, where columns compete for the same cache lines. */
static int64_t usual_size(size_t n)
{
    const int64_t whole = 8 * (int64_t)((n + 4) / 8);
    return whole % 64 == 0 ? whole + 8 : whole;
}

/* The call of the shape, of the routine's family, that has about the class's work. False: none. */
static bool make_call(clb_routine routine, int shape, int class, struct clb_call *call)
{
    const bool exists =
        clb_cost_reference(clb_routines[routine].kind, clb_routines[routine].precision, shape,
                           clb_cost_class_work(class), call);
    *call = clb_trial_make(call->routine, usual_size(call->m), usual_size(call->n),
                           usual_size(call->k), usual_size(call->nrhs));
    return exists;
}

/* ---- child processes ---- */

static const char *const side_names[CLB_SIDES] = {"device", "next"};
static const char *const side_modes[CLB_SIDES] = {"always", "off"};

/* A forked child has the same addresses. */
struct size_order {
    struct clb_call call;
    size_t uncounted, calls;
};

/* Answer each order with the time of its calls, or none where the library has no such routine.
 * False: the library has no device. */
static bool make_ordered_calls(const char *library, int orders)
{
    struct size_order order;
    /* As preloaded: calls that the next library makes by name come to the shim, too. */
    dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    while (recv(orders, &order, sizeof order, MSG_WAITALL) == sizeof order) {
        struct clb_trial_time time = {.calls = 0};
        struct clb_target target;
        if (clb_find_target(library, order.call.routine, &target))
            time = clb_trial_run(&order.call, &target, order.uncounted, order.calls, INFINITY);
        if (send(orders, &time, sizeof time, MSG_NOSIGNAL) != sizeof time)
            break;
    }
    json_auto_t *report = clb_library_report(library);
    return report != NULL && strcmp(clb_text_of(report, "device"), "none") != 0;
}

struct child {
    pid_t id;   /* 0: none */
    int orders; /* a socket */
};

static struct child start_child(const char *library, clb_side side, bool learns)
{
    int ends[2];
    const pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return (struct child){0};
    fflush(NULL);
    const pid_t id = fork();
    if (id == 0) {
        /* A stopped process would stay for ever. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        setenv("CLBLAS_SHIM", side_modes[side], 1);
        setenv("CLBLAS_SHIM_LEARN", learns ? "1" : "0", 1);
        exit(getppid() == parent && make_ordered_calls(library, ends[1]) ? EXIT_SUCCESS
                                                                         : EXIT_FAILURE);
    }
    close(ends[1]);
    if (id < 0)
        close(ends[0]);
    return id > 0 ? (struct child){id, ends[0]} : (struct child){0};
}

/* Whether it has ended well. */
static bool end_child(struct child *child)
{
    const pid_t id = child->id;
    int status;
    child->id = 0;
    if (id == 0)
        return false;
    /* To close it is not enough: the child that was started later has it, too. */
    shutdown(child->orders, SHUT_RDWR);
    close(child->orders);
    kill(id, SIGCONT);
    return waitpid(id, &status, 0) == id && WIFEXITED(status) &&
           WEXITSTATUS(status) == EXIT_SUCCESS;
}

/* False: it has no such routine, or the call has ended it. */
static bool ask(struct child *child, const struct size_order *order, struct clb_trial_time *time)
{
    if (child->id == 0)
        return false;
    kill(child->id, SIGCONT);
    if (send(child->orders, order, sizeof *order, MSG_NOSIGNAL) != sizeof *order ||
        recv(child->orders, time, sizeof *time, MSG_WAITALL) != sizeof *time) {
        (void)end_child(child);
        return false;
    }
    kill(child->id, SIGSTOP);
    return time->calls > 0;
}

/* ---- turns ---- */

/* As the library counts the durations of calls. */
static double seconds_of(const struct clb_trial_time *time)
{
    const struct clb_device *device = clb_device_expected();
    return device != NULL && clb_device_is_cpu(device) ? fmin(time->median, time->cpu)
                                                       : time->median;
}

/* A routine's calls of one shape. */
struct tune_row {
    double took[CLB_SIDES], work; /* of the call before; INFINITY: no more */
    int much_faster;              /* the device, for so many calls before */
};

struct tuning {
    const char *library;
    struct child child[CLB_SIDES];
    struct tune_row row[CLB_ROUTINES][CLB_COST_SHAPES];
    double longest, end; /* seconds for all, and when these are over */
    size_t count;
};

static void show(const struct tuning *tuning, clb_side side, const struct clb_call *call,
                 double seconds)
{
    const double left = fmin(tuning->end - clb_now(), tuning->longest);
    const struct clb_cost_call cost = clb_cost_describe(call);
    char sizes[64] = "";
    size_t length = 0;
    const bool square = clb_cost_shape_of(&cost) % CLB_COST_ASPECTS == 0;
    for (const char *size = square ? "n" : "mnkr"; *size != '\0'; size++) {
        if (clb_signature_has(call, *size))
            length +=
                (size_t)snprintf(sizes + length, sizeof sizes - length, "%s%lld",
                                 length > 0 ? "x" : "", (long long)clb_call_size(call, *size));
    }
    clb_bar_clear();
    printf("%-6s %-8s %6s %10.3f ms\n", side_names[side], clb_routines[call->routine].name, sizes,
           1e3 * seconds);
    fflush(stdout);
    clb_bar_draw(
        1 - left / tuning->longest, "%s: %.1f GFLOP/s, at most %.0f s left", side_names[side],
        1e-9 * cost.work * (clb_precision_parts(call->precision) == 2 ? 8 : 2) / seconds, left);
}

/* As the library finds it in the children. */
static struct clb_cost_machine owner_of(clb_routine routine)
{
    return clb_owner_of(
        clb_next_get_target(clb_symbol_at(routine, 0), __builtin_return_address(0)));
}

static void learn(clb_side side, const struct clb_call *call, const double *seconds, size_t count)
{
    const struct clb_cost_machine owner = owner_of(call->routine);
    const struct clb_cost_call cost = clb_cost_describe(call);
    for (size_t i = 0; i < count; i++)
        clb_profile_learn(&owner, side, &cost, seconds[i]);
}

/* A call, on the sides that are not too slow for it. */
static void measure(struct tuning *tuning, struct tune_row *row, const struct clb_call *call,
                    double slow)
{
    double seconds[CLB_SIDES][TURNS];
    struct size_order orders[CLB_SIDES];
    size_t done[CLB_SIDES] = {0};
    const double work = clb_cost_describe(call).work;
    for (int i = 0; i < CLB_SIDES; i++) {
        /* Growing more than matrices, less than work: a row is not much longer than it should be;
         * 0: not known. */
        const double expected = row->took[i] * pow(work / fmax(row->work, 1), 0.8),
                     most = expected > 0 ? fmin(ROW / expected, MOST_CALLS) : FIRST_CALLS;
        const size_t uncounted = expected > LONG ? 0 : expected > ROW / 4 ? 1 : 2;
        orders[i] = (struct size_order){*call, uncounted, (size_t)fmax(most, 1)};
    }
    for (size_t turn = 0; turn < TURNS && clb_now() < tuning->end; turn++) {
        for (int i = 0; i < CLB_SIDES; i++) {
            const int side = turn % 2 == 0 ? i : CLB_SIDES - 1 - i;
            struct clb_trial_time time;
            if (row->took[side] > slow)
                continue;
            if (ask(&tuning->child[side], &orders[side], &time)) {
                seconds[side][done[side]++] = seconds_of(&time);
                continue;
            }
            row->took[side] = INFINITY;
            /* OpenBLAS 0.3.26's xGEMMT ends some processes. */
            if (tuning->child[side].id == 0 && side == CLB_SIDE_NEXT)
                tuning->child[side] = start_child(tuning->library, CLB_SIDE_NEXT, true);
        }
    }
    for (int i = 0; i < CLB_SIDES; i++) {
        if (done[i] == 0)
            continue;
        learn((clb_side)i, call, seconds[i], done[i]);
        row->took[i] = clb_median(seconds[i], done[i]);
        show(tuning, (clb_side)i, call, row->took[i]);
        tuning->count++;
    }
    row->work = work;
    const bool far = done[CLB_SIDE_DEVICE] > 0 && done[CLB_SIDE_NEXT] > 0 &&
                     MUCH_FASTER * row->took[CLB_SIDE_DEVICE] <= row->took[CLB_SIDE_NEXT];
    row->much_faster = far ? row->much_faster + 1 : 0;
}

/* All shapes of a family's calls of the class; the routine is its first one. */
static void measure_class(struct tuning *tuning, clb_routine routine, int class, bool quick)
{
    for (int shape = 0; shape < (quick ? 1 : CLB_COST_SHAPES) && clb_now() < tuning->end; shape++) {
        struct tune_row *row = &tuning->row[routine][shape];
        struct clb_call call;
        if (shape % CLB_COST_ASPECTS != 0 && class > FIRST_CLASS &&
            (class - FIRST_CLASS) % THIN_EACH != 0)
            continue;
        /* Larger sizes are then extrapolated from those that were measured. */
        if (row->much_faster < MUCH_FASTER_AT && make_call(routine, shape, class, &call))
            measure(tuning, row, &call, quick ? LONGEST_QUICK : LONGEST);
    }
}

/* All families, small calls first. */
static bool measure_all(const char *library, bool quick)
{
    static struct tuning tuning;
    tuning.library = library;
    tuning.longest = quick ? SECONDS_QUICK : SECONDS;
    tuning.end = INFINITY; /* the first calls of a kind may wait for kernels */
    for (int i = 0; i < CLB_SIDES; i++)
        tuning.child[i] = start_child(library, (clb_side)i, true);
    const bool plain = !owner_of(CLB_ROUTINE_dgemm).next.optimised;
    for (int class = plain ? FIRST_PLAIN : FIRST_CLASS; class <= LAST_CLASS;
         class += class < FIRST_CLASS ? FIRST_CLASS - FIRST_PLAIN : 1) {
        for (int r = 0; r < CLB_ROUTINES && clb_now() < tuning.end; r++) {
            if (is_measured((clb_routine)r, quick))
                measure_class(&tuning, (clb_routine)r, class, quick);
        }
        if (class == FIRST_CLASS) /* what is measured until then is short */
            tuning.end = clb_now() + tuning.longest;
    }
    clb_bar_clear();
    bool good = tuning.count > 0;
    for (int i = 0; i < CLB_SIDES; i++)
        good = (end_child(&tuning.child[i]) || i != CLB_SIDE_DEVICE) && good;
    if (good)
        clb_profile_write(false);
    return good;
}

/* Why a library of a list can't be opened, in an array; empty: all can. */
static json_t *list_missing(void *list)
{
    char *rest = list;
    json_t *missing = json_array();
    for (char *name; (name = strsep(&rest, ":")) != NULL;) {
        if (*name != '\0' && dlopen(name, RTLD_NOW | RTLD_LOCAL) == NULL)
            json_array_append_new(missing, json_string(dlerror()));
    }
    return missing;
}

/* Without it another library's times would be measured. */
static bool next_is_there(void)
{
    char *list = getenv("CLBLAS_SHIM_NEXT");
    if (list == NULL)
        return true;
    json_auto_t *missing = clb_ask_child(list_missing, list); /* takes a copy apart */
    const char *error = missing == NULL ? "a library ends the process that opens it"
                                        : json_string_value(json_array_get(missing, 0));
    return error == NULL || clb_fail(false, "CLBLAS_SHIM_NEXT=%s: %s", list, error);
}

/* The first start on a machine: from then on the cache and this process know the device. */
static bool start_device(const char *library)
{
    const int64_t n = (int64_t)cbrt(clb_cost_class_work(FIRST_CLASS));
    const struct size_order order = {clb_trial_make(CLB_ROUTINE_dgemm, n, n, n, n), 0, 1};
    struct child child = start_child(library, CLB_SIDE_DEVICE, false);
    struct clb_trial_time time;
    const bool good = ask(&child, &order, &time);
    return end_child(&child) && good;
}

int clb_command_tune(int argc, char **argv)
{
    static const char letters[] = "sdcz";
    const int first = clb_options_read(argc, argv);
    const char *precision = clb_option('p') != NULL ? clb_option('p') : "d",
               *wanted = clb_option('t'), *library = clb_find_library();
    char *end = NULL;
    const double seconds = wanted != NULL ? strtod(wanted, &end) : SECONDS_KERNELS;
    if (strlen(precision) != 1 || strchr(letters, precision[0]) == NULL)
        return clb_fail(CLB_EXIT_USAGE, "%s is no precision: s, d, c or z", precision);
    if ((end != NULL && *end != '\0') || !(seconds >= 1 && seconds <= 1e6))
        return clb_fail(CLB_EXIT_USAGE, "%s is no number of seconds", wanted);
    if (library == NULL)
        return CLB_EXIT_FAILED;
    if (first < argc)
        return clb_fail(CLB_EXIT_USAGE, "there is nothing to do with %s", argv[first]);
    if (clb_option('n') != NULL)
        setenv("CLBLAS_SHIM_NEXT", clb_option('n'), 1);
    unsetenv("LD_PRELOAD");
    unsetenv("CLBLAS_SHIM_STATS");
    if (clb_option('k') != NULL)
        return clb_tune_kernels((clb_precision)(strchr(letters, precision[0]) - letters), seconds);
    if (!next_is_there())
        return CLB_EXIT_FAILED;
    setenv("CLBLAS_SHIM_LEARN", "1", 1);
    unsetenv("CLBLAS_SHIM_REPRODUCIBLE"); /* which would write nothing */
    if (!start_device(library) || !measure_all(library, clb_option('q') != NULL))
        return clb_fail(CLB_EXIT_FAILED, "the measurement has failed, or there is no device");
    return EXIT_SUCCESS;
}
