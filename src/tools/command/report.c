/* clblas-shim report: adds up the JSON reports of CLBLAS_SHIM_STATS and says what they mean.
 * SPDX-License-Identifier: BSD-3-Clause
 * A sum is a report (docs/report.md) with the number of processes: sums can be added, too. */
#include "command.h"
#include "shim/route/route.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What to do about calls that were declined for a reason. */
static const char *const hints[CLB_REASONS] = {
    [CLB_REASON_OFF] = "unset CLBLAS_SHIM=off; a set-uid program stays on the CPU",
    [CLB_REASON_SMALL] = "too small to gain; CLBLAS_SHIM_THRESHOLD=N lowers the limit",
    [CLB_REASON_COST] = ("predicted to be as fast in the next library, or to save less than the "
                         "device's start takes; with CLBLAS_SHIM=always: a dimension is too small"),
    [CLB_REASON_QUICK] = "nothing to compute",
    [CLB_REASON_INVALID] = "an argument is invalid: the program has an error",
    [CLB_REASON_QUERY] = "asked for the size of a workspace",
    [CLB_REASON_NODEVICE] = "no usable device: see clblas-shim devices",
    [CLB_REASON_NOFP64] = "the device has no double precision: choose another (-d DEVICE)",
    [CLB_REASON_NOMEMORY] = "host or device memory was short; raise CLBLAS_SHIM_MEMORY",
    [CLB_REASON_SLOW] = "the device is slower than a core of a CPU: choose another (-d DEVICE)",
    [CLB_REASON_QUARANTINED] = "the device failed or computed wrong: CLBLAS_SHIM_LOG=warn says how",
    [CLB_REASON_FORKED] = "made in children forked after the device had started: fork earlier",
    [CLB_REASON_REENTRANT] = "made inside other calls by the driver or the next library",
    [CLB_REASON_STARTING] = "the device or its kernels were not ready: a second run has them",
    [CLB_REASON_DRY_RUN] = "CLBLAS_SHIM=dry-run: unset it, and these run on the device",
};

/* ---- adding ---- */

bool clb_list_has(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; *at != '\0'; at += strspn(at, ",")) {
        size_t item = strcspn(at, ",");
        if (item == length && strncmp(at, name, length) == 0)
            return true;
        at += item;
    }
    return false;
}

/* A comma list with what `value` has and the list has not. */
static json_t *join(const json_t *list, const json_t *value)
{
    const char *have = json_string_value(list), *name = json_string_value(value);
    return clb_list_has(have, name) ? json_string(have)
                                    : json_sprintf("%s%s%s", have, *have != '\0' ? "," : "", name);
}

/* Add the elements that a list has not. */
static void extend(json_t *list, const json_t *more)
{
    CLB_EACH(value, more) {
        bool known = false;
        CLB_EACH(old, list)
            known = known || json_equal(old, value);
        if (!known)
            json_array_append(list, value);
    }
}

/* Add numbers, join strings and lists, and so with members of objects. Both have been checked. */
static void add(json_t *sum, const json_t *report)
{
    CLB_EACH_MEMBER(key, value, report) {
        json_t *old = json_object_get(sum, key);
        if (old == NULL || strcmp(key, "written") == 0)
            json_object_set_new(sum, key, json_deep_copy(value));
        else if (json_is_object(old) && json_is_object(value))
            add(old, value);
        else if (json_is_array(old) && json_is_array(value))
            extend(old, value);
        else if (json_is_string(old) && json_is_string(value))
            json_object_set_new(sum, key, join(old, value));
        else if (json_is_integer(old) && json_is_integer(value))
            json_object_set_new(sum, key,
                                json_integer(json_integer_value(old) + json_integer_value(value)));
        else if (json_is_number(old) && json_is_number(value))
            json_object_set_new(sum, key,
                                json_real(json_number_value(old) + json_number_value(value)));
    }
}

/* Whether all members are of this type, and none is a negative integer. */
static bool all_are(const json_t *object, json_type type)
{
    CLB_EACH_MEMBER(key, value, object) {
        if (json_typeof(value) != type || json_integer_value(value) < 0)
            return false;
    }
    return json_is_object(object);
}

