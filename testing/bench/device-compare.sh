#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two builds on a machine with a GPU: first and later uses, lives of processes, CPU time afterwards, and speed in turns.
#
# usage: device-compare.sh [--seconds S] [--steps STEP,...] OLD NEW
#        device-compare.sh --pack BUILD FOLDER      what this needs of a build (make && make bench), to be carried there
#
# Steps: warm, first, life, after, speed (all of them in this order). S is the time for `speed` [200]. OLD and NEW are folders
# made by --pack. Nothing is asserted.
set -u -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1-}" = --pack ]; then
    mkdir -p "$3/.libs" "$3/testing/bench"
    cp -L "$2/.libs/libclblas_shim.so.0" "$3/.libs"
    cp "$2/clblas-shim" "$2/clblas-shim-probe" "$3"
    cp "$2"/testing/bench/bench-{kernel,peer,regret,declined} "$3/testing/bench"
    strip --strip-debug "$3"/.libs/* "$3"/clblas-shim* "$3"/testing/bench/bench-*
    exit
fi
seconds=200 steps=warm,first,life,after,speed
while [ $# -gt 2 ]; do
    case $1 in
    --seconds) seconds=$2 ;;
    --steps) steps=$2 ;;
    *) sed -n '3,/^set/s/^# \?//p' "$0" >&2; exit 2 ;;
    esac
    shift 2
done
old=$(readlink -f "$1") new=$(readlink -f "$2")
. "$here/nvidia-icd.sh" || exit 1
register_nvidia
export CLBLAS_SHIM_DEVICE=${CLBLAS_SHIM_DEVICE:-gpu} OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-$(nproc)}
wants() { [[ ,$steps, == *,$1,* ]]; }

# Each build keeps compiled kernels in its own folder, where compare-builds.py looks for them.
in_build()
{
    local build=$1
    shift
    mkdir -p "$build/testing/cache"
    XDG_CACHE_HOME=$build/testing/cache CLBLAS_SHIM_PROBE=$build/clblas-shim-probe "$@"
}

warm()
{
    local routine
    for routine in dgetrf dgemm sgemm sgetrf dpotrf dgeqrf dtrsm dormqr dgetrs dsyrk dtrmm cgemm zgemm; do
        in_build "$1" "$1/clblas-shim" warm $routine
    done >"$1/warm.log" 2>&1
    echo "$1: $SECONDS s to compile what the calls need"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
if wants warm; then
    SECONDS=0
    warm "$old" & warm "$new" &
    wait
fi
for build in "$old" "$new"; do
    if wants first; then
        echo "== first uses: $build"
        in_build "$build" python3 "$here/first.py" "$build"
    fi
    if wants life; then
        echo "== lives: $build"
        in_build "$build" python3 "$here/life.py" --modes off,auto --calls dgetrf,16384,1 dgetrf,16384,3 dgemm,8192,1 -- "$build"
        in_build "$build" python3 "$here/life.py" --calls dgemm,200,1 dgemm,200,100 dgemm,700,100 dgemm,1000,1 dgemm,1000,100 \
            dgemm,2000,4 dgemm,2000,100 dgemm,4000,1 dgemm,4000,4 -- "$build"
    fi
    if wants after; then
        echo "== CPU time in the second after a burst of 1, 2, 16 threads: $build"
        in_build "$build" python3 "$here/life.py" --modes always --calls dgemm,1000,4,1 dgemm,1000,4,2 dgemm,1000,4,16 -- "$build"
    fi
done
if wants speed; then
    echo "== speed, old and new in turns"
    python3 "$here/compare-builds.py" --seconds "$seconds" "$old" "$new"
fi
