/* clblas-shim ladder: the kernels of this folder, checked and timed. docs/ladder.md walks through
 * them. The clblas-shim command starts this program. */
#include "ladder.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT     64 /* blocks.h */
#define LARGEST  8192
#define FOR_CPU  512
#define FOR_GPUS 2048

/* ---- checks ---------------------------------------------------------------------------------- */

static long double entry(const struct ladder *ladder, const void *matrix, size_t i, size_t j)
{
    size_t at = i + j * ladder->n;
    return ladder->measure.precision == CLB_S ? (long double)((const float *)matrix)[at]
                                              : (long double)((const double *)matrix)[at];
}

void ladder_times(const struct ladder *ladder, const void *matrix, char part, bool absolute,
                  const long double *x, long double *y)
{
    for (size_t i = 0; i < ladder->n; i++)
        y[i] = part == 'L' ? (absolute ? fabsl(x[i]) : x[i]) : 0;
    for (size_t j = 0; j < ladder->n; j++) {
        size_t begin = part == 'L' ? j + 1 : 0, end = part == 'U' ? j + 1 : ladder->n;
        for (size_t i = begin; i < end; i++) {
            long double product = entry(ladder, matrix, i, j) * x[j];
            y[i] += absolute ? fabsl(product) : product;
        }
    }
}

double ladder_error(const struct ladder *ladder, const long double *found,
                    const long double *expected, const long double *scale)
{
    const long double unit = ladder->measure.precision == CLB_S ? 0x1p-24L : 0x1p-53L;
    long double worst = 0;
    for (size_t i = 0; i < ladder->n; i++) {
        long double error = fabsl(found[i] - expected[i]) / (unit * scale[i]);
        worst = error <= worst ? worst : error; /* a NaN stays */
    }
    return (double)worst;
}

