/* Another library's LU, see lapack_peer.h. SPDX-License-Identifier: BSD-3-Clause */
#include "lapack_peer.h"

#include "bench.h"

#include <stdio.h>
#include <string.h>

void (*peer_function(void *library, clb_precision precision, const char *routine))(void)
{
    char name[16];
    snprintf(name, sizeof name, "%c%s_", BENCH_PRECISIONS[precision], routine);
    return bench_symbol(library, name);
}

peer_getrf_function *peer_getrf(void *library, clb_precision precision)
{
    return (peer_getrf_function *)peer_function(library, precision, "getrf");
}

peer_getrs_function *peer_getrs(void *library, clb_precision precision)
{
    return (peer_getrs_function *)peer_function(library, precision, "getrs");
}

/* The pivots come as ints in the same memory. */
size_t peer_next_getrf(const struct clb_host_blas *host, const struct clb_call *p)
{
    int64_t *ipiv = p->ipiv;
    const int rows = (int)p->m, cols = (int)p->n, ld = (int)p->lda;
    int info, *narrow = (int *)ipiv;
    (*(peer_getrf_function *const *)host->context)(&rows, &cols, p->a, &ld, narrow, &info);
    for (size_t i = clb_min(p->m, p->n); i-- > 0;) {
        int pivot;
        memcpy(&pivot, narrow + i, sizeof pivot);
        ipiv[i] = pivot;
    }
    return (size_t)info;
}
