/* On PoCL the first launch of each kernel must be the widest that there will be.
 * SPDX-License-Identifier: BSD-3-Clause
 * PoCL stores a loaded kernel together with the width of its grid and loads it again for a wider
 * grid. A command takes a reference to the loaded kernel when it begins and releases it when it
 * ends, by a lookup that ignores the width: after a wider launch in between it finds another entry,
 * and an assertion ends the process (seen with 3.1). After the widest launch each has one entry. */
#include "check.h"
#include "kernel.h"

/* For wider grids PoCL compiles another version of the kernel, without the grid's size. */
#define WIDEST_SPECIALISED 65535

/* Depths of the streamed pipeline depend on the problem. On PoCL only tests use it, with less. */
#define STREAMED ((size_t)512)

/* w x k elements are packed, or m x n computed. */
struct shape {
    size_t rows, cols;
};

static size_t width_of(const struct clb_geometry *geometry)
{
    size_t second = geometry->dimensions > 1 ? geometry->global[1] : 1;
    return clb_max(geometry->global[0], second);
}

/* The largest m and n of a launch, and the largest k of a slab. */
static void largest(const struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                    size_t *m, size_t *n, size_t *k)
{
    const size_t *value = variant->tuning.value;
    bool streams = !runtime->device.unified || variant->split || value[CLB_PARAM_STREAM] != 0;
    size_t checked = variant->family->has_skip ? clb_gemm_check_order(variant) : 1;
    size_t least = streams ? clb_max(STREAMED, checked) : checked;
    size_t of_a = clb_gemm_unit(variant, CLB_OPERAND_A);
    size_t of_b = clb_gemm_unit(variant, CLB_OPERAND_B);
    *m = clb_gemm_widest(variant, CLB_OPERAND_A);
    *n = clb_gemm_widest(variant, CLB_OPERAND_B);
    *m = clb_max(*m == SIZE_MAX ? of_a : *m, clb_round_up(least, of_a));
    *n = clb_max(*n == SIZE_MAX ? of_b : *n, clb_round_up(least, of_b));
    *k = clb_round_up(clb_max(value[CLB_PARAM_SLAB], least), clb_gemm_depth_unit(variant));
}

static clb_status end_launch(struct clb_queue_set *queue_set, struct clb_buffer **memory,
                             size_t count, clb_status status)
{
    if (clb_queue_set_finish(queue_set) != CLB_OK)
        return CLB_ERR_OPENCL; /* outstanding commands may still use the buffers */
    clb_check_memory_end(queue_set->runtime, memory, count, true);
    return status;
}

static clb_status prelaunch_pack(struct clb_queue_set *queue_set,
                                 const struct clb_gemm_variant *variant, clb_operand_role role,
                                 bool depth_contiguous, unsigned triangle)
{
    size_t m, n, k, panel = clb_gemm_unit(variant, role);
    largest(queue_set->runtime, variant, &m, &n, &k);
    size_t extent = role == CLB_OPERAND_A ? m : n;
    struct shape shape = {extent, clb_gemm_depth_unit(variant)}, deep = {panel, k};
    struct clb_geometry wide = clb_gemm_pack_geometry(variant, role, shape.rows, shape.cols);
    struct clb_geometry high = clb_gemm_pack_geometry(variant, role, deep.rows, deep.cols);
    if (width_of(&high) > width_of(&wide))
        shape = deep;
    /* With a leading dimension of 1 the source may be small; its values don't matter. */
    const size_t bytes[] = {(shape.rows + shape.cols) * clb_precision_size(variant->precision),
                            clb_packed_bytes(variant, role, shape.rows, shape.cols),
                            variant->split ? sizeof(cl_uint) : 0};
    struct clb_buffer *memory[CLB_COUNT_OF(bytes)] = {NULL};
    clb_status status = clb_check_memory(queue_set->runtime, bytes, memory, CLB_COUNT_OF(bytes));
    if (status == CLB_OK) {
        struct clb_chunk chunk = {.mem = memory[0]->mem,
                                  .ld = 1,
                                  .depth_contiguous = depth_contiguous,
                                  .triangle = triangle};
        status =
            clb_gemm_pack(queue_set, variant, role, &chunk, shape.rows, shape.cols, memory[1]->mem,
                          0, memory[2] != NULL ? memory[2]->mem : NULL, (struct clb_order){0});
    }
    return end_launch(queue_set, memory, CLB_COUNT_OF(bytes), status);
}

static clb_status prelaunch_packs(struct clb_queue_set *queue_set,
                                  const struct clb_gemm_variant *variant, unsigned triangle)
{
    clb_status status = CLB_OK;
    for (int kernel = 0; kernel < 4 && status == CLB_OK; kernel++)
        status = prelaunch_pack(queue_set, variant, kernel / 2 == 0 ? CLB_OPERAND_A : CLB_OPERAND_B,
                                kernel % 2 != 0, triangle);
    return status;
}

