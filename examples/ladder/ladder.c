/* clblas-shim ladder: the kernels of this folder, checked and timed. docs/ladder.md walks through
 * them. The clblas-shim command starts this program. SPDX-License-Identifier: BSD-3-Clause */
#include "ladder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT     64 /* blocks.h */
#define LARGEST  8192
#define FOR_CPU  512
#define FOR_GPUS 2048

/* ---- checks ---- */

/* Y = X times a vector, and its sizes: the same of absolute values; of X only the part 'U', the
 * part 'L' with ones on the diagonal, or 'A', all of it. */
static void times(const struct ladder *ladder, const void *matrix, char part, const long double *x,
                  const long double *x_size, long double *y, long double *y_size)
{
    const size_t n = ladder->n;
    memcpy(y, x, n * sizeof *y);
    memcpy(y_size, x_size, n * sizeof *y_size);
    for (size_t i = 0; i < n && part != 'L'; i++)
        y[i] = y_size[i] = 0;
    for (size_t j = 0; j < n; j++) {
        const size_t begin = part == 'L' ? j + 1 : 0, end = part == 'U' ? j + 1 : n;
        for (size_t i = begin; i < end; i++) {
            const long double value = clb_check_get(ladder->measure.precision, matrix, i + j * n);
            y[i] += value * x[j];
            y_size[i] += fabsl(value) * x_size[j];
        }
    }
}

double ladder_error(const struct ladder *ladder, const void *whole, const cl_uint *pivot,
                    const void *left, char left_part, const void *right, char right_part)
{
    const long double unit = ladder->measure.precision == CLB_S ? 0x1p-24L : 0x1p-53L;
    const size_t n = ladder->n;
    long double *x = calloc(7 * n, sizeof *x), *one = x + n, *y = x + 2 * n, *y_size = x + 3 * n,
                *found = x + 4 * n, *expected = x + 5 * n, *size = x + 6 * n, worst = 0;
    uint64_t state = 7;
    if (x == NULL)
        return NAN;
    for (size_t i = 0; i < n; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = state >> 63 != 0 ? 1 : -1;
        one[i] = 1;
    }
    times(ladder, whole, 'A', x, one, found, size);
    for (size_t i = 0; i < n && pivot != NULL; i++) {
        const size_t other = pivot[i] < n ? pivot[i] : i;
        const long double held = found[i];
        found[i] = found[other];
        found[other] = held;
    }
    times(ladder, right, right_part, x, one, y, y_size);
    times(ladder, left, left_part, y, y_size, expected, size);
    for (size_t i = 0; i < n; i++) {
        const long double error = fabsl(found[i] - expected[i]) / (unit * size[i]);
        worst = error <= worst ? worst : error; /* a NaN stays */
    }
    free(x);
    return (double)worst;
}

/* ---- the table ---- */

static void format_title(char *title, size_t size, const json_t *result)
{
    const bool single = strcmp(clb_text_of(result, "precision"), "s") == 0;
    snprintf(title, size, "%s, %s precision, n = %.0f, on %s", clb_text_of(result, "ladder"),
             single ? "single" : "double", clb_number_of(result, "n"),
             clb_text_of(result, "device"));
}

