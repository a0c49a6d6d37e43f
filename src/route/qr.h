/* qr.h: helpers shared by xGEQRF, xORMQR and xORGQR. */
#ifndef CLB_QR_H
#define CLB_QR_H

#include "dispatch.h"

/* LAPACK's check of LWORK: at least `least` elements, or a workspace query. */
static inline bool clb_work_is_valid(const struct clb_qr_call *call, int64_t least)
{
    return call->lwork == -1 || call->lwork >= (least > 1 ? least : 1);
}

/* The dimension that `auto` compares with the table's smallest dimension. Half, so that skinny
 * matrices go to the next library and the others have two blocks of reflectors at least. */
static inline size_t clb_qr_smallest(int64_t m, int64_t n)
{
    return (size_t)(m < n ? m : n) / 2;
}

#endif
