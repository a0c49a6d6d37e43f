/* qr.h: what xGEQRF, xORMQR and xORGQR share. */
#ifndef CLB_QR_H
#define CLB_QR_H

#include "offer.h"

/* A workspace of at least `least` elements, as LAPACK checks it, or a query. */
static inline bool clb_work_is_valid(const struct clb_qr_call *call, int64_t least)
{
    return call->lwork == -1 || call->lwork >= (least > 1 ? least : 1);
}

#endif