static void print_header(const json_t *result)
{
    char title[256];
    format_title(title, sizeof title, result);
    printf("%s (driver %s)\nbound: %.1f GFLOP/s, fused multiply-adds in registers\n\n"
           "%s%-30s %12s %10s %8s %8s  %s%s\n",
           title, clb_text_of(result, "driver"), clb_number_of(result, "bound_gflops"),
           clb_style(stdout, CLB_BOLD), "rung", "ms", "GFLOP/s", "of bound", "error", "adds",
           clb_style(stdout, CLB_PLAIN));
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
static void write_plot(FILE *script, const json_t *ladder, const char *file)
{
    const double bound = clb_number_of(ladder, "bound_gflops");
    double least = bound, most = bound;
    char title[256], settings[512];
    size_t count = 0;
    json_t *rungs = json_object_get(ladder, "rungs");
    CLB_EACH(rung, rungs) {
        const double rate = clb_number_of(rung, "gflops");
        least = rate > 0 ? fmin(least, rate) : least;
        most = fmax(most, rate);
    }
    fprintf(script, "$bars << END\n");
    CLB_EACH(rung, rungs) {
        const double rate = clb_number_of(rung, "gflops");
        if (rate > 0)
            fprintf(script, "%zu %g %g %g \"%s\" \" %.*g\"\n", count++, least / 2, rate, rate,
                    clb_text_of(rung, "name"), (int)fmax(floor(log10(rate)) + 1, 2), rate);
    }
    fprintf(script, "END\n");
    format_title(title, sizeof title, ladder);
    snprintf(settings, sizeof settings,
             "set logscale x\nset xrange [%g:%g]\nset xlabel 'GFLOP/s'\nset format x '%%g'\n"
             "unset key\nset arrow from %g, graph 0 to %g, graph 1 nohead dashtype 2 front\n"
             "set label 'bound' at %g, graph 1.01 center",
             least / 2, most * 3, bound, bound, bound);
    clb_plot_bars(script, file, title, settings, count);
}

/* ---- the bound ---- */

#define PEAK_CHAINS 8 /* peak.cl */
#define PEAK_STEPS  4096

struct peak {
    const struct ladder *ladder;
    struct clb_program *program;
    struct clb_buffer *results;
    size_t items;
};

static clb_status run_peak(void *argument)
{
    const struct peak *peak = argument;
    const struct clb_geometry geometry = {.global = {peak->items}, .dimensions = 1};
    /* x and y of the kernel */
    const clb_precision precision = peak->ladder->measure.precision;
    const clb_scalar factors =
        precision == CLB_S ? (clb_scalar){.s = {0.5F, 0.25F}} : (clb_scalar){.d = {0.5, 0.25}};
    const cl_uint steps = PEAK_STEPS;
    clb_status status = clb_kernel_launch(
        peak->ladder->measure.queue_set, peak->program, "peak", &geometry, (struct clb_order){0},
        CLB_ARGUMENTS(CLB_ARG(steps), CLB_FACTOR(precision, factors, 0),
                      CLB_FACTOR(precision, factors, 1), CLB_ARG(peak->results->mem)));
    return status == CLB_OK ? clb_queue_finish(peak->ladder->queue) : status;
}

static double measure_peak(const struct ladder *ladder)
{
    const struct clb_measure *measure = &ladder->measure;
    const struct clb_device *device = &measure->runtime->device;
    /* Of a CPU few: what takes a millisecond is rarely interrupted. */
    struct peak peak = {.ladder = ladder,
                        .items = (size_t)device->units *
                                 (device->type == CL_DEVICE_TYPE_CPU ? 64 : 2048)};
    const size_t size = ladder->size, width = clb_max(clb_min(device->vector_bytes / size, 16), 1);
    char options[64];
    snprintf(options, sizeof options, "-DCLB_DOUBLE=%d -DWIDTH=%zu", measure->precision == CLB_D,
             width);
    clb_status status =
        clb_program_get(measure->runtime, &kernel_ladder_peak, options, &peak.program);
    CLB_THEN(status, clb_buffer_get(measure->runtime, CLB_MEMORY_DEVICE, peak.items * width * size,
                                    &peak.results));
    double seconds = status == CLB_OK ? clb_measure_seconds(run_peak, &peak, true) : NAN;
    clb_buffer_end(measure->runtime, peak.results, true);
    return isfinite(seconds)
               ? 2.0 * PEAK_CHAINS * PEAK_STEPS * (double)peak.items * (double)width / seconds
               : clb_fail(0, "the bound can't be measured: the kernel fails");
}

/* ---- the command ---- */

/* Of the only row; NAN where there is none. */
static double seconds_of(json_t *rows)
{
    const json_t *row = json_array_get(rows, 0);
    double seconds = row != NULL ? clb_number_of(row, "seconds") : (double)NAN;
    json_decref(rows);
    return seconds;
}

/* Numbers in (-1, 1). */
static bool make_operands(struct ladder *ladder)
{
    void **operands[] = {&ladder->a, &ladder->b, &ladder->c};
    uint64_t state = 1;
    for (size_t k = 0; k < CLB_COUNT_OF(operands); k++) {
        *operands[k] = malloc(ladder->bytes);
        for (size_t i = 0; i < ladder->n * ladder->n && *operands[k] != NULL; i++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            clb_check_put(ladder->measure.precision, *operands[k], i,
                          (double)(int64_t)(state >> 11) * 0x1p-52 - 1);
        }
    }
    return ladder->a != NULL && ladder->b != NULL && ladder->c != NULL;
}

static int climb(struct ladder *ladder, clb_routine routine,
                 clb_status (*rungs)(struct ladder *ladder))
{
    const char *library = clb_find_library();
    const size_t *n = &ladder->n;
    if (library == NULL)
        return CLB_EXIT_FAILED;
    ladder->flops = clb_call_flops(routine, *n);
    /* Other libraries first, in children: before this process starts the device. Whole calls are
     * from and to ordinary memory, products of peers in the device's, as the rungs are. */
    const double shim = seconds_of(clb_time_calls(library, routine, n, 1)),
                 next = seconds_of(clb_time_calls(NULL, routine, n, 1)),
                 clblast = seconds_of(clb_time_peer("clblast", routine, n, 1, true)),
                 cublas = seconds_of(clb_time_peer("cublas", routine, n, 1, true));
    if (!clb_measure_start(&ladder->measure, clb_routines[routine].precision))
        return CLB_EXIT_FAILED;
    ladder->queue = ladder->measure.queue_set->queue;
    ladder->size = clb_precision_size(ladder->measure.precision);
    ladder->bytes = *n * *n * ladder->size;
    ladder->bound = measure_peak(ladder);
    if (ladder->bound <= 0)
        return CLB_EXIT_FAILED;
    if (!make_operands(ladder))
        return clb_fail(CLB_EXIT_FAILED, "there is no memory for matrices of order %zu", ladder->n);
    start_result(ladder);
    clb_status status = rungs(ladder);
    if (status != CLB_OK)
        return clb_fail(CLB_EXIT_FAILED, "the device fails: %s", clb_status_name(status));
    if (isfinite(clblast))
        ladder_add(ladder, &(struct rung){"CLBlast", "in the device's memory", clblast, NAN, NAN});
    if (isfinite(cublas))
        ladder_add(ladder, &(struct rung){"cuBLAS", "in the device's memory", cublas, NAN, NAN});
    ladder_add(ladder, &(struct rung){"the library, a whole call", "from and to ordinary memory",
                                      shim, NAN, NAN});
    ladder_add(ladder, &(struct rung){"the next BLAS", "on the CPU", next, NAN, NAN});
    clb_measure_end(&ladder->measure);
    if (ladder->as_json)
        clb_json_print(ladder->result);
    return ladder->wrong ? clb_fail(CLB_EXIT_FAILED, "a kernel's result is wrong") : EXIT_SUCCESS;
}

/* The order that is wanted, or where that is NULL the one that suits the device; 0 after a message.
 */
static size_t choose_order(const char *wanted)
{
    char *end = NULL;
    unsigned long n = wanted != NULL ? strtoul(wanted, &end, 10) : FOR_GPUS;
    if (wanted != NULL && (*end != '\0' || n == 0 || n % UNIT != 0 || n > LARGEST))
        return (size_t)clb_fail(0, "%s is no multiple of %d up to %d", wanted, UNIT, LARGEST);
    return n;
}

/* Of a CPU the order is less where none is wanted. False after a message: no device is taken. */
static bool look_at_devices(struct ladder *ladder)
{
    json_auto_t *list = clb_devices_ready();
    if (clb_option('n') == NULL && clb_devices_on_cpu(list))
        ladder->n = FOR_CPU;
    return list != NULL;
}

/* What --json has written once. */
static int show(const struct ladder *ladder)
{
    if (ladder->as_json) {
        clb_json_print(ladder->result);
    } else {
        print_header(ladder->result);
        CLB_EACH(rung, json_object_get(ladder->result, "rungs"))
            print_rung(rung);
    }
    return EXIT_SUCCESS;
}

static int run_ladder(int argc, char **argv)
{
    const int first = clb_options_read(argc, argv);
    struct ladder ladder = {.title = first < argc ? argv[argc - 1] : "gemm",
                            .n = choose_order(clb_option('n')),
                            .as_json = clb_option('j') != NULL};
    const char *precision = clb_option('p') != NULL ? clb_option('p') : "s",
               *plot = clb_option('o'), *from = clb_option('f');
    bool lu = strcmp(ladder.title, "lu") == 0, single = strcmp(precision, "s") == 0;
    if (ladder.n == 0)
        return CLB_EXIT_USAGE;
    if (!lu && strcmp(ladder.title, "gemm") != 0)
        return clb_fail(CLB_EXIT_USAGE, "%s is no ladder: gemm or lu", ladder.title);
    if (!single && strcmp(precision, "d") != 0)
        return clb_fail(CLB_EXIT_USAGE, "%s is no precision: s or d", precision);
    ladder.result = from != NULL ? clb_result_load(from, "rungs") : NULL;
    if (from != NULL ? ladder.result == NULL : !look_at_devices(&ladder))
        return CLB_EXIT_FAILED;
    const clb_routine routine =
        clb_routine_of(lu ? CLB_KIND_getrf : CLB_KIND_gemm, single ? CLB_S : CLB_D, false);
    int status = from != NULL ? show(&ladder)
                              : climb(&ladder, routine, lu ? ladder_climb_lu : ladder_climb_gemm);
    if (plot != NULL && ladder.result != NULL && !clb_plot_draw(plot, write_plot, ladder.result))
        status = CLB_EXIT_FAILED;
    json_decref(ladder.result);
    free(ladder.a);
    free(ladder.b);
    free(ladder.c);
    return status;
}

int main(int argc, char **argv)
{
    return clb_command_choose("ladder") >= 0 ? clb_end(run_ladder(argc, argv)) : CLB_EXIT_USAGE;
}
