/* SPDX-License-Identifier: BSD-3-Clause
 * Products with divided depth and of scaled operands, their memory and sums; the faster variant. */
#include "kernel.h"

#include <math.h>

/* Least depth of a part: its product is written and read once more, which takes about as long as
 * reading the operands of a hundred depths. */
#define LEAST_PART ((size_t)256)

size_t clb_part_find_depth(const struct clb_gemm_variant *variant, size_t units, size_t m, size_t n,
                           size_t k)
{
    const size_t *value = variant->tuning.value;
    size_t wanted = value[CLB_PARAM_PARTS], unit = clb_gemm_depth_unit(variant);
    if (m == 0 || n == 0 || k == 0)
        return 0;
    if (wanted == 0) {
        size_t parts = clb_precision_parts(variant->precision);
        size_t least = clb_max(LEAST_PART / parts, value[CLB_PARAM_MIN_K]);
        wanted = clb_min(units / clb_gemm_tiles(variant, m, n), k / least);
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
 * and writing one of a part take as long as OF_MEMORY and OF_MEMORY / k elements; each further
 * launch costs as much as LAUNCH products of an element. */
#define OF_MEMORY 1.0
#define LAUNCH    1e6

static double expected_time(const struct clb_gemm_variant *variant, size_t percent, size_t units,
                            size_t m, size_t n, size_t k)
{
    const size_t *value = variant->tuning.value;
    size_t part = clb_part_depth(variant, units, m, n, k);
    double count = part != 0 ? (double)clb_div_up(k, part) : 1, depth = (double)k;
    double rounds = ceil((double)clb_gemm_tiles(variant, m, n) * count / (double)units);
    double tile = (double)(value[CLB_PARAM_MR] * value[CLB_PARAM_NR]);
    double time = rounds * tile / count * (double)percent / 100;
    if (!clb_gemm_reads_raw(variant))
        time += OF_MEMORY * (double)(m + n) + 2 * LAUNCH / depth;
    if (part != 0)
        time += (OF_MEMORY * count * (double)m * (double)n + LAUNCH) / depth;
    return time;
}

const struct clb_gemm_variant *clb_gemm_for(const struct clb_gemm_variant *variant, size_t units,
                                            size_t m, size_t n, size_t k, bool raw)
{
    const struct clb_gemm_variant *const unpacked = raw ? variant->raw : NULL;
    const struct clb_gemm_variant *const others[] = {variant->second, unpacked,
                                                     unpacked != NULL ? unpacked->second : NULL};
    const struct clb_gemm_variant *best = variant;
    const bool any = m != 0 && n != 0 && k != 0;
    double least = any ? expected_time(variant, 100, units, m, n, k) : 0;
    for (size_t i = 0; i < CLB_COUNT_OF(others) && any; i++) {
        const size_t percent = others[i] != NULL ? others[i]->tuning.value[CLB_PARAM_SECOND] : 0;
        const double time =
            percent != 0 ? expected_time(others[i], percent, units, m, n, k) : INFINITY;
        best = time < least ? others[i] : best;
        least = fmin(least, time);
    }
    return best;
}

/* Without a number from the tuning, parts and tiles are no more than units. */
size_t clb_part_find_most(const struct clb_gemm_variant *variant, size_t units, size_t m, size_t n)
{
    const size_t *value = variant->tuning.value;
    size_t real = clb_precision_real_size(variant->precision);
    if (value[CLB_PARAM_PARTS] != 0)
        return value[CLB_PARAM_PARTS] * part_ld(variant, m) * n *
               clb_precision_size(variant->precision);
    return units < 2
               ? 0
               : units * clb_round_up(value[CLB_PARAM_MR], 128 / real) * value[CLB_PARAM_NR] * real;
}

/* Work-groups that add parts or scale, always as many (see prelaunch.c). */
#define FIXED_GROUPS 1024

static struct clb_geometry fixed_geometry(const struct clb_gemm_variant *variant)
{
    const size_t group = variant->tuning.value[CLB_PARAM_PACK_WG];
    return (struct clb_geometry){
        .dimensions = 1, .global = {group * FIXED_GROUPS}, .local = {group}};
}

clb_status clb_gemm_scale(struct clb_queue_set *queue_set, const struct clb_gemm_variant *variant,
                          const struct clb_chunk *chunk, size_t w, size_t k, cl_mem exponents,
                          const cl_ulong first[2], struct clb_order order)
{
    const cl_uint width = (cl_uint)w, depth = (cl_uint)k, along = chunk->depth_contiguous;
    const struct clb_geometry geometry = fixed_geometry(variant);
    return clb_kernel_launch(queue_set, variant->program, "clb_scale", &geometry, order,
                             CLB_ARGUMENTS(CLB_ARG(chunk->mem), CLB_ARG(chunk->offset),
                                           CLB_ARG(chunk->ld), CLB_ARG(width), CLB_ARG(depth),
                                           CLB_ARG(along), CLB_ARG(exponents), CLB_ARG(first[0]),
                                           CLB_ARG(first[1])));
}

/* The sum of the parts; of scaled operands scaled back. */
static clb_status sum_parts(struct clb_queue_set *queue_set, const struct clb_gemm_variant *variant,
                            const struct clb_product *product, struct clb_order order)
{
    const bool scaled = product->exponents != NULL;
    const size_t each = clb_precision_parts(variant->precision);
    const cl_uint m = (cl_uint)(each * product->m), n = (cl_uint)product->n;
    const cl_uint count = product->part == 0 ? 1 : (cl_uint)clb_div_up(product->k, product->part);
    const clb_scalar factors = clb_product_factors(variant, product);
    const cl_ulong ld = each * part_ld(variant, product->m), stride = ld * product->n;
    const cl_ulong start = each * product->c_offset, ldc = each * product->ldc;
    const struct clb_argument alpha = CLB_FACTOR(variant->precision, factors, 0), none = {0};
    const struct clb_geometry geometry = fixed_geometry(variant);
    return clb_kernel_launch(
        queue_set, variant->program, scaled ? "clb_gemm_sum_scaled" : "clb_gemm_sum", &geometry,
        order,
        CLB_ARGUMENTS(CLB_ARG(m), CLB_ARG(n), CLB_ARG(count), scaled ? none : alpha,
                      CLB_FACTOR(variant->precision, factors, 1), CLB_ARG(product->parts),
                      CLB_ARG(stride), CLB_ARG(ld), CLB_ARG(product->c), CLB_ARG(start),
                      CLB_ARG(ldc), CLB_ARG_IF(scaled, product->exponents),
                      CLB_ARG_IF(scaled, product->a_exponents),
                      CLB_ARG_IF(scaled, product->b_exponents)));
}

clb_status clb_product_in_parts(struct clb_queue_set *queue_set,
                                const struct clb_gemm_variant *variant,
                                const struct clb_product *product, struct clb_order order)
{
    struct clb_product each = *product;
    const struct clb_order first = {.queue = order.queue, .after = order.after};
    const struct clb_order last = {.queue = order.queue, .event = order.event};
    each.c = product->parts;
    each.c_offset = 0;
    each.ldc = part_ld(variant, product->m);
    each.add = each.subtract = each.negate = false;
    CLB_TRY(clb_product_launch(queue_set, variant, &each,
                               product->part == 0 ? product->k : product->part, first));
    return sum_parts(queue_set, variant, product, last);
}
