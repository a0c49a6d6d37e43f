/* SPDX-License-Identifier: BSD-3-Clause
 * clblas-shim bench: whole calls with the shim and without, and what bounds them. */
#include "measure.h"
#include "trial.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_SIZES    32
#define MOST_ROUTINES 32
#define LARGEST       65536

struct bench {
    clb_routine routines[MOST_ROUTINES];
    size_t sizes[MOST_SIZES], routine_count, size_count;
};

/* The libraries that may be timed: the keys of the rows' cells. */
enum { SHIM, NEXT, OTHER, PEERS, LIBRARIES = PEERS + 3 };
static const char *const libraries[LIBRARIES] = {"shim",    "next",   "other",
                                                 "clblast", "cublas", "nvblas"};
static const char *const titles[LIBRARIES] = {"shim",    "next BLAS", "other library",
                                              "CLBlast", "cuBLAS",    "NVBLAS"};

static bool has(const json_t *bench, const char *library)
{
    bool found = false;
    CLB_EACH(row, json_object_get(bench, "rows"))
        found = found || json_object_get(row, library) != NULL;
    return found;
}

/* ---- what bounds calls ---- */

/* In a child: the libraries that are timed start OpenCL in children, and no child may inherit it.
 * {device, driver, up, down, compute: by precision}; `up` and `down` are 0 without a link. */
static json_t *measure_bounds(void *argument)
{
    const struct bench *bench = argument;
    json_t *result = json_pack("{s:{}}", "compute"), *compute = json_object_get(result, "compute");
    for (size_t i = 0; i < bench->routine_count; i++) {
        const clb_precision precision = clb_routines[bench->routines[i]].precision;
        const char letter[] = {"sdcz"[precision], '\0'};
        struct clb_measure measure;
        if (json_object_get(compute, letter) != NULL)
            continue;
        json_auto_t *link =
            clb_measure_start(&measure, precision) ? clb_measure_link(&measure) : NULL;
        const double rate = link != NULL ? clb_measure_product_rate(&measure) : 0;
        if (rate <= 0)
            return json_object();
        const struct clb_device *device = &measure.runtime->device;
        json_object_set_new(compute, letter, json_real(rate));
        json_object_update(result, link);
        json_object_set_new(result, "device", json_string(device->name));
        json_object_set_new(result, "driver", json_string(device->driver));
        clb_measure_end(&measure);
    }
    return result;
}

/* Milliseconds that the link and the device's kernels need at least. */
static json_t *find_bound(const json_t *bounds, clb_routine routine, size_t n)
{
    const struct clb_call call =
        clb_trial_make(routine, (int64_t)n, (int64_t)n, (int64_t)n, (int64_t)n);
    const char letter[] = {"sdcz"[call.precision], '\0'};
    const double up = clb_number_of(bounds, "up"), down = clb_number_of(bounds, "down"),
                 rate = clb_number_of(json_object_get(bounds, "compute"), letter);
    double read = 0, written = 0;
    for (char name = 'A'; name <= 'C'; name++) {
        struct clb_shape shape;
        if (!clb_call_shape(&call, name, &shape))
            continue;
        const double bytes =
            (double)(n * n * clb_precision_size(call.precision)) / (shape.triangle ? 2 : 1);
        /* With beta = 0 the result is not read. */
        read += shape.written && clb_signature_has(&call, '+') ? 0 : bytes;
        written += shape.written ? bytes : 0;
    }
    const double link = up > 0 && down > 0 ? fmax(read / up, written / down) : 0,
                 compute = clb_call_flops(routine, n) / rate;
    return json_pack("{s:f,s:f,s:f}", "ms", 1e3 * fmax(link, compute), "link_ms", 1e3 * link,
                     "compute_ms", 1e3 * compute);
}

/* ---- rows ---- */

