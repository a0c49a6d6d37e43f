/* The kernel files, embedded by kernels/embed.sh. SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_KERNELS_H
#define CLB_KERNELS_H

#include "engine/ocl/device.h"

extern const struct clb_source clb_kernel_gemm_portable;
extern const struct clb_source clb_kernel_gemm_cpu;
extern const struct clb_source clb_kernel_gemm_nv_dmma;
extern const struct clb_source clb_kernel_gemm_nv_bf16_sync;
extern const struct clb_source clb_kernel_gemm_nv_bf16x6;
extern const struct clb_source clb_kernel_gemm_nv_fp16x3;
extern const struct clb_source clb_kernel_getf2;
extern const struct clb_source clb_kernel_potf2;
extern const struct clb_source clb_kernel_trsm;

#endif
