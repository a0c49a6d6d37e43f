/* A product of operands that are on the device. SPDX-License-Identifier: BSD-3-Clause */
#include "resident.h"
#include "tools/command/trial.h"

#include <stdlib.h>

void resident_need(clb_status status, const char *what)
{
    if (status != CLB_OK)
        bench_fail("%s: %s", what, clb_status_name(status));
}

struct clb_runtime *resident_start_device(void)
{
    clb_runtime_state state;
    struct clb_thread_state before;
    clb_thread_state_save(&before, true);
    struct clb_runtime *runtime = clb_runtime_get(&state);
    clb_thread_state_restore(&before);
    if (runtime == NULL)
        bench_fail("no OpenCL device (CLBLAS_SHIM_LOG=info says why)");
    return runtime;
}

bool resident_open(struct resident *r, struct clb_runtime *runtime, clb_precision precision,
                   size_t m, size_t n, size_t k)
{
    const size_t elements[3] = {m * k, k * n, m * n};
    const struct clb_gemm_variant *variant;
    struct clb_queue_set *queue_set;
    if (clb_gemm_variant_get(runtime, precision, &variant) != CLB_OK)
        return false;
    *r = (struct resident){.precision = precision};
    resident_need(clb_queue_set_acquire(runtime, &queue_set), "queue");
    variant = clb_gemm_for(variant, runtime->device.units, m, n, k,
                           clb_direct_prepare(variant) == CLB_OK);
    resident_need(clb_resident_open(&r->product, queue_set, variant, m, n, k), "memory");
    for (int i = 0; i < 3; i++) {
        size_t bytes = elements[i] * clb_precision_size(precision);
        r->host[i] = malloc(bytes);
        if (r->host[i] == NULL)
            bench_fail("out of memory");
        bench_fill(r->host[i], elements[i], (int)precision, (uint64_t)i + 1);
        resident_need(clb_buffer_get(runtime, CLB_MEMORY_DEVICE, bytes, &r->matrix[i]), "memory");
        resident_need(
            clb_queue_write_now(queue_set->queue, r->matrix[i]->mem, 0, bytes, r->host[i]),
            "operands");
    }
    r->product.a = r->matrix[0]->mem;
    r->product.b = r->matrix[1]->mem;
    r->product.c = r->matrix[2]->mem;
    resident_need(clb_resident_enqueue(&r->product, true, true), "product");
    resident_need(clb_queue_set_finish(queue_set), "queue");
    return true;
}

void resident_close(struct resident *r)
{
    clb_resident_close(&r->product);
    for (int i = 0; i < 3; i++) {
        clb_buffer_end(r->product.queue_set->runtime, r->matrix[i], true);
        free(r->host[i]);
    }
    clb_queue_set_end(r->product.queue_set, true);
}

struct task {
    struct resident *resident;
    bool pack, multiply;
};

static void enqueue(void *argument)
{
    const struct task *task = argument;
    resident_need(clb_resident_enqueue(&task->resident->product, task->pack, task->multiply),
                  "kernel");
}

static void finish(void *argument)
{
    const struct task *task = argument;
    resident_need(clb_queue_set_finish(task->resident->product.queue_set), "queue");
}

double resident_time(struct resident *r, bool pack, bool multiply, double least, size_t *launches)
{
    struct task task = {r, pack, multiply};
    return bench_repeat(enqueue, finish, &task, least, launches);
}

bool resident_right(struct resident *r)
{
    const struct clb_resident *p = &r->product;
    size_t bytes = p->m * p->n * clb_precision_size(r->precision);
    resident_need(clb_queue_read_now(p->queue_set->queue, p->c, 0, bytes, r->host[2]), "result");
    return clb_trial_product_is_right(r->precision, p->m, p->n, p->k, r->host[0], r->host[1],
                                      r->host[2]);
}
