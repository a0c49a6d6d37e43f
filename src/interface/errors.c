/* The error handlers of the host program.
 *
 * The shim reports nothing, but a program that is linked with -lclblas_shim alone and brings its
 * own xerbla_ must export it for the next library to see: the linker does that for names that a
 * shared library refers to, and weak references need no definition. */
#include "abi.h"

extern void xerbla_(void) CLB_WEAK;
extern void cblas_xerbla(void) CLB_WEAK;

__attribute__((used)) static void (*const handlers[])(void) = {xerbla_, cblas_xerbla};
