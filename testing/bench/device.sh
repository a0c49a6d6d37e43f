#!/bin/bash
# Correctness and rates on a GPU machine, from a built tree or a release tarball.
#
# usage: device.sh [BUILD-FOLDER | TARBALL.tar.xz]        (default: the current folder)
#
# Needs no network and no libtool: a built tree needs its programs only (`make bench` and
# `make check TESTS=` made them), a tarball also gcc, make and the OpenCL headers. The device is
# CLBLAS_SHIM_DEVICE, `gpu` when that is not set; the kernel families are KERNELS, "portable auto" when
# that is not set; `auto` is the device's own choice. SIZES are the sizes for the rates. A GPU of NVIDIA's is
# registered in /etc/OpenCL/vendors when it is not and the script runs as root. The last lines are a short table;
# the exit status is 1 when a result is wrong.
set -u -o pipefail
given=$(readlink -f "${1:-.}")
sizes=${SIZES:-1024,2048,4096,8192}
kernels=${KERNELS:-portable auto}
export CLBLAS_SHIM_DEVICE=${CLBLAS_SHIM_DEVICE:-gpu}
unset LD_PRELOAD
. "$(dirname "$0")/nvidia-icd.sh" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
failed=0

die()
{
    echo "device.sh: $*" >&2
    exit 1
}

build_tarball()
{
    mkdir "$work/source" "$work/build" && tar -xf "$1" -C "$work/source" --strip-components=1 &&
        cd "$work/build" && ../source/configure >"$work/log" 2>&1 &&
        make -j"$(nproc)" >>"$work/log" 2>&1 && make bench >>"$work/log" 2>&1 &&
        make check TESTS= >>"$work/log" 2>&1
    local status=$?
    [ $status = 0 ] || tail -n 30 "$work/log"
    return $status
}

# note NAME COMMAND...: a step of the table.
note()
{
    local name=$1 result=passed
    shift
    echo
    echo "== $name"
    "$@" 2>&1 | tee "$work/output"
    [ "${PIPESTATUS[0]}" = 0 ] || { result=FAILED && failed=1; }
    printf '%-36s %s\n' "$name" "$result" >>"$work/table"
}

# rates WHAT MEDIAN BEST: the columns of the last step's measurements, into the table.
rates()
{
    awk -v what="$1" -v median="$2" -v best="$3" '
        /^[sd] +[0-9]+ / {
            memory = $4 == "warm" || $4 == "fresh" ? $4 : ""
            printf "%-26s %s %6d %-5s %10s %10s\n", what, $1, $2, memory, $median, $best
        }' \
        "$work/output" >>"$work/table"
}

if [ -f "$given" ]; then
    build_tarball "$given" || die "the tarball does not build"
    build=$work/build
else
    build=$given
fi
[ -e "$build/.libs/libclblas_shim.so.0" ] || die "$build has no .libs/libclblas_shim.so.0"
[ -x "$build/testing/bench/bench-kernel" ] || die "make bench first"
export BENCH_SHIM=$build/.libs/libclblas_shim.so.0
export LD_LIBRARY_PATH=$build/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
bench=$build/testing/bench
register_nvidia
uname -srm
nproc
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null

# The tests through the public names run real programs below .libs where libtool made wrappers.
public=$build/testing/unit/.libs/public
[ -x "$public" ] || public=$build/testing/unit/public
if [ -x "$public" ]; then
    note "public names, test grid" "$public"
fi
for kernel in $kernels; do
    unset CLBLAS_SHIM_KERNEL
    [ "$kernel" = auto ] || export CLBLAS_SHIM_KERNEL=$kernel
    for trans in NN TN NT TT; do
        note "$kernel $trans against OpenBLAS" "$bench/bench-gemm" --sizes 1,7,64,129,333,1000 \
            --trans $trans --reps 5 --threads "$(nproc)" --reference-max 0
    done
    note "$kernel, host to host" "$bench/bench-gemm" --sizes "$sizes" --threads "$(nproc)" \
        --reference-max 0 --seconds 2
    rates "$kernel, host to host" 5 6
    note "$kernel, on the device" "$bench/bench-kernel" --sizes "$sizes"
    rates "$kernel, product" 5 6
    rates "$kernel, with packing" 8 9
done

echo
echo "== on $CLBLAS_SHIM_DEVICE: $(sed -n 's/^# device //p' "$work/output"); GFLOP/s, median and best"
cat "$work/table"
[ $failed = 0 ] && echo "all passed" || echo "FAILED"
exit $failed
