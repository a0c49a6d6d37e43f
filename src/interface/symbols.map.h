/* Preprocessed into the linker's version script. The node is anonymous: symbols with a version
 * would not interpose programs linked to versioned libraries. */
#include "route/forms.h"
{
global:
#define CLB_MAP(routine, form, prefix, suffix, abi, ilp64) prefix##routine##suffix;
#define CLB_ROUTINE(name, precision, library, work)        CLB_FORMS_##library(CLB_MAP, name)
#include "route/routines.def"
    clblas_shim_version;
    clblas_shim_report;
local:
    *;
};
