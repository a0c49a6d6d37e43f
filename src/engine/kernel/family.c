/* SPDX-License-Identifier: BSD-3-Clause
 * The kernel files, and the values that the header comments of kernels/gemm_*.cl allow. */
#include "kernel.h"
#include "kernels.h"

const struct clb_source *const clb_sources[] = {
    &clb_kernel_gemm_portable,  &clb_kernel_gemm_cpu,
    &clb_kernel_gemm_nv_dmma,   &clb_kernel_gemm_nv_bf16_sync,
    &clb_kernel_gemm_nv_bf16x6, &clb_kernel_gemm_nv_fp16x3,
    &clb_kernel_getf2,          &clb_kernel_potf2,
    &clb_kernel_trsm,           NULL};

static bool cpu_fits(const struct clb_gemm_family *family, const size_t *value,
                     const struct clb_device *device, size_t element)
{
    (void)family;
    (void)device;
    (void)element;
    return value[CLB_PARAM_MR] % 2 == 0 && value[CLB_PARAM_MC] % value[CLB_PARAM_MR] == 0 &&
           value[CLB_PARAM_NC] % value[CLB_PARAM_NR] == 0 &&
           value[CLB_PARAM_KC] % value[CLB_PARAM_KU] == 0 &&
           value[CLB_PARAM_PACK_K] % value[CLB_PARAM_KU] == 0;
}

static bool groups_fit(const struct clb_gemm_family *family, const size_t *value,
                       const struct clb_device *device)
{
    return value[family->rows] != 0 && value[family->cols] != 0 &&
           clb_gemm_group(family, value) <= device->max_group &&
           value[CLB_PARAM_PACK_WG] <= device->max_group;
}

/* Tiles in local memory. */
static bool portable_fits(const struct clb_gemm_family *family, const size_t *value,
                          const struct clb_device *device, size_t element)
{
    const size_t mr = value[CLB_PARAM_MR], nr = value[CLB_PARAM_NR], ku = value[CLB_PARAM_KU];
    const size_t wm = value[CLB_PARAM_WM], wn = value[CLB_PARAM_WN], vw = value[CLB_PARAM_VW];
    if (!groups_fit(family, value, device) || vw == 0 || mr % wm != 0 || nr % wn != 0 ||
        wm % vw != 0 || wn % vw != 0)
        return false;
    const size_t each = clb_gemm_group(family, value) * vw;
    return mr * ku % each == 0 && nr * ku % each == 0 &&
           (value[CLB_PARAM_COPY] != 0
                ? device->vendor == CLB_VENDOR_NVIDIA /* has more local memory than it reports */
                : clb_max(value[CLB_PARAM_STAGES], 2) * (mr + nr) * ku * element <=
                      device->local_memory);
}

/* Tensor cores: the device has NVIDIA's instructions, or emulates them because the tuning asks for
 * that. Compilers of other vendors may not survive inline PTX. NVIDIA's devices have more local
 * memory than they report, so it is not compared. */
static bool nv_fits(const struct clb_gemm_family *family, const size_t *value,
                    const struct clb_device *device, size_t element)
{
    const size_t pieces = element == sizeof(double) ? element : 3 * sizeof(cl_ushort);
    const size_t stage = (value[CLB_PARAM_MR] + value[CLB_PARAM_NR]) * value[CLB_PARAM_KU] * pieces;
    return element == family->element && groups_fit(family, value, device) &&
           (value[CLB_PARAM_RAW] == 0 || value[CLB_PARAM_SECOND] != 0) &&
           (value[CLB_PARAM_EMULATE] != 0
                ? device->fp64 && value[CLB_PARAM_STAGES] != 0 &&
                      value[CLB_PARAM_STAGES] * stage < device->local_memory
                : device->vendor == CLB_VENDOR_NVIDIA);
}

#define WARPS       .items = 32, .rows = CLB_PARAM_WARP_M, .cols = CLB_PARAM_WARP_N
#define SPLIT_GROUP .items = 384, .rows = CLB_PARAM_MR, .cols = CLB_PARAM_NR

/* Extra words of a bf16x6 block tell whether it is sparse; fp16x3 has two half-precision pieces of
 * each element, and the block's factor. */
const struct clb_gemm_family *clb_gemm_family_get(clb_family family)
{
    static const struct clb_gemm_family families[CLB_FAMILIES] = {
        [CLB_FAMILY_PORTABLE] = {&clb_kernel_gemm_portable, portable_fits, .items = 1,
                                 .rows = CLB_PARAM_WM, .cols = CLB_PARAM_WN, .has_parts = true},
        [CLB_FAMILY_CPU] = {&clb_kernel_gemm_cpu, cpu_fits, .has_direct = true, .has_skip = true,
                            .packs_once = true},
        [CLB_FAMILY_NV_DMMA] = {&clb_kernel_gemm_nv_dmma, nv_fits, sizeof(double), WARPS,
                                .has_parts = true, .raw_items = 32},
        [CLB_FAMILY_NV_BF16X6] = {&clb_kernel_gemm_nv_bf16x6, nv_fits, sizeof(float), SPLIT_GROUP,
                                  .pieces = 6, .block_extra = 128, .has_parts = true,
                                  .raw_items = 512},
        [CLB_FAMILY_NV_FP16X3] = {&clb_kernel_gemm_nv_fp16x3, nv_fits, sizeof(float), SPLIT_GROUP,
                                  .pieces = 4, .block_extra = 128, .has_parts = true},
        [CLB_FAMILY_NV_BF16_SYNC] = {&clb_kernel_gemm_nv_bf16_sync, nv_fits, sizeof(float), WARPS,
                                     .pieces = 6, .has_parts = true},
    };
    return &families[family];
}
