/* SPDX-License-Identifier: BSD-3-Clause
 * Statistics: summed by atomic additions, in a few sets so that threads seldom meet at one. */
#include "engine/ocl/helper.h"
#include "host/process.h"
#include "profile.h"
#include "route.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is summed of a name's calls: first what the report has of every name, then what follows from
 * predictions, then the calls that other calls made; and those declined for each reason. */
#define FIELD_TABLE(X)                          \
    X(DEVICE, "device")                         \
    X(NEXT, "next")                             \
    X(RECOVERED, "recovered")                   \
    X(FLOPS, "flops")                           \
    X(FLOPS_DEVICE, "flops_device")             \
    X(SECONDS_DEVICE, "seconds_device")         \
    X(SECONDS_NEXT, "seconds_next")             \
    X(PREDICTED, "predicted")                   \
    X(MEASURED, "measured")                     \
    X(PREDICTED_DEVICE, "predicted_device")     \
    X(PREDICTED_NEXT, "predicted_next")         \
    X(SAVED, "seconds_saved")                   \
    X(SAVED_MEASURED, "seconds_saved_measured") \
    X(INSIDE, "inside")                         \
    X(FLOPS_INSIDE, "flops_inside")             \
    X(SECONDS_INSIDE, "seconds_inside")

enum field {
#define FIELD(id, name) id,
    FIELD_TABLE(FIELD)
#undef FIELD
        DECLINED,
    FIELDS = DECLINED + CLB_REASONS
};
static const char *const field_names[DECLINED] = {
#define FIELD(id, name) [id] = name,
    FIELD_TABLE(FIELD)
#undef FIELD
};

/* Of one name. Doubles count exactly up to 2^53. */
enum { KERNELS = 4 };
struct stats_sums {
    _Atomic double value[FIELDS];
    struct {
        _Atomic(const char *) name;
        _Atomic uint64_t calls;
    } kernels[KERNELS];
};

enum { SETS = 16 };
static _Atomic(struct stats_sums *) sums[SETS][CLB_SYMBOLS];
static _Atomic unsigned threads;
static CLB_THREAD unsigned own_set; /* from 1; 0: the thread has counted nothing yet */
bool clb_stats_wanted;

/* A forked child starts with all counts zero. */
static void reset_in_child(void)
{
    static struct clb_mutex lock = CLB_MUTEX_INITIALIZER;
    static _Atomic unsigned generation; /* of the process that counts */
    if (CLB_LIKELY(atomic_load(&generation) == clb_generation()))
        return;
    const bool first = clb_lock(&lock);
    for (size_t set = 0; first && set < SETS; set++) {
        for (size_t i = 0; i < CLB_SYMBOLS; i++) {
            struct stats_sums *of = atomic_load(&sums[set][i]);
            if (of != NULL)
                memset(of, 0, sizeof *of);
        }
    }
    atomic_store(&generation, clb_generation());
    clb_unlock(&lock);
}

/* A symbol's sums for this thread; NULL when memory has run out. */
static struct stats_sums *sums_of(const struct clb_symbol *symbol)
{
    reset_in_child();
    if (own_set == 0)
        own_set = atomic_fetch_add(&threads, 1) % SETS + 1;
    _Atomic(struct stats_sums *) *at = &sums[own_set - 1][symbol - clb_symbols];
    struct stats_sums *of = atomic_load_explicit(at, memory_order_acquire), *there = NULL;
    if (of != NULL)
        return of;
    of = calloc(1, sizeof *of);
    if (atomic_compare_exchange_strong(at, &there, of))
        return of;
    free(of);
    return there;
}

