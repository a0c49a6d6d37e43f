/* The kernels alone, on operands that are on the device: packing of A and of B, and the product.
 *
 * usage: bench-kernel [--sizes N|MxNxK,...] [--precisions s,d,c,z] [--reps N]
 *
 * It differs from bench-calls in that nothing crosses the host's memory. Each time is from the
 * enqueue to the end of the queue, over as many launches as take a while. Behind the kernel's name:
 * "raw" where it reads the operands unpacked, and the number of parts that the depth is divided
 * into. CLBLAS_SHIM_DEVICE, _KERNEL and _PARAMS choose what is measured. Products
 * are judged.
 * SPDX-License-Identifier: BSD-3-Clause */
#include "resident.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPS 101

struct size {
    size_t m, n, k;
};

/* The next of a list of N and MxNxK; false at its end. */
static bool next_size(const char **list, struct size *size)
{
    size_t *const extent[] = {&size->m, &size->n, &size->k};
    int count = 0;
    char *end = NULL;
    if (**list == '\0')
        return false;
    for (; count < 3; *list = end + 1) {
        *extent[count++] = strtoul(*list, &end, 10);
        if (*end != 'x')
            break;
    }
    if (count == 1)
        size->n = size->k = size->m;
    if ((count != 1 && count != 3) || size->m * size->n * size->k == 0 ||
        (*end != ',' && *end != '\0'))
        bench_fail("%s is no list of sizes", *list);
    *list = end + (*end == ',');
    return true;
}

static bool measure(struct clb_runtime *runtime, clb_precision precision, struct size size,
                    size_t reps)
{
    struct resident r;
    char shape[64], name[64];
    double product[MAX_REPS], whole[MAX_REPS], parts = bench_parts((int)precision);
    double work = 2e-9 * parts * parts * (double)size.m * (double)size.n * (double)size.k;
    size_t launches = 1, launches_whole = 1;
    snprintf(shape, sizeof shape, "%zux%zux%zu", size.m, size.n, size.k);
    if (!resident_open(&r, runtime, precision, size.m, size.n, size.k)) {
        printf("%c %s  no kernel for this precision\n", BENCH_PRECISIONS[precision], shape);
        return true;
    }
    for (size_t i = 0; i < reps; i++) {
        product[i] = resident_time(&r, false, true, 0.01, &launches);
        whole[i] = resident_time(&r, true, true, 0.01, &launches_whole);
    }
    bool good = resident_right(&r);
    double best = bench_best(product, reps), best_whole = bench_best(whole, reps);
    double median = bench_median(product, reps), median_whole = bench_median(whole, reps);
    snprintf(name, sizeof name, "%s%s/%zu", r.product.variant->name, r.product.raw ? "-raw" : "",
             r.product.part != 0 ? clb_div_up(size.k, r.product.part) : 1);
    printf("%c %18s %-28s %10.3f %10.1f %10.1f %10.3f %10.1f %10.1f%s\n",
           BENCH_PRECISIONS[precision], shape, name, 1e3 * median, work / median, work / best,
           1e3 * median_whole, work / median_whole, work / best_whole, good ? "" : "  WRONG");
    fflush(stdout);
    resident_close(&r);
    return good;
}

int main(int count, char **arguments)
{
    const char *sizes = "512,1024,2048", *precisions = "s,d";
    size_t reps = 11;
    bool good = true;
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(arguments[i], "--sizes") == 0)
            sizes = arguments[i + 1];
        else if (strcmp(arguments[i], "--precisions") == 0)
            precisions = arguments[i + 1];
        else if (strcmp(arguments[i], "--reps") == 0)
            reps = strtoul(arguments[i + 1], NULL, 10);
        else
            bench_fail(
                "usage: bench-kernel [--sizes N|MxNxK,...] [--precisions s,d,c,z] [--reps N]");
    }
    reps = reps < 1 ? 1 : reps > MAX_REPS ? MAX_REPS : reps;
    struct clb_runtime *runtime = resident_start_device();
    printf("# device %s, driver %s\n", runtime->device.name, runtime->device.driver);
    printf("%s %18s %-28s %10s %10s %10s %10s %10s %10s\n", "p", "n", "kernel", "product ms",
           "GF median", "GF best", "all ms", "GF median", "GF best");
    for (const char *precision = precisions; *precision != '\0'; precision++) {
        int index = bench_precision(*precision);
        if (index < 0 && *precision != ',')
            bench_fail("%s is no list of precisions", precisions);
        const char *list = sizes;
        struct size size;
        while (index >= 0 && next_size(&list, &size))
            good &= measure(runtime, (clb_precision)index, size, reps);
    }
    return good ? 0 : 1;
}
