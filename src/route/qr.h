/* qr.h: what xGEQRF, xORMQR and xORGQR share. */
#ifndef CLB_QR_H
#define CLB_QR_H

#include "dispatch.h"

/* A workspace of at least `least` elements, as LAPACK checks it, or a query. */
static inline bool clb_work_is_valid(const struct clb_qr_call *call, int64_t least)
{
    return call->lwork == -1 || call->lwork >= (least > 1 ? least : 1);
}

/* What `auto` compares with the table's smallest dimension: the next library has what is skinny,
 * and there are two blocks of reflectors at least. */
static inline size_t clb_qr_smallest(int64_t m, int64_t n)
{
    return (size_t)(m < n ? m : n) / 2;
}

#endif
