/* The launches of a variant's kernels, with the geometry that the header comments of
 * kernels/gemm_*.cl state. */
#include "kernel.h"

#include <math.h>

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

static size_t count_tiles(const struct clb_gemm_variant *variant, size_t m, size_t n)
{
    const size_t *value = variant->tuning.value;
    return clb_div_up(m * parts(variant), value[CLB_PARAM_MR]) * clb_div_up(n, value[CLB_PARAM_NR]);
}

size_t clb_gemm_group(const struct clb_gemm_family *family, const size_t *value)
{
    return family->items * (value[CLB_PARAM_MR] / value[family->rows]) *
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
        .dimensions = 1, .global = {group * count_tiles(variant, m, n), 1}, .local = {group, 1}};
}

/* A launch of one kernel of the variant: on the order's queue or, without one, the set's. */
static clb_status launch_kernel(struct clb_queue_set *queue_set, struct clb_program *program,
                                const char *name, const struct clb_argument *arguments,
                                size_t count, const struct clb_geometry *geometry,
                                struct clb_order order)
{
    cl_kernel kernel;
    clb_status status = clb_queue_set_kernel(queue_set, program, name, &kernel);
    if (status != CLB_OK)
        return status;
    return clb_queue_launch(order.queue != NULL ? order.queue : queue_set->queue, kernel, name,
                            arguments, count, geometry->dimensions, geometry->global,
                            geometry->local, order.waits, order.wait_list, order.event);
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
    return launch_kernel(queue_set, program, name, arguments, count, &geometry, order);
}

/* ---- parts of the depth ---------------------------------------------------------------------- */

/* A part is so deep at least: its product is written and read once more, which takes about as long
 * as reading the operands of a hundred depths. */
#define LEAST_PART ((size_t)256)

size_t clb_part_depth(const struct clb_gemm_variant *variant, size_t units, size_t m, size_t n,
                      size_t k)
{
    const size_t *value = variant->tuning.value;
    size_t wanted = value[CLB_PARAM_PARTS], unit = clb_gemm_depth_unit(variant);
    if (!variant->family->has_parts || m == 0 || n == 0 || k == 0)
        return 0;
    if (wanted == 0) {
        size_t least = clb_max(LEAST_PART / parts(variant), value[CLB_PARAM_MIN_K]);
        wanted = clb_min(units / count_tiles(variant, m, n), k / least);
    }
    size_t part = wanted < 2 ? k : clb_round_up(clb_div_up(k, wanted), unit);
    part = clb_max(part, clb_round_up(value[CLB_PARAM_MIN_K], unit));
    return part < k ? part : 0;
}

/* Elements of one part's product, in whole columns of cache lines. */
static size_t part_ld(const struct clb_gemm_variant *variant, size_t m)
{
    return clb_round_up(m, 128 / clb_precision_size(variant->precision));
}

size_t clb_scaled_bytes(const struct clb_gemm_variant *variant, size_t part, size_t m, size_t n,
                        size_t k)
{
    return (part == 0 ? 1 : clb_div_up(k, part)) * part_ld(variant, m) * n *
           clb_precision_size(variant->precision);
}

size_t clb_part_bytes(const struct clb_gemm_variant *variant, size_t part, size_t m, size_t n,
                      size_t k)
{
    return part == 0 || part >= k ? 0 : clb_scaled_bytes(variant, part, m, n, k);
}

/* Time is counted in elements of C that a unit computes, in k depths each. A launch whose tiles
 * fill the units once takes one tile; the last time they may be filled in part. Packing an element
 * and writing one of a part take as long as OF_MEMORY and OF_MEMORY / k elements; each launch more
 * than one costs as much as LAUNCH products of an element. (H200, 2026-11: estimates within 10 % of
 * what dgemm took from n = 1500 on.) */
#define OF_MEMORY 1.0
#define LAUNCH    1e6

static double expected_time(const struct clb_gemm_variant *variant, size_t percent, size_t units,
                            size_t m, size_t n, size_t k)
{
    const size_t *value = variant->tuning.value;
    size_t part = clb_part_depth(variant, units, m, n, k);
    double count = part != 0 ? (double)clb_div_up(k, part) : 1, depth = (double)k;
    double rounds = ceil((double)count_tiles(variant, m, n) * count / (double)units);
    double tile = (double)(value[CLB_PARAM_MR] * value[CLB_PARAM_NR]);
    double time = rounds * tile / count * (double)percent / 100;
    if (!clb_gemm_reads_raw(variant))
        time += OF_MEMORY * (double)(m + n) + 2 * LAUNCH / depth;
    if (part != 0)
        time += (OF_MEMORY * count * (double)m * (double)n + LAUNCH) / depth;
    return time;
}

