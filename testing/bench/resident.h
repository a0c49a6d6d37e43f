/* A product of operands that are on the device: packing of A and of B, and the kernel. */
#ifndef RESIDENT_H
#define RESIDENT_H

#include "engine/gemm/gemm.h"
#include "bench.h"

struct resident {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    struct clb_queue_set *queue_set;
    size_t m, n, k;
    void *host[3];                         /* A, B and C, column-major without gaps */
    struct clb_buffer *raw_operand[2], *c; /* the same on the device */
    struct clb_buffer *packed[2], *flag;   /* of the variant */
    struct clb_buffer *parts;              /* of C, where the depth is divided */
    size_t part;
    bool raw; /* the operands are not packed */
};

/* Print what failed to stderr and exit unless the status is CLB_OK. */
void resident_need(clb_status status, const char *what);

/* Random operands, on the device too. `variant` is set by resident_use. */
void resident_open(struct resident *r, struct clb_runtime *runtime, clb_precision precision,
                   size_t m, size_t n, size_t k);
void resident_close(struct resident *r);

/* Make room for the packed operands of a variant and pack them, unless it reads them as they are;
 * what an earlier variant had is given back. The depth is divided as the library would. */
clb_status resident_use(struct resident *r, const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* Enqueue the packing, the product, or both. */
clb_status resident_enqueue(struct resident *r, bool pack, bool multiply) CLB_MUST_CHECK;

/* Seconds for one, from the enqueue to the end of the queue, over so many launches that they take
 * `least` seconds; *launches is where to begin. Ends the program on failure. */
double resident_time(struct resident *r, bool pack, bool multiply, double least, size_t *launches);

/* The same for something else that goes to a queue_set's queue. A device at the limit of its power
 * takes a while to settle at the clock that a kernel allows: run it untimed before. */
double resident_time_of(struct clb_queue_set *queue_set, void (*enqueue)(void *), void *argument,
                        double least, size_t *launches);

/* Whether the product that was computed last is right; with `twice`, after C += A*B as well. */
bool resident_right(struct resident *r, bool twice);

#endif
