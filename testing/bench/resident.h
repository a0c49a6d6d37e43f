/* SPDX-License-Identifier: BSD-3-Clause
 * A product of operands that are on the device, with random matrices, checked and timed. */
#ifndef RESIDENT_H
#define RESIDENT_H

#include "tools/command/product.h"
#include "bench.h"

struct resident {
    struct clb_resident product;
    clb_precision precision;
    void *host[3];                /* A, B and C, column-major without gaps */
    struct clb_buffer *matrix[3]; /* the same on the device */
};

/* Print what failed to stderr and exit unless the status is CLB_OK. */
void resident_need(clb_status status, const char *what);

/* Started under the program's guard as route starts it: a CPU driver's threads are known by the
 * signals that they block, and only then they are spread over the CPUs. Otherwise two of them often
 * share one, at half the rate. */
struct clb_runtime *resident_start_device(void);

/* Random operands, on the device too, and the kernels that the library takes for the sizes, with
 * packed operands. False: the device has none for this precision. */
bool resident_open(struct resident *r, struct clb_runtime *runtime, clb_precision precision,
                   size_t m, size_t n, size_t k);
void resident_close(struct resident *r);

/* Seconds for one, from the enqueue to the end of the queue, over so many launches that they take
 * `least` seconds; *launches is where to begin. Ends the program on failure. */
double resident_time(struct resident *r, bool pack, bool multiply, double least, size_t *launches);

/* Whether the product that was computed last is right. */
bool resident_right(struct resident *r);

#endif