static void add(struct stats_sums *of, enum field field, double value)
{
    double sum = atomic_load_explicit(&of->value[field], memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&of->value[field], &sum, sum + value,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* ---- counting ---- */

void clb_stats_configure(void)
{
    const struct clb_config *config = clb_config_get();
    clb_report_file_note(config->stats);
    clb_stats_wanted = config->stats != NULL;
}

static void count_inside(struct stats_sums *of, double flops, double seconds)
{
    add(of, INSIDE, 1);
    add(of, FLOPS_INSIDE, flops);
    add(of, SECONDS_INSIDE, seconds);
}

/* Kernels beyond the first few are not listed. */
static void count_kernel(struct stats_sums *of, const char *kernel)
{
    for (int i = 0; i < KERNELS; i++) {
        const char *name = NULL;
        if (atomic_compare_exchange_strong(&of->kernels[i].name, &name, kernel) || name == kernel) {
            atomic_fetch_add_explicit(&of->kernels[i].calls, 1, memory_order_relaxed);
            return;
        }
    }
}

/* `saved`: seconds that the device has saved, or would have in a dry run. */
static void count_prediction(struct stats_sums *of, const struct clb_run *run, double saved)
{
    if (!clb_run_is_predicted(run))
        return;
    add(of, PREDICTED, 1);
    add(of, PREDICTED_DEVICE, run->prediction.device);
    add(of, PREDICTED_NEXT, run->prediction.next);
    add(of, SAVED, saved);
    add(of, MEASURED, run->prediction.measured);
    add(of, SAVED_MEASURED, run->prediction.measured ? saved : 0);
}

static void log_call(const struct clb_run *run, const char *where, const char *detail,
                     double seconds)
{
    char text[120];
    char predicted[80] = "";
    const struct clb_prediction *p = &run->prediction;
    if (!clb_log_wanted(CLB_LOG_DEBUG))
        return;
    clb_call_describe(run->call, text, sizeof text);
    if (clb_run_is_predicted(run))
        snprintf(predicted, sizeof predicted, "; %s: device %.3f, next %.3f ms",
                 p->measured ? "measured" : "estimated", 1e3 * p->device, 1e3 * p->next);
    clb_log(CLB_LOG_DEBUG, "%s %s -> %s (%s) %.3f ms%s", run->entry->symbol->next.name, text, where,
            detail, 1e3 * seconds, predicted);
}

void clb_stats_declined(const struct clb_run *run, clb_reason reason)
{
    struct stats_sums *of = clb_stats_wanted ? sums_of(run->entry->symbol) : NULL;
    const double flops = clb_run_computes_nothing(run) ? 0 : run->flops;
    log_call(run, "next", clb_reason_name(reason), 0);
    if (of == NULL)
        return;
    add(of, NEXT, 1);
    add(of, (enum field)(DECLINED + reason), 1);
    add(of, FLOPS, flops);
    if (run->entry->inside)
        count_inside(of, flops, 0); /* clb_next_end adds the seconds */
    count_prediction(
        of, run, reason == CLB_REASON_DRY_RUN ? run->prediction.next - run->prediction.device : 0);
}

void clb_stats_computed(const struct clb_run *run, bool recovered, double seconds_next)
{
    struct stats_sums *of = clb_stats_wanted ? sums_of(run->entry->symbol) : NULL;
    const double seconds = run->seconds + seconds_next;
    log_call(run, recovered ? "recovered" : "device", run->kernel, seconds);
    if (of == NULL)
        return;
    add(of, recovered ? RECOVERED : DEVICE, 1);
    add(of, FLOPS, run->flops);
    add(of, FLOPS_DEVICE, run->flops * run->share);
    add(of, SECONDS_DEVICE, run->seconds);
    add(of, SECONDS_NEXT, seconds_next);
    if (run->entry->inside)
        count_inside(of, run->flops, seconds);
    count_kernel(of, run->kernel);
    count_prediction(of, run, run->prediction.next - seconds);
}

void clb_next_end(const struct clb_entry *entry, double begin)
{
    const double seconds = clb_now() - begin;
    struct stats_sums *of = clb_stats_wanted ? sums_of(entry->symbol) : NULL;
    if (entry->held)
        clb_next_release_threads();
    if (of != NULL)
        add(of, SECONDS_NEXT, seconds);
    if (of != NULL && entry->inside)
        add(of, SECONDS_INSIDE, seconds);
    if (entry->encloses)
        clb_history_enclose(NULL, false, 0);
    if (entry->learnt || entry->compared || entry->weighed)
        clb_predict_learn_next(entry, seconds);
}

/* ---- summing ---- */

struct totals {
    double calls, value[FIELDS];
    struct {
        const char *name;
        uint64_t calls;
    } kernels[2 * KERNELS];
};

static void add_kernel(struct totals *totals, const char *name, uint64_t calls)
{
    for (size_t i = 0; i < CLB_COUNT_OF(totals->kernels); i++) {
        if (totals->kernels[i].name == NULL)
            totals->kernels[i].name = name;
        if (strcmp(totals->kernels[i].name, name) == 0) {
            totals->kernels[i].calls += calls;
            return;
        }
    }
}

static struct totals sum(int symbol)
{
    struct totals totals = {0};
    reset_in_child();
    for (int set = 0; set < SETS; set++) {
        struct stats_sums *of = atomic_load_explicit(&sums[set][symbol], memory_order_acquire);
        for (int f = 0; of != NULL && f < FIELDS; f++)
            totals.value[f] += atomic_load(&of->value[f]);
        for (int i = 0; of != NULL && i < KERNELS; i++) {
            const char *name = atomic_load(&of->kernels[i].name);
            if (name != NULL)
                add_kernel(&totals, name, atomic_load(&of->kernels[i].calls));
        }
    }
    totals.calls = totals.value[DEVICE] + totals.value[NEXT] + totals.value[RECOVERED];
    return totals;
}

static bool stats_any(void)
{
    for (int s = 0; s < CLB_SYMBOLS; s++) {
        if (sum(s).calls > 0)
            return true;
    }
    return false;
}

/* Of all, without what is in the time of the calls that made them. */
bool clb_stats_sum_calls(const char *name, double result[CLB_STATS_SUMS])
{
    bool found = false;
    memset(result, 0, CLB_STATS_SUMS * sizeof *result);
    for (int s = 0; clb_stats_wanted && s < CLB_SYMBOLS; s++) {
        if (name != NULL && strcmp(clb_symbols[s].next.name, name) != 0)
            continue;
        const struct totals totals = sum(s);
        found = true;
        result[0] += totals.calls;
        for (int f = DEVICE; f <= SECONDS_NEXT; f++)
            result[1 + f] += totals.value[f];
        result[1 + FLOPS] -= name == NULL ? totals.value[FLOPS_INSIDE] : 0;
        result[1 + SECONDS_NEXT] -= name == NULL ? totals.value[SECONDS_INSIDE] : 0;
    }
    return found;
}

/* ---- the report as JSON ---- */

/* The name of a member, behind a comma unless it is the object's first. */
static void add_name(struct clb_text *text, const char *name)
{
    clb_text_add(text, text->length > 0 && text->data[text->length - 1] != '{' ? "," : "");
    clb_text_add_quoted(text, name);
    clb_text_add(text, ":");
}

static void add_number(struct clb_text *text, const char *name, double value)
{
    add_name(text, name);
    if (value == floor(value) && value < 1e15)
        clb_text_addf(text, "%.0f", value);
    else
        clb_text_add_double(text, value);
}

/* Left out where there were no such calls: the first field is their number. */
static void add_fields(struct clb_text *text, const struct totals *totals, int from, int to)
{
    for (int f = from; f < to && (from == DEVICE || totals->value[from] > 0); f++)
        add_number(text, field_names[f], totals->value[f]);
}

static void format_routine(struct clb_text *text, const struct totals *totals)
{
    clb_text_add(text, "{");
    add_number(text, "calls", totals->calls);
    add_fields(text, totals, DEVICE, PREDICTED);
    add_fields(text, totals, PREDICTED, INSIDE);
    add_fields(text, totals, INSIDE, DECLINED);
    clb_text_add(text, ",\"kernels\":{");
    for (size_t i = 0; i < CLB_COUNT_OF(totals->kernels); i++) {
        if (totals->kernels[i].name != NULL)
            add_number(text, totals->kernels[i].name, (double)totals->kernels[i].calls);
    }
    clb_text_add(text, "},\"declined\":{");
    for (int r = 0; r < CLB_REASONS; r++) {
        if (totals->value[DECLINED + r] > 0)
            add_number(text, clb_reason_name((clb_reason)r), totals->value[DECLINED + r]);
    }
    clb_text_add(text, "}}");
}

/* Formats all libraries found for a name, the latest first. */
static void format_targets(struct clb_text *text, const struct clb_target *target)
{
    struct clb_text names = {0};
    for (; target != NULL; target = target->link)
        clb_text_addf(&names, names.length > 0 ? ",%s" : "%s",
                      target->library != NULL ? target->library : "");
    clb_text_add_quoted(text, names.data != NULL ? names.data : "");
    clb_text_free(&names);
}

/* What rates have decided; left out where they have decided nothing. */
static void format_decisions(struct clb_text *text)
{
    const struct clb_rate_decision *list;
    const size_t count = clb_rate_decisions(&list);
    for (size_t i = 0; i < count; i++) {
        clb_text_add(text, i == 0 ? ",\"rates\":[{" : ",{");
        add_name(text, "dropped");
        clb_text_add_quoted(text, list[i].dropped);
        add_number(text, "gflops", list[i].dropped_rate);
        add_name(text, "used");
        clb_text_add_quoted(text, list[i].used);
        add_number(text, "gflops_used", list[i].used_rate);
        clb_text_add(text, i + 1 < count ? "}" : "}]");
    }
}

/* An object with a member for each name that was called: its libraries, or its counts. */
static void format_names(struct clb_text *text, bool counts)
{
    clb_text_add(text, "{");
    for (int s = 0; s < CLB_SYMBOLS; s++) {
        const struct totals totals = sum(s);
        if (!(totals.calls > 0))
            continue;
        add_name(text, clb_symbols[s].next.name);
        if (counts)
            format_routine(text, &totals);
        else
            format_targets(text, atomic_load(&clb_symbols[s].next.targets));
    }
    clb_text_add(text, "}");
}

void clb_stats_format_json(struct clb_text *text)
{
    const struct clb_runtime *runtime = clb_runtime_peek();
    clb_text_add(text, "{\"version\":\"" CLB_VERSION "\",\"device\":");
    clb_text_add_quoted(text, runtime != NULL ? runtime->device.name : "none");
    format_decisions(text);
    clb_text_add(text, ",\"next\":");
    format_names(text, false);
    clb_text_add(text, ",\"routines\":");
    format_names(text, true);
    clb_text_add(text, "}\n");
}

/* ---- the report as a table ---- */

void clb_stats_format_table(struct clb_text *text)
{
    const struct clb_runtime *runtime = clb_runtime_peek();
    clb_text_addf(text, "clblas-shim " CLB_VERSION ", device %s\n",
                  runtime != NULL ? runtime->device.name : "not started");
    clb_text_addf(text, "%-20s %10s %10s %10s %10s %12s %12s  %s\n", "routine", "calls", "device",
                  "next", "recovered", "s on device", "s in next", "declined because");
    for (int s = 0; s < CLB_SYMBOLS; s++) {
        struct totals totals = sum(s);
        if (!(totals.calls > 0))
            continue;
        const double *value = totals.value;
        clb_text_addf(text, "%-20s %10.0f %10.0f %10.0f %10.0f %12.3f %12.3f ",
                      clb_symbols[s].next.name, totals.calls, value[DEVICE], value[NEXT],
                      value[RECOVERED], value[SECONDS_DEVICE], value[SECONDS_NEXT]);
        for (int r = 0; r < CLB_REASONS; r++) {
            if (value[DECLINED + r] > 0)
                clb_text_addf(text, " %s:%.0f", clb_reason_name((clb_reason)r),
                              value[DECLINED + r]);
        }
        if (value[INSIDE] > 0)
            clb_text_addf(text, " (%.0f inside other calls)", value[INSIDE]);
        clb_text_add(text, "\n");
    }
}

/* ---- at exit, without OpenCL calls and without locks ---- */

#define VARIABLE "CLBLAS_SHIM_STATS"

/* True when the parent process has been started with the variable, too. */
static bool is_inherited(void)
{
    char path[64], *entry = NULL;
    size_t size = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%ld/environ", (long)getppid());
    FILE *file = clb_file_read(path);
    while (file != NULL && !found && getdelim(&entry, &size, '\0', file) > 0)
        found = strncmp(entry, VARIABLE "=", strlen(VARIABLE "=")) == 0;
    if (file != NULL)
        fclose(file);
    free(entry);
    return found;
}

/* A user who asks for a table is told when it is empty, also when the configuration was never read.
 * Only the program that was started with the variable says so: children inherit it, and their
 * stderr may be used for other messages. */
static bool must_say_nothing_came(void)
{
    return clb_config_asks_for_table() && clb_generation() == 0 && !is_inherited();
}

__attribute__((destructor)) static void write_report_at_exit(void)
{
    struct clb_text report = {0};
    const char *name = "-";
    if (atomic_load(&clb_route_is_configured))
        clb_profile_write(!clb_decide_learns());
    if (clb_stats_wanted && stats_any() && clb_config_get()->stats != NULL) {
        name = clb_config_get()->stats;
        if (strcmp(name, "-") == 0)
            clb_stats_format_table(&report);
        else
            clb_stats_format_json(&report);
    } else if (must_say_nothing_came()) {
        clb_text_addf(&report,
                      "clblas-shim " CLB_VERSION ": no BLAS or LAPACK call of %s (process %ld) "
                      "reached the library\n",
                      program_invocation_short_name, (long)getpid());
    }
    if (report.data != NULL)
        clb_report_file_write(VARIABLE, name, &report);
    clb_text_free(&report);
}