/* Takes `timed`. */
static void add_times(json_t *rows, const char *name, json_t *timed, clb_routine routine)
{
    if (timed == NULL)
        clb_fail(0, "%s of %s: it ended the process", clb_routines[routine].name, name);
    CLB_EACH(time, timed)
        CLB_EACH(row, rows) {
            double seconds = clb_number_of(time, "seconds"), n = clb_number_of(time, "n");
            if (clb_number_of(row, "n") != n)
                continue;
            json_t *cell = json_pack("{s:f,s:f}", "ms", 1e3 * seconds, "gflops",
                                     1e-9 * clb_call_flops(routine, (size_t)n) / seconds);
            if (strcmp(name, "shim") == 0)
                json_object_set(cell, "device", json_object_get(time, "device"));
            json_object_set_new(row, name, cell);
        }
    json_decref(timed);
}

/* The rows of one routine; false when the shim has not computed one. The next BLAS may lack it. */
static bool measure_routine(json_t *all, const struct bench *bench, clb_routine routine,
                            const json_t *bounds, const char *shim)
{
    const char *const paths[PEERS] = {[SHIM] = shim, [OTHER] = clb_option('l')};
    json_auto_t *rows = json_array();
    bool complete = true;
    for (size_t i = 0; i < bench->size_count; i++)
        json_array_append_new(rows,
                              json_pack("{s:s,s:I,s:o}", "routine", clb_routines[routine].name, "n",
                                        (json_int_t)bench->sizes[i], "bound",
                                        find_bound(bounds, routine, bench->sizes[i])));
    for (int l = 0; l < LIBRARIES; l++) {
        json_t *times = NULL;
        if (l == OTHER && paths[l] == NULL)
            continue;
        if (l < PEERS)
            times = clb_time_calls(paths[l], routine, bench->sizes, bench->size_count);
        else
            times = clb_time_peer(libraries[l], routine, bench->sizes, bench->size_count, false);
        add_times(rows, libraries[l], times, routine);
    }
    CLB_EACH(row, rows)
        complete = complete && json_object_get(row, "shim") != NULL;
    json_array_extend(all, rows);
    return complete;
}

/* The least order from which on the shim is faster at all that were measured; 0: none. */
static json_int_t find_crossover(const json_t *rows, const char *routine)
{
    json_int_t from = 0;
    for (size_t i = json_array_size(rows); i-- > 0;) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(clb_text_of(row, "routine"), routine) != 0)
            continue;
        double shim = clb_number_of(json_object_get(row, "shim"), "ms"),
               next = clb_number_of(json_object_get(row, "next"), "ms");
        if (!(shim > 0 && next > 0 && shim < next))
            break;
        from = json_integer_value(json_object_get(row, "n"));
    }
    return from;
}

/* ---- printing ---- */

static void print_cell(const json_t *row, const char *name, const char *format, const char *none)
{
    const json_t *cell = json_object_get(row, name);
    if (cell == NULL)
        printf("%s", none);
    else
        printf(format, clb_number_of(cell, "ms"), clb_number_of(cell, "gflops"));
}

static void print_csv(const json_t *bench)
{
    const json_t *rows = json_object_get(bench, "rows");
    printf("routine,n,");
    for (size_t i = 0; i < LIBRARIES; i++)
        printf("%s_ms,%s_gflops,", libraries[i], libraries[i]);
    printf("bound_ms,link_ms,compute_ms,device\n");
    CLB_EACH(row, rows) {
        const json_t *bound = json_object_get(row, "bound"), *shim = json_object_get(row, "shim");
        printf("%s,%.0f,", clb_text_of(row, "routine"), clb_number_of(row, "n"));
        for (size_t k = 0; k < LIBRARIES; k++)
            print_cell(row, libraries[k], "%.6g,%.6g,", ",,");
        printf("%.6g,%.6g,%.6g,%d\n", clb_number_of(bound, "ms"), clb_number_of(bound, "link_ms"),
               clb_number_of(bound, "compute_ms"), clb_is_true(shim, "device"));
    }
}

