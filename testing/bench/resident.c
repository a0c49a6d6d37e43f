/* A product of operands that are on the device. */
#include "resident.h"

#include <stdlib.h>

void resident_need(clb_status status, const char *what)
{
    if (status != CLB_OK)
        bench_fail("%s: %s", what, clb_status_name(status));
}

void resident_open(struct resident *r, struct clb_runtime *runtime, clb_precision precision,
                   size_t m, size_t n, size_t k)
{
    const size_t elements[3] = {m * k, k * n, m * n};
    *r = (struct resident){.runtime = runtime, .m = m, .n = n, .k = k};
    resident_need(clb_queue_set_acquire(runtime, &r->queue_set), "queue");
    for (int i = 0; i < 3; i++) {
        size_t bytes = elements[i] * clb_precision_size(precision);
        struct clb_buffer **buffer = i < 2 ? &r->raw_operand[i] : &r->c;
        r->host[i] = malloc(bytes);
        if (r->host[i] == NULL)
            bench_fail("out of memory");
        bench_fill(r->host[i], elements[i], (int)precision, (uint64_t)i + 1);
        resident_need(clb_buffer_get(runtime, CLB_MEMORY_DEVICE, bytes, buffer), "memory");
        resident_need(
            clb_queue_write_now(r->queue_set->queue, (*buffer)->mem, 0, bytes, r->host[i]),
            "operands");
    }
}

static void put_packed(struct resident *r)
{
    struct clb_buffer **buffers[] = {&r->packed[0], &r->packed[1], &r->flag, &r->parts};
    for (size_t i = 0; i < CLB_COUNT_OF(buffers); i++) {
        clb_buffer_put(r->runtime, *buffers[i]);
        *buffers[i] = NULL;
    }
}

void resident_close(struct resident *r)
{
    put_packed(r);
    clb_buffer_put(r->runtime, r->raw_operand[0]);
    clb_buffer_put(r->runtime, r->raw_operand[1]);
    clb_buffer_put(r->runtime, r->c);
    for (int i = 0; i < 3; i++)
        free(r->host[i]);
    clb_queue_set_end(r->queue_set, true);
}

clb_status resident_use(struct resident *r, const struct clb_gemm_variant *variant)
{
    put_packed(r);
    r->variant = variant;
    r->raw = clb_gemm_reads_raw(variant);
    r->part = clb_part_depth(variant, r->runtime->device.units, r->m, r->n, r->k);
    size_t parts = clb_part_bytes(variant, r->part, r->m, r->n, r->k);
    clb_status status = CLB_OK;
    if (parts != 0)
        status = clb_buffer_get(r->runtime, CLB_MEMORY_DEVICE, parts, &r->parts);
    if (status == CLB_OK && r->raw)
        return CLB_OK;
    if (status == CLB_OK)
        status =
            clb_buffer_get(r->runtime, CLB_MEMORY_DEVICE,
                           clb_packed_bytes(variant, CLB_OPERAND_A, r->m, r->k), &r->packed[0]);
    if (status == CLB_OK)
        status =
            clb_buffer_get(r->runtime, CLB_MEMORY_DEVICE,
                           clb_packed_bytes(variant, CLB_OPERAND_B, r->n, r->k), &r->packed[1]);
    /* Split families raise a flag that nobody looks at here: the operands are within their range.
     */
    if (status == CLB_OK && variant->split)
        status = clb_buffer_get(r->runtime, CLB_MEMORY_DEVICE, sizeof(cl_uint), &r->flag);
    if (status == CLB_OK)
        status = resident_enqueue(r, true, false);
    return status;
}

static clb_status multiply(struct resident *r, bool add)
{
    struct clb_product product = {.m = r->m,
                                  .n = r->n,
                                  .k = r->k,
                                  .a = (r->raw ? r->raw_operand : r->packed)[0]->mem,
                                  .b = (r->raw ? r->raw_operand : r->packed)[1]->mem,
                                  .raw = r->raw,
                                  .b_depth_contiguous = true,
                                  .lda = r->raw ? r->m : 0,
                                  .ldb = r->raw ? r->k : 0,
                                  .part = r->part,
                                  .parts = r->parts != NULL ? r->parts->mem : NULL,
                                  .c = r->c->mem,
                                  .ldc = r->m,
                                  .add = add};
    return clb_gemm_multiply(r->queue_set, r->variant, &product, (struct clb_order){0});
}

/* B's columns are contiguous in depth, A's rows are not: both operands as BLAS's 'N' has them. */
clb_status resident_enqueue(struct resident *r, bool pack, bool product)
{
    clb_status status = CLB_OK;
    for (int i = 0; i < 2 && pack && !r->raw && status == CLB_OK; i++) {
        struct clb_chunk chunk = {
            .mem = r->raw_operand[i]->mem, .ld = i == 0 ? r->m : r->k, .depth_contiguous = i == 1};
        status = clb_gemm_pack(r->queue_set, r->variant, i == 0 ? CLB_OPERAND_A : CLB_OPERAND_B,
                               &chunk, i == 0 ? r->m : r->n, r->k, r->packed[i]->mem, 0,
                               r->flag != NULL ? r->flag->mem : NULL, (struct clb_order){0});
    }
    if (product && status == CLB_OK)
        status = multiply(r, false);
    return status;
}

double resident_time_of(struct clb_queue_set *queue_set, void (*enqueue)(void *), void *argument,
                        double least, size_t *launches)
{
    for (;;) {
        double begin = bench_now();
        for (size_t i = 0; i < *launches; i++)
            enqueue(argument);
        resident_need(clb_queue_set_finish(queue_set), "queue");
        double seconds = bench_now() - begin;
        if (seconds > least || *launches >= 256)
            return seconds / (double)*launches;
        *launches *= 2;
    }
}

struct task {
    struct resident *resident;
    bool pack, product;
};

static void enqueue_task(void *argument)
{
    const struct task *task = argument;
    resident_need(resident_enqueue(task->resident, task->pack, task->product), "kernel");
}

double resident_time(struct resident *r, bool pack, bool product, double least, size_t *launches)
{
    struct task task = {r, pack, product};
    return resident_time_of(r->queue_set, enqueue_task, &task, least, launches);
}

bool resident_right(struct resident *r, bool twice)
{
    size_t bytes = r->m * r->n * clb_precision_size(r->variant->precision);
    if (twice)
        resident_need(multiply(r, true), "kernel");
    resident_need(clb_queue_read_now(r->queue_set->queue, r->c->mem, 0, bytes, r->host[2]),
                  "result");
    const struct bench_product product = {.precision = (int)r->variant->precision,
                                          .m = r->m,
                                          .n = r->n,
                                          .k = r->k,
                                          .a = r->host[0],
                                          .b = r->host[1],
                                          .c = r->host[2]};
    return bench_product_right(&product, twice ? 2 : 1, 256);
}
