/* SPDX-License-Identifier: BSD-3-Clause
 * The device's seconds of a call follow from the rates of kernels and link that the helper has
 * measured, and from constants of the algorithms: what any call takes, what each step of a chain of
 * panels or blocks takes, how often what a call moves is moved, and how much slower than products
 * its operations are. The next library's are those of the optimised library of cost.def, or of a
 * plain one. What has been measured on this machine corrects both: a class of calls takes so many
 * times as long as was predicted for the square call of its work. */
#include "cost.h"
#include "engine/ocl/helper.h"

#include <math.h>

/* ---- families ---- */

/* Fitted to squares on an H200, to calls drawn at random on an H100 (bench-regret.py --unknown),
 * and to squares on PoCL (2026-11). */
struct shares {
    double call, step;   /* microseconds in double precision */
    double moves, flops; /* times what the link and the kernels of products take */
};

static const struct family {
    clb_stem row;        /* of the work formula */
    struct shares of[2]; /* a device with own memory, one that shares the host's */
} families[CLB_KINDS] = {
#define FAMILY(kind, ...) [CLB_KIND_##kind] = {CLB_STEM_##kind, {__VA_ARGS__}}
    FAMILY(gemm, {230, 0, 1.5, 1}, {40, 0, 0, 1}),
    FAMILY(syrk, {300, 0, 1.7, 1}, {35, 0, 0.4, 1}),
    FAMILY(gemmtr, {300, 0, 1.7, 1}, {35, 0, 0.4, 1}),
    FAMILY(syr2k, {350, 0, 1.9, 1}, {30, 0, 0.6, 1}),
    FAMILY(symm, {300, 0, 1.5, 1}, {50, 0, 0.3, 1}),
    FAMILY(trmm, {500, 0, 1.2, 1}, {40, 0, 0.4, 1}),
    FAMILY(trsm, {70, 1.6, 1, 0}, {60, 0.2, 0.4, 1}),
    FAMILY(getrf, {350, 3.4, 1, 0}, {30, 0, 3.1, 0.9}),
    FAMILY(getrs, {150, 2.6, 1, 2.4}, {50, 0.3, 0.4, 1.1}),
    FAMILY(getri, {0, 2, 6.8, 0}, {0, 1.1, 2.1, 1.2}),
    FAMILY(potrf, {120, 2, 0.4, 0}, {0, 0.1, 2.7, 0.5}),
    FAMILY(potrs, {150, 2.6, 1, 1.9}, {0, 1.1, 0, 1}),
    FAMILY(trtri, {100, 3.3, 0, 4.9}, {0, 0.8, 0.6, 1}),
    FAMILY(lauum, {180, 2, 0, 8.9}, {40, 0.3, 0, 1}),
    FAMILY(potri, {50, 2.9, 0, 9.7}, {0, 0.7, 1.2, 0.9}),
    FAMILY(geqrf, {300, 10, 1, 0}, {0, 3.6, 10, 0.6}),
    FAMILY(ormqr, {250, 6, 1.5, 1}, {0, 1.7, 1.7, 1.1}),
    FAMILY(orgqr, {250, 4.6, 1, 24}, {0, 1.5, 2.7, 1.1}),
    FAMILY(gesv, {1000, 1.9, 3.5, 0}, {0, 1.9, 0, 1.1}),
    FAMILY(posv, {0, 4.2, 0.6, 2.8}, {0, 1.3, 1.6, 0.9}),
#undef FAMILY
};

/* Right-hand sides of a solve; 0: it is none. */
static double sides_of(const struct clb_cost_call *call)
{
    return call->family == CLB_KIND_getrs || call->family == CLB_KIND_potrs ? call->k
           : call->family == CLB_KIND_trsm ? call->m + call->n - call->k
                                           : 0;
}

/* Steps of a call's chain, of systems the order of the triangle: with few right-hand sides each
 * takes half as long. */
#define FEW_SIDES 0.45

static double steps_of(const struct clb_cost_call *call)
{
    const double sides = sides_of(call);
    const bool is_system = call->family == CLB_KIND_gesv || call->family == CLB_KIND_posv ||
                           call->family == CLB_KIND_getrs || call->family == CLB_KIND_potrs;
    const double order = is_system ? call->m : call->k;
    return order * (sides > 0 ? FEW_SIDES + (1 - FEW_SIDES) * fmin(1, sides / order) : 1);
}

