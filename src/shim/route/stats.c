/* Statistics: counted per thread without locks, summed when they are read, and written at exit.
 *
 * The block of counters of a thread outlives the thread and is reused by a later one. So no count
 * is lost, and memory does not grow with the number of threads that have ever existed. */
#include "engine/ocl/helper.h"
#include "host/process.h"
#include "profile.h"
#include "run.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_KERNELS 4

struct counters {
    _Atomic uint64_t device, recovered, declined[CLB_REASONS];
    _Atomic double flops, flops_device, seconds_device, seconds_next;
    _Atomic uint64_t predicted, measured;
    _Atomic double predicted_device, predicted_next, saved, saved_measured;
    _Atomic uint64_t inside; /* calls that other calls made, */
    _Atomic double flops_inside, seconds_inside;
    struct {
        _Atomic(const char *) name;
        _Atomic uint64_t calls;
    } kernels[MAX_KERNELS];
};

struct stats_block {
    _Atomic bool taken;
    struct stats_block *link;
    _Atomic(struct counters *) rows[CLB_SYMBOLS];
};

bool clb_stats_wanted;
static _Atomic(struct stats_block *) blocks;
static CLB_THREAD struct stats_block *own_block;
static pthread_key_t thread_end;

/* ---- blocks ---------------------------------------------------------------------------------- */

static void give_block(void *block)
{
    own_block = NULL;
    atomic_store(&((struct stats_block *)block)->taken, false);
}

/* A forked child has only the forking thread, and starts with all counts zero. */
static void reset_in_child(void)
{
    static struct clb_mutex lock = CLB_MUTEX_INITIALIZER;
    static _Atomic unsigned generation; /* of the process that counts */
    if (CLB_LIKELY(atomic_load(&generation) == clb_generation()))
        return;
    const bool first = clb_lock(&lock);
    for (struct stats_block *block = atomic_load(&blocks); first && block != NULL;
         block = block->link) {
        for (int s = 0; s < CLB_SYMBOLS; s++) {
            struct counters *counters = atomic_load(&block->rows[s]);
            if (counters != NULL)
                memset(counters, 0, sizeof *counters);
        }
        atomic_store(&block->taken, block == own_block);
    }
    atomic_store(&generation, clb_generation());
    clb_unlock(&lock);
}

static struct stats_block *take_block(void)
{
    struct stats_block *block = atomic_load(&blocks);
    for (; block != NULL; block = block->link) {
        bool taken = false;
        if (atomic_compare_exchange_strong(&block->taken, &taken, true))
            break;
    }
    if (block == NULL) {
        block = calloc(1, sizeof *block);
        if (block == NULL)
            return NULL;
        atomic_store(&block->taken, true);
        block->link = atomic_load(&blocks);
        while (!atomic_compare_exchange_weak(&blocks, &block->link, block))
            ;
    }
    own_block = block;
    pthread_setspecific(thread_end, block);
    return block;
}

/* This thread's counters for a symbol; NULL when memory has run out. */
static struct counters *counters_of(const struct clb_symbol *symbol)
{
    reset_in_child();
    struct stats_block *block = own_block != NULL ? own_block : take_block();
    if (block == NULL)
        return NULL;
    _Atomic(struct counters *) *row = &block->rows[symbol - clb_symbols];
    struct counters *counters = atomic_load_explicit(row, memory_order_relaxed);
    if (counters == NULL) {
        counters = calloc(1, sizeof *counters);
        atomic_store_explicit(row, counters, memory_order_release);
    }
    return counters;
}

/* Only the owning thread writes, so an atomic load and store are enough. */
static void count(_Atomic uint64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static void stats_add(_Atomic double *sum, double value)
{
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + value,
                          memory_order_relaxed);
}

/* ---- counting -------------------------------------------------------------------------------- */

void clb_stats_configure(void)
{
    const struct clb_config *config = clb_config_get();
    clb_report_file_note(config->stats);
    clb_stats_wanted = (config->stats != NULL || config->learn) &&
                       pthread_key_create(&thread_end, give_block) == 0;
}

static void count_inside(struct counters *counters, double flops, double seconds)
{
    count(&counters->inside);
    stats_add(&counters->flops_inside, flops);
    stats_add(&counters->seconds_inside, seconds);
}

