/* SPDX-License-Identifier: BSD-3-Clause
 * dense_qr: LAPACK's QR by plain loops, as the next library and as the reference. */
#ifndef DENSE_QR_H
#define DENSE_QR_H

#include "dense.h"

/* The next library; it counts elements in dense_next_entries. The context is the precision. */
extern const struct clb_host_blas dense_qr_next;
size_t dense_orgqr(const struct clb_host_blas *host, const struct clb_call *call);

/* Apply H(i), or its conjugate transpose, i counted from 0, to a column that begins at x, in
 * extended precision. The vectors are those of `a`. */
void dense_reflect(const struct dense *a, const void *tau, size_t i, bool conjugated, number *x);

/* The error of a factorisation whose input is remembered in `x`: the largest of |A(:, j) -
 * Q*R(:, j)| / (u |A(:, j)|) in 2-norms over the columns and of |I - H(i)^H*H(i)| / u over the
 * reflectors, by (min(m, n) + 4). Not finite when the result is not. */
long double dense_qr_error(const struct dense *x, const void *tau);

#endif
