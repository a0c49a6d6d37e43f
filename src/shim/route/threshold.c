/* The work below which the names themselves decline a call, by a jump to the next library: their
 * symbol's min_work. It is the user's threshold, or the lowest work at which any call may be the
 * device's in `auto`; also in `off` with CLBLAS_SHIM_LEARN=1, so that calls inside others take no
 * longer than there. Where calls are counted or logged min_work stays -infinity, so that all reach
 * clb_route. SPDX-License-Identifier: BSD-3-Clause */
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

/* Negative: the lowest work of `auto`. */
static double work_threshold(const char *routine)
{
    double edge;
    switch (clb_config_get()->mode) {
    case CLB_MODE_OFF:
        return clb_config_get()->learn ? -1 : INFINITY;
    case CLB_MODE_ALWAYS:
        return 0;
    default:
        edge = clb_config_threshold(routine);
        return edge < 0 ? -1 : cube(edge);
    }
}

/* No smaller call is faster on any device than in an optimised library; of complex ones, which have
 * four times the operations; and so much smaller a one than in a plain library. */
#define SMALLEST         79.0
#define SMALLEST_COMPLEX 50.0
#define PLAIN            0.5

static void configure(void)
{
    clb_tuning_check_config(clb_config_get());
    clb_config_check_names(routine_name);
    clb_stats_configure();
    clb_cpus = (size_t)fmax(1, (double)sysconf(_SC_NPROCESSORS_ONLN));
    for (int r = 0; r < CLB_ROUTINES; r++) {
        const double work = work_threshold(clb_routines[r].name);
        const bool is_complex = clb_precision_parts(clb_routines[r].precision) == 2;
        const double lowest = cube(is_complex ? SMALLEST_COMPLEX : SMALLEST);
        clb_thresholds[r] = work < 0 ? (struct clb_threshold){lowest, cube(PLAIN) * lowest, true}
                                     : (struct clb_threshold){work, work, false};
    }
    for (int s = 0; s < CLB_SYMBOLS && !clb_calls_are_observed(); s++)
        atomic_store(&clb_symbols[s].min_work, clb_thresholds[clb_symbols[s].routine].plain);
    atomic_store(&clb_route_is_configured, true);
}

void clb_route_configure(void)
{
    pthread_once(&configured, configure);
}

/* Where the next library is an optimised one the name itself declines such a call from now on. */
bool clb_run_is_small(const struct clb_run *run)
{
    const struct clb_target *target = run->entry->target;
    const struct clb_threshold *threshold = &clb_thresholds[run->entry->symbol->routine];
    const bool optimised =
        run->host != NULL ? run->host->optimised : target != NULL && target->optimised;
    double before = threshold->plain;
    if (run->work < threshold->plain || !optimised || run->work >= threshold->work)
        return run->work < threshold->plain;
    if (!clb_calls_are_observed())
        atomic_compare_exchange_strong(&run->entry->symbol->min_work, &before, threshold->work);
    return true;
}

CLB_COLD void clb_threshold_decline_all(void)
{
    for (int s = 0; s < CLB_SYMBOLS && !clb_calls_are_observed(); s++)
        atomic_store(&clb_symbols[s].min_work, INFINITY);
}