const struct clb_gemm_variant *clb_gemm_for(const struct clb_gemm_variant *variant, size_t units,
                                            size_t m, size_t n, size_t k)
{
    const struct clb_gemm_variant *second = variant->second;
    if (second == NULL || m == 0 || n == 0 || k == 0)
        return variant;
    size_t percent = second->tuning.value[CLB_PARAM_SECOND];
    return expected_time(second, percent, units, m, n, k) <
                   expected_time(variant, 100, units, m, n, k)
               ? second
               : variant;
}

/* Without a number from the tuning, parts and tiles are no more than units. */
size_t clb_part_most(const struct clb_gemm_variant *variant, size_t units, size_t m, size_t n)
{
    const size_t *value = variant->tuning.value;
    size_t real = clb_precision_real_size(variant->precision);
    if (!variant->family->has_parts)
        return 0;
    if (value[CLB_PARAM_PARTS] != 0)
        return value[CLB_PARAM_PARTS] * part_ld(variant, m) * n *
               clb_precision_size(variant->precision);
    return units < 2
               ? 0
               : units * clb_round_up(value[CLB_PARAM_MR], 128 / real) * value[CLB_PARAM_NR] * real;
}

bool clb_gemm_reads_raw(const struct clb_gemm_variant *variant)
{
    return variant->family->has_raw && variant->tuning.value[CLB_PARAM_RAW] != 0;
}

/* A value of the kernels' argument beta, CLB_IN_ORDER there: with alpha = -1, products of elements
 * are subtracted one after the other. */
#define IN_ORDER 2

/* The factors of a product and of C, as the kernels' real type; `beta` may be IN_ORDER. */
struct factors {
    cl_double alpha_d, beta_d;
    cl_float alpha_s, beta_s;
    bool single;
};
#define FACTOR(factors, x) ((factors).single ? CLB_ARG((factors).x##_s) : CLB_ARG((factors).x##_d))

static struct factors factors_of(const struct clb_gemm_variant *variant,
                                 const struct clb_product *product)
{
    const double alpha = product->subtract || product->negate ? -1 : 1;
    const double beta = product->in_order ? IN_ORDER : product->add || product->subtract;
    return (struct factors){alpha, beta, (cl_float)alpha, (cl_float)beta,
                            clb_precision_real_size(variant->precision) == sizeof(cl_float)};
}

/* Work-groups that add parts or scale, always the same number (see prelaunch.c). */
#define FIXED_GROUPS 1024

static clb_status launch_fixed(struct clb_queue_set *queue_set,
                               const struct clb_gemm_variant *variant, const char *name,
                               const struct clb_argument *arguments, size_t count,
                               struct clb_order order)
{
    const size_t group = variant->tuning.value[CLB_PARAM_PACK_WG];
    const struct clb_geometry geometry = {
        .dimensions = 1, .global = {group * FIXED_GROUPS}, .local = {group}};
    return launch_kernel(queue_set, variant->program, name, arguments, count, &geometry, order);
}

clb_status clb_gemm_scale(struct clb_queue_set *queue_set, const struct clb_gemm_variant *variant,
                          const struct clb_chunk *chunk, size_t w, size_t k, cl_mem exponents,
                          const cl_ulong first[2], struct clb_order order)
{
    const cl_uint width = (cl_uint)w, depth = (cl_uint)k, along = chunk->depth_contiguous;
    const struct clb_argument arguments[] = {
        CLB_ARG(chunk->mem), CLB_ARG(chunk->offset), CLB_ARG(chunk->ld),
        CLB_ARG(width),      CLB_ARG(depth),         CLB_ARG(along),
        CLB_ARG(exponents),  CLB_ARG(first[0]),      CLB_ARG(first[1])};
    return launch_fixed(queue_set, variant, "clb_scale", arguments, CLB_COUNT_OF(arguments), order);
}

/* The sum of the parts; of scaled operands scaled back. */
static clb_status sum_parts(struct clb_queue_set *queue_set, const struct clb_gemm_variant *variant,
                            const struct clb_product *product, struct clb_order order)
{
    const bool scaled = product->exponents != NULL;
    const size_t each = parts(variant);
    const cl_uint m = (cl_uint)(each * product->m), n = (cl_uint)product->n;
    const cl_uint count = product->part == 0 ? 1 : (cl_uint)clb_div_up(product->k, product->part);
    const struct factors factors = factors_of(variant, product);
    const cl_ulong ld = each * part_ld(variant, product->m), stride = ld * product->n;
    const cl_ulong start = each * product->c_offset, ldc = each * product->ldc;
    struct clb_argument arguments[13] = {CLB_ARG(m), CLB_ARG(n), CLB_ARG(count)};
    size_t used = 3;
    if (!scaled)
        arguments[used++] = FACTOR(factors, alpha);
    arguments[used++] = FACTOR(factors, beta);
    arguments[used++] = CLB_ARG(product->parts);
    arguments[used++] = CLB_ARG(stride);
    arguments[used++] = CLB_ARG(ld);
    arguments[used++] = CLB_ARG(product->c);
    arguments[used++] = CLB_ARG(start);
    arguments[used++] = CLB_ARG(ldc);
    if (scaled) {
        arguments[used++] = CLB_ARG(product->exponents);
        arguments[used++] = CLB_ARG(product->a_exponents);
        arguments[used++] = CLB_ARG(product->b_exponents);
    }
    return launch_fixed(queue_set, variant, scaled ? "clb_gemm_sum_scaled" : "clb_gemm_sum",
                        arguments, used, order);
}

