/* SPDX-License-Identifier: BSD-3-Clause
 * Preprocessed into the linker's version script. The node is anonymous: symbols with a version
 * would not interpose programs linked to versioned libraries. */
{
global:
#define CLB_MAP(routine, form, prefix, suffix, abi, ilp64) prefix##routine##suffix;
#define CLB_NAME(name, precision, library)                 CLB_FORMS_##library(CLB_MAP, name)
#define CLB_ROUTINE(stem, precisions, library, ...)        CLB_NAMES_##precisions(CLB_NAME, stem, library)
#include "blas/routines.def"
    clblas_shim_version;
    clblas_shim_version_number;
    clblas_shim_statistics;
    clblas_shim_report;
    clblas_shim_provide;
local:
    *;
};
