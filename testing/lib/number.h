/* SPDX-License-Identifier: BSD-3-Clause
 * number: complex numbers in extended precision, of which references are made. */
#ifndef NUMBER_H
#define NUMBER_H

#include <complex.h>
#include <math.h>

typedef long double complex number;

/* CMPLXL, which not every compiler has. */
static inline number dense_number(long double re, long double im)
{
    number x;
    ((long double *)&x)[0] = re;
    ((long double *)&x)[1] = im;
    return x;
}

/* x*y and |x| as they are written down, several times as fast as C's own and cabsl(), which care
 * for infinities and for squares that overflow: that of no double does. */
static inline number dense_times(number x, number y)
{
    return dense_number(creall(x) * creall(y) - cimagl(x) * cimagl(y),
                        creall(x) * cimagl(y) + cimagl(x) * creall(y));
}

static inline long double dense_abs(number x)
{
    return cimagl(x) == 0 ? fabsl(creall(x)) : sqrtl(creall(x) * creall(x) + cimagl(x) * cimagl(x));
}

/* LAPACK's measure of a pivot. */
static inline long double dense_abs1(number x)
{
    return fabsl(creall(x)) + fabsl(cimagl(x));
}

/* |x|^2 */
static inline long double dense_square(number x)
{
    return creall(x) * creall(x) + cimagl(x) * cimagl(x);
}

#endif
