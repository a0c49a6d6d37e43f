/* Known are times of square calls, all sizes of which are the same: those of cost.def, and those
 * that were measured on this machine. Between them the logarithms of time and of work are
 * interpolated. Another shape takes as long as the square call of the same work, and what it moves
 * beyond that; on a device with memory of its own also what is lost at the edges of kernels' tiles,
 * and what a longer chain of panels takes. The next library is not expected to be slower for a
 * shape, except for products whose result is too small for its threads. */
#include "cost.h"

#include <math.h>
#include <string.h>

/* ---- families ---- */

static const struct family {
    clb_stem row;    /* of the work formula */
    double matrices; /* that a square call moves between the host and a device with own memory */
    double chain;    /* seconds there of a column of a factorisation's or a solve's order */
} families[CLB_KINDS] = {
#define FAMILY(kind, matrices, chain) [CLB_KIND_##kind] = {CLB_STEM_##kind, matrices, chain}
    FAMILY(gemm, 3, 0),     FAMILY(syrk, 1.5, 0),   FAMILY(syr2k, 2.5, 0),
    FAMILY(symm, 3, 0),     FAMILY(trmm, 3, 0),     FAMILY(trsm, 3, 0.65e-6),
    FAMILY(getrf, 2, 4e-6), FAMILY(getrs, 3, 1e-6), FAMILY(getri, 2, 4e-6),
    FAMILY(potrf, 2, 4e-6), FAMILY(potrs, 3, 1e-6), FAMILY(trtri, 2, 2e-6),
    FAMILY(lauum, 2, 2e-6), FAMILY(potri, 2, 4e-6), FAMILY(geqrf, 2, 4e-6),
    FAMILY(ormqr, 3, 4e-6), FAMILY(orgqr, 2, 4e-6), FAMILY(gesv, 4, 4e-6),
    FAMILY(posv, 4, 4e-6),
#undef FAMILY
};

clb_work clb_routine_work(clb_routine routine)
{
    static const clb_work works[CLB_KINDS] = {
#define CLB_KIND(kind, work) [CLB_KIND_##kind] = CLB_WORK_##work,
        CLB_KIND_TABLE(CLB_KIND)
#undef CLB_KIND
    };
    return works[clb_routines[routine].kind];
}

clb_kind clb_cost_family_of(clb_routine routine)
{
    const clb_kind kind = clb_routines[routine].kind;
    return kind == CLB_KIND_gemmtr ? CLB_KIND_syrk : kind;
}

double clb_cost_order(clb_kind family, double work)
{
    return cbrt(work / clb_work_of(families[family].row, 1, 1, 1));
}

/* ---- calls ---- */

struct clb_cost_call clb_cost_describe(const struct clb_call *call)
{
    const char *sizes = clb_routines[call->routine].sizes;
    struct clb_cost_call cost = {.family = clb_cost_family_of(call->routine),
                                 .precision = call->precision,
                                 .m = (double)clb_call_size(call, sizes[0]),
                                 .n = (double)clb_call_size(call, sizes[1]),
                                 .k = (double)clb_call_size(call, sizes[2])};
    const bool reads_c = clb_call_reads_c(call);
    cost.work = clb_work_of(clb_routines[call->routine].row, cost.m, cost.n, cost.k);
    cost.order = clb_cost_order(cost.family, cost.work);
    for (char matrix = 'A'; matrix <= 'C'; matrix++) {
        struct clb_shape shape;
        if (!clb_call_shape(call, matrix, &shape))
            continue;
        const bool read = !shape.written || matrix != 'C' || reads_c;
        const double part = matrix == 'C' && shape.triangle ? 0.5 : 1;
        cost.bytes += part * (double)shape.rows * (double)shape.cols *
                      (double)clb_precision_size(call->precision) * (read + shape.written);
    }
    return cost;
}

static double flops_of(const struct clb_cost_call *call)
{
    return call->work * (clb_precision_parts(call->precision) == 2 ? 8 : 2);
}

/* ---- tables ---- */

static const double orders[] = {
#define CLB_COST_ORDERS(...) __VA_ARGS__
#include "cost.def"
#undef CLB_COST_ORDERS
};
enum { ORDERS = sizeof orders / sizeof *orders };

enum {
#define CLB_COST_DEVICE(id, name, start, link) MACHINE_##id,
#include "cost.def"
#undef CLB_COST_DEVICE
    MACHINES
};

