# SPDX-License-Identifier: BSD-3-Clause
# The environment of every test; sourced by AM_TESTS_ENVIRONMENT with srcdir set.
for variable in $(env | sed -n 's/^\(CLBLAS_SHIM[A-Z_]*\)=.*/\1/p'); do
    unset "$variable"
done
unset variable LD_PRELOAD
builddir=$(pwd)
XDG_CACHE_HOME=$builddir/testing/cache
mkdir -p "$XDG_CACHE_HOME"
# Tests compile in many more variants than programs do.
CLBLAS_SHIM_CACHE_SIZE=1G
# This CPU may be newer than the system's OpenBLAS knows; one thread keeps results repeatable.
OPENBLAS_NUM_THREADS=1
CLBLAS_SHIM_DEVICE=cpu
# What is built with sanitizers is to be seen in one process.
CLBLAS_SHIM_PROBE=${SANITIZE:+none}
[ -n "$CLBLAS_SHIM_PROBE" ] && export CLBLAS_SHIM_PROBE || unset CLBLAS_SHIM_PROBE
# One seed for all tests, so that they are the same every time: SEED=NUMBER for another one, SEED=random for a
# fresh one.
case ${SEED:-} in
'') SEED=1 ;;
random) SEED=$(date +%s) ;;
esac
# Programs that many tests build are kept as binaries (testing/lib/programs.c).
if [ -e "$builddir/testing/lib/.libs/programs.so" ]; then
    PROGRAMS=$builddir/testing/cache/programs
    OPENCL_LAYERS=$builddir/testing/lib/.libs/programs.so
    mkdir -p "$PROGRAMS"
    export PROGRAMS OPENCL_LAYERS
fi
export SEED builddir XDG_CACHE_HOME CLBLAS_SHIM_CACHE_SIZE OPENBLAS_NUM_THREADS CLBLAS_SHIM_DEVICE