static bool is_routine(json_t *row)
{
    json_int_t calls = 0, device = 0, next = 0, recovered = 0, declined = 0;
    double number[4];
    json_t *kernels, *reasons;
    if (json_unpack(row, "{s:I,s:I,s:I,s:I,s:F,s:F,s:F,s:F,s:o,s:o}", "calls", &calls, "device",
                    &device, "next", &next, "recovered", &recovered, "flops", &number[0],
                    "flops_device", &number[1], "seconds_device", &number[2], "seconds_next",
                    &number[3], "kernels", &kernels, "declined", &reasons) != 0 ||
        !all_are(kernels, JSON_INTEGER) || !all_are(reasons, JSON_INTEGER))
        return false;
    CLB_EACH_MEMBER(key, value, reasons)
        declined += json_integer_value(value);
    return device >= 0 && recovered >= 0 && calls == device + next + recovered && next == declined;
}

/* NULL, or what is wrong with a report. */
static const char *find_damage(json_t *report)
{
    static char text[256];
    const char *version, *device;
    json_t *next, *routines;
    json_error_t error;
    if (json_unpack_ex(report, &error, 0, "{s:s,s:s,s:o,s:o}", "version", &version, "device",
                       &device, "next", &next, "routines", &routines) != 0) {
        snprintf(text, sizeof text, "%s", error.text);
        return text;
    }
    if (!all_are(next, JSON_STRING) || !json_is_object(routines))
        return "\"next\" or \"routines\" is damaged";
    CLB_EACH_MEMBER(key, row, routines) {
        if (!is_routine(row)) {
            snprintf(text, sizeof text, "the counts of %.64s are missing or contradict each other",
                     key);
            return text;
        }
    }
    return NULL;
}

bool clb_report_add(json_t *sum, const char *path)
{
    json_error_t error;
    const char *damage = NULL;
    bool is_input = strcmp(path, "-") == 0;
    FILE *file = is_input ? stdin : fopen(path, "re");
    if (file == NULL)
        return clb_fail(false, "%s: %s", path, strerror(errno));
    json_auto_t *report = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    if (ferror(file))
        clb_fail(0, "%s: %s", path, strerror(errno));
    else if (report == NULL)
        clb_fail(0, "%s: not a report: %s (line %d)", path, error.text, error.line);
    else if ((damage = find_damage(report)) != NULL)
        clb_fail(0, "%s: not a report: %s", path, damage);
    if (!is_input)
        fclose(file);
    bool good = report != NULL && damage == NULL;
    if (good) {
        if (!json_is_integer(json_object_get(report, "processes")))
            json_object_set_new(report, "processes", json_integer(1));
        add(sum, report);
    }
    return good;
}

/* ---- printing ---- */

struct report_row {
    const char *name;
    const json_t *json;
};

static double seconds_of(const json_t *row)
{
    return clb_number_of(row, "seconds_device") + clb_number_of(row, "seconds_next");
}

static int compare_rows(const void *a, const void *b)
{
    const struct report_row *p = a, *q = b;
    double difference = seconds_of(q->json) - seconds_of(p->json);
    return difference > 0 ? 1 : difference < 0 ? -1 : strcmp(p->name, q->name);
}

static void print_row(FILE *stream, const char *name, const json_t *row)
{
    static const char *const counts[] = {"calls", "device", "next", "recovered"};
    fprintf(stream, "%-20s", name);
    for (size_t i = 0; i < CLB_COUNT_OF(counts); i++)
        fprintf(stream, " %9.0f", clb_number_of(row, counts[i]));
    fprintf(stream, " %11.3f %11.3f ", clb_number_of(row, "seconds_device"),
            clb_number_of(row, "seconds_next"));
    CLB_EACH_MEMBER(reason, count, json_object_get(row, "declined")) {
        fprintf(stream, " %s:%lld", reason, (long long)json_integer_value(count));
    }
    fputc('\n', stream);
}

/* Calls that others made, and operations per second of each side. Calls that began on the device
 * and ended on the CPU count for the next library. */
