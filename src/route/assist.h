/* assist: the next library's help for an algorithm that is under way on the device, and with what a
 * failure of that leaves. */
#ifndef CLB_ASSIST_H
#define CLB_ASSIST_H

#include "dispatch.h"

struct clb_assist {
    const struct clb_next_lapack *next;
    bool on_device; /* the algorithm is under way */
    double work;    /* of the next library so far, in the terms of routines.def */
};

/* Around a call of the next library, `work` its work. While the device is used, calls that it makes
 * through our names go straight back to it, also from another thread of ours. */
bool clb_assist_begin(struct clb_assist *assist, double work);
void clb_assist_end(bool before);

/* `context` is the assist. */
void clb_assist_trsm(const void *context, const struct clb_trsm *problem);
void clb_assist_gemm(const void *context, const struct clb_gemm *problem);

/* Of `all` work, the share that the next library has not done, 0 to 1. */
double clb_assist_share(const struct clb_assist *assist, double all);

#endif
