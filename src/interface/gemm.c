/* sgemm, dgemm, cgemm and zgemm: Fortran and CBLAS names. */
#include "abi.h"

#define CLB_CAT_(a, b) a##_##b
#define CLB_CAT(a, b)  CLB_CAT_(a, b)

/* Real scalars are passed by value in C. */
#define CLB_SCALAR            CLB_TYPE
#define CLB_SCALAR_AT(p)      (*(const CLB_TYPE *)(p))
#define CLB_SCALAR_ADDRESS(x) (&(x))

#define CLB_NAME      sgemm
#define CLB_TYPE      float
#define CLB_PRECISION CLB_S
#include "gemm.t.h"
#undef CLB_NAME
#undef CLB_TYPE
#undef CLB_PRECISION

#define CLB_NAME      dgemm
#define CLB_TYPE      double
#define CLB_PRECISION CLB_D
#include "gemm.t.h"
#undef CLB_NAME
#undef CLB_TYPE
#undef CLB_PRECISION

#undef CLB_SCALAR
#undef CLB_SCALAR_AT
#undef CLB_SCALAR_ADDRESS

/* Complex ones by reference. */
#define CLB_TYPE              void
#define CLB_SCALAR            const void *
#define CLB_SCALAR_AT(p)      (p)
#define CLB_SCALAR_ADDRESS(x) (x)

#define CLB_NAME      cgemm
#define CLB_PRECISION CLB_C
#include "gemm.t.h"
#undef CLB_NAME
#undef CLB_PRECISION

#define CLB_NAME      zgemm
#define CLB_PRECISION CLB_Z
#include "gemm.t.h"
#undef CLB_NAME
#undef CLB_PRECISION
