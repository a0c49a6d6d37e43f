/* The triangular factor of a block of reflectors, on the CPU. */
#include "larfb.h"

#include <string.h>

#define CLB_REAL         float
#define CLB_FORM         form_s
#define CLB_FORM_COMPLEX form_c
#include "larft.t.h"
#undef CLB_REAL
#undef CLB_FORM
#undef CLB_FORM_COMPLEX

#define CLB_REAL         double
#define CLB_FORM         form_d
#define CLB_FORM_COMPLEX form_z
#include "larft.t.h"
#undef CLB_REAL
#undef CLB_FORM
#undef CLB_FORM_COMPLEX

void clb_form_t(clb_precision precision, size_t n, const void *tau, void *t, size_t ld)
{
    switch (precision) {
    case CLB_S:
        form_s(n, tau, t, ld);
        break;
    case CLB_D:
        form_d(n, tau, t, ld);
        break;
    case CLB_C:
        form_c(n, tau, t, ld);
        break;
    default:
        form_z(n, tau, t, ld);
    }
}
