/* Kernel families: launch geometry, as the header comments of kernels/gemm_*.cl state it; and the
 * launches of a variant's kernels. */
#include "kernel.h"

#include "kernels.h"

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

static struct clb_geometry cpu_pack(const size_t *value, size_t panels, size_t k)
{
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

static struct clb_geometry portable_pack(const size_t *value, size_t panels, size_t k)
{
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
                                 portable_gemm, NULL, false, false, false},
        [CLB_FAMILY_CPU] = {&clb_kernel_gemm_cpu, cpu_fits, cpu_pack, cpu_gemm, NULL, true, true,
                            true},
        [CLB_FAMILY_NV_DMMA] = {&clb_kernel_gemm_nv_dmma, dmma_fits, portable_pack, warps_gemm,
                                NULL, false, false, false},
        [CLB_FAMILY_NV_BF16X6] = {&clb_kernel_gemm_nv_bf16x6, split_fits, portable_pack, split_gemm,
                                  bf16x6_block, false, false, false},
        [CLB_FAMILY_NV_FP16X3] = {&clb_kernel_gemm_nv_fp16x3, split_fits, portable_pack, split_gemm,
                                  fp16x3_block, false, false, false},
        [CLB_FAMILY_NV_BF16_SYNC] = {&clb_kernel_gemm_nv_bf16_sync, bf16_sync_fits, portable_pack,
                                     warps_gemm, bf16_block, false, false, false},
    };
    return &families[family];
}

/* ---- matrices in the device's memory --------------------------------------------------------- */

struct clb_dmat clb_dmat_part(const struct clb_dmat *x, size_t row, size_t col, size_t rows,
                              size_t cols)
{
    return (struct clb_dmat){x->mem, x->offset + row + col * x->ld, rows, cols, x->ld};
}

/* ---- a variant's kernels --------------------------------------------------------------------- */

static size_t parts(const struct clb_gemm_variant *variant)
{
    return clb_precision_parts(variant->precision);
}

/* The rows of a panel, or its columns, that an element takes. */
static size_t each_width(const struct clb_gemm_variant *variant, clb_operand_role role)
{
    return role == CLB_OPERAND_A && !variant->family->packs_once ? parts(variant) : 1;
}

static size_t panel_width(const struct clb_gemm_variant *variant, clb_operand_role role)
{
    const size_t *value = variant->tuning.value;
    return role == CLB_OPERAND_B         ? value[CLB_PARAM_NR]
           : variant->family->packs_once ? value[CLB_PARAM_MR] / parts(variant)
                                         : value[CLB_PARAM_MR];
}

/* The panels of w elements. */
static size_t panels_of(const struct clb_gemm_variant *variant, clb_operand_role role, size_t w)
{
    return clb_div_up(w * each_width(variant, role), panel_width(variant, role));
}

size_t clb_gemm_unit(const struct clb_gemm_variant *variant, clb_operand_role role)
{
    size_t width = panel_width(variant, role), each = each_width(variant, role);
    return width % each == 0 ? width / each : width;
}

size_t clb_gemm_depth_unit(const struct clb_gemm_variant *variant)
{
    return variant->tuning.value[CLB_PARAM_KU] / parts(variant);
}

size_t clb_gemm_widest(const struct clb_gemm_variant *variant, clb_operand_role role)
{
    const size_t *value = variant->tuning.value;
    size_t wanted = clb_max(value[CLB_PARAM_TM], value[CLB_PARAM_TN]);
    return wanted == 0 ? SIZE_MAX : clb_round_up(wanted, clb_gemm_unit(variant, role));
}

bool clb_gemm_shares_panels(const struct clb_gemm_variant *variant)
{
    return variant->family->has_skip &&
           panel_width(variant, CLB_OPERAND_A) % panel_width(variant, CLB_OPERAND_B) == 0;
}

/* The size of one panel of depth k in kernel units, which are bytes or real elements. */
static size_t panel_units(const struct clb_gemm_variant *variant, clb_operand_role role, size_t k)
{
    const size_t *value = variant->tuning.value;
    size_t width = panel_width(variant, role);
    size_t blocks = clb_div_up(k * parts(variant), value[CLB_PARAM_KU]);
    return variant->split ? blocks * variant->family->block_bytes(value, width)
                          : blocks * width * value[CLB_PARAM_KU];
}

size_t clb_packed_bytes(const struct clb_gemm_variant *variant, clb_operand_role role, size_t w,
                        size_t k)
{
    size_t unit = variant->split ? 1 : clb_precision_real_size(variant->precision);
    return panels_of(variant, role, w) * panel_units(variant, role, k) * unit;
}

cl_ulong clb_packed_offset(const struct clb_gemm_variant *variant, clb_operand_role role, size_t i0,
                           size_t k)
{
    return panels_of(variant, role, i0) * panel_units(variant, role, k);
}

struct clb_geometry clb_gemm_pack_geometry(const struct clb_gemm_variant *variant,
                                           clb_operand_role role, size_t w, size_t k)
{
    return variant->family->pack(variant->tuning.value, panels_of(variant, role, w),
                                 k * parts(variant));
}

struct clb_geometry clb_gemm_multiply_geometry(const struct clb_gemm_variant *variant, size_t m,
                                               size_t n)
{
    return variant->family->gemm(variant->tuning.value, m * parts(variant), n);
}