static void print_table(const json_t *result)
{
    const json_t *rows = json_object_get(result, "rows");
    printf("device %s, driver %s\n%s%-8s %6s", clb_text_of(result, "device"),
           clb_text_of(result, "driver"), clb_style(stdout, CLB_BOLD), "routine", "n");
    for (size_t i = 0; i < LIBRARIES; i++) {
        if (has(result, libraries[i]))
            printf(" %9s ms %9s", libraries[i], "GFLOP/s");
    }
    printf(" %12s %-8s %7s%s\n", "bound ms", "of", "faster", clb_style(stdout, CLB_PLAIN));
    CLB_EACH(row, rows) {
        const json_t *bound = json_object_get(row, "bound"), *shim = json_object_get(row, "shim");
        double ours = clb_number_of(shim, "ms"),
               theirs = clb_number_of(json_object_get(row, "next"), "ms");
        printf("%-8s %6.0f", clb_text_of(row, "routine"), clb_number_of(row, "n"));
        for (size_t k = 0; k < LIBRARIES; k++) {
            if (has(result, libraries[k]))
                print_cell(row, libraries[k], " %12.3f %9.2f", "            -         -");
        }
        printf(" %12.3f %-8s", clb_number_of(bound, "ms"),
               clb_number_of(bound, "link_ms") > clb_number_of(bound, "compute_ms") ? "link"
                                                                                    : "compute");
        if (ours > 0 && theirs > 0)
            printf(" %6.2fx", theirs / ours);
        printf("%s\n", clb_is_true(shim, "device") ? "" : "  (not on the device)");
    }
    CLB_EACH_MEMBER(routine, order, json_object_get(result, "crossover")) {
        if (json_integer_value(order) > 0)
            printf("%s: the shim is faster from n = %lld on\n", routine,
                   (long long)json_integer_value(order));
        else
            printf("%s: the shim is not faster at the largest order\n", routine);
    }
}

/* ---- the plot ---- */

