/* The work below which the names themselves decline a call, by a jump to the next library: their
 * symbol's min_work.
 *
 * It is the user's threshold, or in `auto` the lowest work at which any call may be the device's:
 * the tables' thresholds beside such next libraries as have been seen, and, where the device's
 * times are known, the smallest crossover of any device. Where calls are counted or logged min_work
 * stays -infinity, so that all reach clb_route. */
#include "host/process.h"
#include "profile.h"
#include "route.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

static pthread_once_t configured = PTHREAD_ONCE_INIT;
struct clb_threshold clb_thresholds[CLB_ROUTINES];
size_t clb_cpus;
atomic_bool clb_route_is_configured;

static double cube(double edge)
{
    return edge * edge * edge;
}

static const char *routine_name(size_t index)
{
    return index < CLB_ROUTINES ? clb_routines[index].name : NULL;
}

/* Negative when the tuning tables decide. */
static double work_threshold(const char *routine)
{
    double edge;
    switch (clb_config_get()->mode) {
    case CLB_MODE_OFF:
        return INFINITY;
    case CLB_MODE_ALWAYS:
        return 0;
    default:
        edge = clb_config_threshold(routine);
        return edge < 0 ? -1 : cube(edge);
    }
}

/* Where costs are known no smaller call is faster on any device, or on one that is the CPU. */
#define SMALLEST_CROSSOVER     250.0
#define SMALLEST_CROSSOVER_CPU 138.0

/* Never lowers a min_work of +infinity: there is no device (clb_threshold_decline_all). */
static void set_min_work(void)
{
    for (int s = 0; s < CLB_SYMBOLS && !clb_calls_are_observed(); s++) {
        const double wanted = atomic_load(&clb_thresholds[clb_symbols[s].routine].work);
        double now = atomic_load(&clb_symbols[s].min_work);
        while (now < INFINITY &&
               !atomic_compare_exchange_weak(&clb_symbols[s].min_work, &now, wanted))
            continue;
    }
}

/* What next libraries have been seen, and whether the device's costs are known beside one. */
enum { SEEN_PLAIN = 1, SEEN_OPTIMISED = 2, SEEN_COSTS = 4, SEEN_COSTS_CPU = 8, SEEN_ANY = 15 };

static double lowest_work(clb_work work, unsigned seen)
{
    double edge = (seen & SEEN_COSTS_CPU) != 0 ? SMALLEST_CROSSOVER_CPU
                  : (seen & SEEN_COSTS) != 0   ? SMALLEST_CROSSOVER
                                               : INFINITY;
    if ((seen & SEEN_PLAIN) != 0)
        edge = fmin(edge, clb_tuning_lowest_threshold(work, false));
    if ((seen & SEEN_OPTIMISED) != 0)
        edge = fmin(edge, clb_tuning_lowest_threshold(work, true));
    return cube(edge);
}

static void set_lowest(unsigned seen)
{
    for (int r = 0; r < CLB_ROUTINES; r++) {
        if (clb_thresholds[r].is_auto)
            atomic_store(&clb_thresholds[r].work,
                         lowest_work(clb_routine_work((clb_routine)r), seen));
    }
    set_min_work();
}

void clb_threshold_settle(const struct clb_cost_machine *owner)
{
    static _Atomic unsigned all;
    const bool known = owner->device != NULL && clb_profile_has(owner);
    const unsigned costs = !known                             ? 0U
                           : clb_device_is_cpu(owner->device) ? SEEN_COSTS_CPU
                                                              : SEEN_COSTS;
    const unsigned seen = (owner->next.optimised ? SEEN_OPTIMISED : SEEN_PLAIN) | costs;
    if ((atomic_load(&all) & seen) == seen)
        return;
    const unsigned before = atomic_fetch_or(&all, seen);
    if ((before & seen) != seen)
        set_lowest(before | seen);
}

static void configure(void)
{
    clb_tuning_check_config(clb_config_get());
    clb_config_check_names(routine_name);
    clb_stats_configure();
    clb_cpus = (size_t)fmax(1, (double)sysconf(_SC_NPROCESSORS_ONLN));
    for (int r = 0; r < CLB_ROUTINES; r++) {
        const double work = work_threshold(clb_routines[r].name);
        clb_thresholds[r].is_auto = work < 0;
        atomic_store(&clb_thresholds[r].work, work);
    }
    set_lowest(SEEN_ANY);
    atomic_store(&clb_route_is_configured, true);
}

void clb_route_configure(void)
{
    pthread_once(&configured, configure);
}

CLB_COLD void clb_threshold_decline_all(void)
{
    for (int s = 0; s < CLB_SYMBOLS && !clb_calls_are_observed(); s++)
        atomic_store(&clb_symbols[s].min_work, INFINITY);
}
