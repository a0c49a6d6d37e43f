/* blas3.h: what the routes of Level 3 share. */
#ifndef CLB_BLAS3_H
#define CLB_BLAS3_H

#include "dispatch.h"

/* What sort of routine it is. */
typedef enum { CLB_SORT_SYMM, CLB_SORT_SYRK, CLB_SORT_SYR2K, CLB_SORT_GEMMTR } clb_blas3_sort;

struct clb_blas3_traits {
    clb_blas3_sort sort;
    bool hermitian;
    bool real_alpha, real_beta; /* of complex ones */
};

/* op of the factor on the right when the one on the left has `op`: A*A^T, A^T*A and so on. */
clb_op clb_blas3_adjoint(const struct clb_blas3_traits *traits, clb_op op);

/* blas3_next.c: a valid problem by the next library, and a part of C, as clb_level3_run leaves
 * them. */
void clb_blas3_compute_next(const struct clb_blas3 *problem, const struct clb_next_blas3 *next);
void clb_blas3_compute_part(const struct clb_blas3_traits *traits, const struct clb_blas3 *problem,
                            const struct clb_next_blas3 *next, const struct clb_rect *part);

#endif
