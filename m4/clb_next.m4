# SPDX-License-Identifier: BSD-3-Clause
# CLB_NEXT_LIBRARIES
# The sonames that stand for the next BLAS, LAPACK and LAPACKE when a program brings none.
AC_DEFUN([CLB_NEXT_LIBRARIES], [
    AC_ARG_WITH([next-blas],
        [AS_HELP_STRING([--with-next-blas=SONAME],
            [BLAS for calls that stay on the CPU, where the program has none @<:@libblas.so.3@:>@])],
        [CLB_NEXT_BLAS_SONAME=$withval], [CLB_NEXT_BLAS_SONAME=libblas.so.3])
    AC_ARG_WITH([next-lapack],
        [AS_HELP_STRING([--with-next-lapack=SONAME],
            [LAPACK likewise @<:@liblapack.so.3@:>@])],
        [CLB_NEXT_LAPACK_SONAME=$withval], [CLB_NEXT_LAPACK_SONAME=liblapack.so.3])
    AC_ARG_WITH([next-lapacke],
        [AS_HELP_STRING([--with-next-lapacke=SONAME],
            [C interface of LAPACK likewise @<:@liblapacke.so.3@:>@])],
        [CLB_NEXT_LAPACKE_SONAME=$withval], [CLB_NEXT_LAPACKE_SONAME=liblapacke.so.3])
    AS_CASE([$CLB_NEXT_BLAS_SONAME:$CLB_NEXT_LAPACK_SONAME:$CLB_NEXT_LAPACKE_SONAME],
        [yes:*|no:*|*:yes|*:no|*:yes:*|*:no:*|:*|*:|*::*],
        [AC_MSG_ERROR([--with-next-blas, --with-next-lapack and --with-next-lapacke need a soname])])
    AC_SUBST([CLB_NEXT_BLAS_SONAME])
    AC_SUBST([CLB_NEXT_LAPACK_SONAME])
    AC_SUBST([CLB_NEXT_LAPACKE_SONAME])
])
