/* Kernel families: launch geometry, as the header comments of kernels/gemm_*.cl state it. */
#include "kernel.h"

#include "kernels.h"

static size_t family_panel_width(const size_t *value, clb_operand_role role)
{
    return value[role == CLB_OPERAND_A ? CLB_PARAM_MR : CLB_PARAM_NR];
}

/* ---- cpu: one work-item a group -------------------------------------------------------------- */

static bool cpu_fits(const size_t *value, const struct clb_device *device, size_t element)
{
    (void)device;
    (void)element;
    return value[CLB_PARAM_MR] % 2 == 0 && value[CLB_PARAM_MC] % value[CLB_PARAM_MR] == 0 &&
           value[CLB_PARAM_NC] % value[CLB_PARAM_NR] == 0 &&
           value[CLB_PARAM_KC] % value[CLB_PARAM_KU] == 0 &&
           value[CLB_PARAM_PACK_K] % value[CLB_PARAM_KU] == 0;
}

static struct clb_geometry cpu_pack(const size_t *value, clb_operand_role role, size_t w, size_t k)
{
    size_t panels = clb_div_up(w, family_panel_width(value, role));
    size_t depth = clb_round_up(k, value[CLB_PARAM_KU]);
    return (struct clb_geometry){.dimensions = 2,
                                 .global = {clb_div_up(panels, value[CLB_PARAM_PACK_PANELS]),
                                            clb_div_up(depth, value[CLB_PARAM_PACK_K])},
                                 .local = {1, 1}};
}

static struct clb_geometry cpu_gemm(const size_t *value, size_t m, size_t n)
{
    return (struct clb_geometry){
        .dimensions = 2,
        .global = {clb_div_up(m, value[CLB_PARAM_MC]), clb_div_up(n, value[CLB_PARAM_NC])},
        .local = {1, 1}};
}

/* ---- portable: tiles in local memory --------------------------------------------------------- */

static size_t portable_group(const size_t *value)
{
    return (value[CLB_PARAM_MR] / value[CLB_PARAM_WM]) *
           (value[CLB_PARAM_NR] / value[CLB_PARAM_WN]);
}

static bool portable_fits(const size_t *value, const struct clb_device *device, size_t element)
{
    size_t mr = value[CLB_PARAM_MR], nr = value[CLB_PARAM_NR], ku = value[CLB_PARAM_KU];
    size_t wm = value[CLB_PARAM_WM], wn = value[CLB_PARAM_WN], vw = value[CLB_PARAM_VW];
    size_t stages = clb_max(value[CLB_PARAM_STAGES], 2);
    if (wm == 0 || wn == 0 || vw == 0 || mr % wm != 0 || nr % wn != 0 || wm % vw != 0 ||
        wn % vw != 0)
        return false;
    size_t group = portable_group(value);
    return group <= device->max_group && value[CLB_PARAM_PACK_WG] <= device->max_group &&
           mr * ku % (group * vw) == 0 && nr * ku % (group * vw) == 0 &&
           (value[CLB_PARAM_COPY] != 0
                ? device->vendor == CLB_VENDOR_NVIDIA /* has more local memory than it reports */
                : stages * (mr + nr) * ku * element <= device->local_memory);
}

static struct clb_geometry portable_pack(const size_t *value, clb_operand_role role, size_t w,
                                         size_t k)
{
    size_t panels = clb_div_up(w, family_panel_width(value, role));
    size_t group = value[CLB_PARAM_PACK_WG];
    return (struct clb_geometry){.dimensions = 2,
                                 .global = {group * panels, clb_div_up(k, value[CLB_PARAM_KU])},
                                 .local = {group, 1}};
}

static struct clb_geometry portable_gemm(const size_t *value, size_t m, size_t n)
{
    size_t group = portable_group(value);
    size_t tiles = clb_div_up(m, value[CLB_PARAM_MR]) * clb_div_up(n, value[CLB_PARAM_NR]);
    return (struct clb_geometry){
        .dimensions = 1, .global = {group * tiles, 1}, .local = {group, 1}};
}

/* ---- nv: warps on tensor cores --------------------------------------------------------------- */

/* True when the device has NVIDIA's instructions, or emulates them in plain OpenCL C because the
 * tuning asks for that. Compilers of other vendors may not survive inline PTX, so they never get
 * it. `bytes` is the size of an element in local memory; NVIDIA's devices have more local memory
 * than they report, so theirs is not compared. */
