/* Pictures of what bench, report and the ladder print, drawn by gnuplot. */
#include "measure.h"
#include "shim/next/next.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- gnuplot --------------------------------------------------------------------------------- */

void clb_plot_quote(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputc('\'', script);
        fputc(*text, script);
    }
    fputc('\'', script);
}

static bool ends_with(const char *text, const char *ending)
{
    size_t length = strlen(text), size = strlen(ending);
    return length > size && strcmp(text + length - size, ending) == 0;
}

bool clb_plot_name(const char *file)
{
    bool good = ends_with(file, ".svg") || ends_with(file, ".png");
    if (!good)
        clb_fail(0, "%s ends neither in .svg nor in .png", file);
    return good;
}

void clb_plot_begin(FILE *script, const char *file, size_t width, size_t height)
{
    fprintf(script, "set terminal %s noenhanced size %zu,%zu%s\nset output ",
            ends_with(file, ".svg") ? "svg" : "png", width, height,
            ends_with(file, ".svg") ? " background 'white'" : "");
    clb_plot_quote(script, file);
    fputc('\n', script);
}

bool clb_plot_draw(const char *file, void (*write)(FILE *, const json_t *, const char *),
                   const json_t *result)
{
    /* A file of before would hide a failure. */
    if (remove(file) != 0 && errno != ENOENT) {
        clb_fail(0, "%s: %s", file, strerror(errno));
        return false;
    }
    signal(SIGPIPE, SIG_IGN);
    FILE *script = popen("exec gnuplot 2>/dev/null", "w");
    if (script != NULL)
        write(script, result, file);
    int status = script != NULL ? pclose(script) : -1;
    FILE *drawn = fopen(file, "r");
    bool good = status == 0 && drawn != NULL;
    if (drawn != NULL)
        fclose(drawn);
    if (!good)
        clb_fail(0, status == 127 << 8 ? "%s: a plot needs gnuplot" : "%s: gnuplot failed", file);
    return good;
}

json_t *clb_result_load(const char *file, const char *key)
{
    json_error_t error;
    json_t *result = json_load_file(file, 0, &error);
    if (result != NULL && json_is_array(json_object_get(result, key)))
        return result;
    if (result == NULL && error.line <= 0)
        clb_fail(0, "%s: %s", file, error.text);
    else
        clb_fail(0, "%s was not written by this command with --json", file);
    json_decref(result);
    return NULL;
}

/* ---- bench ----------------------------------------------------------------------------------- */

const char *const clb_bench_libraries[CLB_BENCH_LIBRARIES] = {"shim",    "next",   "other",
                                                              "clblast", "cublas", "nvblas"};
static const char *const titles[CLB_BENCH_LIBRARIES] = {"shim",    "next BLAS", "other library",
                                                        "CLBlast", "cuBLAS",    "NVBLAS"};

bool clb_bench_has(const json_t *bench, const char *library)
{
    const json_t *rows = json_object_get(bench, "rows");
    bool found = false;
    for (size_t i = 0; i < json_array_size(rows); i++)
        found = found || json_object_get(json_array_get(rows, i), library) != NULL;
    return found;
}

/* A block of data: order, GFLOP/s and milliseconds. Returns how many lines it has. */
static size_t write_data(FILE *script, const json_t *rows, const char *routine, const char *library)
{
    size_t count = 0;
    fprintf(script, "$%s_%s << END\n", routine, library);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *cell = json_object_get(row, library);
        if (cell == NULL || strcmp(clb_text_of(row, "routine"), routine) != 0)
            continue;
        double ms = clb_number_of(cell, "ms");
        /* The bound has no rate of its own: the work is that of the shim's call. */
        double work = clb_number_of(json_object_get(row, "shim"), "ms") *
                      clb_number_of(json_object_get(row, "shim"), "gflops");
        fprintf(script, "%.0f %g %g\n", clb_number_of(row, "n"), work / ms, ms);
        count++;
    }
    fprintf(script, "END\n");
    return count;
}

/* One of the two pictures of a routine: column 2 or 3 of the data. */
static void write_half(FILE *script, const char *routine, double crossover, const bool *has,
                       int column)
{
    fprintf(script, "set title '%s'\nset ylabel '%s'\nset key %s\nunset arrow\n", routine,
            column == 2 ? "GFLOP/s" : "ms", column == 2 ? "bottom right" : "top left");
    if (crossover > 0)
        fprintf(script,
                "set arrow from %.0f, graph 0 to %.0f, graph 1 nohead dashtype 2 linecolor "
                "'gray'\n",
                crossover, crossover);
    fprintf(script, "plot ");
    for (size_t i = 0; i < CLB_BENCH_LIBRARIES; i++) {
        if (has[i])
            fprintf(script,
                    "$%s_%s using 1:%d with linespoints linewidth %d linetype %zu title '%s', ",
                    routine, clb_bench_libraries[i], column, i == 0 ? 3 : 1, i + 1, titles[i]);
    }
    fprintf(script, "$%s_bound using 1:%d with lines dashtype 3 linecolor 'gray' title 'bound'\n",
            routine, column);
}