static void count_kernel(struct counters *counters, const char *kernel)
{
    for (int i = 0; i < MAX_KERNELS; i++) {
        const char *name = atomic_load_explicit(&counters->kernels[i].name, memory_order_relaxed);
        if (name == NULL)
            atomic_store_explicit(&counters->kernels[i].name, kernel, memory_order_release);
        if (name == NULL || name == kernel) {
            count(&counters->kernels[i].calls);
            return;
        }
    }
}

/* The prediction for a call, both sides of which are known, and the seconds that the device has
 * saved, or would have in a dry run. */
static void count_prediction(struct counters *counters, const struct clb_run *run, double saved)
{
    if (!clb_run_is_predicted(run))
        return;
    count(&counters->predicted);
    stats_add(&counters->predicted_device, run->prediction.device);
    stats_add(&counters->predicted_next, run->prediction.next);
    stats_add(&counters->saved, saved);
    if (!run->prediction.measured)
        return;
    count(&counters->measured);
    stats_add(&counters->saved_measured, saved);
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
    struct counters *counters = clb_stats_wanted ? counters_of(run->entry->symbol) : NULL;
    const double flops = clb_run_computes_nothing(run) ? 0 : run->flops;
    log_call(run, "next", clb_reason_name(reason), 0);
    if (counters == NULL)
        return;
    count(&counters->declined[reason]);
    stats_add(&counters->flops, flops);
    if (run->entry->inside)
        count_inside(counters, flops, 0); /* clb_next_end adds the seconds */
    count_prediction(counters, run,
                     reason == CLB_REASON_DRY_RUN ? run->prediction.next - run->prediction.device
                                                  : 0);
}

void clb_stats_computed(const struct clb_run *run, bool recovered, double seconds_next)
{
    struct counters *counters = clb_stats_wanted ? counters_of(run->entry->symbol) : NULL;
    const double seconds = run->seconds + seconds_next;
    log_call(run, recovered ? "recovered" : "device", run->kernel, seconds);
    if (counters == NULL)
        return;
    count(recovered ? &counters->recovered : &counters->device);
    stats_add(&counters->flops, run->flops);
    stats_add(&counters->flops_device, run->flops * run->share);
    stats_add(&counters->seconds_device, run->seconds);
    stats_add(&counters->seconds_next, seconds_next);
    if (run->entry->inside)
        count_inside(counters, run->flops, seconds);
    count_kernel(counters, run->kernel);
    count_prediction(counters, run, run->prediction.next - seconds);
}

double clb_next_begin(void)
{
    return clb_now();
}

void clb_next_end(const struct clb_entry *entry, double begin)
{
    const double seconds = clb_now() - begin;
    struct counters *counters = clb_stats_wanted ? counters_of(entry->symbol) : NULL;
    if (counters != NULL)
        stats_add(&counters->seconds_next, seconds);
    if (counters != NULL && entry->inside)
        stats_add(&counters->seconds_inside, seconds);
    if (entry->encloses)
        clb_history_leave();
    if (entry->learnt || entry->compared)
        clb_predict_learn_next(entry, seconds);
}

/* ---- summing --------------------------------------------------------------------------------- */

