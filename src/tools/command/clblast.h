/* clblast: the few declarations of CLBlast's C interface that measurements need; the library is
 * loaded at run time. */
#ifndef CLB_CLBLAST_H
#define CLB_CLBLAST_H

#include "engine/ocl/ocl.h"

#include <string.h>

enum { CLBLAST_COLUMNS = 102, CLBLAST_PLAIN = 111 };

#define CLBLAST_GEMM(name, scalar)                                                                 \
    typedef int name(int, int, int, size_t, size_t, size_t, scalar, cl_mem, size_t, size_t,        \
                     cl_mem, size_t, size_t, scalar, cl_mem, size_t, size_t, cl_command_queue *,   \
                     cl_event *)
CLBLAST_GEMM(clblast_s, cl_float);
CLBLAST_GEMM(clblast_d, cl_double);
CLBLAST_GEMM(clblast_c, cl_float2);
CLBLAST_GEMM(clblast_z, cl_double2);
#undef CLBLAST_GEMM

/* The name of the function for a precision, in `name`. */
static inline void clb_clblast_name(char name[16], clb_precision precision)
{
    memcpy(name, "CLBlast?gemm", sizeof "CLBlast?gemm");
    name[7] = "SDCZ"[precision];
}

/* Enqueue C = A*B, column-major without gaps. 0: it has been. */
static inline int clb_clblast_multiply(void (*function)(void), clb_precision precision, size_t m,
                                       size_t n, size_t k, const cl_mem matrix[3],
                                       cl_command_queue queue)
{
    const cl_float2 one_c = {{1, 0}}, zero_c = {{0, 0}};
    const cl_double2 one_z = {{1, 0}}, zero_z = {{0, 0}};
#define CLBLAST_CALL(type, one, zero)                                                              \
    ((type *)function)(CLBLAST_COLUMNS, CLBLAST_PLAIN, CLBLAST_PLAIN, m, n, k, one, matrix[0], 0,  \
                       m, matrix[1], 0, k, zero, matrix[2], 0, m, &queue, NULL)
    switch (precision) {
    case CLB_S:
        return CLBLAST_CALL(clblast_s, 1, 0);
    case CLB_D:
        return CLBLAST_CALL(clblast_d, 1, 0);
    case CLB_C:
        return CLBLAST_CALL(clblast_c, one_c, zero_c);
    default:
        return CLBLAST_CALL(clblast_z, one_z, zero_z);
    }
#undef CLBLAST_CALL
}

#endif