static bool has_instructions(const size_t *value, const struct clb_device *device, size_t bytes)
{
    size_t stage = (value[CLB_PARAM_MR] + value[CLB_PARAM_NR]) * value[CLB_PARAM_KU] * bytes;
    return value[CLB_PARAM_EMULATE] != 0
               ? device->fp64 && value[CLB_PARAM_STAGES] != 0 &&
                     value[CLB_PARAM_STAGES] * stage < device->local_memory
               : device->vendor == CLB_VENDOR_NVIDIA;
}

static size_t warps_group(const size_t *value)
{
    return 32 * (value[CLB_PARAM_MR] / value[CLB_PARAM_WARP_M]) *
           (value[CLB_PARAM_NR] / value[CLB_PARAM_WARP_N]);
}

static bool warps_fit(const size_t *value, const struct clb_device *device)
{
    return value[CLB_PARAM_WARP_M] != 0 && value[CLB_PARAM_WARP_N] != 0 &&
           warps_group(value) <= device->max_group && value[CLB_PARAM_PACK_WG] <= device->max_group;
}

static bool dmma_fits(const size_t *value, const struct clb_device *device, size_t element)
{
    return has_instructions(value, device, sizeof(double)) && element == sizeof(double) &&
           warps_fit(value, device);
}

static bool bf16_sync_fits(const size_t *value, const struct clb_device *device, size_t element)
{
    return has_instructions(value, device, 3 * sizeof(cl_ushort)) && element == sizeof(float) &&
           warps_fit(value, device);
}

static struct clb_geometry warps_gemm(const size_t *value, size_t m, size_t n)
{
    size_t group = warps_group(value);
    size_t tiles = clb_div_up(m, value[CLB_PARAM_MR]) * clb_div_up(n, value[CLB_PARAM_NR]);
    return (struct clb_geometry){
        .dimensions = 1, .global = {group * tiles, 1}, .local = {group, 1}};
}

/* ---- nv: splits on the tensor cores of compute capability 9.0 -------------------------------- */

#define SPLIT_GROUP 384

static bool split_fits(const size_t *value, const struct clb_device *device, size_t element)
{
    return has_instructions(value, device, 3 * sizeof(cl_ushort)) && element == sizeof(float) &&
           device->max_group >= SPLIT_GROUP && value[CLB_PARAM_PACK_WG] <= device->max_group;
}

static struct clb_geometry split_gemm(const size_t *value, size_t m, size_t n)
{
    size_t tiles = clb_div_up(m, value[CLB_PARAM_MR]) * clb_div_up(n, value[CLB_PARAM_NR]);
    return (struct clb_geometry){
        .dimensions = 1, .global = {SPLIT_GROUP * tiles, 1}, .local = {SPLIT_GROUP, 1}};
}

static size_t bf16_block(const size_t *value, size_t width)
{
    return width * value[CLB_PARAM_KU] * 6;
}

/* A bf16 block, and words that tell whether the block is sparse. */
static size_t bf16x6_block(const size_t *value, size_t width)
{
    return bf16_block(value, width) + 128;
}

/* Two half-precision pieces of each element, and the block's factor. */
static size_t fp16x3_block(const size_t *value, size_t width)
{
    return width * value[CLB_PARAM_KU] * 4 + 128;
}

const struct clb_gemm_family *clb_gemm_family_get(clb_family family)
{
    static const struct clb_gemm_family families[CLB_FAMILIES] = {
        [CLB_FAMILY_PORTABLE] = {&clb_kernel_gemm_portable, portable_fits, portable_pack,
                                 portable_gemm, NULL, false, false},
        [CLB_FAMILY_CPU] = {&clb_kernel_gemm_cpu, cpu_fits, cpu_pack, cpu_gemm, NULL, true, true},
        [CLB_FAMILY_NV_DMMA] = {&clb_kernel_gemm_nv_dmma, dmma_fits, portable_pack, warps_gemm,
                                NULL, false, false},
        [CLB_FAMILY_NV_BF16X6] = {&clb_kernel_gemm_nv_bf16x6, split_fits, portable_pack, split_gemm,
                                  bf16x6_block, false, false},
        [CLB_FAMILY_NV_FP16X3] = {&clb_kernel_gemm_nv_fp16x3, split_fits, portable_pack, split_gemm,
                                  fp16x3_block, false, false},
        [CLB_FAMILY_NV_BF16_SYNC] = {&clb_kernel_gemm_nv_bf16_sync, bf16_sync_fits, portable_pack,
                                     warps_gemm, bf16_block, false, false},
    };
    return &families[family];
}