double clb_cost_order(clb_kind family, double work)
{
    return cbrt(work / clb_work_of(families[family].row, 1, 1, 1));
}

/* ---- calls ---- */

struct clb_cost_call clb_cost_describe(const struct clb_call *call)
{
    const char *sizes = clb_routines[call->routine].sizes;
    struct clb_cost_call cost = {.family = clb_routines[call->routine].kind,
                                 .precision = call->precision,
                                 .m = (double)clb_call_size(call, sizes[0]),
                                 .n = (double)clb_call_size(call, sizes[1]),
                                 .k = (double)clb_call_size(call, sizes[2]),
                                 .times = 1,
                                 .adjoint = clb_call_is_adjoint(call)};
    if (clb_routine_has_flag(call->routine, 'b'))
        cost.times = fmax(1, (double)call->nrhs);
    const bool reads_c = clb_call_reads_c(call);
    cost.work = clb_work_of(clb_routines[call->routine].row, cost.m, cost.n, cost.k);
    cost.order = clb_cost_order(cost.family, cost.work);
    for (char matrix = 'A'; matrix <= 'C'; matrix++) {
        struct clb_shape shape;
        if (!clb_call_shape(call, matrix, &shape))
            continue;
        const bool read = !shape.written || matrix != 'C' || reads_c;
        const double part = matrix == 'C' && shape.triangle ? 0.5 : 1;
        const double bytes = part * (double)shape.rows * (double)shape.cols *
                             (double)clb_precision_size(call->precision);
        cost.bytes += bytes * (read + shape.written);
        cost.written += bytes * shape.written;
    }
    return cost;
}

/* A size is thin that is so small a part of the largest one; in the reference call of a shape it is
 * THIN_IS, and calls with thinner ones than LEAST say nothing of that. */
#define THIN    (1.0 / 4)
#define THIN_IS (1.0 / 16)
#define LEAST   (1.0 / 64)

static double largest_of(const struct clb_cost_call *call)
{
    return fmax(fmax(call->m, call->n), call->k);
}

int clb_cost_shape_of(const struct clb_cost_call *call)
{
    const double thin = THIN * largest_of(call);
    return ((call->m < thin) | (call->n < thin) << 1 | (call->k < thin) << 2) +
           (call->adjoint ? CLB_COST_ASPECTS : 0);
}

bool clb_cost_reference(clb_kind family, clb_precision precision, int shape, double work,
                        struct clb_call *call)
{
    double size[3];
    *call = clb_call_of(clb_routine_of(family, precision, shape >= CLB_COST_ASPECTS));
    for (int i = 0; i < 3; i++)
        size[i] = (shape % CLB_COST_ASPECTS >> i & 1) != 0 ? THIN_IS : 1;
    const double order = cbrt(work / clb_work_of(families[family].row, size[0], size[1], size[2]));
    for (int i = 0; i < 3; i++) {
        const char letter = clb_routines[call->routine].sizes[i];
        const size_t value = (size_t)round(order * size[i]);
        if (letter == 'm' || letter == 'o')
            call->m = value;
        else if (letter == 'n' || letter == 'e')
            call->n = value;
        else if (letter == 'k')
            call->k = value;
        else if (letter == 'r')
            call->nrhs = value;
    }
    clb_call_set_routine(call, call->routine);
    call->beta = clb_scalar_of(precision, 0);
    const struct clb_cost_call cost = clb_cost_describe(call);
    const bool reflects = family == CLB_KIND_ormqr || family == CLB_KIND_orgqr;
    return clb_cost_shape_of(&cost) == shape &&
           (!reflects || (cost.k <= cost.m &&
                          (family == CLB_KIND_ormqr || (cost.k <= cost.n && cost.n <= cost.m))));
}

