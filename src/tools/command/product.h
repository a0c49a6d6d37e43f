/* SPDX-License-Identifier: BSD-3-Clause
 * product: a product of operands that are in the device's memory, by the library's own kernels:
 * packing of A and of B, and the product. For tune, bench and the ladder, and for testing/bench. */
#ifndef CLB_PRODUCT_H
#define CLB_PRODUCT_H

#include "engine/kernel/kernel.h"

/* C = A*B, column-major without gaps. The matrices are the caller's, the rest the product's. */
struct clb_resident {
    struct clb_queue_set *queue_set;
    const struct clb_gemm_variant *variant;
    size_t m, n, k;
    cl_mem a, b, c;
    struct clb_buffer
        *memory[4]; /* packed operands, a flag, parts of C where the depth is divided */
    size_t part;
    bool raw; /* the operands are not packed */
};

/* Make room, and divide the depth as the library would. a, b and c are not looked at. */
clb_status clb_resident_open(struct clb_resident *resident, struct clb_queue_set *queue_set,
                             const struct clb_gemm_variant *variant, size_t m, size_t n,
                             size_t k) CLB_MUST_CHECK;
void clb_resident_close(struct clb_resident *resident);

/* Enqueue the packing, the product, or both. The packing must have been done once. */
clb_status clb_resident_enqueue(const struct clb_resident *resident, bool pack,
                                bool multiply) CLB_MUST_CHECK;

#endif
