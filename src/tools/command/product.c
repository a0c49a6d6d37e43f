/* A product of operands that are in the device's memory. */
#include "product.h"

clb_status clb_resident_open(struct clb_resident *r, struct clb_runtime *runtime,
                             struct clb_queue_set *queue_set,
                             const struct clb_gemm_variant *variant, size_t m, size_t n, size_t k)
{
    const size_t extent[2] = {m, n};
    *r = (struct clb_resident){.runtime = runtime, .queue_set = queue_set, .variant = variant};
    r->m = m;
    r->n = n;
    r->k = k;
    r->raw = clb_gemm_reads_raw(variant);
    r->part = clb_part_depth(variant, runtime->device.units, m, n, k);
    clb_status status = CLB_OK;
    size_t parts = clb_part_bytes(variant, r->part, m, n, k);
    if (parts != 0)
        status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, parts, &r->parts);
    for (int i = 0; i < 2 && !r->raw && status == CLB_OK; i++)
        status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE,
                                clb_packed_bytes(variant, (clb_operand_role)i, extent[i], k),
                                &r->packed[i]);
    /* Split families raise a flag that nobody looks at here: the operands are within their range.
     */
    if (status == CLB_OK && variant->split && !r->raw)
        status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, sizeof(cl_uint), &r->flag);
    return status;
}

void clb_resident_close(struct clb_resident *r)
{
    struct clb_buffer *buffers[] = {r->packed[0], r->packed[1], r->flag, r->parts};
    for (size_t i = 0; i < CLB_COUNT_OF(buffers); i++)
        clb_buffer_put(r->runtime, buffers[i]);
}

static clb_status multiply_now(const struct clb_resident *r)
{
    struct clb_product product = {.m = r->m, .n = r->n, .k = r->k, .raw = r->raw, .part = r->part};
    product.a = r->raw ? r->a : r->packed[0]->mem;
    product.b = r->raw ? r->b : r->packed[1]->mem;
    product.lda = r->raw ? r->m : 0;
    product.ldb = r->raw ? r->k : 0;
    product.b_depth_contiguous = true;
    product.parts = r->parts != NULL ? r->parts->mem : NULL;
    product.c = r->c;
    product.ldc = r->m;
    return clb_gemm_multiply(r->queue_set, r->variant, &product, (struct clb_order){0});
}

clb_status clb_resident_enqueue(const struct clb_resident *r, bool pack, bool multiply)
{
    const cl_mem operand[2] = {r->a, r->b};
    const size_t extent[2] = {r->m, r->n}, ld[2] = {r->m, r->k};
    clb_status status = CLB_OK;
    for (int i = 0; i < 2 && pack && !r->raw && status == CLB_OK; i++) {
        /* B's columns are contiguous in depth, A's rows are not. */
        const struct clb_chunk chunk = {
            .mem = operand[i], .ld = ld[i], .depth_contiguous = i == CLB_OPERAND_B};
        status = clb_gemm_pack(r->queue_set, r->variant, (clb_operand_role)i, &chunk, extent[i],
                               r->k, r->packed[i]->mem, 0, r->flag != NULL ? r->flag->mem : NULL,
                               (struct clb_order){0});
    }
    return status == CLB_OK && multiply ? multiply_now(r) : status;
}
