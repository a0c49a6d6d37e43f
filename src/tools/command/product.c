/* A product of operands that are in the device's memory. SPDX-License-Identifier: BSD-3-Clause */
#include "product.h"
#include "engine/kernel/check.h"

/* Behind the packed operands, which have the numbers of their roles. */
enum { FLAG = 2, PARTS };

clb_status clb_resident_open(struct clb_resident *r, struct clb_queue_set *queue_set,
                             const struct clb_gemm_variant *variant, size_t m, size_t n, size_t k)
{
    struct clb_runtime *runtime = queue_set->runtime;
    const bool raw = clb_gemm_reads_raw(variant);
    const size_t part = clb_part_depth(variant, runtime->device.units, m, n, k);
    /* Nobody looks at the flag of split families: the operands are within their range. */
    const size_t bytes[] = {
        [CLB_OPERAND_A] = raw ? 0 : clb_packed_bytes(variant, CLB_OPERAND_A, m, k),
        [CLB_OPERAND_B] = raw ? 0 : clb_packed_bytes(variant, CLB_OPERAND_B, n, k),
        [FLAG] = variant->split ? sizeof(cl_uint) : 0,
        [PARTS] = clb_part_bytes(variant, part, m, n, k)};
    *r = (struct clb_resident){queue_set, variant, m, n, k, .raw = raw, .part = part};
    return clb_check_memory(runtime, bytes, r->memory, CLB_COUNT_OF(r->memory));
}

void clb_resident_close(struct clb_resident *r)
{
    clb_check_memory_end(r->queue_set->runtime, r->memory, CLB_COUNT_OF(r->memory), true);
}

static cl_mem mem_of(const struct clb_buffer *buffer)
{
    return buffer != NULL ? buffer->mem : NULL;
}

static clb_status multiply_now(const struct clb_resident *r)
{
    struct clb_product product = {.m = r->m, .n = r->n, .k = r->k, .raw = r->raw, .part = r->part};
    product.a = r->raw ? r->a : mem_of(r->memory[CLB_OPERAND_A]);
    product.b = r->raw ? r->b : mem_of(r->memory[CLB_OPERAND_B]);
    product.lda = r->raw ? r->m : 0;
    product.ldb = r->raw ? r->k : 0;
    product.b_depth_contiguous = true;
    product.parts = mem_of(r->memory[PARTS]);
    product.flag = mem_of(r->memory[FLAG]);
    product.c = r->c;
    product.ldc = r->m;
    return clb_gemm_multiply(r->queue_set, r->variant, &product, (struct clb_order){0});
}

clb_status clb_resident_enqueue(const struct clb_resident *r, bool pack, bool multiply)
{
    /* B's columns are contiguous in depth, A's rows are not. */
    const struct clb_chunk chunk[2] = {{.mem = r->a, .ld = r->m},
                                       {.mem = r->b, .ld = r->k, .depth_contiguous = true}};
    const size_t extent[2] = {r->m, r->n};
    clb_status status = CLB_OK;
    for (int i = 0; i < 2 && pack && !r->raw; i++)
        CLB_THEN(status, clb_gemm_pack(r->queue_set, r->variant, (clb_operand_role)i, &chunk[i],
                                       extent[i], r->k, r->memory[i]->mem, 0,
                                       mem_of(r->memory[FLAG]), (struct clb_order){0}));
    return status == CLB_OK && multiply ? multiply_now(r) : status;
}
