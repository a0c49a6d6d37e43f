/* Template: expands the template CLB_TEMPLATE for each precision of the routine CLB_BASE (gemm).
 *
 * It sees CLB_LETTER (s), CLB_NAME (sgemm), CLB_PRECISION (CLB_S), CLB_TYPE (what elements are:
 * float, void for complex ones), and how C passes scalars: by value if real, by reference if
 * complex. CLB_SCALAR is the parameter's type, CLB_SCALAR_AT(p) the argument for a scalar at p and
 * CLB_SCALAR_ADDRESS(x) where the one passed as x is. */
#define CLB_NAME CLB_JOIN(CLB_LETTER, CLB_BASE)

#define CLB_SCALAR            CLB_TYPE
#define CLB_SCALAR_AT(p)      (*(const CLB_TYPE *)(p))
#define CLB_SCALAR_ADDRESS(x) (&(x))

#define CLB_LETTER    s
#define CLB_TYPE      float
#define CLB_PRECISION CLB_S
#include CLB_TEMPLATE
#undef CLB_LETTER
#undef CLB_TYPE
#undef CLB_PRECISION

#define CLB_LETTER    d
#define CLB_TYPE      double
#define CLB_PRECISION CLB_D
#include CLB_TEMPLATE
#undef CLB_LETTER
#undef CLB_TYPE
#undef CLB_PRECISION

#undef CLB_SCALAR
#undef CLB_SCALAR_AT
#undef CLB_SCALAR_ADDRESS

#define CLB_TYPE              void
#define CLB_SCALAR            const void *
#define CLB_SCALAR_AT(p)      (p)
#define CLB_SCALAR_ADDRESS(x) (x)

#define CLB_LETTER    c
#define CLB_PRECISION CLB_C
#include CLB_TEMPLATE
#undef CLB_LETTER
#undef CLB_PRECISION

#define CLB_LETTER    z
#define CLB_PRECISION CLB_Z
#include CLB_TEMPLATE
#undef CLB_LETTER
#undef CLB_PRECISION
