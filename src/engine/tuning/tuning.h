/* SPDX-License-Identifier: BSD-3-Clause
 * tuning: selects a device's kernel family and its parameters, in rows for
 * the device's class, then the default ones; CLBLAS_SHIM_KERNEL and CLBLAS_SHIM_PARAMS override. */
#ifndef CLB_TUNING_H
#define CLB_TUNING_H

#include "engine/ocl/device.h"

typedef enum clb_family {
    CLB_FAMILY_PORTABLE,
    CLB_FAMILY_CPU,
    CLB_FAMILY_NV_DMMA,
    CLB_FAMILY_NV_BF16X6,
    CLB_FAMILY_NV_FP16X3,
    CLB_FAMILY_NV_BF16_SYNC,
    CLB_FAMILIES
} clb_family;

extern const struct clb_family_info {
    const char *name;
    clb_math math;
} clb_families[CLB_FAMILIES];

/* CLB_PARAM_MR is MR in the tables, CLB_MR in kernels and gemm.mr in CLBLAS_SHIM_PARAMS. */
typedef enum clb_param {
#define CLB_KERNEL_PARAM(section, name, help)       CLB_PARAM_##name,
#define CLB_PARAM(section, name, shared, own, help) CLB_PARAM_##name,
#include "engine/tuning/parameters.def"
#undef CLB_KERNEL_PARAM
#undef CLB_PARAM
    CLB_PARAMS
} clb_param;

extern const struct clb_param_info {
    const char *name;   /* in the tables */
    bool kernels;       /* get the value, as a macro CLB_<name> */
    size_t standard[2]; /* where no row has a value; index: the device shares the host's memory */
} clb_params[CLB_PARAMS];

#define CLB_PARAM_KEY_SIZE 32
void clb_param_key(clb_param param, char key[CLB_PARAM_KEY_SIZE]);

struct clb_gemm_tuning {
    clb_family family;
    size_t value[CLB_PARAMS];
};

/* The first row for a device and a precision whose family's clb_math is at most `math`, after
 * `skip` such rows, which the device has refused, with overrides. CLBLAS_SHIM_KERNEL has precedence
 * over `math` unless `math` is strict. CLB_ERR_UNSUPPORTED: no row is left. */
clb_status clb_tuning_gemm(const struct clb_device *device, clb_precision precision, clb_math math,
                           size_t skip, struct clb_gemm_tuning *tuning) CLB_MUST_CHECK;

/* The second row (gemm.second) for `first`, a row of clb_tuning_gemm: of its family and kind of
 * copies, without gemm.raw (raw = 0), or the first or second with it. CLB_ERR_UNSUPPORTED: none. */
clb_status clb_tuning_second(const struct clb_device *device, clb_precision precision,
                             const struct clb_gemm_tuning *first, int raw,
                             struct clb_gemm_tuning *tuning) CLB_MUST_CHECK;

/* Read the row that `clblas-shim tune --kernels` has kept for this device: its family's first with
 * the values kept and overrides. CLB_ERR_UNSUPPORTED: none that clb_tuning_gemm allows. */
clb_status clb_tuning_kept(const struct clb_device *device, clb_precision precision, clb_math math,
                           struct clb_gemm_tuning *tuning) CLB_MUST_CHECK;

/* Keep these values of `tuning` in the cache. False: it can't be written. */
bool clb_tuning_keep(const struct clb_device *device, clb_precision precision,
                     const struct clb_gemm_tuning *tuning, const clb_param *params, size_t count);

/* The seconds that a device is expected to need for so many operations. */
double clb_tuning_seconds(const struct clb_device *device, clb_precision precision, double flops);

/* The least GFLOP/s of devices of this class; of a CPU one core. */
double clb_tuning_usual_rate(const struct clb_device *device, clb_precision precision);

const char *clb_tuning_class(const struct clb_device *device);

/* The value in CLBLAS_SHIM_PARAMS, whatever the device; 0: none. */
size_t clb_tuning_override(const struct clb_config *config, clb_param param);

/* Report each invalid value of CLBLAS_SHIM_KERNEL and CLBLAS_SHIM_PARAMS by a line; it is ignored.
 * Called once, at the first intercepted call. */
void clb_tuning_check_config(const struct clb_config *config);

#endif