static struct clb_cost_call reference_of(clb_kind family, clb_precision precision, int shape,
                                         double work)
{
    struct clb_call call;
    clb_cost_reference(family, precision, shape, work, &call);
    return clb_cost_describe(&call);
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

/* Bytes in a second, where the link was not measured: PCIe 3.0 with 16 lanes. */
#define LINK_UNKNOWN 12e9

/* Of square calls. */
struct times {
    double factor[CLB_PRECISIONS]; /* of the times in double precision */
    double micros[ORDERS];         /* the first is 0 where there are none */
};

enum { THREADS_1, THREADS_16, THREADS };
static const struct times next_times[THREADS][CLB_KINDS] = {
#define CLB_NEXT_TIMES(threads, family, s, c, z, ...) \
    [THREADS_##threads][CLB_KIND_##family] = {{s, 1, c, z}, {__VA_ARGS__}},
#include "cost.def"
#undef CLB_NEXT_TIMES
};

/* log y at log x, on the line through two points. */
static double on_line(double x, double x0, double y0, double x1, double y1)
{
    return exp(log(y0) + log(x / x0) / log(x1 / x0) * log(y1 / y0));
}

/* Below and above the table time grows as work. */
static double look_up(const struct times *times, clb_precision precision, double order)
{
    const double *micros = times->micros, unit = 1e-6 * times->factor[precision];
    const size_t end = order <= orders[0] ? 0 : ORDERS - 1;
    if (order <= orders[0] || order >= orders[ORDERS - 1])
        return unit * micros[end] * pow(order / orders[end], 3);
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
    const double one = look_up(&next_times[THREADS_1][family], precision, order);
    const double many = look_up(&next_times[THREADS_16][family], precision, order);
    /* More threads than were measured are taken to be as much faster. */
    return threads >= MOST_THREADS ? many * MOST_THREADS / threads
                                   : one * pow(many / one, log(threads) / log(MOST_THREADS));
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
    return family == CLB_KIND_syrk || family == CLB_KIND_syr2k || family == CLB_KIND_gemmtr;
}

bool clb_kind_is_product(clb_kind kind)
{
    return kind == CLB_KIND_gemm || kind == CLB_KIND_symm || kind == CLB_KIND_trmm ||
           is_update(kind);
}

/* Its operands and results are different matrices: not xTRMM. */
static bool is_product(clb_kind family)
{
    return family != CLB_KIND_trmm && clb_kind_is_product(family);
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

void clb_cost_smooth(struct clb_profile *profile)
{
    struct clb_time *time = &profile->side[0].of[0][0][0][0];
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

/* ---- shapes ---- */

#define READ_BY_ALL  60e9 /* bytes in a second, by the next library's threads */
#define READ_BY_ONE  22e9
#define READ_BY_FEW  11e9
#define CACHE        32e6  /* bytes */
#define HOST_COPIES  10e9  /* the same, by a device that has the host's memory; */
#define HOST_RESULTS 20e9  /* of products only the result, which is copied, */
#define HOST_PACKED  15e9  /* and operands that are packed from beyond the cache; */
#define NEXT_PACKED  4e9   /* by a thread of the next library */
#define TILE         128.0 /* of a product's kernel */
#define TILE_CPU     16.0
/* Seconds of an element of panels of LU beyond those of the square matrix: on the device, and by
 * the CPU of higher ones; of QR, and of LQ, whose columns are together when it is transposed; and
 * of the square matrix of QR. */
#define PANEL_DEVICE 0.4e-9
#define PANEL_LU     5e-9
#define PANEL_QR     22e-9
#define PANEL_LQ     7e-9
#define PANEL_SQUARE 9e-9
#define PANEL_HEIGHT 65536
/* The same of the next library, which factors panels by products with vectors: LU, QR; real,
 * complex. */
static const double next_panel[2][2] = {{3e-9, 6e-9}, {13e-9, 7e-9}};
#define NEXT_ROWS 2.5 /* times as long, of LQ by many threads, whose vectors are rows */
/* It applies so many reflectors at once, each time through all of C. */
#define NEXT_BLOCK     32.0
#define READ_IN_BLOCKS 12e9

/* Elements of a tall or wide matrix beyond those of the square one of the same work. */
static double flat_elements(const struct clb_cost_call *call)
{
    return fmax(0, fmax(call->m, call->n) * call->k - call->order * call->order);
}

/* What is not higher is one panel, as wide as it is. */
#define ONE_PANEL 64.0

static double panel_seconds(const struct clb_cost_call *call)
{
    const double height = call->k <= ONE_PANEL ? fmax(call->m, call->n)
                          : call->adjoint      ? call->n
                                               : call->m;
    const double flat = fmax(0, height * call->k - call->order * call->order);
    if (call->family == CLB_KIND_geqrf)
        return flat * (call->adjoint ? PANEL_LQ : PANEL_QR) + PANEL_SQUARE * call->k * call->k / 2;
    return call->family != CLB_KIND_getrf
               ? 0
               : flat * (call->m > PANEL_HEIGHT ? PANEL_LU : PANEL_DEVICE);
}

/* How many times as many operations kernels do as there are, since tiles of products, and of
 * right-hand sides, are whole. */
static double fill_of(const struct clb_cost_call *call, double tile)
{
    if (sides_of(call) > 0 && call->family != CLB_KIND_gemm)
        return ceil(sides_of(call) / tile) * tile / sides_of(call);
    if (call->family != CLB_KIND_gemm || !(call->m > 0) || !(call->n > 0))
        return 1;
    return ceil(call->m / tile) * tile / call->m * ceil(call->n / tile) * tile / call->n;
}

/* Bytes beyond those of the square call of the same work. */
static double more_bytes(const struct clb_cost_call *call)
{
    return fmax(0, call->bytes - reference_of(call->family, call->precision, 0, call->work).bytes);
}

/* Beyond a square call: a device that has the host's memory copies a product's result, and both
 * sides pack its operands. */
static double copy_seconds(const struct clb_cost_call *call)
{
    const double entries =
        (call->m * call->n - call->order * call->order) * (is_update(call->family) ? 0.5 : 1);
    return is_product(call->family)
               ? fmax(0, entries) * (double)clb_precision_size(call->precision) / HOST_RESULTS +
                     fmax(0, more_bytes(call) - 2 * call->written - CACHE) / HOST_PACKED
               : 0;
}

/* Seconds that operands are moved by a device with memory of its own. Those of small products are
 * copied, computed, and copied back; of large ones pieces go both ways at once. */
#define FIRST_PIECES 1.6e-3
#define BOTH_WAYS    1.05

static double moving_seconds(const struct clb_cost_call *call, double moves, double link)
{
    const double pieces = fmax(call->bytes - call->written, call->written);
    return is_product(call->family)
               ? fmin(moves * call->bytes, FIRST_PIECES * link + BOTH_WAYS * pieces) / link
               : moves * call->bytes / link;
}

/* How many times as long as in double precision a step of a chain takes. */
static const double step_share[CLB_PRECISIONS] = {1, 1, 1.4, 2.2};

/* A device that has the host's memory does as much more as elements are larger. Matrices are moved
 * while the device multiplies. */
static double device_seconds(const struct clb_cost_machine *machine,
                             const struct clb_cost_call *call)
{
    const bool unified = machine->device->unified;
    const struct shares *of = &families[call->family].of[unified];
    if (machine->rate[call->precision] <= 0)
        return NAN;
    const double element = (double)clb_precision_size(call->precision);
    const double link = unified ? HOST_COPIES : machine->link > 0 ? machine->link : LINK_UNKNOWN;
    const double share = unified ? sqrt(element / 8) : step_share[call->precision];
    const double fixed = 1e-6 * (of->call + of->step * steps_of(call) * share);
    const double moves =
        unified ? of->moves * call->bytes / link : moving_seconds(call, of->moves, link);
    const double flops = of->flops * flops_of(call) * fill_of(call, unified ? TILE_CPU : TILE) /
                         machine->rate[call->precision];
    if (unified)
        return fixed + moves + flops + copy_seconds(call);
    return fixed + panel_seconds(call) +
           (clb_kind_is_product(call->family) ? fmax(moves, flops) : moves + flops);
}

/* Reference LAPACK applies reflectors one by one where there are few, the last 128 in xORGQR but
 * for blocks of 32, up to 32 in xORMQR: each time C is read twice and written. */
#define LAST_ORGQR 128
#define C_CACHED   75e9 /* bytes in a second by one thread, of a C that is in the cache, or not */
#define C_FAR      23e9
#define C_LARGEST  20e6

static double one_by_one(const struct clb_cost_call *call)
{
    double before = 0; /* applied in blocks */
    if (call->family == CLB_KIND_ormqr ? call->k > NEXT_BLOCK : call->family != CLB_KIND_orgqr)
        return 0;
    if (call->k > LAST_ORGQR && call->family == CLB_KIND_orgqr)
        before = fmin(call->k, NEXT_BLOCK * (floor((call->k - LAST_ORGQR - 1) / NEXT_BLOCK) + 1));
    const double c =
        call->written * (1 - before / call->m) * (before > 0 ? 1 - before / call->n : 1);
    return 3 * (call->k - before) * c / (c < C_LARGEST ? C_CACHED : C_FAR);
}

/* Of products, where the result and operands don't stay in the cache. */
static double far_seconds(const struct clb_cost_call *call)
{
    const double more = more_bytes(call), result = fmin(more, 2 * call->written);
    return fmax(0, more - result - CACHE) / NEXT_PACKED + fmax(0, result - CACHE) / HOST_RESULTS;
}

/* What the next library takes beyond the square call: its threads read and write that. Triangles
 * with few right-hand sides are read by few of them, a single one's at least in long rows. Beside a
 * device that has the host's memory both sides do. */
static double next_shape_seconds(const struct clb_cost_machine *machine,
                                 const struct clb_cost_call *call)
{
    const double more = more_bytes(call);
    if (machine->device->unified && is_product(call->family))
        return far_seconds(call);
    if (machine->device->unified && one_by_one(call) > 0)
        return one_by_one(call);
    if (call->family == CLB_KIND_geqrf || call->family == CLB_KIND_orgqr ||
        call->family == CLB_KIND_getrf)
        return flat_elements(call) * (call->adjoint && machine->next.threads > 1 ? NEXT_ROWS : 1) *
               next_panel[call->family != CLB_KIND_getrf]
                         [clb_precision_parts(call->precision) == 2] /
               (machine->next.optimised ? fmax(machine->next.threads, 1) : 1);
    if (!machine->next.optimised || machine->device->unified || machine->next.threads <= 1)
        return 0;
    if (is_product(call->family))
        return more / (threads_of(machine, call) > 1 ? READ_BY_ALL : READ_BY_ONE);
    switch (call->family) {
    case CLB_KIND_ormqr:
        return call->k < THIN * call->order
                   ? ceil(call->k / NEXT_BLOCK) * call->written / READ_IN_BLOCKS
                   : 0;
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

static double side_seconds(const struct clb_cost_machine *machine, clb_side side,
                           const struct clb_cost_call *call)
{
    return side == CLB_SIDE_DEVICE
               ? device_seconds(machine, call)
               : next_by_table(&machine->next, call->family, call->precision, call->work) *
                         ratio_of_depth(machine, call) +
                     next_shape_seconds(machine, call);
}

/* How many times as long as predicted the reference call of a class takes. */
static double ratio_at(const struct clb_cost_machine *machine, clb_side side, clb_kind family,
                       int shape, clb_precision precision, int class)
{
    const struct clb_cost_call call =
        reference_of(family, precision, shape, clb_cost_class_work(class));
    return (double)machine->profile->side[side].of[family][shape][precision][class].seconds /
           side_seconds(machine, side, &call);
}

/* How many times as long as predicted calls of a work take: between the nearest classes that were
 * measured, beyond them as the nearest; `near` where that is near. NAN: none was. */
static double ratio_of(const struct clb_cost_machine *machine, clb_side side, clb_kind family,
                       int shape, clb_precision precision, double work, bool *near)
{
    const double at = HALF_OCTAVES * log2(cbrt(work) / LOWEST_ORDER);
    int below = -1, above = -1;
    *near = false;
    for (int class = 0; machine->profile != NULL && class < CLB_COST_CLASSES && above < 0; class ++)
        if (machine->profile->side[side].of[family][shape][precision][class].count > 0)
            *(class > at ? &above : &below) = class;
    if (below < 0 && above < 0)
        return NAN;
    const int nearest = below < 0 ? above : below;
    const double ratio = ratio_at(machine, side, family, shape, precision, nearest);
    *near = below >= 0 ? above >= 0 || at - below <= NEAR_ABOVE : above - at <= NEAR_CLASSES;
    if (below < 0 || above < 0)
        return ratio;
    return ratio * pow(ratio_at(machine, side, family, shape, precision, above) / ratio,
                       (at - below) / (above - below));
}

/* ---- predictions ---- */

struct clb_prediction clb_cost_predict(const struct clb_cost_machine *machine,
                                       const struct clb_cost_call *call)
{
    const int shape = clb_cost_shape_of(call);
    double seconds[CLB_SIDES];
    bool measured = true;
    for (int i = 0; i < CLB_SIDES; i++) {
        const clb_side side = (clb_side)i;
        bool near, other;
        double ratio =
            ratio_of(machine, side, call->family, shape, call->precision, call->work, &near);
        measured = measured && near;
        if (isnan(ratio)) /* as square ones are, of QR, */
            ratio = ratio_of(machine, side, call->family, 0, call->precision, call->work, &other);
        if (isnan(ratio) && side == CLB_SIDE_NEXT) /* or products */
            ratio = ratio_of(machine, side, CLB_KIND_gemm, 0, call->precision,
                             call->order * call->order * call->order, &other);
        seconds[i] = call->times * side_seconds(machine, side, call) * (isnan(ratio) ? 1 : ratio);
    }
    return (struct clb_prediction){seconds[CLB_SIDE_DEVICE], seconds[CLB_SIDE_NEXT], measured};
}

#define CPU_START   0.2 /* seconds of PoCL; */
#define CPU_BUILD   6.0 /* of its compiler, which takes the CPUs of the program; */
#define OTHER_START 0.5 /* of NVIDIA's driver, its end included */

/* NVIDIA's driver takes half as long to end as to start; the rest is what calls lose. */
#define START_AND_END 2

/* Where no device is known, files tell. */
static bool is_cpu(const struct clb_device *device)
{
    static _Atomic int has_gpu = -1;
    if (device == NULL && has_gpu < 0)
        has_gpu = clb_gpu_files() != 0;
    return device != NULL ? clb_device_is_cpu(device) : has_gpu == 0;
}

double clb_cost_of_start(const struct clb_cost_machine *machine, clb_precision precision)
{
    if (is_cpu(machine->device) && machine->rate[precision] <= 0)
        return CPU_BUILD;
    if (machine->profile != NULL && machine->profile->start.count > 0)
        return START_AND_END * (double)machine->profile->start.seconds;
    return is_cpu(machine->device) ? CPU_START : OTHER_START;
}

/* Of an optimised library's time, by a GPU with unknown rates, and by PoCL; of a plain one's. */
#define SAVED_BY_GPU 0.7
#define SAVED_BY_CPU 0.1
#define SAVED_PLAIN  0.9

double clb_cost_saved(const struct clb_cost_machine *machine, const struct clb_cost_call *call,
                      const struct clb_prediction *prediction)
{
    if (clb_prediction_is_known(prediction))
        return prediction->next - prediction->device;
    const double next = isfinite(prediction->next)
                            ? prediction->next
                            : call->times * next_by_table(&machine->next, call->family,
                                                          call->precision, call->work);
    const double by_any = is_cpu(machine->device) ? SAVED_BY_CPU : SAVED_BY_GPU;
    return (machine->next.optimised ? by_any : SAVED_PLAIN) * next;
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

struct clb_time *clb_cost_measure(struct clb_profile *profile, clb_side side,
                                  const struct clb_cost_machine *machine,
                                  const struct clb_cost_call *call, double seconds)
{
    const int class = clb_cost_class_of(call->work), shape = clb_cost_shape_of(call);
    if (class < 0 || !(seconds > 0) ||
        fmin(fmin(call->m, call->n), call->k) < LEAST * largest_of(call))
        return NULL;
    const struct clb_cost_call reference =
        reference_of(call->family, call->precision, shape, clb_cost_class_work(class));
    seconds *=
        side_seconds(machine, side, &reference) / (call->times * side_seconds(machine, side, call));
    if (!isfinite(seconds))
        return NULL;
    struct clb_time *time = &profile->side[side].of[call->family][shape][call->precision][class];
    clb_time_add(time, seconds);
    return time;
}
