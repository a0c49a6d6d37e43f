/* SPDX-License-Identifier: BSD-3-Clause
 * What every kernel file begins with: its precision, and names that depend on it. The host defines
 *   CLB_DOUBLE   0: float, 1: double
 *   CLB_COMPLEX  1: the caller's elements are complex numbers, interleaved pairs (re, im) */

#if CLB_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define CLB_REAL double
#else
#define CLB_REAL float
#endif
typedef CLB_REAL real;

/* CLB_PARTS: real numbers in an element. Where there are two, packing kernels have one more
 * argument, the last: `conj` asks for the conjugates. */
#if CLB_COMPLEX
#define CLB_PARTS          2
#define CLB_CONJ_PARAMETER , uint conj
#define CLB_CONJ           conj
#else
#define CLB_PARTS 1
#define CLB_CONJ_PARAMETER
#define CLB_CONJ 0
#endif

/* As beta of a product, with alpha = -1: C - A*B as -((-C) + A*B), so that products are subtracted
 * one after the other (clb_dmat_update in src/engine/device_blas). */
#define CLB_IN_ORDER 2

/* The last parameters and the first statement of every kernel. The launches on a queue are numbered
 * from 1. The first work-item of launch n stores n, unless n - 1 is not stored: so the number that
 * the host reads stays below that of a launch which the device has dropped
 * (queue.c). `chain` is in the device's memory, `report` in memory that the host
 * reads; launch 0 is not counted. */
#define CLB_LAUNCH_PARAMETERS \
    , global volatile uint *chain, global volatile uint *report, uint counter, uint launch
#define CLB_NOTE_LAUNCH()                                                              \
    do {                                                                               \
        if (get_global_id(0) == 0 && get_global_id(1) == 0 && get_global_id(2) == 0 && \
            launch != 0 && chain[counter] == launch - 1) {                             \
            chain[counter] = launch;                                                   \
            report[counter] = launch;                                                  \
        }                                                                              \
    } while (0)

#define CLB_JOIN_(a, b) a##b
#define CLB_JOIN(a, b)  CLB_JOIN_(a, b)

/* A kernel whose work-groups are one-dimensional and have `items` work-items. */
#define CLB_KERNEL_OF(items) kernel __attribute__((reqd_work_group_size(items, 1, 1)))
#define CLB_INLINE           static inline __attribute__((always_inline))
