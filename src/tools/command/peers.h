/* peers: other libraries' products in a device's memory, for bench, the ladder and
 * testing/bench. SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_PEERS_H
#define CLB_PEERS_H

#include "engine/kernel/kernel.h"

/* C = A*B, m x k times k x n, column-major without gaps. False: failed. A process uses one peer. */
struct clb_peer {
    const char *name;
    bool on_our_device; /* `open` wants a queue set of the shim's device, otherwise NULL */
    bool (*open)(clb_precision precision, struct clb_queue_set *queue_set);
    /* Make room for A, B and C; what was reserved before is given back. */
    bool (*reserve)(const size_t bytes[3]);
    bool (*write)(int matrix, const void *data, size_t bytes);
    bool (*multiply)(size_t m, size_t n, size_t k); /* only enqueues it */
    bool (*read)(void *data, size_t bytes);
    bool (*finish)(void);
};
const struct clb_peer *clb_peer_find(const char *name); /* "clblast" or "cublas"; NULL: another */

/* False: there is no device of NVIDIA's, or no driver for it. */
bool clb_cuda_open(void);

#endif
