/* driver: the part that the LAPACK drivers xGESV and xPOSV share: a factorisation, then a solve
 * with the factors unless the factorisation returned info > 0. */
#ifndef CLB_DRIVER_H
#define CLB_DRIVER_H

#include "dispatch.h"

struct clb_driver;

struct clb_driver_type {
    /* Factor on the device, inside clb_host_state_save/restore, and set the dispatch's progress.
     * May solve as well: then it sets `solved`, and the factorisation is complete whatever
     * `solution` is. */
    clb_status (*factor)(struct clb_driver *driver, struct clb_runtime *runtime,
                         const struct clb_gemm_variant *variant);
    /* Compute with the next library what `factor` has left, and store info for the caller; true
     * when the next library was needed. */
    bool (*complete_factor)(struct clb_driver *driver, clb_status status);
    size_t (*info)(const struct clb_driver *driver);
    /* Solve on the device, inside clb_host_state_save/restore, with the driver's progress; NULL
     * when `factor` solves as well. */
    clb_status (*solve)(struct clb_driver *driver, struct clb_runtime *runtime,
                        const struct clb_gemm_variant *variant);
    /* Compute a missing part of B with the next library; all of B when `rect` is NULL. */
    void (*compute_next)(struct clb_dispatch *dispatch, const struct clb_rect *rect);
};

/* The dispatch's m is the order, its k the number of right-hand sides. */
struct clb_driver {
    struct clb_dispatch dispatch; /* first member */
    const struct clb_driver_type *type;
    double factor_work, solve_work;
    struct clb_gemm_progress *progress; /* progress of the solve */
    bool factored, solved;              /* done on the device */
    clb_status solution;                /* status of the solve; UNSUPPORTED: left to next */
};

/* `run` and `complete` of struct clb_dispatch_ops. */
clb_status clb_driver_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                          const struct clb_gemm_variant *variant);
bool clb_driver_complete(struct clb_dispatch *dispatch, clb_status status);

#endif
