/* SPDX-License-Identifier: BSD-3-Clause
 * The bound of the ladder: nothing but fused multiply-adds of registers, in as many independent
 * chains as any device needs to keep its units busy. Tensor cores are not in it. */
#include "../../kernels/common.h"

/* Width of the device's vectors. */
#ifndef WIDTH
#define WIDTH 4
#endif
#if WIDTH > 1
typedef CLB_JOIN(CLB_REAL, WIDTH) wide;
#else
typedef real wide;
#endif
#define CHAINS 8

/* A work-item does 2 * WIDTH * CHAINS * steps operations. The result depends on all of them; x and
 * y keep it finite. */
kernel void peak(uint steps, real x, real y, global wide *results CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    wide sum[CHAINS];
#pragma unroll
    for (uint q = 0; q < CHAINS; q++)
        sum[q] = (wide)((real)(get_local_id(0) + q));
    for (uint i = 0; i < steps; i++) {
#pragma unroll
        for (uint q = 0; q < CHAINS; q++)
            sum[q] = sum[q] * (wide)x + (wide)y;
    }
    wide all = sum[0];
#pragma unroll
    for (uint q = 1; q < CHAINS; q++)
        all += sum[q];
    results[get_global_id(0)] = all;
}
