/* xGEMMTR, also called xGEMMT. Libraries have it under one name, under both or not at all. Without
 * it the shim computes it by calls of xGEMM (route/level3.c) and reports wrong arguments as the
 * routine would (errors.c).
 *
 * Source: Reference BLAS 3.12.1 xGEMMTR, cblas_xgemmtr; OpenBLAS and MKL xGEMMT. */
#include "abi.h"

/* The position of an argument in C's list, from its position in the decoded Fortran call. */
static int position_in_c(int position, int layout)
{
    enum { TRANSA = 2, TRANSB = 3, LDA = 8, LDB = 10 };
    static const int swapped[] = {[TRANSA] = TRANSB, [TRANSB] = TRANSA, [LDA] = LDB, [LDB] = LDA};
    if (layout != CLB_ROW_MAJOR && layout != CLB_COL_MAJOR)
        return 1;
    if (layout == CLB_ROW_MAJOR && position <= LDB && swapped[position] != 0)
        position = swapped[position];
    return position + 1;
}

void clb_compose_gemmtr(struct clb_entry *entry)
{
    const double begin = entry->timed ? clb_now() : 0;
    int wrong = clb_route_compose_gemmtr(entry, NULL);
    if (entry->timed)
        clb_next_end(entry, begin);
    if (wrong != 0)
        clb_report_argument(entry->symbol, entry->caller,
                            entry->layout == 0 ? wrong : position_in_c(wrong, entry->layout));
}
