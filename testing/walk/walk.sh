#!/bin/bash
# How many files a call crosses: the source files whose functions run in one warm dgemm_ and in one
# dgetrf_, on a device that shares the host's memory and, forced by gemm.stream, by the path of one with
# its own. Builds the library with -finstrument-functions in a folder of its own.
#
#   testing/walk/walk.sh [FOLDER]       FOLDER defaults to build/walk
set -eu -o pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$top/build/walk}
mkdir -p "$folder" && cd "$folder"
if [ ! -e Makefile ]; then
    [ -x "$top/configure" ] || (cd "$top" && ./bootstrap) >/dev/null 2>&1
    "$top/configure" -q CFLAGS='-O1 -g -fno-inline -finstrument-functions' >/dev/null
fi
make -s -j"$(nproc)" >/dev/null 2>&1
library=$folder/.libs/libclblas_shim.so.0
cc -std=gnu11 -D_GNU_SOURCE -O1 -rdynamic -o walk "$top/testing/walk/walk.c" -llapack -lblas -ldl -lpthread

# The function through which all kernels are launched, whatever it is called.
WALK_LAUNCH_OFFSET=$(nm "$library" | awk '$3 ~ /^clb_(lane|queue_set|queue)_launch$/ { print $1 }')
export WALK_LAUNCH_OFFSET CLBLAS_SHIM=always
export OPENBLAS_NUM_THREADS=1
list=$(mktemp)
trap 'rm -f "$list"' EXIT

# walk NAME ROUTINE PARAMS: a line of the table; the files go to NAME.files.
walk()
{
    env ${3:+CLBLAS_SHIM_PARAMS=$3} LD_PRELOAD="$library" ./walk "$2" 1500 >"$list"
    grep '^0x' "$list" | addr2line -e "$library" | sed 's/:[0-9?].*//' | grep -v '^??' |
        xargs -n 1 realpath -m | sort | uniq -c | sort -rn >"$1.files"
    printf '%-8s %-16s %9d %10d %6d\n' "$2" "$1" "$(wc -l <"$1.files")" "$(grep -c '^0x' "$list")" \
        "$(awk '$1 == "depth" { print $2 }' "$list")"
}
printf '%-8s %-16s %9s %10s %6s\n' routine memory files functions depth
walk dgemm-shared dgemm
walk dgetrf-shared dgetrf
walk dgemm-own dgemm gemm.stream=1
walk dgetrf-own dgetrf gemm.stream=1,getrf.panel=2
