# SPDX-License-Identifier: BSD-3-Clause
#
# CLB_PROVIDER
# The provider libraries, libblas.so.3 and liblapack.so.3: installed on demand, built for the tests where the CPU
# is one that src/shim/provider/trampoline.S knows. What comes behind them has their sonames, and so full paths.
AC_DEFUN([CLB_PROVIDER], [
    AC_ARG_ENABLE([provider],
        [AS_HELP_STRING([--enable-provider],
            [install libblas.so.3 and liblapack.so.3, to be the system's BLAS, in LIBDIR/clblas-shim])],
        [], [enable_provider=no])
    AC_ARG_WITH([provider-next],
        [AS_HELP_STRING([--with-provider-next=PATH:PATH...],
            [libraries behind these; what does not exist is skipped @<:@OpenBLAS, BLIS and the reference, where
             Debian has them@:>@])],
        [CLB_PROVIDER_NEXT=$withval], [
        clb_folder=`$CC -print-multiarch 2>/dev/null`
        clb_folder=/usr/lib${clb_folder:+/$clb_folder}
        CLB_PROVIDER_NEXT=
        for clb_library in openblas-pthread/libblas openblas-openmp/libblas openblas-serial/libblas \
            blis-pthread/libblas blis-openmp/libblas blis-serial/libblas blas/libblas openblas-pthread/liblapack \
            openblas-openmp/liblapack openblas-serial/liblapack lapack/liblapack; do
            CLB_PROVIDER_NEXT=$CLB_PROVIDER_NEXT${CLB_PROVIDER_NEXT:+:}$clb_folder/$clb_library.so.3
        done])
    AS_CASE([:$CLB_PROVIDER_NEXT:],
        [:yes:|:no:|*:[[!/:]]*|*::*], [AC_MSG_ERROR([--with-provider-next needs full paths])],
        [*/clblas-shim/*], [AC_MSG_ERROR([--with-provider-next names clblas-shim's own libraries])])
    AS_CASE([$host_cpu],
        [x86_64|aarch64], [clb_provider=yes],
        [AS_IF([test "$enable_provider" != no],
            [AC_MSG_ERROR([--enable-provider needs x86-64 or aarch64, this is $host_cpu])])
         clb_provider=no])
    AC_SUBST([CLB_PROVIDER_NEXT])
    AM_CONDITIONAL([PROVIDER], [test $clb_provider = yes])
    AM_CONDITIONAL([INSTALL_PROVIDER], [test "$enable_provider" != no])
])
