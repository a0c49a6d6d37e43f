/* driver: what xGESV and xPOSV share: a factorisation, then a solve with the factors unless the
 * matrix turned out to have none. */
#ifndef CLB_DRIVER_H
#define CLB_DRIVER_H

#include "dispatch.h"

struct clb_driver;

struct clb_driver_type {
    /* On the device, guarded; also the dispatch's progress. May have solved as well: then `solved`
     * is set, and the factorisation is complete whatever `solution` says. */
    clb_status (*factor)(struct clb_driver *driver, struct clb_runtime *runtime,
                         const struct clb_gemm_variant *variant);
    /* What it has left, by the next library, and info to the caller; true when that was needed. */
    bool (*complete_factor)(struct clb_driver *driver, clb_status status);
    size_t (*info)(const struct clb_driver *driver);
    /* On the device, guarded, with the driver's progress; NULL where factor does that. */
    clb_status (*solve)(struct clb_driver *driver, struct clb_runtime *runtime,
                        const struct clb_gemm_variant *variant);
    /* The missing part of B, or all of it. */
    void (*compute_next)(struct clb_dispatch *dispatch, const struct clb_rect *rect);
};

/* The dispatch's m is the order, its k the number of right-hand sides. */
struct clb_driver {
    struct clb_dispatch dispatch; /* the first */
    const struct clb_driver_type *type;
    double factor_work, solve_work;
    struct clb_gemm_progress *progress; /* of the solve */
    bool factored, solved;              /* by the device */
    clb_status solution;                /* of the device's solve; UNSUPPORTED: left to next */
};

/* An dispatch's functions. */
clb_status clb_driver_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                          const struct clb_gemm_variant *variant);
bool clb_driver_complete(struct clb_dispatch *dispatch, clb_status status);

#endif
