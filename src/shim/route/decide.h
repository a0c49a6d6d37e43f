/* decide: which side computes a call.
 *
 * A call is described, passes the gates of decide.c in order, and goes to the next library with the
 * reason of the first gate that declines it, or to the device. */
#ifndef CLB_DECIDE_H
#define CLB_DECIDE_H

#include "engine/lapack/lapack.h"
#include "profile.h"
#include "route.h"

struct clb_ops;
struct clb_run;

/* What is asked about a call once it may be one for the device. */
struct clb_question {
    clb_routine routine;
    const struct clb_ops *ops;
    double work;
    size_t smallest;                /* the dimension that the tables compare with */
    struct clb_profile_owner owner; /* its device is the one that is asked about */
    bool predicted;                 /* the durations on both sides are asked for, */
    struct clb_cost_call cost;      /* of this; */
    struct clb_prediction alone;    /* they are these, alone; 0: it was not asked yet */
    bool turned;                    /* it goes to the other side, to be timed there */
};

/* Read the configuration and set every symbol's min_work. Called once. */
void clb_decide_configure(void);

/* The gates that need neither the driver nor a guard of the host's state. CLB_REASONS: the call may
 * be one for the device. */
clb_reason clb_decide(struct clb_run *run);

/* The other gates, inside clb_host_state_save/restore. CLB_REASONS: the run's runtime and variant
 * are set, and the call is to run there. */
clb_reason clb_decide_on_device(struct clb_run *run);

/* Until when a call may wait for the device's start, programs and checks. */
double clb_decide_patience(const struct clb_run *run);

/* Whether calls are counted or logged; whether their duration on the device is wanted. */
bool clb_calls_are_observed(void);
bool clb_runs_are_timed(void);

bool clb_run_is_lapacke(const struct clb_run *run);
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

/* A declined call of a C name of LAPACK reaches the library again under its Fortran name: true for
 * that one, which is declined without deciding or counting again. */
bool clb_decide_is_repeated_name(const struct clb_run *run);
void clb_decide_remember_name(const struct clb_run *run);

/* The call is declined: note in it what is to be done when the next library has returned. */
void clb_decide_declined(const struct clb_run *run, clb_reason reason);

#endif
