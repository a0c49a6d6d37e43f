/* tuning: a device's description -> kernel family, its parameters and the offload threshold.
 *
 * Numbers only: what a family does with them is the algo layer's. Lookup goes from the device's
 * class to the default; CLBLAS_SHIM_KERNEL and CLBLAS_SHIM_PARAMS override. */
#ifndef CLB_TUNING_H
#define CLB_TUNING_H

#include "ocl/ocl.h"

typedef enum clb_family {
    CLB_FAMILY_PORTABLE,
    CLB_FAMILY_CPU,
    CLB_FAMILY_NV_DMMA,
    CLB_FAMILY_NV_BF16X6,
    CLB_FAMILY_NV_FP16X3,
    CLB_FAMILY_NV_BF16_SYNC,
    CLB_FAMILIES
} clb_family;

const char *clb_family_name(clb_family family);
clb_math clb_family_math(clb_family family);

typedef enum clb_param {
#define CLB_PARAM(id, key, define, help) CLB_PARAM_##id,
#include "tuning/params.def"
#undef CLB_PARAM
    CLB_PARAMS
} clb_param;

/* A parameter's name in the tables, "MR". */
const char *clb_param_name(clb_param param);

/* The define that carries a value into the kernels, or NULL. */
const char *clb_param_define(clb_param param);

struct clb_gemm_tuning {
    clb_family family;
    double threshold; /* offload from this cube root of m*n*k */
    size_t smallest;  /* and from this smallest dimension */
    size_t value[CLB_PARAMS];
};

/* The row for a device and a precision with families of at most `math`, overrides applied; without
 * the first `skip` such rows, which the device has refused. CLBLAS_SHIM_KERNEL wins over `math`
 * unless that is strict. CLB_ERR_UNSUPPORTED when none is left. */
clb_status clb_tuning_gemm(const struct clb_device *device, clb_precision precision, clb_math math,
                           size_t skip, struct clb_gemm_tuning *tuning) CLB_MUST_CHECK;

/* What a routine's work is, for the threshold. */
typedef enum clb_work {
    CLB_WORK_PRODUCT,
    CLB_WORK_SOLVE,
    CLB_WORK_FACTOR,
    CLB_WORK_INVERT,
    CLB_WORK_DEFINITE,
    CLB_WORK_SQUARE,
    CLB_WORKS
} clb_work;

/* From which cube root of a routine's work `auto` offloads, next to an optimised library or
 * another; `tuning` is the device's. Infinity: never. */
double clb_tuning_offload(const struct clb_device *device, clb_precision precision,
                          const struct clb_gemm_tuning *tuning, clb_work work, bool optimised);

/* The device's class in the tables, for the tuner. */
const char *clb_tuning_class(const struct clb_device *device);

/* The lowest threshold of all rows for a class of work: what is below needs no device. */
double clb_tuning_lowest_threshold(clb_work work);

/* Check CLBLAS_SHIM_KERNEL and CLBLAS_SHIM_PARAMS, one line for each value that is not valid; such
 * values are ignored. Called once, at the first intercepted call. */
void clb_tuning_check_config(const struct clb_config *config);

#endif
