/* strsm, dtrsm, ctrsm and ztrsm: Fortran and CBLAS names. */
#include "abi.h"

#define CLB_BASE     trsm
#define CLB_TEMPLATE "trsm.t.h"
#include "precisions.t.h"