clb_status clb_gemm_pack(struct clb_queue_set *queue_set, const struct clb_gemm_variant *variant,
                         clb_operand_role role, const struct clb_chunk *chunk, size_t w, size_t k,
                         cl_mem packed, cl_ulong offset, cl_mem flag, struct clb_order order)
{
    static const char *const names[2][2][2] = {
        {{"clb_pack_a_n", "clb_pack_a_t"}, {"clb_pack_b_n", "clb_pack_b_t"}},
        {{"clb_pack_triangle_a_n", "clb_pack_triangle_a_t"},
         {"clb_pack_triangle_b_n", "clb_pack_triangle_b_t"}}};
    const cl_uint width = (cl_uint)w, depth = (cl_uint)k, conjugate = chunk->conjugated;
    const cl_uint kind = chunk->triangle;
    const cl_int diagonal = (cl_int)chunk->diagonal;
    struct clb_argument arguments[11] = {
        CLB_ARG(chunk->mem), CLB_ARG(chunk->offset), CLB_ARG(chunk->ld), CLB_ARG(width),
        CLB_ARG(depth),      CLB_ARG(packed),        CLB_ARG(offset)};
    size_t count = 7;
    if (variant->split)
        arguments[count++] = CLB_ARG(flag);
    if (kind != 0) {
        arguments[count++] = CLB_ARG(kind);
        arguments[count++] = CLB_ARG(diagonal);
    }
    if (parts(variant) > 1)
        arguments[count++] = CLB_ARG(conjugate);
    const char *name = names[kind != 0][role][chunk->depth_contiguous];
    struct clb_program *program = kind != 0 ? *variant->shapes : variant->program;
    struct clb_geometry geometry = clb_gemm_pack_geometry(variant, role, w, k);
    cl_kernel kernel;
    clb_status status = clb_queue_set_kernel(queue_set, program, name, &kernel);
    if (status != CLB_OK)
        return status;
    return clb_queue_launch(order.queue != NULL ? order.queue : queue_set->queue, kernel, name,
                            arguments, count, geometry.dimensions, geometry.global, geometry.local,
                            order.waits, order.wait_list, order.event);
}

/* A value of the kernels' argument beta, CLB_IN_ORDER there: with alpha = -1, products of elements
 * are subtracted one after the other. */
#define IN_ORDER 2

clb_status clb_gemm_multiply(struct clb_queue_set *queue_set,
                             const struct clb_gemm_variant *variant,
                             const struct clb_product *product, struct clb_order order)
{
    size_t each = parts(variant);
    const cl_uint m = (cl_uint)(each * product->m), n = (cl_uint)product->n;
    const cl_uint k = (cl_uint)(each * product->k);
    const cl_ulong start = each * product->c_offset;
    const cl_ulong ldc = each * product->ldc, ldb = each * product->ldb;
    const cl_ulong b_offset = product->ldb != 0 ? each * product->b_offset : product->b_offset;
    const cl_double alpha_d = product->subtract || product->negate ? -1 : 1;
    const cl_double beta_d = product->in_order ? IN_ORDER : product->add || product->subtract;
    const cl_float alpha_s = (cl_float)alpha_d, beta_s = (cl_float)beta_d;
    bool single = clb_precision_real_size(variant->precision) == sizeof(cl_float);
    const struct clb_skip *cut = &product->cut;
    const cl_uint kind = cut->kind;
    const cl_int a_cut = (cl_int)((ptrdiff_t)each * cut->a);
    const cl_int b_cut = (cl_int)((ptrdiff_t)each * cut->b);
    const cl_int c_cut = (cl_int)((ptrdiff_t)each * cut->c);
    struct clb_argument arguments[16] = {CLB_ARG(m),
                                         CLB_ARG(n),
                                         CLB_ARG(k),
                                         single ? CLB_ARG(alpha_s) : CLB_ARG(alpha_d),
                                         single ? CLB_ARG(beta_s) : CLB_ARG(beta_d),
                                         CLB_ARG(product->a),
                                         CLB_ARG(product->a_offset),
                                         CLB_ARG(product->b),
                                         CLB_ARG(b_offset),
                                         CLB_ARG(product->c),
                                         CLB_ARG(start),
                                         CLB_ARG(ldc)};
    size_t count = 12;
    const char *name = "clb_gemm";
    struct clb_program *program = variant->program;
    if (product->ldb != 0) {
        arguments[count++] = CLB_ARG(ldb);
        name = "clb_gemm_direct";
    } else if (kind != 0 || product->b_op_of_a != CLB_OP_N) {
        static const char *const names[] = {"clb_gemm_skip", "clb_gemm_syrk", "clb_gemm_herk"};
        arguments[count++] = CLB_ARG(kind);
        arguments[count++] = CLB_ARG(a_cut);
        arguments[count++] = CLB_ARG(b_cut);
        arguments[count++] = CLB_ARG(c_cut);
        name = names[product->b_op_of_a];
        program = *variant->shapes;
    }
    struct clb_geometry geometry = clb_gemm_multiply_geometry(variant, product->m, product->n);
    cl_kernel kernel;
    clb_status status = clb_queue_set_kernel(queue_set, program, name, &kernel);
    if (status != CLB_OK)
        return status;
    return clb_queue_launch(order.queue != NULL ? order.queue : queue_set->queue, kernel, name,
                            arguments, count, geometry.dimensions, geometry.global, geometry.local,
                            order.waits, order.wait_list, order.event);
}
