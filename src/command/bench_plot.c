/* The plot of clblas-shim bench, drawn by gnuplot: GFLOP/s and milliseconds over the order of the
 * matrices, with the order from which on the shim is faster. */
#include "measure.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const char *const libraries[] = {"shim", "next", "other"};

static bool has_library(const json_t *rows, const char *library)
{
    bool found = false;
    for (size_t i = 0; i < json_array_size(rows); i++)
        found = found || json_object_get(json_array_get(rows, i), library) != NULL;
    return found;
}

/* A block of data: order, GFLOP/s and milliseconds. */
static void write_data(FILE *script, const json_t *rows, const char *routine, const char *library)
{
    fprintf(script, "$%s_%s << END\n", routine, library);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *cell = json_object_get(row, library);
        if (cell != NULL &&
            strcmp(json_string_value(json_object_get(row, "routine")), routine) == 0)
            fprintf(script, "%lld %g %g\n",
                    (long long)json_integer_value(json_object_get(row, "n")),
                    json_number_value(json_object_get(cell, "gflops")),
                    json_number_value(json_object_get(cell, "ms")));
    }
    fprintf(script, "END\n");
}

/* One of the two halves: column 2 or 3 of the data. */
static void write_half(FILE *script, const json_t *bench, int column)
{
    const json_t *rows = json_object_get(bench, "rows");
    const char *routine, *separator = "plot ";
    json_t *order;
    fprintf(script, "set ylabel '%s'\nunset arrow\n", column == 2 ? "GFLOP/s" : "ms");
    json_object_foreach(json_object_get(bench, "crossover"), routine, order)
    {
        if (json_integer_value(order) > 0)
            fprintf(script,
                    "set arrow from %lld, graph 0 to %lld, graph 1 nohead dashtype 2 linecolor "
                    "'gray'\n",
                    (long long)json_integer_value(order), (long long)json_integer_value(order));
    }
    json_object_foreach(json_object_get(bench, "crossover"), routine, order)
    {
        for (size_t i = 0; i < CLB_COUNT_OF(libraries); i++) {
            if (!has_library(rows, libraries[i]))
                continue;
            fprintf(script, "%s$%s_%s using 1:%d with linespoints title '%s, %s'", separator,
                    routine, libraries[i], column, routine, libraries[i]);
            separator = ", ";
        }
    }
    fprintf(script, "\n");
}

static void write_quoted(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputc('\'', script);
        fputc(*text, script);
    }
    fprintf(script, "'\n");
}

static void write_script(FILE *script, const json_t *bench, const char *file)
{
    const char *routine;
    json_t *order;
    json_object_foreach(json_object_get(bench, "crossover"), routine, order)
    {
        for (size_t i = 0; i < CLB_COUNT_OF(libraries); i++) {
            if (has_library(json_object_get(bench, "rows"), libraries[i]))
                write_data(script, json_object_get(bench, "rows"), routine, libraries[i]);
        }
    }
    fprintf(script, "set terminal %s size 1000,450\nset output ",
            strcmp(file + strlen(file) - 4, ".svg") == 0 ? "svg" : "png");
    write_quoted(script, file);
    fprintf(script, "set multiplot layout 1,2 title ");
    write_quoted(script, json_string_value(json_object_get(bench, "device")));
    fprintf(script, "set logscale xy 2\nset xlabel 'n'\nset grid\nset key bottom right\n");
    write_half(script, bench, 2);
    fprintf(script, "set key top left\n");
    write_half(script, bench, 3);
    fprintf(script, "unset multiplot\n");
}

bool clb_bench_plot(const json_t *bench, const char *file)
{
    /* A file of before would hide a failure. */
    if (remove(file) != 0 && errno != ENOENT) {
        clb_fail(0, "%s: %s", file, strerror(errno));
        return false;
    }
    signal(SIGPIPE, SIG_IGN);
    FILE *script = popen("exec gnuplot 2>/dev/null", "w");
    if (script != NULL)
        write_script(script, bench, file);
    int status = script != NULL ? pclose(script) : -1;
    FILE *drawn = fopen(file, "r");
    bool good = status == 0 && drawn != NULL;
    if (drawn != NULL)
        fclose(drawn);
    if (!good)
        clb_fail(0, status == 127 << 8 ? "%s: a plot needs gnuplot" : "%s: gnuplot failed", file);
    return good;
}
