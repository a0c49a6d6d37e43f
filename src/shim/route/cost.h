/* SPDX-License-Identifier: BSD-3-Clause
 * cost: predicts the seconds of calls on both sides by pure functions of the call's shape, of the
 * rates of kernels and link, of an optimised library's times (cost.def) and of what has been
 * measured on this machine (struct clb_profile). No device's or CPU's name counts. */
#ifndef CLB_COST_H
#define CLB_COST_H

#include "history.h"
#include "engine/tuning/tuning.h"

static inline bool clb_device_is_cpu(const struct clb_device *device)
{
    return (device->type & CL_DEVICE_TYPE_CPU) != 0;
}

bool clb_kind_is_product(clb_kind kind);

struct clb_cost_call {
    clb_kind family;
    clb_precision precision;
    double work;    /* as in routines.def */
    double order;   /* of the square call of this work */
    double m, n, k; /* arguments of its formula */
    double times;   /* so many such calls in one: see struct clb_call */
    double bytes;   /* that a device with memory of its own reads from the host and writes there */
    double written; /* of these */
    bool adjoint;   /* LQ */
};

struct clb_cost_call clb_cost_describe(const struct clb_call *call);

/* The order at which a call of the family whose sizes are all the same has this work. */
double clb_cost_order(clb_kind family, double work);

/* ---- what has been measured ---- */

/* Seconds of reference calls, by their shape and by the size of their work: two classes for each
 * doubling of the cube root. Bits of a shape: m, n, k of the formula are thin, much smaller than
 * the largest; LQ's are behind those of QR. Sizes of a reference call are all the same, the thin
 * ones a sixteenth of that. */
enum { CLB_COST_CLASSES = 24, CLB_COST_ASPECTS = 7, CLB_COST_SHAPES = 2 * CLB_COST_ASPECTS };
struct clb_times {
    struct clb_time of[CLB_KINDS][CLB_COST_SHAPES][CLB_PRECISIONS][CLB_COST_CLASSES];
};

int clb_cost_shape_of(const struct clb_cost_call *call);

/* The reference call with about so much work. False: the family has no such shape. */
bool clb_cost_reference(clb_kind family, clb_precision precision, int shape, double work,
                        struct clb_call *call);

/* Of one device beside one next library with one number of threads. */
struct clb_profile {
    struct clb_times side[CLB_SIDES];
    struct clb_time start; /* of the device */
};

/* Times of classes that are longer than a larger class's were disturbed: they become that one's. */
void clb_cost_smooth(struct clb_profile *profile);

/* The work of a class, and the class of a work; -1 when it is too small, or too large. */
double clb_cost_class_work(int class);
int clb_cost_class_of(double work);

/* ---- predictions ---- */

/* A device beside a next library: what a profile belongs to, and what predictions are for. */
struct clb_cost_machine {
    const struct clb_device *device; /* NULL: none is known */
    struct clb_next_library next;

    /* Set by profile.c: flops in a second of products and the link's bytes (0: not known), times
     * (NULL: none). */
    double rate[CLB_PRECISIONS], link;
    const struct clb_profile *profile;
};

struct clb_prediction clb_cost_predict(const struct clb_cost_machine *machine,
                                       const struct clb_cost_call *call);

/* Seconds that a process loses by the device's start and end, from the profile's start or else what
 * is usual; by a CPU device without a rate in the precision, what compiling takes. */
double clb_cost_of_start(const struct clb_cost_machine *machine, clb_precision precision);

/* Seconds that a call saves on the device; where none is known a share of the next library's. */
double clb_cost_saved(const struct clb_cost_machine *machine, const struct clb_cost_call *call,
                      const struct clb_prediction *prediction);

/* The shortest start of the device counts. */
void clb_cost_measure_start(struct clb_profile *profile, double seconds);

/* Add a call's duration to those of its shape and class. NULL: it says nothing of such calls. */
struct clb_time *clb_cost_measure(struct clb_profile *profile, clb_side side,
                                  const struct clb_cost_machine *machine,
                                  const struct clb_cost_call *call, double seconds);

#endif
