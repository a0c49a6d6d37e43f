/* decide: which side computes a call.
 *
 * A call is described, passes the gates of decide.c in order, and goes to the next library with the
 * reason of the first gate that declines it, or to the device. */
#ifndef CLB_DECIDE_H
#define CLB_DECIDE_H

#include "engine/kernel/kernel.h"
#include "profile.h"
#include "route.h"

struct clb_run;

/* What is asked about a call once it may be one for the device. */
struct clb_question {
    clb_routine routine;
    double work;
    size_t smallest;                /* the dimension that the tables compare with */
    struct clb_profile_owner owner; /* its device is the one that is asked about */
    bool predicted;                 /* the durations on both sides are asked for, */
    struct clb_cost_call cost;      /* of this; */
    struct clb_prediction alone;    /* they are these, alone; 0: it was not asked yet */
    bool turned;                    /* it goes to the other side, to be timed there */
};

/* ---- threshold.c ----------------------------------------------------------------------------- */

/* The work below which a call of the routine is declined: the user's, +inf in mode `off`, 0 in
 * `always`, or, `auto`, what the tables and profiles say. */
double clb_threshold(clb_routine routine);
bool clb_threshold_is_auto(clb_routine routine);

/* The device, NULL where none is known, and the next library of a call: where nothing is known of
 * the device's times beside it, min_work rises to the tables' thresholds for such libraries. */
void clb_threshold_settle(const struct clb_profile_owner *owner);

/* Called when this process can no longer use a device. */
void clb_threshold_decline_all(void);

size_t clb_cpus(void); /* of the system */
static inline double clb_cube(double edge)
{
    return edge * edge * edge;
}
bool clb_device_is_cpu(const struct clb_device *device);

/* ---- decide.c -------------------------------------------------------------------------------- */

/* The gates that need neither the driver nor a guard of the host's state. CLB_REASONS: the call may
 * be one for the device. */
clb_reason clb_decide(struct clb_run *run);

/* The other gates, inside clb_thread_state_save/restore. CLB_REASONS: the run's runtime and variant
 * are set, and the call is to run there. */
clb_reason clb_decide_on_device(struct clb_run *run);

/* Whether calls are counted or logged; whether their duration on the device is wanted. */
bool clb_calls_are_observed(void);
bool clb_runs_are_timed(void);

bool clb_run_is_lapacke(const struct clb_run *run);
bool clb_run_is_query(const struct clb_run *run);
/* Whether it is a query for a workspace's size, or has a wrong argument. */
bool clb_run_computes_nothing(const struct clb_run *run);
/* Whether both sides' durations are known. */
bool clb_run_is_predicted(const struct clb_run *run);
/* Whether the call's duration on the device says something. */
bool clb_run_is_learnt(const struct clb_run *run);

/* The process's CPU time where the device is the CPU: others that use the CPU lengthen a call, but
 * not its CPU time. NAN where it is not. */
double clb_decide_cpu_now(const struct clb_device *device);

/* The call has taken so long on the device since cpu_begin. */
void clb_decide_learn(const struct clb_run *run, double seconds, double cpu_begin);

/* The call begins on a side, or has ended on the device: other threads' calls are decided by it. */
void clb_decide_begin(const struct clb_run *run, clb_side side);
void clb_decide_end(const struct clb_run *run);

/* The call is declined: note in it what is to be done when the next library has returned. */
void clb_decide_declined(const struct clb_run *run, clb_reason reason);

#endif