static void write_bench(FILE *script, const json_t *bench, const char *file)
{
    json_t *crossovers = json_object_get(bench, "crossover"), *order;
    const json_t *rows = json_object_get(bench, "rows");
    const char *routine;
    clb_plot_begin(script, file, 1000, 60 + 360 * json_object_size(crossovers));
    fprintf(script, "set multiplot layout %zu,2 title ", json_object_size(crossovers));
    clb_plot_quote(script, clb_text_of(bench, "device"));
    fprintf(script, "\nset linetype 5 linecolor 'dark-orange'\nset logscale xy 2\nset format y "
                    "'%%g'\nset xlabel 'n'\nset grid\n");
    json_object_foreach(crossovers, routine, order)
    {
        bool has[CLB_BENCH_LIBRARIES];
        for (size_t i = 0; i < CLB_BENCH_LIBRARIES; i++)
            has[i] = write_data(script, rows, routine, clb_bench_libraries[i]) > 0;
        write_data(script, rows, routine, "bound");
        for (int column = 2; column <= 3; column++)
            write_half(script, routine, json_number_value(order), has, column);
    }
    fprintf(script, "unset multiplot\n");
}

bool clb_plot_bench(const json_t *bench, const char *file)
{
    return clb_plot_draw(file, write_bench, bench);
}

/* ---- report ---------------------------------------------------------------------------------- */

#define MOST_BARS 24

static double seconds_of(const json_t *row)
{
    return clb_number_of(row, "seconds_device") + clb_number_of(row, "seconds_next");
}

static int compare_seconds(const void *a, const void *b)
{
    const double p = seconds_of(*(json_t *const *)a), q = seconds_of(*(json_t *const *)b);
    return (p < q) - (p > q);
}

/* What stands behind a bar: how many calls were on the device, and why the others were not. */
static void write_counts(FILE *script, const json_t *row)
{
    const char *reason;
    json_t *count;
    fprintf(script, " %.0f of %.0f calls on the device", clb_number_of(row, "device"),
            clb_number_of(row, "calls"));
    json_object_foreach(json_object_get(row, "declined"), reason, count)
        fprintf(script, ", %s %.0f", reason, json_number_value(count));
}

/* A bar for each routine, those that took longest first: seconds on the device, then in the next
 * library. */
static void write_report(FILE *script, const json_t *report, const char *file)
{
    json_t *routines = json_object_get(report, "routines"), *row, *rows[CLB_SYMBOLS];
    struct clb_text title = {0};
    const char *name;
    size_t count = 0;
    json_object_foreach(routines, name, row)
    {
        if (count < CLB_COUNT_OF(rows))
            rows[count++] = row;
    }
    qsort(rows, count, sizeof *rows, compare_seconds);
    count = clb_min(count, (size_t)MOST_BARS);
    fprintf(script, "$routines << END\n");
    for (size_t i = 0; i < count; i++) {
        json_object_foreach(routines, name, row)
        {
            if (row != rows[i])
                continue;
            fprintf(script, "%zu %g %g \"%s\" \"", i, clb_number_of(row, "seconds_device"),
                    seconds_of(row), name);
            write_counts(script, row);
            fprintf(script, "\"\n");
        }
    }
    fprintf(script, "END\n");
    clb_plot_begin(script, file, 1000, 130 + 28 * count);
    clb_text_addf(&title, "%s, processes: %.0f", clb_text_of(report, "device"),
                  clb_number_of(report, "processes"));
    fprintf(script, "set title ");
    clb_plot_quote(script, title.failed ? "" : title.data);
    clb_text_free(&title);
    fprintf(
        script,
        "\nset yrange [%zu - 0.5:-0.5]\nset xrange [0:%g]\nset xlabel 'seconds'\nset grid "
        "xtics\nset key below\nset style fill solid 0.7\n"
        "plot $routines using 2:1:(0):2:($1-0.4):($1+0.4):ytic(4) with boxxyerror title 'on the "
        "device', "
        "$routines using 3:1:2:3:($1-0.4):($1+0.4) with boxxyerror title 'in the next library', "
        "$routines using 3:1:5 with labels left notitle\n",
        count, count > 0 ? fmax(1.6 * seconds_of(rows[0]), 1e-6) : 1);
}

bool clb_plot_report(const json_t *report, const char *file)
{
    return clb_plot_draw(file, write_report, report);
}
