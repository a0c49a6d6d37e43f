/* host_blas: the next library's functions, as the algorithms of the engine are given them. */
#ifndef CLB_HOST_BLAS_H
#define CLB_HOST_BLAS_H

#include "routines.h"

struct clb_host_blas;

/* Compute a call on the host, and return info >= 0 where the routine has one; its work, lwork and
 * info are not used. xGETRF's pivots are relative to the first row. */
typedef size_t clb_host_function(const struct clb_host_blas *host, const struct clb_call *call);

/* The functions for one call: of its precision and with integers of its width. An algorithm has
 * them factor its panels, and route the rest of a result after the device has failed. */
struct clb_host_blas {
    const void *context; /* for the functions */
    bool optimised;      /* the routine called is one of an optimised library */
    const char *library; /* that library's file name, kept for good; NULL: not known */
    int threads;         /* that it uses; 0: not known */
    void *work;          /* the caller's workspace of lwork elements, for QR and xGETRI */
    int64_t lwork;       /* -1: they only set the workspace's first element to its best size */

    /* For calls of a kind; of QR, also for its adjoint form where the call that the functions are
     * for has it. NULL: the library has none, or it is not needed. Where the OpenCL device is the
     * CPU, hold the library's threads while it factors panels. */
    clb_host_function *of[CLB_KINDS];
    /* The results of xGEQRF, and faster where n is small. False: no memory for it, and nothing was
     * done. */
    bool (*geqrt)(const struct clb_host_blas *host, const struct clb_call *call);
    /* Have the library compute with one thread until clb_next_release_threads: OpenBLAS's idle
     * threads spin for 25 ms after a call (see src/shim/next/threads.c). False: there is no need,
     * and nothing to release. */
    bool (*hold_threads)(const struct clb_host_blas *host);
};

static inline size_t clb_host_call(const struct clb_host_blas *host, const struct clb_call *call)
{
    return host->of[call->kind](host, call);
}

#endif