static void print_rates(FILE *stream, const json_t *total)
{
    const double inside = clb_number_of(total, "inside"), all = clb_number_of(total, "flops"),
                 device = clb_number_of(total, "flops_device"),
                 seconds_device = clb_number_of(total, "seconds_device"),
                 seconds_next = clb_number_of(total, "seconds_next");
    if (inside > 0)
        fprintf(stream,
                "\n%.0f of these calls, %.3f s, were made inside other calls; `all` has their time "
                "once.\n",
                inside, clb_number_of(total, "seconds_inside"));
    if (all > 0)
        fprintf(stream, "\n%.1f %% of the floating-point operations were done on the device",
                100 * device / all);
    if (seconds_device > 0)
        fprintf(stream, ", at %.1f GFLOP/s", 1e-9 * device / seconds_device);
    if (seconds_next > 0)
        fprintf(stream, "; the next library did %.1f GFLOP/s",
                1e-9 * (all - device) / seconds_next);
    fprintf(stream, "%s\n", all > 0 ? "." : "");
}

/* What the predictions say, and whether their times are from this machine. */
static void print_saved(FILE *stream, const json_t *total)
{
    const double calls = clb_number_of(total, "predicted"),
                 measured = clb_number_of(total, "measured"),
                 saved = clb_number_of(total, "seconds_saved");
    const bool dry = clb_number_of(total, "device") + clb_number_of(total, "recovered") == 0;
    if (calls == 0 || (dry && saved == 0))
        return;
    fprintf(stream,
            "The device %s about %.3f s %s %.3f s that the next library is predicted to take\n",
            dry         ? "would save"
            : saved < 0 ? "took"
                        : "has saved",
            fabs(saved), saved < 0 ? "longer than the" : "of the",
            clb_number_of(total, "predicted_next"));
    if (measured == calls)
        fputs("(both sides measured on this machine).\n", stream);
    else if (measured == 0)
        fputs("(estimated: clblas-shim tune measures both sides).\n", stream);
    else
        fprintf(stream, "(%.0f of %.0f calls by times measured on this machine: %.3f s).\n",
                measured, calls, clb_number_of(total, "seconds_saved_measured"));
}

static void print_hints(FILE *stream, const json_t *total)
{
    const json_t *declined = json_object_get(total, "declined");
    bool any = json_object_size(declined) > 0 || clb_number_of(total, "recovered") > 0;
    if (any)
        fprintf(stream, "\n%sWhy calls did not run on the device%s\n", clb_style(stream, CLB_BOLD),
                clb_style(stream, CLB_PLAIN));
    for (int reason = 0; reason < CLB_REASONS; reason++) {
        double count = clb_number_of(declined, clb_reason_name((clb_reason)reason));
        if (count > 0)
            fprintf(stream, "  %-12s %9.0f  %s\n", clb_reason_name((clb_reason)reason), count,
                    hints[reason]);
    }
    if (clb_number_of(total, "recovered") > 0)
        fprintf(stream, "  %-12s %9.0f  %s\n", "(recovered)", clb_number_of(total, "recovered"),
                "the device failed during the call: CLBLAS_SHIM_LOG=warn says how");
}

/* Where the default mode decides, calls are predicted, and small ones declined. */
#define MANY_CALLS 1000
#define SMALL_CALL 1e-3 /* seconds */

static void print_advice(FILE *stream, const json_t *sum, const json_t *total)
{
    const double calls = clb_number_of(total, "device"),
                 seconds = clb_number_of(total, "seconds_device");
    if (clb_number_of(total, "predicted") == 0 && calls >= MANY_CALLS &&
        seconds < SMALL_CALL * calls)
        fprintf(stream,
                "\n%.0f calls took only %.2f ms each on the device: CLBLAS_SHIM=always, or a "
                "threshold, sends\nsmall ones there, too; by default only those go that are "
                "expected to gain.\n",
                calls, 1e3 * seconds / calls);
    CLB_EACH(decision, json_object_get(sum, "rates")) {
        const char *dropped, *used;
        if (json_unpack(decision, "{s:s,s:s}", "dropped", &dropped, "used", &used) == 0)
            fprintf(stream, "\n%s was not used, at %.1f GFLOP/s; %s, at %.1f\n", dropped,
                    clb_number_of(decision, "gflops"), used,
                    clb_number_of(decision, "gflops_used"));
    }
}

/* Those with the most seconds first; the caller frees them. */
static struct report_row *sort_rows(const json_t *sum, size_t *count)
{
    json_t *routines = json_object_get(sum, "routines");
    struct report_row *rows = calloc(json_object_size(routines) + 1, sizeof *rows);
    *count = 0;
    CLB_EACH_MEMBER(name, json, routines) {
        if (rows != NULL)
            rows[(*count)++] = (struct report_row){name, json};
    }
    if (rows != NULL)
        qsort(rows, *count, sizeof *rows, compare_rows);
    return rows;
}

