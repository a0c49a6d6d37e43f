/* sgemm, dgemm, cgemm and zgemm: Fortran and CBLAS names. */
#include "abi.h"

#define CLB_BASE     gemm
#define CLB_TEMPLATE "gemm.t.h"
#include "precisions.t.h"