/* A block of data: order, GFLOP/s and milliseconds. Returns how many lines it has. */
static size_t write_data(FILE *script, const json_t *rows, const char *routine, const char *library)
{
    size_t count = 0;
    fprintf(script, "$%s_%s << END\n", routine, library);
    CLB_EACH(row, rows) {
        const json_t *cell = json_object_get(row, library);
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
static void write_half(FILE *script, const char *routine, double crossover, const bool *timed,
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
    for (size_t i = 0; i < LIBRARIES; i++) {
        if (timed[i])
            fprintf(script,
                    "$%s_%s using 1:%d with linespoints linewidth %d linetype %zu title '%s', ",
                    routine, libraries[i], column, i == 0 ? 3 : 1, i + 1, titles[i]);
    }
    fprintf(script, "$%s_bound using 1:%d with lines dashtype 3 linecolor 'gray' title 'bound'\n",
            routine, column);
}

static void write_plot(FILE *script, const json_t *bench, const char *file)
{
    json_t *crossovers = json_object_get(bench, "crossover");
    const json_t *rows = json_object_get(bench, "rows");
    clb_plot_begin(script, file, 1000, 60 + 360 * json_object_size(crossovers));
    fprintf(script, "set multiplot layout %zu,2 title ", json_object_size(crossovers));
    clb_plot_quote(script, clb_text_of(bench, "device"));
    fprintf(script, "\nset linetype 5 linecolor 'dark-orange'\nset logscale xy 2\nset format y "
                    "'%%g'\nset xlabel 'n'\nset grid\n");
    CLB_EACH_MEMBER(routine, order, crossovers) {
        bool timed[LIBRARIES];
        for (size_t i = 0; i < LIBRARIES; i++)
            timed[i] = write_data(script, rows, routine, libraries[i]) > 0;
        write_data(script, rows, routine, "bound");
        for (int column = 2; column <= 3; column++)
            write_half(script, routine, json_number_value(order), timed, column);
    }
    fprintf(script, "unset multiplot\n");
}

/* ---- the command ---- */

static bool parse_sizes(struct bench *bench, const char *text)
{
    unsigned long n, last = 0;
    for (int used; bench->size_count < MOST_SIZES && *text >= '0' && *text <= '9' &&
                   sscanf(text, "%lu%n", &n, &used) == 1 && n > last && n <= LARGEST;
         text += used + 1) {
        bench->sizes[bench->size_count++] = last = n;
        if (text[used] != ',')
            return text[used] == '\0';
    }
    return false;
}

/* NULL after a message. */
static json_t *measure_all(const struct bench *bench, bool *complete)
{
    const char *shim = clb_find_library();
    json_auto_t *list = shim != NULL ? clb_devices_ready() : NULL;
    if (list == NULL)
        return NULL;
    json_t *result = clb_ask_child(measure_bounds, (void *)(uintptr_t)bench);
    if (result == NULL)
        clb_fail(0, "the driver ended the process that measures");
    if (json_object_size(result) == 0) {
        json_decref(result);
        return NULL;
    }
    json_t *rows = json_array(), *crossover = json_object();
    for (size_t i = 0; i < bench->routine_count; i++) {
        const char *name = clb_routines[bench->routines[i]].name;
        clb_bar_draw((double)i / (double)bench->routine_count, "%s", name);
        *complete = measure_routine(rows, bench, bench->routines[i], result, shim) && *complete;
        json_object_set_new(crossover, name, json_integer(find_crossover(rows, name)));
    }
    clb_bar_clear();
    json_object_set_new(result, "rows", rows);
    json_object_set_new(result, "crossover", crossover);
    return result;
}

int clb_command_bench(int argc, char **argv)
{
    struct bench bench = {.routines = {CLB_ROUTINE_dgemm, CLB_ROUTINE_dgetrf}, .routine_count = 2};
    const int first = clb_options_read(argc, argv);
    const char *sizes = clb_option('s'), *other = clb_option('l'), *plot = clb_option('o'),
               *from = clb_option('f');
    bool complete = true;
    if (!parse_sizes(&bench, sizes != NULL ? sizes : "256,512,1024,2048"))
        return clb_fail(CLB_EXIT_USAGE, "%s is no list of ascending orders", sizes);
    if (other != NULL && access(other, R_OK) != 0)
        return clb_fail(CLB_EXIT_FAILED, "%s: %s", other, strerror(errno));
    if (argc - first > MOST_ROUTINES)
        return clb_fail(CLB_EXIT_USAGE, "more than %d routines", MOST_ROUTINES);
    if (first < argc)
        bench.routine_count = 0;
    for (int i = first; i < argc; i++) {
        int routine = 0;
        while (routine < CLB_ROUTINES && (!clb_is_named(argv[i], clb_routines[routine].name) ||
                                          clb_routine_has_flag((clb_routine)routine, 'b')))
            routine++;
        if (routine == CLB_ROUTINES)
            return clb_fail(CLB_EXIT_USAGE, "%s is none of the routines", argv[i]);
        bench.routines[bench.routine_count++] = (clb_routine)routine;
    }
    json_auto_t *result =
        from != NULL ? clb_result_load(from, "rows") : measure_all(&bench, &complete);
    if (result == NULL)
        return CLB_EXIT_FAILED;
    if (clb_option('j') != NULL)
        clb_json_print(result);
    else if (clb_option('c') != NULL)
        print_csv(result);
    else
        print_table(result);
    bool drawn = plot == NULL || clb_plot_draw(plot, write_plot, result);
    if (!complete)
        clb_fail(
            0, "some calls can't be measured: the library has no such routine, or memory is short");
    return complete && drawn ? EXIT_SUCCESS : CLB_EXIT_FAILED;
}
