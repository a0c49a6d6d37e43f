/* The kernels of a variant: arguments and launch geometry. */
#include "kernel.h"

static size_t launch_panel_width(const struct clb_gemm_variant *variant, clb_operand_role role)
{
    return variant->tuning.value[role == CLB_OPERAND_A ? CLB_PARAM_MR : CLB_PARAM_NR];
}

static size_t parts(const struct clb_gemm_variant *variant)
{
    return clb_precision_parts(variant->precision);
}

/* The width of the real operand that stands for one of w elements: re and im of complex elements
 * are separate rows of A, and separate depths of B. */
static size_t real_width(const struct clb_gemm_variant *variant, clb_operand_role role, size_t w)
{
    return role == CLB_OPERAND_A ? w * parts(variant) : w;
}

size_t clb_gemm_unit(const struct clb_gemm_variant *variant, clb_operand_role role)
{
    size_t width = launch_panel_width(variant, role), each = real_width(variant, role, 1);
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
           launch_panel_width(variant, CLB_OPERAND_A) %
                   (parts(variant) * launch_panel_width(variant, CLB_OPERAND_B)) ==
               0;
}

/* The size of one panel of depth k in kernel units, which are bytes or real elements. */
static size_t panel_units(const struct clb_gemm_variant *variant, clb_operand_role role, size_t k)
{
    const size_t *value = variant->tuning.value;
    size_t width = launch_panel_width(variant, role);
    size_t blocks = clb_div_up(k * parts(variant), value[CLB_PARAM_KU]);
    return clb_gemm_is_split(variant) ? blocks * variant->family->block_bytes(value, width)
                                      : blocks * width * value[CLB_PARAM_KU];
}

size_t clb_packed_bytes(const struct clb_gemm_variant *variant, clb_operand_role role, size_t w,
                        size_t k)
{
    size_t unit = clb_gemm_is_split(variant) ? 1 : clb_precision_real_size(variant->precision);
    return clb_div_up(real_width(variant, role, w), launch_panel_width(variant, role)) *
           panel_units(variant, role, k) * unit;
}

cl_ulong clb_packed_offset(const struct clb_gemm_variant *variant, clb_operand_role role, size_t i0,
                           size_t k)
{
    return real_width(variant, role, i0) / launch_panel_width(variant, role) *
           panel_units(variant, role, k);
}

struct clb_geometry clb_gemm_pack_geometry(const struct clb_gemm_variant *variant,
                                           clb_operand_role role, size_t w, size_t k)
{
    return variant->family->pack(variant->tuning.value, role, real_width(variant, role, w),
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
    if (clb_gemm_is_split(variant))
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
