/* SPDX-License-Identifier: BSD-3-Clause
 * A library or program with a function of BLAS under the name of DGEMM, and a program that calls
 * it: with CALLS the program, with RUNS a plugin that calls it, with DEFINES the function. */
#include <stdio.h>

int DGEMM(int n);

#ifdef DEFINES
__attribute__((noinline)) int DGEMM(int n)
{
    return n + 1;
}
#endif

#ifdef CALLS
int main(int argc, char **argv)
{
    (void)argv;
    return DGEMM(argc) == 0;
}
#endif

#ifdef RUNS
size_t plugin_run(void);
size_t plugin_run(void)
{
    return DGEMM(1) != 2;
}
#endif
