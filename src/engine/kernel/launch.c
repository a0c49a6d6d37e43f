/* The launches of a variant's kernels, with the geometry that the header comments of
 * kernels/gemm_*.cl state. SPDX-License-Identifier: BSD-3-Clause */
#include "kernel.h"

/* ---- matrices in the device's memory ---- */

struct clb_dmat clb_dmat_part(const struct clb_dmat *x, size_t row, size_t col, size_t rows,
                              size_t cols)
{
    return (struct clb_dmat){x->mem, x->offset + row + col * x->ld, rows, cols, x->ld};
}

/* ---- a variant's kernels ---- */

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

/* The size of one panel of depth k in kernel units, which are bytes or real elements. */
static size_t panel_units(const struct clb_gemm_variant *variant, clb_operand_role role, size_t k)
{
    const size_t *value = variant->tuning.value;
    size_t width = panel_width(variant, role);
    size_t blocks = clb_div_up(k * parts(variant), value[CLB_PARAM_KU]);
    const size_t elements = width * value[CLB_PARAM_KU];
    return blocks * (variant->split
                         ? elements * variant->family->pieces + variant->family->block_extra
                         : elements);
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

size_t clb_gemm_tiles(const struct clb_gemm_variant *variant, size_t m, size_t n)
{
    const size_t *value = variant->tuning.value;
    return clb_div_up(m * parts(variant), value[CLB_PARAM_MR]) * clb_div_up(n, value[CLB_PARAM_NR]);
}

size_t clb_gemm_group(const struct clb_gemm_family *family, const size_t *value)
{
    return (value[CLB_PARAM_RAW] != 0 ? family->raw_items : family->items) *
           (value[CLB_PARAM_MR] / value[family->rows]) *
           (value[CLB_PARAM_NR] / value[family->cols]);
}

struct clb_geometry clb_gemm_pack_geometry(const struct clb_gemm_variant *variant,
                                           clb_operand_role role, size_t w, size_t k)
{
    const size_t *value = variant->tuning.value;
    const size_t panels = panels_of(variant, role, w), depth = k * parts(variant);
    const size_t group = variant->family->items == 0 ? 1 : value[CLB_PARAM_PACK_WG];
    struct clb_geometry geometry = {.dimensions = 2, .local = {group, 1}};
    geometry.global[0] = variant->family->items == 0
                             ? clb_div_up(panels, value[CLB_PARAM_PACK_PANELS])
                             : group * panels;
    geometry.global[1] =
        clb_div_up(depth, value[variant->family->items == 0 ? CLB_PARAM_PACK_K : CLB_PARAM_KU]);
    return geometry;
}

struct clb_geometry clb_gemm_multiply_geometry(const struct clb_gemm_variant *variant, size_t m,
                                               size_t n)
{
    const size_t *value = variant->tuning.value;
    if (variant->family->items == 0)
        return (struct clb_geometry){.dimensions = 2,
                                     .global = {clb_div_up(m * parts(variant), value[CLB_PARAM_MC]),
                                                clb_div_up(n, value[CLB_PARAM_NC])},
                                     .local = {1, 1}};
    const size_t group = clb_gemm_group(variant->family, value);
    return (struct clb_geometry){
        .dimensions = 1, .global = {group * clb_gemm_tiles(variant, m, n), 1}, .local = {group, 1}};
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
    const cl_int diagonal = (cl_int)chunk->diagonal;
    const bool triangle = chunk->triangle != 0;
    const struct clb_geometry geometry = clb_gemm_pack_geometry(variant, role, w, k);
    return clb_kernel_launch(
        queue_set, variant->program, names[triangle][role][chunk->depth_contiguous], &geometry,
        order,
        CLB_ARGUMENTS(CLB_ARG(chunk->mem), CLB_ARG(chunk->offset), CLB_ARG(chunk->ld),
                      CLB_ARG(width), CLB_ARG(depth), CLB_ARG(packed), CLB_ARG(offset),
                      CLB_ARG_IF(variant->split, flag), CLB_ARG_IF(triangle, chunk->triangle),
                      CLB_ARG_IF(triangle, diagonal), CLB_ARG_IF(parts(variant) > 1, conjugate)));
}

/* ---- launches of products ---- */

/* A value of the kernels' argument beta, CLB_IN_ORDER there: with alpha = -1, products of elements
 * are subtracted one after the other. */
#define IN_ORDER 2

clb_scalar clb_product_factors(const struct clb_gemm_variant *variant,
                               const struct clb_product *product)
{
    const double alpha = product->subtract || product->negate ? -1 : 1;
    const double beta = product->in_order ? IN_ORDER : product->add || product->subtract;
    return clb_precision_real_size(variant->precision) == sizeof(float)
               ? (clb_scalar){.s = {(float)alpha, (float)beta}}
               : (clb_scalar){.d = {alpha, beta}};
}

static bool is_in_parts(const struct clb_product *product)
{
    return product->part != 0 && product->part < product->k && !product->in_order &&
           product->cut.kind == 0 && product->b_op_of_a == CLB_OP_N;
}

static const char *product_kernel(const struct clb_product *product)
{
    static const char *const raw[2][2] = {{"clb_gemm_nt", "clb_gemm_nn"},
                                          {"clb_gemm_tt", "clb_gemm_tn"}};
    static const char *const cut[] = {"clb_gemm_skip", "clb_gemm_syrk", "clb_gemm_herk"};
    if (product->raw)
        return raw[product->a_depth_contiguous][product->b_depth_contiguous];
    if (product->ldb != 0)
        return "clb_gemm_direct";
    return product->cut.kind != 0 || product->b_op_of_a != CLB_OP_N ? cut[product->b_op_of_a]
                                                                    : "clb_gemm";
}

clb_status clb_product_launch(struct clb_queue_set *queue_set,
                              const struct clb_gemm_variant *variant,
                              const struct clb_product *product, size_t depth_of_part,
                              struct clb_order order)
{
    const size_t each = parts(variant);
    const size_t depth = clb_round_up(depth_of_part, clb_gemm_depth_unit(variant));
    const struct clb_skip *cut = &product->cut;
    const bool raw = product->raw, in_parts = variant->family->has_parts;
    const bool direct = !in_parts && !raw && product->ldb != 0;
    const bool cuts = !in_parts && !direct && (cut->kind != 0 || product->b_op_of_a != CLB_OP_N);
    const cl_uint m = (cl_uint)(each * product->m), n = (cl_uint)product->n;
    const cl_uint k = (cl_uint)(each * product->k), part = (cl_uint)(each * depth);
    const cl_ulong start = each * product->c_offset, ldc = each * product->ldc;
    const cl_ulong lda = each * product->lda, ldb = each * product->ldb, stride = ldc * product->n;
    const cl_ulong a_offset = (raw ? each : 1) * product->a_offset;
    const cl_ulong b_offset = (product->ldb != 0 ? each : 1) * product->b_offset;
    const cl_uint conjugates = product->a_conjugated + 2U * product->b_conjugated;
    const cl_int a_cut = (cl_int)((ptrdiff_t)each * cut->a);
    const cl_int b_cut = (cl_int)((ptrdiff_t)each * cut->b);
    const cl_int c_cut = (cl_int)((ptrdiff_t)each * cut->c);
    const clb_scalar factors = clb_product_factors(variant, product);
    struct clb_geometry geometry = clb_gemm_multiply_geometry(variant, product->m, product->n);
    geometry.global[0] *= in_parts ? clb_div_up(product->k, depth) : 1;
    return clb_kernel_launch(
        queue_set, raw && product->a_depth_contiguous ? variant->turned : variant->program,
        product_kernel(product), &geometry, order,
        CLB_ARGUMENTS(
            CLB_ARG(m), CLB_ARG(n), CLB_ARG(k), CLB_FACTOR(variant->precision, factors, 0),
            CLB_FACTOR(variant->precision, factors, 1), CLB_ARG(product->a), CLB_ARG(a_offset),
            CLB_ARG_IF(raw, lda), CLB_ARG(product->b), CLB_ARG(b_offset), CLB_ARG_IF(raw, ldb),
            CLB_ARG(product->c), CLB_ARG(start), CLB_ARG(ldc),
            CLB_ARG_IF(raw && in_parts && each > 1, conjugates), CLB_ARG_IF(in_parts, part),
            CLB_ARG_IF(in_parts, stride), CLB_ARG_IF(raw && variant->split, product->flag),
            CLB_ARG_IF(direct, ldb), CLB_ARG_IF(cuts, cut->kind), CLB_ARG_IF(cuts, a_cut),
            CLB_ARG_IF(cuts, b_cut), CLB_ARG_IF(cuts, c_cut)));
}

clb_status clb_gemm_multiply(struct clb_queue_set *queue_set,
                             const struct clb_gemm_variant *variant,
                             const struct clb_product *product, struct clb_order order)
{
    return product->exponents != NULL || is_in_parts(product)
               ? clb_product_in_parts(queue_set, variant, product, order)
               : clb_product_launch(queue_set, variant, product, product->k, order);
}
