/* blas3.h: shared by blas3.c and blas3_next.c. */
#ifndef CLB_BLAS3_H
#define CLB_BLAS3_H

#include "dispatch.h"

/* The routine, without precision and symmetric or Hermitian. */
typedef enum { CLB_SORT_SYMM, CLB_SORT_SYRK, CLB_SORT_SYR2K, CLB_SORT_GEMMTR } clb_blas3_sort;

struct clb_blas3_traits {
    clb_blas3_sort sort;
    bool hermitian;
    bool real_alpha, real_beta; /* real scalars of a complex routine */
};

/* The op of the right factor when the left one has `op`: A*A^T, A^T*A and so on. */
clb_op clb_blas3_adjoint(const struct clb_blas3_traits *traits, clb_op op);

/* blas3_next.c: compute a valid problem with the next library, or one of the parts of C that
 * clb_level3_run can leave uncomputed. */
void clb_blas3_compute_next(const struct clb_blas3 *problem, const struct clb_next_blas3 *next);
void clb_blas3_compute_part(const struct clb_blas3_traits *traits, const struct clb_blas3 *problem,
                            const struct clb_next_blas3 *next, const struct clb_rect *part);

#endif
