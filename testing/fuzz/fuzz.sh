#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Random calls in many configurations: kernel families, minimal and own tiles, panels wider than tiles, panels
# of A and B that are apart, streamed, panels by the CPU and by the device, over the reference and over
# OpenBLAS, one thread and several. Each configuration gets its part of SECONDS and begins from a fresh seed.
# The last line counts calls; what failed is printed with a command that repeats it. Where nothing is streamed
# most are on PoCL's basic device, which computes in the thread that calls and makes twice as many calls in the
# time.
#
# usage: fuzz.sh [SECONDS [ARGUMENT-OF-FUZZ...]], SEED=N for the seeds of an earlier run,
# which begins with it
set -u
seconds=${1:-300}
[ $# -eq 0 ] || shift
fuzz=$(pwd)/testing/fuzz/fuzz
seed=${SEED:-random}
[ "$seed" != random ] || seed=$(date +%s)
echo "# SEED=$seed"
openblas=$(ls /usr/lib/*-linux-gnu*/libopenblas.so.0 2>/dev/null | head -1)
. "$(dirname "$0")/../blocks.sh"
small=$(small_blocks "$(dirname "$0")/../..")
streamed=gemm.stream=1,gemm.threads=2
basic=POCL_DEVICES=basic

# A configuration a line: arguments, then variables.
configurations()
{
    cat <<-END
	| CLBLAS_SHIM_PARAMS=$small $basic
	--threads 4 | CLBLAS_SHIM_PARAMS=$small
	| CLBLAS_SHIM_PARAMS=$small,$streamed
	| CLBLAS_SHIM_PARAMS=$small,getrf.panel=2 $basic
	| CLBLAS_SHIM_PARAMS=$small,$streamed,getrf.panel=2
	--threads 3 | CLBLAS_SHIM_PARAMS=$small,$streamed CLBLAS_SHIM_MEMORY=4M
	| CLBLAS_SHIM_PARAMS=$small CLBLAS_SHIM_KERNEL=portable $basic
	| CLBLAS_SHIM_PARAMS=$small,$streamed CLBLAS_SHIM_KERNEL=portable
	--largest 512 --often 50 | CLBLAS_SHIM_PARAMS=getrf.nb=16,trsm.nb=16 $basic
	--largest 400 --often 100 --threads 2 | CLBLAS_SHIM_PARAMS=$streamed,getrf.nb=32
	--largest 300 --often 20 | CLBLAS_SHIM_PARAMS=gemm.tile=min $basic
	--largest 200 --often 20 | CLBLAS_SHIM_PARAMS=gemm.tile=min,gemm.nr=3,gemm.nc=6,trsm.nb=8 CLBLAS_SHIM_KERNEL=cpu $basic
	--wide | CLBLAS_SHIM_PARAMS=$small $basic
	END
    [ -z "$openblas" ] || cat <<-END
	--next $openblas | CLBLAS_SHIM_PARAMS=$small $basic
	--next $openblas --threads 2 | CLBLAS_SHIM_PARAMS=getrf.nb=16
	END
}
count=$(configurations | wc -l)
each=$((seconds / count + 1))
log=$(mktemp)
trap 'rm -f "$log"' EXIT
configurations | {
    failed=0
    while IFS='|' read -r arguments variables; do
        seed=$((seed + 1))
        echo "# $variables $arguments"
        # shellcheck disable=SC2086 # lists of words
        env $variables "$fuzz" --seconds "$each" --count 1000000000 --seed "$seed" $arguments "$@" || {
            echo "# failed: $variables $arguments"
            failed=$((failed + 1))
        }
    done
    echo "# $count configurations, $failed failed"
    [ "$failed" = 0 ]
} | tee "$log"
awk '/^# [0-9]+ calls in/ { calls += $2; time += $5 }
    END { printf "# %d calls in %d s, %d a second\n", calls, time, calls / (time + 1e-9) }' "$log"
grep -q '^# .* configurations, 0 failed' "$log"