/* ---- launches of products -------------------------------------------------------------------- */

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

/* With parts of `part` depths, less than k, C is a matrix for each of them, one behind the
 * other. */
static clb_status launch_product(struct clb_queue_set *queue_set,
                                 const struct clb_gemm_variant *variant,
                                 const struct clb_product *product, size_t depth_of_part,
                                 struct clb_order order)
{
    size_t each = parts(variant);
    const cl_uint m = (cl_uint)(each * product->m), n = (cl_uint)product->n;
    const cl_uint k = (cl_uint)(each * product->k);
    const cl_ulong start = each * product->c_offset;
    const cl_ulong ldc = each * product->ldc, lda = each * product->lda, ldb = each * product->ldb;
    const cl_ulong a_offset = product->raw ? each * product->a_offset : product->a_offset;
    const cl_ulong b_offset = product->ldb != 0 ? each * product->b_offset : product->b_offset;
    const struct factors factors = factors_of(variant, product);
    const struct clb_skip *cut = &product->cut;
    const cl_uint kind = cut->kind;
    const cl_int a_cut = (cl_int)((ptrdiff_t)each * cut->a);
    const cl_int b_cut = (cl_int)((ptrdiff_t)each * cut->b);
    const cl_int c_cut = (cl_int)((ptrdiff_t)each * cut->c);
    const size_t depth = clb_round_up(depth_of_part, clb_gemm_depth_unit(variant));
    const cl_uint part = (cl_uint)(each * depth);
    const cl_ulong part_stride = ldc * product->n;
    struct clb_argument arguments[20];
    size_t count = 0;
    arguments[count++] = CLB_ARG(m);
    arguments[count++] = CLB_ARG(n);
    arguments[count++] = CLB_ARG(k);
    arguments[count++] = FACTOR(factors, alpha);
    arguments[count++] = FACTOR(factors, beta);
    arguments[count++] = CLB_ARG(product->a);
    arguments[count++] = CLB_ARG(a_offset);
    if (product->raw)
        arguments[count++] = CLB_ARG(lda);
    arguments[count++] = CLB_ARG(product->b);
    arguments[count++] = CLB_ARG(b_offset);
    if (product->raw)
        arguments[count++] = CLB_ARG(ldb);
    arguments[count++] = CLB_ARG(product->c);
    arguments[count++] = CLB_ARG(start);
    arguments[count++] = CLB_ARG(ldc);
    struct clb_program *program = variant->program;
    if (variant->family->has_parts) {
        arguments[count++] = CLB_ARG(part);
        arguments[count++] = CLB_ARG(part_stride);
    } else if (product->ldb != 0 && !product->raw) {
        arguments[count++] = CLB_ARG(ldb);
    } else if (kind != 0 || product->b_op_of_a != CLB_OP_N) {
        arguments[count++] = CLB_ARG(kind);
        arguments[count++] = CLB_ARG(a_cut);
        arguments[count++] = CLB_ARG(b_cut);
        arguments[count++] = CLB_ARG(c_cut);
        program = *variant->shapes;
    }
    struct clb_geometry geometry = clb_gemm_multiply_geometry(variant, product->m, product->n);
    geometry.global[0] *= variant->family->has_parts ? clb_div_up(product->k, depth) : 1;
    return launch_kernel(queue_set, program, product_kernel(product), arguments, count, &geometry,
                         order);
}

/* The products of the parts, then their sum. Of scaled operands there may be one part. */
static clb_status multiply_in_parts(struct clb_queue_set *queue_set,
                                    const struct clb_gemm_variant *variant,
                                    const struct clb_product *product, struct clb_order order)
{
    struct clb_product each = *product;
    const struct clb_order first = {order.queue, order.waits, order.wait_list, NULL};
    const struct clb_order last = {.queue = order.queue, .event = order.event};
    each.c = product->parts;
    each.c_offset = 0;
    each.ldc = part_ld(variant, product->m);
    each.add = each.subtract = each.negate = false;
    clb_status status = launch_product(queue_set, variant, &each,
                                       product->part == 0 ? product->k : product->part, first);
    if (status != CLB_OK)
        return status;
    return sum_parts(queue_set, variant, product, last);
}

clb_status clb_gemm_multiply(struct clb_queue_set *queue_set,
                             const struct clb_gemm_variant *variant,
                             const struct clb_product *product, struct clb_order order)
{
    return product->exponents != NULL || is_in_parts(product)
               ? multiply_in_parts(queue_set, variant, product, order)
               : launch_product(queue_set, variant, product, product->k, order);
}