long double *ladder_signs(const struct ladder *ladder)
{
    long double *x = calloc(2 * ladder->n, sizeof *x);
    uint64_t state = 7;
    for (size_t i = 0; x != NULL && i < ladder->n; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = state >> 63 != 0 ? 1 : -1;
    }
    return x;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void print_header(const json_t *result)
{
    printf("%s, %s precision, n = %.0f, on %s (driver %s)\n"
           "bound: %.1f GFLOP/s, fused multiply-adds in registers\n\n%s%-30s %12s %10s %8s %8s  "
           "%s%s\n",
           clb_text_of(result, "ladder"),
           strcmp(clb_text_of(result, "precision"), "s") == 0 ? "single" : "double",
           clb_number_of(result, "n"), clb_text_of(result, "device"), clb_text_of(result, "driver"),
           clb_number_of(result, "bound_gflops"), clb_style(stdout, CLB_BOLD), "rung", "ms",
           "GFLOP/s", "of bound", "error", "adds", clb_style(stdout, CLB_PLAIN));
}

static void print_rung(const json_t *rung)
{
    const bool wrong = json_is_false(json_object_get(rung, "right"));
    char error[16] = "";
    if (json_object_get(rung, "ms") == NULL) {
        printf("%-30s %12s %10s %8s %8s  %s\n", clb_text_of(rung, "name"), "-", "-", "-", "",
               "not on this device");
        return;
    }
    if (json_object_get(rung, "error") != NULL)
        snprintf(error, sizeof error, "%.2g", clb_number_of(rung, "error"));
    printf("%-30s %12.3f %10.2f %7.1f%% %8s  %s%s%s%s\n", clb_text_of(rung, "name"),
           clb_number_of(rung, "ms"), clb_number_of(rung, "gflops"),
           100 * clb_number_of(rung, "share"), error, wrong ? clb_style(stdout, CLB_RED) : "",
           wrong ? "WRONG: " : "", clb_text_of(rung, "adds"),
           wrong ? clb_style(stdout, CLB_PLAIN) : "");
    fflush(stdout);
}

void ladder_add(struct ladder *ladder, const struct rung *rung)
{
    bool ran = isfinite(rung->seconds), looked = ran && !isnan(rung->limit);
    bool wrong = looked && !(rung->error <= rung->limit);
    json_t *row = json_pack("{s:s,s:s}", "name", rung->name, "adds", rung->adds);
    ladder->wrong = ladder->wrong || wrong;
    if (ran) {
        json_object_set_new(row, "ms", json_real(1e3 * rung->seconds));
        json_object_set_new(row, "gflops", json_real(1e-9 * ladder->flops / rung->seconds));
        json_object_set_new(row, "share", json_real(ladder->flops / rung->seconds / ladder->bound));
    }
    if (looked) {
        json_object_set_new(row, "right", json_boolean(!wrong));
        if (isfinite(rung->error))
            json_object_set_new(row, "error", json_real(rung->error));
    }
    json_array_append_new(json_object_get(ladder->result, "rungs"), row);
    if (!ladder->as_json)
        print_rung(row);
}

static void start_result(struct ladder *ladder)
{
    const struct clb_device *device = &ladder->measure.runtime->device;
    ladder->result = json_pack(
        "{s:s,s:s,s:s,s:s,s:I,s:f,s:[]}", "ladder", ladder->title, "device", device->name, "driver",
        device->driver, "precision", ladder->measure.precision == CLB_S ? "s" : "d", "n",
        (json_int_t)ladder->n, "bound_gflops", ladder->bound * 1e-9, "rungs");
    if (!ladder->as_json)
        print_header(ladder->result);
}

/* A bar for each rung that ran, the first at the top; the bound is a line. */
static void write_ladder(FILE *script, const json_t *ladder, const char *file)
{
    const json_t *rungs = json_object_get(ladder, "rungs");
    const double bound = clb_number_of(ladder, "bound_gflops");
    double least = bound, most = bound;
    size_t count = 0;
    struct clb_text title = {0};
    fprintf(script, "$rungs << END\n");
    for (size_t i = 0; i < json_array_size(rungs); i++) {
        const json_t *rung = json_array_get(rungs, i);
        double rate = clb_number_of(rung, "gflops");
        if (!(rate > 0))
            continue;
        fprintf(script, "%zu %g \"%s\"\n", count++, rate, clb_text_of(rung, "name"));
        least = fmin(least, rate);
        most = fmax(most, rate);
    }
    fprintf(script, "END\n");
    clb_plot_begin(script, file, 1000, 110 + 24 * count);
    clb_text_addf(&title, "%s, %s precision, n = %.0f, on %s", clb_text_of(ladder, "ladder"),
                  strcmp(clb_text_of(ladder, "precision"), "s") == 0 ? "single" : "double",
                  clb_number_of(ladder, "n"), clb_text_of(ladder, "device"));
    fprintf(script, "set title ");
    clb_plot_quote(script, title.failed ? "" : title.data);
    clb_text_free(&title);
    fprintf(script,
            "\nset logscale x\nset xrange [%g:%g]\nset yrange [%zu - 0.5:-0.5]\nset xlabel "
            "'GFLOP/s'\nset grid xtics\nset format x '%%g'\nunset key\nset style fill solid 0.7\n"
            "set arrow from %g, graph 0 to %g, graph 1 nohead dashtype 2 front\n"
            "set label 'bound' at %g, graph 1.01 center\n"
            "plot $rungs using 2:1:(%g):2:($1-0.4):($1+0.4):ytic(3) with boxxyerror, "
            "$rungs using 2:1:(sprintf($2 < 100 ? ' %%.2g' : ' %%.0f', $2)) with labels left\n",
            least / 2, most * 3, count, bound, bound, bound, least / 2);
}

/* ---- the bound ------------------------------------------------------------------------------- */

#define PEAK_CHAINS 8 /* peak.cl */
#define PEAK_STEPS  4096

struct peak {
    struct clb_measure *measure;
    struct clb_program *program;
    struct clb_buffer *results;
    size_t items;
};

static clb_status run_peak(void *argument)
{
    struct peak *peak = argument;
    struct clb_queue *queue = peak->measure->queue_set->queue;
    const cl_uint steps = PEAK_STEPS;
    const clb_scalar x = {.d = {0.5, 0}}, y = {.d = {0.25, 0}}, half = {.s = {0.5F, 0}},
                     quarter = {.s = {0.25F, 0}};
    bool is_double = peak->measure->precision == CLB_D;
    size_t size = clb_precision_size(peak->measure->precision);
    const struct clb_argument arguments[] = {CLB_ARG(steps),
                                             {size, is_double ? &x : &half},
                                             {size, is_double ? &y : &quarter},
                                             CLB_ARG(peak->results->mem)};
    const struct clb_kernel_launch launch = {.queue = queue,
                                             .program = peak->program,
                                             .kernel = "peak",
                                             .arguments = arguments,
                                             .count = CLB_COUNT_OF(arguments),
                                             .global = {peak->items, 1}};
    clb_status status = clb_measure_launch(peak->measure, &launch);
    return status == CLB_OK ? clb_queue_finish(queue) : status;
}

static double measure_peak(struct clb_measure *measure)
{
    const struct clb_device *device = &measure->runtime->device;
    /* Of a CPU few: what takes a millisecond is rarely interrupted. */
    struct peak peak = {.measure = measure,
                        .items = (size_t)device->units *
                                 (device->type == CL_DEVICE_TYPE_CPU ? 64 : 2048)};
    size_t size = clb_precision_size(measure->precision), width = 1;
    char options[64];
    while (width < 16 && 2 * width * size <= device->vector_bytes)
        width *= 2;
    snprintf(options, sizeof options, "-DCLB_DOUBLE=%d -DWIDTH=%zu", measure->precision == CLB_D,
             width);
    clb_status status =
        clb_program_get(measure->runtime, &kernel_ladder_peak, options, &peak.program);
    if (status == CLB_OK)
        status = clb_buffer_get(measure->runtime, CLB_MEMORY_DEVICE, peak.items * width * size,
                                &peak.results);
    double seconds = status == CLB_OK ? clb_measure_seconds(run_peak, &peak, true) : NAN;
    clb_buffer_put(measure->runtime, peak.results);
    if (!isfinite(seconds))
        clb_fail(0, "the bound can't be measured: the kernel fails");
    return isfinite(seconds)
               ? 2.0 * PEAK_CHAINS * PEAK_STEPS * (double)peak.items * (double)width / seconds
               : 0;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Of the only row; NAN where there is none. */
static double seconds_of(json_t *rows)
{
    const json_t *row = json_array_get(rows, 0);
    double seconds = row != NULL ? clb_number_of(row, "seconds") : (double)NAN;
    json_decref(rows);
    return seconds;
}

/* Whole calls of a library, from and to ordinary memory; measured before this process starts the
 * device. */
static double time_library(const char *library, clb_routine routine, size_t n)
{
    return seconds_of(clb_time_calls(library, routine, &n, 1));
}

/* Products in the device's memory, as the rungs are. */
static void time_peers(struct ladder *ladder, clb_routine routine)
{
    static const char *const peers[][2] = {{"clblast", "CLBlast"}, {"cublas", "cuBLAS"}};
    ladder->peers = json_object();
    for (size_t i = 0; i < CLB_COUNT_OF(peers); i++) {
        double seconds = seconds_of(clb_time_peer(peers[i][0], routine, &ladder->n, 1, true));
        if (isfinite(seconds))
            json_object_set_new(ladder->peers, peers[i][1], json_real(seconds));
    }
}

static bool make_operands(struct ladder *ladder)
{
    void **operands[] = {&ladder->a, &ladder->b, &ladder->c};
    uint64_t state = 1;
    for (size_t k = 0; k < CLB_COUNT_OF(operands); k++)
        *operands[k] = clb_measure_random(ladder->measure.precision, ladder->n * ladder->n, &state);
    return ladder->a != NULL && ladder->b != NULL && ladder->c != NULL;
}

static int climb(struct ladder *ladder, clb_routine routine,
                 clb_status (*rungs)(struct ladder *ladder))
{
    const char *library = clb_find_library();
    clb_precision precision = clb_routines[routine].precision;
    if (library == NULL)
        return CLB_EXIT_FAILED;
    ladder->flops = clb_call_flops(routine, ladder->n);
    const double shim = time_library(library, routine, ladder->n),
                 next = time_library(NULL, routine, ladder->n);
    time_peers(ladder, routine);
    if (!clb_measure_start(&ladder->measure, precision))
        return CLB_EXIT_FAILED;
    ladder->bound = measure_peak(&ladder->measure);
    if (ladder->bound <= 0)
        return CLB_EXIT_FAILED;
    if (!make_operands(ladder))
        return clb_fail(CLB_EXIT_FAILED, "there is no memory for matrices of order %zu", ladder->n);
    start_result(ladder);
    clb_status status = rungs(ladder);
    if (status != CLB_OK)
        return clb_fail(CLB_EXIT_FAILED, "the device fails: %s", clb_status_name(status));
    ladder_add(ladder, &(struct rung){"the library, a whole call", "from and to ordinary memory",
                                      shim, NAN, NAN});
    ladder_add(ladder, &(struct rung){"the next BLAS", "on the CPU", next, NAN, NAN});
    clb_measure_end(&ladder->measure);
    if (ladder->as_json)
        clb_json_print(ladder->result);
    return ladder->wrong ? clb_fail(CLB_EXIT_FAILED, "a kernel's result is wrong") : EXIT_SUCCESS;
}

/* 0 after a message. */
static size_t choose_order(const char *wanted)
{
    char *end = NULL;
    unsigned long n = wanted != NULL ? strtoul(wanted, &end, 10) : 0;
    if (wanted != NULL && (*end != '\0' || n == 0 || n % UNIT != 0 || n > LARGEST)) {
        clb_fail(0, "%s is no multiple of %d up to %d", wanted, UNIT, LARGEST);
        return 0;
    }
    return n;
}

/* The order where none is named: 0 after a message. */
static size_t find_order(void)
{
    json_t *list = clb_devices_ready(), *device;
    size_t i, order = list != NULL ? FOR_GPUS : 0;
    json_array_foreach(json_object_get(list, "devices"), i, device)
    {
        if (json_is_true(json_object_get(device, "taken")) &&
            strcmp(clb_text_of(device, "type"), "CPU") == 0)
            order = FOR_CPU;
    }
    json_decref(list);
    return order;
}

/* What --json has written once. */
static int show(struct ladder *ladder, const char *from)
{
    size_t i;
    json_t *rung;
    ladder->result = clb_result_load(from, "rungs");
    if (ladder->result == NULL)
        return CLB_EXIT_FAILED;
    if (ladder->as_json) {
        clb_json_print(ladder->result);
        return EXIT_SUCCESS;
    }
    print_header(ladder->result);
    json_array_foreach(json_object_get(ladder->result, "rungs"), i, rung) print_rung(rung);
    return EXIT_SUCCESS;
}

static int run_ladder(int argc, char **argv)
{
    struct ladder ladder = {.title = "gemm"};
    const char *wanted = NULL, *precision = "s", *plot = NULL, *from = NULL;
    for (int letter; (letter = clb_option_next(argc, argv)) >= 0;) {
        if (letter == 'n')
            wanted = optarg;
        else if (letter == 'p')
            precision = optarg;
        else if (letter == 'd')
            setenv("CLBLAS_SHIM_DEVICE", optarg, 1);
        else if (letter == 'o')
            plot = optarg;
        else if (letter == 'f')
            from = optarg;
        else
            ladder.as_json = true;
    }
    if (optind < argc)
        ladder.title = argv[argc - 1];
    bool lu = strcmp(ladder.title, "lu") == 0;
    if (!lu && strcmp(ladder.title, "gemm") != 0)
        return clb_fail(CLB_EXIT_USAGE, "%s is no ladder: gemm or lu", ladder.title);
    if (strcmp(precision, "s") != 0 && strcmp(precision, "d") != 0)
        return clb_fail(CLB_EXIT_USAGE, "%s is no precision: s or d", precision);
    if (wanted != NULL && choose_order(wanted) == 0)
        return CLB_EXIT_USAGE;
    if (plot != NULL && !clb_plot_name(plot))
        return CLB_EXIT_USAGE;
    size_t usual = from == NULL ? find_order() : 0;
    if (from == NULL && usual == 0)
        return CLB_EXIT_FAILED;
    ladder.n = wanted != NULL ? choose_order(wanted) : usual;
    const clb_routine routine = precision[0] == 's' ? lu ? CLB_ROUTINE_sgetrf : CLB_ROUTINE_sgemm
                                : lu                ? CLB_ROUTINE_dgetrf
                                                    : CLB_ROUTINE_dgemm;
    int status = from != NULL ? show(&ladder, from)
                              : climb(&ladder, routine, lu ? ladder_climb_lu : ladder_climb_gemm);
    if (plot != NULL && ladder.result != NULL && !clb_plot_draw(plot, write_ladder, ladder.result))
        status = CLB_EXIT_FAILED;
    json_decref(ladder.result);
    json_decref(ladder.peers);
    free(ladder.a);
    free(ladder.b);
    free(ladder.c);
    return status;
}

int main(int argc, char **argv)
{
    return clb_command_choose("ladder") ? clb_end(run_ladder(argc, argv)) : CLB_EXIT_USAGE;
}
