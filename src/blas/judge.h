/* judge: whether the result of a call is right, for calls of the caller and for tests of kernels.
 *
 * What a result must satisfy, for triangular systems, factorisations and inverses a residual, is
 * applied to vectors: sums that are compared entry by entry within the error bound of the
 * algorithm, which is summed beside them (operator.h). Each matrix is read once for the scales of
 * its columns and once for all vectors. Entries that may overflow or have NaN or infinity in their
 * sums are not judged. SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_JUDGE_H
#define CLB_JUDGE_H

#include "blas.h"

/* A matrix that the call overwrites, as it was before; NULL: what beta = 0 leaves unread. */
struct clb_before {
    const void *data;
    size_t ld;
};

struct clb_judged {
    const struct clb_call *call;     /* which has been computed */
    const struct clb_before *before; /* CLB_CALL_MATRICES */
    /* Columns of the identity instead of vectors of random signs, in O(n^3): every entry is judged
     * by itself, and errors cannot cancel. */
    bool entries;
    bool rounded; /* operands may have been rounded to a shorter format: CLB_MATH_FAST */
};

struct clb_verdict {
    const char *failed;  /* what is wrong; NULL: nothing */
    double error, bound; /* of an entry, where that is it */
    size_t judged, left; /* entries; left: not judged */
    double worst;        /* error by bound */
};

/* CLB_ERR_NOMEM: there is no verdict. */
clb_status clb_judge(const struct clb_judged *question, struct clb_verdict *verdict) CLB_MUST_CHECK;

#endif