/* Of several widest launches the smallest. */
static struct shape widest_product(const struct clb_runtime *runtime,
                                   const struct clb_gemm_variant *variant)
{
    size_t unit_m = clb_gemm_unit(variant, CLB_OPERAND_A);
    size_t unit_n = clb_gemm_unit(variant, CLB_OPERAND_B);
    size_t m, n, k, best = 0;
    largest(runtime, variant, &m, &n, &k);
    const struct shape shapes[] = {{m, unit_n}, {unit_m, n}, {m, n}};
    struct shape chosen = shapes[0];
    for (size_t i = 0; i < CLB_COUNT_OF(shapes); i++) {
        struct shape shape = shapes[i];
        struct clb_geometry geometry;
        for (;; shape.rows = clb_round_up(shape.rows / 2, unit_m)) {
            geometry = clb_gemm_multiply_geometry(variant, shape.rows, shape.cols);
            if (width_of(&geometry) <= WIDEST_SPECIALISED || shape.rows <= unit_m)
                break;
        }
        if (width_of(&geometry) > best) {
            best = width_of(&geometry);
            chosen = shape;
        }
    }
    return chosen;
}

static clb_status prelaunch_product(struct clb_queue_set *queue_set,
                                    const struct clb_gemm_variant *variant,
                                    struct clb_product product)
{
    clb_operand_role role = product.b_op_of_a != CLB_OP_N ? CLB_OPERAND_A : CLB_OPERAND_B;
    struct shape shape = widest_product(queue_set->runtime, variant);
    size_t k = clb_gemm_depth_unit(variant), element = clb_precision_size(variant->precision);
    /* Parts make launches wider. The self-check has up to three. */
    if (variant->family->has_parts) {
        product.part = k;
        k *= clb_max(variant->tuning.value[CLB_PARAM_PARTS], 3);
    }
    const size_t bytes[] = {
        clb_packed_bytes(variant, CLB_OPERAND_A, shape.rows, k),
        clb_packed_bytes(variant, role, shape.cols, k), shape.rows * shape.cols * element,
        product.part != 0 ? clb_part_bytes(variant, product.part, shape.rows, shape.cols, k) : 0,
        variant->split ? sizeof(cl_uint) : 0};
    struct clb_buffer *memory[CLB_COUNT_OF(bytes)] = {NULL};
    clb_status status = clb_check_memory(queue_set->runtime, bytes, memory, CLB_COUNT_OF(bytes));
    if (status == CLB_OK) {
        product.parts = memory[3] != NULL ? memory[3]->mem : NULL;
        product.flag = memory[4] != NULL ? memory[4]->mem : NULL;
        product.m = product.ldc = shape.rows;
        product.n = shape.cols;
        product.k = k;
        product.a = memory[0]->mem;
        product.b = memory[1]->mem;
        product.c = memory[2]->mem;
        status = clb_gemm_multiply(queue_set, variant, &product, (struct clb_order){0});
    }
    return end_launch(queue_set, memory, CLB_COUNT_OF(bytes), status);
}

clb_status clb_gemm_prelaunch_cut(struct clb_queue_set *queue_set,
                                  const struct clb_gemm_variant *variant)
{
    const bool complex = clb_precision_parts(variant->precision) > 1;
    if (!clb_device_has(&queue_set->runtime->device, CLB_QUIRK_WIDEST_LAUNCH_FIRST))
        return CLB_OK;
    clb_status status = prelaunch_packs(queue_set, variant, CLB_TRIANGLE_LOW);
    CLB_THEN(status, prelaunch_product(queue_set, variant,
                                       (struct clb_product){.cut.kind = CLB_SKIP_LOWER}));
    for (int op = CLB_OP_T; op <= (complex ? CLB_OP_C : CLB_OP_T) && status == CLB_OK; op++)
        status =
            prelaunch_product(queue_set, variant, (struct clb_product){.b_op_of_a = (clb_op)op});
    return status;
}

clb_status clb_gemm_prelaunch(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                              bool direct)
{
    const struct clb_product of_b = {.ldb = 1}, packed = {0};
    const bool raw = clb_gemm_reads_raw(variant), packs = !direct && !raw;
    struct clb_queue_set *queue_set;
    if (!clb_device_has(&runtime->device, CLB_QUIRK_WIDEST_LAUNCH_FIRST))
        return CLB_OK;
    CLB_TRY(clb_queue_set_acquire(runtime, &queue_set));
    clb_status status = packs ? prelaunch_packs(queue_set, variant, 0) : CLB_OK;
    if (!raw)
        CLB_THEN(status, prelaunch_product(queue_set, variant, direct ? of_b : packed));
    for (int ops = direct ? 1 : 0; ops < (direct ? 2 : 4) && status == CLB_OK && !packs; ops++)
        status = prelaunch_product(queue_set, variant,
                                   (struct clb_product){.raw = true,
                                                        .a_depth_contiguous = ops / 2 != 0,
                                                        .b_depth_contiguous = ops % 2 != 0,
                                                        .lda = 1,
                                                        .ldb = 1});
    clb_queue_set_end(queue_set, status != CLB_ERR_OPENCL);
    /* Where memory is too scarce for this launch, later launches are small as well. */
    return status == CLB_ERR_NOMEM ? CLB_OK : status;
}