json_t *clb_report_total(const json_t *sum)
{
    json_t *all = json_object();
    CLB_EACH_MEMBER(name, row, json_object_get(sum, "routines"))
        add(all, row);
    return all;
}

static void subtract(json_t *row, const char *from, const char *what)
{
    const double rest = clb_number_of(row, from) - clb_number_of(row, what);
    json_object_set_new(row, from, json_real(rest));
}

void clb_report_print(FILE *stream, const json_t *sum)
{
    json_auto_t *all = clb_report_total(sum);
    size_t count;
    struct report_row *rows = sort_rows(sum, &count);
    double processes = clb_number_of(sum, "processes");
    const char *name = clb_text_of(sum, "device");
    const char *device = strcmp(name, "none") == 0 ? "not started" : name;
    fprintf(stream, "%sclblas-shim %s, device %s, %.0f process%s%s\n", clb_style(stream, CLB_BOLD),
            clb_text_of(sum, "version"), device, processes, processes == 1 ? "" : "es",
            clb_style(stream, CLB_PLAIN));
    fprintf(stream, "%-20s %9s %9s %9s %9s %11s %11s  %s\n", "routine", "calls", "device", "next",
            "recovered", "s on device", "s in next", "declined because");
    for (size_t i = 0; i < count; i++)
        print_row(stream, rows[i].name, rows[i].json);
    /* Time and operations of calls that other calls made are in theirs, too. */
    subtract(all, "flops", "flops_inside");
    subtract(all, "seconds_next", "seconds_inside");
    if (count != 1)
        print_row(stream, "all", all);
    print_rates(stream, all);
    print_saved(stream, all);
    print_hints(stream, all);
    print_advice(stream, sum, all);
    free(rows);
}

/* ---- the plot ---- */

#define MOST_BARS 24

/* A bar for each routine: seconds on the device, then in the next library; behind it, how many
 * calls were on the device, and why the others were not. */
static void write_plot(FILE *script, const json_t *sum, const char *file)
{
    char title[256], settings[128];
    size_t count;
    struct report_row *rows = sort_rows(sum, &count);
    const double longest = count > 0 ? seconds_of(rows[0].json) : 0;
    count = count < MOST_BARS ? count : MOST_BARS;
    fprintf(script, "$bars << END\n");
    for (size_t i = 0; i < count; i++) {
        const json_t *row = rows[i].json;
        fprintf(script, "%zu 0 %g %g \"%s\" \" %.0f of %.0f calls on the device", i,
                clb_number_of(row, "seconds_device"), seconds_of(row), rows[i].name,
                clb_number_of(row, "device"), clb_number_of(row, "calls"));
        CLB_EACH_MEMBER(reason, declined, json_object_get(row, "declined"))
            fprintf(script, ", %s %.0f", reason, json_number_value(declined));
        fprintf(script, "\"\n");
    }
    fprintf(script, "END\n");
    snprintf(title, sizeof title, "%s, processes: %.0f", clb_text_of(sum, "device"),
             clb_number_of(sum, "processes"));
    snprintf(settings, sizeof settings, "set xrange [0:%g]\nset xlabel 'seconds'\nset key below",
             longest > 0 ? 1.6 * longest : 1);
    clb_plot_bars(script, file, title, settings, count);
    free(rows);
}

/* ---- the command ---- */

int clb_command_report(int argc, char **argv)
{
    int status = EXIT_SUCCESS, first = clb_options_read(argc, argv);
    const char *plot = clb_option('o');
    if (first == argc)
        return clb_fail(CLB_EXIT_USAGE, "no file, see --help");
    json_auto_t *sum = json_object();
    for (int i = first; i < argc; i++) {
        if (!clb_report_add(sum, argv[i]))
            status = CLB_EXIT_FAILED;
    }
    const bool any = json_object_size(sum) > 0;
    if (any && clb_option('j') != NULL)
        clb_json_print(sum);
    else if (any)
        clb_report_print(stdout, sum);
    if (any && plot != NULL && !clb_plot_draw(plot, write_plot, sum))
        status = CLB_EXIT_FAILED;
    return status;
}
