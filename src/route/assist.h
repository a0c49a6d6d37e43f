/* assist: calls of the next library by an algorithm that runs on the device, and by the code that
 * completes the result after the device has failed. */
#ifndef CLB_ASSIST_H
#define CLB_ASSIST_H

#include "dispatch.h"

struct clb_assist {
    const struct clb_next_lapack *next;
    bool on_device; /* the algorithm is running */
    double work;    /* work done by the next library so far, as routines.def defines work */
};

/* Called before and after a call of the next library, whose work is `work`; `before` is the result
 * of begin. While the algorithm runs, BLAS calls that the next library makes by names that the shim
 * exports are declined, also on another thread of the shim. */
bool clb_assist_begin(struct clb_assist *assist, double work);
void clb_assist_end(bool before);

/* Solves and products by the next library; `context` is the assist. */
void clb_assist_trsm(const struct clb_host_blas *host, const struct clb_trsm *problem);
void clb_assist_gemm(const struct clb_host_blas *host, const struct clb_gemm *problem);

/* The share of the work `all` that the next library has not done, 0 to 1. */
double clb_assist_share(const struct clb_assist *assist, double all);

#endif