struct totals {
    uint64_t calls, device, next, recovered, declined[CLB_REASONS];
    double flops, flops_device, seconds_device, seconds_next;
    uint64_t predicted, measured;
    double predicted_device, predicted_next, saved, saved_measured;
    uint64_t inside;
    double flops_inside, seconds_inside;
    struct {
        const char *name;
        uint64_t calls;
    } kernels[2 * MAX_KERNELS];
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

static void add_counters(struct totals *totals, struct counters *counters)
{
    totals->device += atomic_load(&counters->device);
    totals->recovered += atomic_load(&counters->recovered);
    for (int r = 0; r < CLB_REASONS; r++) {
        totals->declined[r] += atomic_load(&counters->declined[r]);
        totals->next += atomic_load(&counters->declined[r]);
    }
    totals->flops += atomic_load(&counters->flops);
    totals->flops_device += atomic_load(&counters->flops_device);
    totals->seconds_device += atomic_load(&counters->seconds_device);
    totals->seconds_next += atomic_load(&counters->seconds_next);
    totals->predicted += atomic_load(&counters->predicted);
    totals->measured += atomic_load(&counters->measured);
    totals->predicted_device += atomic_load(&counters->predicted_device);
    totals->predicted_next += atomic_load(&counters->predicted_next);
    totals->saved += atomic_load(&counters->saved);
    totals->saved_measured += atomic_load(&counters->saved_measured);
    totals->inside += atomic_load(&counters->inside);
    totals->flops_inside += atomic_load(&counters->flops_inside);
    totals->seconds_inside += atomic_load(&counters->seconds_inside);
    for (int i = 0; i < MAX_KERNELS; i++) {
        const char *name = atomic_load_explicit(&counters->kernels[i].name, memory_order_acquire);
        if (name != NULL)
            add_kernel(totals, name, atomic_load(&counters->kernels[i].calls));
    }
}

static struct totals sum(int symbol)
{
    reset_in_child();
    struct totals totals = {0};
    for (struct stats_block *block = atomic_load(&blocks); block != NULL; block = block->link) {
        struct counters *counters =
            atomic_load_explicit(&block->rows[symbol], memory_order_acquire);
        if (counters != NULL)
            add_counters(&totals, counters);
    }
    totals.calls = totals.device + totals.next + totals.recovered;
    return totals;
}

static bool stats_any(void)
{
    for (int s = 0; s < CLB_SYMBOLS; s++) {
        if (sum(s).calls != 0)
            return true;
    }
    return false;
}

/* ---- the report as JSON ---------------------------------------------------------------------- */

/* ", " before every item but the first. */
static void separate(struct clb_text *text, bool *first)
{
    if (!*first)
        clb_text_add(text, ",");
    *first = false;
}

static void add_count(struct clb_text *text, bool *first, const char *name, uint64_t value)
{
    separate(text, first);
    clb_text_addf(text, "\"%s\":%llu", name, (unsigned long long)value);
}

static void add_number(struct clb_text *text, const char *name, double value)
{
    clb_text_addf(text, ",\"%s\":", name);
    clb_text_add_double(text, value);
}

/* Left out where nothing was predicted. */
static void format_predictions(struct clb_text *text, const struct totals *totals)
{
    bool first = false;
    if (totals->predicted == 0)
        return;
    add_count(text, &first, "predicted", totals->predicted);
    add_count(text, &first, "measured", totals->measured);
    add_number(text, "predicted_device", totals->predicted_device);
    add_number(text, "predicted_next", totals->predicted_next);
    add_number(text, "seconds_saved", totals->saved);
    add_number(text, "seconds_saved_measured", totals->saved_measured);
}

/* Left out where no call was made by another one. */
static void format_inside(struct clb_text *text, const struct totals *totals)
{
    bool first = false;
    if (totals->inside == 0)
        return;
    add_count(text, &first, "inside", totals->inside);
    add_number(text, "flops_inside", totals->flops_inside);
    add_number(text, "seconds_inside", totals->seconds_inside);
}

static void format_routine(struct clb_text *text, const struct totals *totals)
{
    bool first = true;
    clb_text_add(text, "{");
    add_count(text, &first, "calls", totals->calls);
    add_count(text, &first, "device", totals->device);
    add_count(text, &first, "next", totals->next);
    add_count(text, &first, "recovered", totals->recovered);
    add_number(text, "flops", totals->flops);
    add_number(text, "flops_device", totals->flops_device);
    add_number(text, "seconds_device", totals->seconds_device);
    add_number(text, "seconds_next", totals->seconds_next);
    format_predictions(text, totals);
    format_inside(text, totals);
    clb_text_add(text, ",\"kernels\":{");
    first = true;
    for (size_t i = 0; i < CLB_COUNT_OF(totals->kernels); i++) {
        if (totals->kernels[i].name != NULL)
            add_count(text, &first, totals->kernels[i].name, totals->kernels[i].calls);
    }
    clb_text_add(text, "},\"declined\":{");
    first = true;
    for (int r = 0; r < CLB_REASONS; r++) {
        if (totals->declined[r] != 0)
            add_count(text, &first, clb_reason_name((clb_reason)r), totals->declined[r]);
    }
    clb_text_add(text, "}}");
}

/* Formats all libraries found for a name, the latest first. */
static void format_targets(struct clb_text *text, int symbol)
{
    struct clb_text names = {0};
    const struct clb_target *target = atomic_load(&clb_symbols[symbol].next.targets);
    for (; target != NULL; target = target->link) {
        if (names.length > 0)
            clb_text_add(&names, ",");
        clb_text_add(&names, target->library != NULL ? target->library : "");
    }
    clb_text_add_quoted(text, names.data != NULL ? names.data : "");
    clb_text_free(&names);
}

/* What rates have decided; left out where they have decided nothing. */
static void format_decisions(struct clb_text *text)
{
    const struct clb_rate_decision *list;
    const size_t count = clb_rate_decisions(&list);
    for (size_t i = 0; i < count; i++) {
        clb_text_add(text, i == 0 ? ",\"rates\":[{\"dropped\":" : ",{\"dropped\":");
        clb_text_add_quoted(text, list[i].dropped);
        add_number(text, "gflops", list[i].dropped_rate);
        clb_text_add(text, ",\"used\":");
        clb_text_add_quoted(text, list[i].used);
        add_number(text, "gflops_used", list[i].used_rate);
        clb_text_add(text, i + 1 < count ? "}" : "}]");
    }
}

void clb_stats_format_json(struct clb_text *text)
{
    const struct clb_runtime *runtime = clb_runtime_peek();
    bool first = true;
    clb_text_add(text, "{\"version\":\"" CLB_VERSION "\",\"device\":");
    clb_text_add_quoted(text, runtime != NULL ? runtime->device.name : "none");
    format_decisions(text);
    clb_text_add(text, ",\"next\":{");
    for (int s = 0; s < CLB_SYMBOLS; s++) {
        if (sum(s).calls != 0) {
            separate(text, &first);
            clb_text_add_quoted(text, clb_symbols[s].next.name);
            clb_text_add(text, ":");
            format_targets(text, s);
        }
    }
    clb_text_add(text, "},\"routines\":{");
    first = true;
    for (int s = 0; s < CLB_SYMBOLS; s++) {
        struct totals totals = sum(s);
        if (totals.calls != 0) {
            separate(text, &first);
            clb_text_add_quoted(text, clb_symbols[s].next.name);
            clb_text_add(text, ":");
            format_routine(text, &totals);
        }
    }
    clb_text_add(text, "}}\n");
}

/* ---- the report as a table ------------------------------------------------------------------- */

void clb_stats_format_table(struct clb_text *text)
{
    const struct clb_runtime *runtime = clb_runtime_peek();
    clb_text_addf(text, "clblas-shim " CLB_VERSION ", device %s\n",
                  runtime != NULL ? runtime->device.name : "none");
    clb_text_addf(text, "%-20s %10s %10s %10s %10s %12s %12s  %s\n", "routine", "calls", "device",
                  "next", "recovered", "s on device", "s in next", "declined because");
    for (int s = 0; s < CLB_SYMBOLS; s++) {
        struct totals totals = sum(s);
        if (totals.calls == 0)
            continue;
        clb_text_addf(text, "%-20s %10llu %10llu %10llu %10llu %12.3f %12.3f ",
                      clb_symbols[s].next.name, (unsigned long long)totals.calls,
                      (unsigned long long)totals.device, (unsigned long long)totals.next,
                      (unsigned long long)totals.recovered, totals.seconds_device,
                      totals.seconds_next);
        for (int r = 0; r < CLB_REASONS; r++) {
            if (totals.declined[r] != 0)
                clb_text_addf(text, " %s:%llu", clb_reason_name((clb_reason)r),
                              (unsigned long long)totals.declined[r]);
        }
        if (totals.inside != 0)
            clb_text_addf(text, " (%llu inside other calls)", (unsigned long long)totals.inside);
        clb_text_add(text, "\n");
    }
}

/* ---- at exit, without OpenCL calls and without locks ----------------------------------------- */

#define VARIABLE "CLBLAS_SHIM_STATS"

/* True when the parent process has been started with the variable, too. */
static bool is_inherited(void)
{
    static const char wanted[] = VARIABLE "=";
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/environ", (long)getppid());
    FILE *file = clb_file_read(path);
    size_t same = 0;
    bool at_start = true;
    for (int c; file != NULL && wanted[same] != '\0' && (c = fgetc(file)) != EOF;) {
        bool goes_on = (at_start || same > 0) && c == wanted[same];
        same = goes_on ? same + 1 : 0;
        at_start = c == '\0';
    }
    if (file != NULL)
        fclose(file);
    return wanted[same] == '\0';
}

/* A user who asks for a table is told when it is empty, also when no call has reached the library
 * and the configuration was never read. Only the program that was started with the variable says
 * so. Its children are silent: they have inherited the variable, and their stderr may be used for
 * other messages. */
static bool must_say_nothing_came(void)
{
    return clb_config_asks_for_table() && clb_generation() == 0 && !is_inherited();
}

__attribute__((destructor)) static void write_report_at_exit(void)
{
    struct clb_text report = {0};
    const char *name = "-";
    if (clb_stats_wanted)
        clb_profile_write();
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