#define OTHER_START  0.5  /* not known, an H200's */
#define LINK_UNKNOWN 12e9 /* bytes in a second: PCIe 3.0 with 16 lanes */

/* The last one is any other. */
static const struct {
    const char *name;
    double start, link;
} machines[MACHINES + 1] = {
#define CLB_COST_DEVICE(id, name, start, link) {name, start, link},
#include "cost.def"
#undef CLB_COST_DEVICE
    {"", OTHER_START, LINK_UNKNOWN}};

/* Of square calls. */
struct times {
    double factor[CLB_PRECISIONS]; /* of the times in double precision */
    double micros[ORDERS];         /* the first is 0 where there are none */
};

static const struct times device_times[MACHINES + 1][CLB_KINDS] = {
#define CLB_DEVICE_TIMES(id, family, s, c, z, ...) \
    [MACHINE_##id][CLB_KIND_##family] = {{s, 1, c, z}, {__VA_ARGS__}},
#include "cost.def"
#undef CLB_DEVICE_TIMES
};

enum { THREADS_1, THREADS_16, THREADS };
static const struct times next_times[THREADS][CLB_KINDS] = {
#define CLB_NEXT_TIMES(threads, family, s, c, z, ...) \
    [THREADS_##threads][CLB_KIND_##family] = {{s, 1, c, z}, {__VA_ARGS__}},
#include "cost.def"
#undef CLB_NEXT_TIMES
};

/* MACHINES: it is none of the table's. */
static int find_machine(const struct clb_device *device)
{
    int id = 0;
    while (strstr(device->name, machines[id].name) == NULL)
        id++;
    return id;
}

/* log y at log x, on the line through two points. */
static double on_line(double x, double x0, double y0, double x1, double y1)
{
    return exp(log(y0) + log(x / x0) / log(x1 / x0) * log(y1 / y0));
}

/* NAN without times. Below the table a device's stays the same, above it time grows as work. */
static double look_up(const struct times *times, clb_side side, clb_precision precision,
                      double order)
{
    const double *micros = times->micros, unit = 1e-6 * times->factor[precision];
    if (micros[0] <= 0)
        return NAN;
    if (order <= orders[0])
        return unit * micros[0] * (side == CLB_SIDE_DEVICE ? 1 : pow(order / orders[0], 3));
    if (order >= orders[ORDERS - 1])
        return unit * micros[ORDERS - 1] * pow(order / orders[ORDERS - 1], 3);
    size_t i = 0;
    while (order > orders[i + 1])
        i++;
    return unit * on_line(order, orders[i], micros[i], orders[i + 1], micros[i + 1]);
}

/* Flops in a second that the reference library does not reach. */
#define PLAIN_RATE   4e9
#define MOST_THREADS 16

static double next_by_table(const struct clb_next_library *next, clb_kind family,
                            clb_precision precision, double work)
{
    const double threads = fmax(next->threads, 1), order = clb_cost_order(family, work);
    if (!next->optimised)
        return work * (clb_precision_parts(precision) == 2 ? 8 : 2) / PLAIN_RATE;
    const double one = look_up(&next_times[THREADS_1][family], CLB_SIDE_NEXT, precision, order);
    const double many = look_up(&next_times[THREADS_16][family], CLB_SIDE_NEXT, precision, order);
    /* More threads than were measured are taken to be as much faster. */
    return threads >= MOST_THREADS ? many * MOST_THREADS / threads
                                   : one * pow(many / one, log(threads) / log(MOST_THREADS));
}

static double by_table(const struct clb_cost_machine *machine, clb_side side, clb_kind family,
                       clb_precision precision, double work)
{
    return side == CLB_SIDE_NEXT
               ? next_by_table(&machine->next, family, precision, work)
               : look_up(&device_times[find_machine(machine->device)][family], CLB_SIDE_DEVICE,
                         precision, clb_cost_order(family, work));
}

/* An optimised library gives each thread a part of the result of this order at least, so that small
 * results of a great depth are the work of few: times as long as the square product of the same
 * work. Very small results leave kernels half empty, too. */
#define THREADS_PART 96.0
#define DEEP         4.0 /* times the order */
#define SMALL_RESULT 48.0
#define SMALL_RATIO  2.0

/* Only a triangle of the result is computed. */
static bool is_update(clb_kind family)
{
    return family == CLB_KIND_syrk || family == CLB_KIND_syr2k;
}

static bool is_product(clb_kind family)
{
    return family == CLB_KIND_gemm || family == CLB_KIND_symm || is_update(family);
}

static int threads_of(const struct clb_cost_machine *machine, const struct clb_cost_call *call)
{
    return (int)round(
        fmin(machine->next.threads, call->m * call->n / (THREADS_PART * THREADS_PART)));
}

static double ratio_of_depth(const struct clb_cost_machine *machine,
                             const struct clb_cost_call *call)
{
    struct clb_next_library few = machine->next, square = machine->next;
    if (!few.optimised || (call->family != CLB_KIND_gemm && !is_update(call->family)) ||
        call->k < DEEP * call->order)
        return 1;
    few.threads = threads_of(machine, call);
    square.threads =
        (int)fmin(square.threads, call->order * call->order / (THREADS_PART * THREADS_PART));
    const double ratio = next_by_table(&few, call->family, call->precision, call->work) /
                         next_by_table(&square, call->family, call->precision, call->work);
    const bool small = machine->next.threads > 1 && call->m * call->n < SMALL_RESULT * SMALL_RESULT;
    return fmax(1, ratio) * (small ? SMALL_RATIO : 1);
}

/* ---- what has been measured ---- */

#define LOWEST_ORDER 64.0
#define HALF_OCTAVES 2
#define NEAR_CLASSES 1 /* a time counts for so many classes beside it, */
#define NEAR_ABOVE   4 /* the largest call's for larger ones, whose rates are much the same */
#define LARGEST_GAP  4 /* between two classes whose times are interpolated */
#define REMEMBERED   8 /* calls of which an average is taken */

void clb_cost_smooth(struct clb_profile *profile)
{
    struct clb_time *time = &profile->side[0].of[0][0][0];
    const size_t rows = sizeof profile->side / (CLB_COST_CLASSES * sizeof *time);
    for (size_t row = 0; row < rows; row++, time += CLB_COST_CLASSES) {
        float longest = INFINITY;
        for (int class = CLB_COST_CLASSES - 1; class >= 0; class --) {
            if (time[class].count > 0)
                longest = time[class].seconds = fminf(time[class].seconds, longest);
        }
    }
}

double clb_cost_class_work(int class)
{
    return pow(LOWEST_ORDER * exp2((double)class / HALF_OCTAVES), 3);
}

int clb_cost_class_of(double work)
{
    const double class = work > 0 ? round(HALF_OCTAVES * log2(cbrt(work) / LOWEST_ORDER)) : -1;
    return class >= 0 && class < CLB_COST_CLASSES ? (int)class : -1;
}

/* How much longer a call of `to` takes than one of `from`. Without the table rates stay. */
static double growth(const struct clb_cost_machine *machine, clb_side side, clb_kind family,
                     clb_precision precision, double from, double to)
{
    const double ratio = by_table(machine, side, family, precision, to) /
                         by_table(machine, side, family, precision, from);
    return isfinite(ratio) && clb_cost_has(machine->device) ? ratio : to / from;
}

/* From the nearest measured times, and how these grow by the tables. NAN: there are none, or they
 * are far away (not `near`) and there is no table. */
static double by_profile(const struct clb_cost_machine *machine, clb_side side, clb_kind family,
                         clb_precision precision, double work, bool *near)
{
    if (machine->profile == NULL)
        return NAN;
    const struct clb_time *times = machine->profile->side[side].of[family][precision];
    const double place = HALF_OCTAVES * log2(cbrt(work) / LOWEST_ORDER);
    int below = (int)fmax(-1, fmin(floor(place), CLB_COST_CLASSES - 1)), above = below + 1;
    while (below >= 0 && times[below].count == 0)
        below--;
    while (above < CLB_COST_CLASSES && times[above].count == 0)
        above++;
    const bool has_below = below >= 0, has_above = above < CLB_COST_CLASSES;
    if (!has_below && !has_above)
        return NAN;
    *near = true;
    if (has_below && has_above && above - below <= LARGEST_GAP)
        return on_line(work, clb_cost_class_work(below), (double)times[below].seconds,
                       clb_cost_class_work(above), (double)times[above].seconds);
    const bool use_below = has_below && (!has_above || place - below <= above - place);
    const int class = use_below ? below : above;
    *near = fabs(place - class) <= (has_above ? NEAR_CLASSES : NEAR_ABOVE);
    if (!*near && isnan(by_table(machine, side, family, precision, work)))
        return NAN;
    return (double)times[class].seconds *
           growth(machine, side, family, precision, clb_cost_class_work(class), work);
}

/* How many times as long as by the table products of the order take, where they were measured. */
static double ratio_of_products(const struct clb_cost_machine *machine, clb_side side,
                                clb_precision precision, double order)
{
    bool near;
    const double work = clb_work_of(families[CLB_KIND_gemm].row, order, order, order);
    const double ratio = by_profile(machine, side, CLB_KIND_gemm, precision, work, &near) /
                         by_table(machine, side, CLB_KIND_gemm, precision, work);
    return isfinite(ratio) ? ratio : 1;
}

/* Seconds of the square call of a work. NAN: not known. */
static double of_square(const struct clb_cost_machine *machine, clb_side side, clb_kind family,
                        clb_precision precision, double work, bool *near)
{
    *near = false;
    const double seconds = by_profile(machine, side, family, precision, work, near);
    if (!isnan(seconds))
        return seconds;
    return by_table(machine, side, family, precision, work) *
           ratio_of_products(machine, side, precision, clb_cost_order(family, work));
}

/* ---- shapes ---- */

#define LINK_LATENCY 0.2e-3
#define LINK_FILL    4e6  /* bytes */
#define READ_BY_ALL  60e9 /* bytes in a second, by the next library's threads */
#define READ_BY_ONE  22e9
#define READ_BY_FEW  11e9
#define CACHE        32e6  /* bytes */
#define HOST_COPIES  10e9  /* the same, by a device that has the host's memory; */
#define HOST_RESULTS 20e9  /* of products only the result, which is copied */
#define TILE         128.0 /* of a product's kernel */
#define KERNEL_RATE  40e12 /* flops in a second, in double precision, for what is lost in tiles */
/* Seconds of a panel's element: on the device, and by the CPU (LU of higher panels; QR). */
#define PANEL_DEVICE 0.1e-9
#define PANEL_LU     5e-9
#define PANEL_QR     20e-9
#define PANEL_HEIGHT 65536

static double panel_seconds(const struct clb_cost_call *call)
{
    const double elements = fmax(0, call->m * call->k - call->order * call->order);
    if (call->family == CLB_KIND_getrf)
        return elements * (call->m > PANEL_HEIGHT ? PANEL_LU : PANEL_DEVICE);
    return call->family == CLB_KIND_geqrf ? elements * PANEL_QR : 0;
}

static double tile_seconds(const struct clb_cost_call *call)
{
    if (call->family != CLB_KIND_gemm || !(call->m > 0) || !(call->n > 0))
        return 0;
    const double rows = ceil(call->m / TILE) * TILE / call->m;
    const double cols = ceil(call->n / TILE) * TILE / call->n;
    return flops_of(call) * (rows * cols - 1) / KERNEL_RATE;
}

/* Bytes beyond those of the square call of the same work. */
static double more_bytes(const struct clb_cost_call *call)
{
    return fmax(0, call->bytes - families[call->family].matrices * call->order * call->order *
                                     (double)clb_precision_size(call->precision));
}

/* Copies by a device that has the host's memory. Both sides pack the operands of a product. */
static double copy_seconds(const struct clb_cost_call *call)
{
    const double entries =
        (call->m * call->n - call->order * call->order) * (is_update(call->family) ? 0.5 : 1);
    if (!is_product(call->family))
        return more_bytes(call) / HOST_COPIES;
    return fmax(0, entries) * (double)clb_precision_size(call->precision) / HOST_RESULTS;
}

/* Few bytes do not reach the link's rate: half of the latency is due at LINK_FILL. */
static double link_seconds(const struct clb_device *device, double bytes)
{
    return bytes / machines[find_machine(device)].link + LINK_LATENCY * bytes / (bytes + LINK_FILL);
}

/* What a call on the device takes beyond the square call of the same work. */
static double shape_seconds(const struct clb_device *device, const struct clb_cost_call *call)
{
    const double steps = call->family == CLB_KIND_trsm ? call->k : fmin(call->m, call->n);
    if (device->unified)
        return copy_seconds(call);
    return families[call->family].chain * fmax(0, steps - call->order) + panel_seconds(call) +
           link_seconds(device, more_bytes(call)) + tile_seconds(call);
}

/* The same for the next library, whose threads read and write that. Triangles with few right-hand
 * sides are read by few of them, a single one's at least in long rows. Beside a device that has the
 * host's memory both sides do. */
static double next_shape_seconds(const struct clb_cost_machine *machine,
                                 const struct clb_cost_call *call)
{
    const double more = more_bytes(call);
    if (!machine->next.optimised || machine->device->unified || machine->next.threads <= 1)
        return 0;
    if (is_product(call->family))
        return more / (threads_of(machine, call) > 1 ? READ_BY_ALL : READ_BY_ONE);
    switch (call->family) {
    case CLB_KIND_trmm:
    case CLB_KIND_trsm:
    case CLB_KIND_getrs:
    case CLB_KIND_potrs: {
        const double cached = fmin(more, CACHE);
        return cached / (fmin(fmin(call->m, call->n), call->k) > 1 ? READ_BY_FEW : READ_BY_ONE) +
               (more - cached) / READ_BY_FEW;
    }
    default:
        return 0;
    }
}

/* ---- predictions ---- */

struct clb_prediction clb_cost_predict(const struct clb_cost_machine *machine,
                                       const struct clb_cost_call *call)
{
    struct clb_prediction prediction;
    double seconds[CLB_SIDES];
    prediction.measured = true;
    for (int i = 0; i < CLB_SIDES; i++) {
        const clb_side side = (clb_side)i;
        bool near;
        seconds[i] = of_square(machine, side, call->family, call->precision, call->work, &near);
        prediction.measured = prediction.measured && near;
    }
    /* A machine of which one side was measured says nothing beside the tables' other side. */
    if (!prediction.measured && !clb_cost_has(machine->device))
        seconds[CLB_SIDE_NEXT] = NAN;
    prediction.device = seconds[CLB_SIDE_DEVICE] + shape_seconds(machine->device, call);
    prediction.next =
        seconds[CLB_SIDE_NEXT] * ratio_of_depth(machine, call) + next_shape_seconds(machine, call);
    return prediction;
}

bool clb_cost_has(const struct clb_device *device)
{
    return find_machine(device) < MACHINES;
}

#define CPU_START  0.2 /* PoCL's */
#define COLD_START 2.0 /* with all kernels to be built */

/* NVIDIA's driver takes half as long to end as to start; the rest is what calls lose. */
#define START_AND_END 2

double clb_cost_of_start(const struct clb_cost_machine *machine)
{
    if (machine->device == NULL)
        return COLD_START;
    if (machine->profile != NULL && machine->profile->start.count > 0)
        return START_AND_END * (double)machine->profile->start.seconds;
    return clb_device_is_cpu(machine->device) ? CPU_START
                                              : machines[find_machine(machine->device)].start;
}

/* Of the next library's time. A CPU device is hardly faster than an optimised library. */
#define SAVED_BY_ANY 0.5
#define SAVED_BY_CPU 0.05
#define SAVED_PLAIN  0.9

double clb_cost_saved(const struct clb_cost_machine *machine, const struct clb_cost_call *call,
                      const struct clb_prediction *prediction, double rate, double link)
{
    if (clb_prediction_is_known(prediction))
        return prediction->next - prediction->device;
    const double next = isfinite(prediction->next) ? prediction->next
                                                   : next_by_table(&machine->next, call->family,
                                                                   call->precision, call->work);
    /* Matrices are moved while the device multiplies. */
    if (rate > 0 && link > 0 && is_product(call->family))
        return fmax(0, next - fmax(flops_of(call) / rate, call->bytes / link));
    const bool is_cpu = machine->device != NULL && clb_device_is_cpu(machine->device);
    const double share = !machine->next.optimised ? SAVED_PLAIN
                         : is_cpu                 ? SAVED_BY_CPU
                                                  : SAVED_BY_ANY;
    return share * next;
}

void clb_cost_measure_start(struct clb_profile *profile, double seconds)
{
    struct clb_time *start = &profile->start;
    if (!(seconds > 0))
        return;
    if (start->count == 0 || seconds < (double)start->seconds)
        start->seconds = (float)seconds;
    start->count += start->count < UINT16_MAX;
}

/* Calls most of whose time is their shape's say little of square ones. */
#define LARGEST_SHARE 0.3

bool clb_cost_measure(struct clb_profile *profile, clb_side side,
                      const struct clb_cost_machine *machine, const struct clb_cost_call *call,
                      double seconds)
{
    const int class = clb_cost_class_of(call->work);
    const double shape = side == CLB_SIDE_DEVICE ? shape_seconds(machine->device, call) : 0;
    if (class < 0 || !(seconds > 0) || shape > LARGEST_SHARE * seconds)
        return false;
    clb_time_add(&profile->side[side].of[call->family][call->precision][class],
                 (seconds - shape) * growth(machine, side, call->family, call->precision,
                                            call->work, clb_cost_class_work(class)));
    return true;
}
