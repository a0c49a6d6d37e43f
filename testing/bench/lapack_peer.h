/* lapack_peer: another library's LU, loaded beside the shim: what the shim is compared with, and
 * its next library. Integers are 32-bit. SPDX-License-Identifier: BSD-3-Clause */
#ifndef LAPACK_PEER_H
#define LAPACK_PEER_H

#include "engine/gemm/gemm.h"
#include "engine/lapack/lapack.h"

typedef void peer_getrf_function(const int *, const int *, void *, const int *, int *, int *);
typedef void peer_getrs_function(const char *, const int *, const int *, const void *, const int *,
                                 const int *, void *, const int *, int *, size_t);

/* A function of a library that bench_open has opened, by its name without precision ("getrf"). */
void (*peer_function(void *library, clb_precision precision, const char *routine))(void);

/* xGETRF and xGETRS of a library that bench_open has opened. */
peer_getrf_function *peer_getrf(void *library, clb_precision precision);
peer_getrs_function *peer_getrs(void *library, clb_precision precision);

/* For clb_host_blas, whose `context` points to a peer_getrf_function pointer. */
size_t peer_next_getrf(const struct clb_host_blas *host, const struct clb_call *call);

#endif
