#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Correctness on a machine with a GPU: netlib's test programs of BLAS 3 and of linear equations and random
# calls, several processes at once that share the device, until time is up; a short table last.
#
# usage: device-conformance.sh [SECONDS [FOLDER]]     (default: 200 device)
#        device-conformance.sh --pack [BUILD-FOLDER [FOLDER]]
#
# FOLDER is filled by --pack, where the build and Debian's libblas-test and liblapack-test are: the library,
# the fuzzer, netlib's programs with their inputs and the reference libraries that they were made with. It
# needs nothing of the machine but OpenCL, Fortran's run-time library, a C compiler and this tree's scripts.
#
# The device is CLBLAS_SHIM_DEVICE; processes take NVIDIA's GPUs in turns when that is not set. PROGRAMS and
# VARIANTS are netlib's, see ../netlib/netlib.sh. NETLIB_JOBS and FUZZ_JOBS are processes of either kind, by the
# number of CPUs when they are not set; 0 leaves that out. SEED is the first seed, CACHE a folder for compiled
# kernels that another run may use again.
#
# The linear programs go path by path, the most telling first, with fewer sizes in the test of least squares:
# *parts* are those that came to their end; a list after the table names them. The exit status is 1 when
# anything is worse than without the shim or a random call failed.
set -u -o pipefail
here=$(cd "$(dirname "$0")" && pwd) || exit 1

die()
{
    echo "device-conformance.sh: $*" >&2
    exit 2
}

# pack BUILD FOLDER
pack()
{
    local system=/usr/lib/x86_64-linux-gnu file
    [ -e "$1/.libs/libclblas_shim.so.0" ] && [ -x "$1/testing/fuzz/fuzz" ] ||
        die "make and make testing/fuzz/fuzz in $1 first"
    mkdir -p "$2/.libs" "$2/testing/fuzz" "$2/netlib/blas" "$2/netlib/lapack"
    cp -L "$1/.libs/libclblas_shim.so.0" "$2/.libs"
    cp "$1/testing/fuzz/fuzz" "$2/testing/fuzz"
    mkdir -p "$2/testing/lib/.libs" && cp "$1/testing/lib/.libs/names.so" "$2/testing/lib/.libs"
    cp -L "$system"/blas/{xblat3?,x?cblat3,?blat3.in,?in3,libblas.so.3} "$2/netlib/blas"
    for file in "$system"/lapack/{xlintst*,*test.in,*test_rfp.in,liblapack.so.3} "$system"/{libtmglib,liblapacke}.so.3; do
        cp -L "$file" "$2/netlib/lapack"
    done
    strip --strip-debug "$2/.libs/libclblas_shim.so.0" "$2/testing/fuzz/fuzz"
    du -sh "$2"
}
if [ "${1:-}" = --pack ]; then
    pack "${2:-.}" "${3:-device}"
    exit
fi

limit=${1:-200}
folder=$(readlink -f "${2:-device}")
[ -e "$folder/.libs/libclblas_shim.so.0" ] && [ -x "$folder/netlib/lapack/xlintstd" ] ||
    die "$folder is not packed"
unset LD_PRELOAD CLBLAS_SHIM CLBLAS_SHIM_KERNEL CLBLAS_SHIM_PARAMS CLBLAS_SHIM_MATH
export OPENBLAS_NUM_THREADS=1
. "$here/nvidia-icd.sh" || exit 1
. "$here/../blocks.sh" || exit 1
small=$(small_blocks "$here/../..")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=${CACHE:-$work/cache}
mkdir -p "$XDG_CACHE_HOME"
ln -s "$folder/.libs" "$work/.libs"
cpus=$(nproc)
netlib_jobs=${NETLIB_JOBS:-$(((cpus * 5 + 7) / 8))}
fuzz_jobs=${FUZZ_JOBS:-$(((cpus * 3 + 7) / 8))}
seed=${SEED:-$(date +%s)}
next=$folder/netlib/blas/libblas.so.3:$folder/netlib/lapack/liblapack.so.3:$folder/netlib/lapack/liblapacke.so.3
end=$((limit - 5))

# ---- netlib's programs ----------------------------------------------------------------------------------

run_netlib()
{
    cd "$work" || return
    PROGRAMS=${PROGRAMS:-'blas3-* cblas3-* lin-*.GE lin-*.PO lin-*.TR mixed-* lin-*.QR lin-*.LS lin-*.LQ lin-*.QP
        lin-*.PS lin-*.PB lin-*.GB lin-*.SY lin-*.HE rfp-* lin-*'} \
        NEXT=reference VARIANTS=${VARIANTS:-minimal own} SPLIT=1 NETLIB=$folder/netlib JOBS=$netlib_jobs UNTIL=$end \
        DEVICES=$(IFS=';' && echo "${devices[*]}") "$here/../netlib/netlib.sh"
}

# A row for each program and variant of NEXT VARIANT PROGRAM[.PART] TESTS FAILED ERRORS STATUS CALLS DEVICE FLOPS
# FLOPS_DEVICE TESTS-WITHOUT FAILED-WITHOUT ERRORS-WITHOUT STATUS-WITHOUT; first the list of parts.
netlib_table()
{
    printf '%-10s %-8s %9s %9s %7s %7s %7s %7s %9s %8s %7s\n' program variant parts tests failed without errors \
        without calls device flops
    awk '
        FILENAME == ARGV[1] { sub(/\..*/, "", $1); parts[$1]++; next }
        {
            sub(/\..*/, "", $3)
            key = $3 " " $2
            if (!(key in done))
                order[++rows] = key
            done[key]++
            for (i = 4; i <= NF; i++)
                sum[key, i] += $i
        }
        function share(x, y) { return y > 0 ? sprintf("%.1f%%", 100 * x / y) : "-" }
        END {
            for (row = 1; row <= rows; row++) {
                key = order[row]
                split(key, name, " ")
                printf "%-10s %-8s %4d/%-4d %9d %7d %7d %7d %7d %9d %8s %7s\n", name[1], name[2], done[key],
                    parts[name[1]], sum[key, 4], sum[key, 5], sum[key, 13], sum[key, 6], sum[key, 14],
                    sum[key, 8], share(sum[key, 9], sum[key, 8]), share(sum[key, 11], sum[key, 10])
                for (i = 4; i <= 14; i++)
                    all[i] += sum[key, i]
            }
            printf "%-10s %-8s %9s %9d %7d %7d %7d %7d %9d %8s %7s\n", "all", "", "", all[4], all[5], all[13],
                all[6], all[14], all[8], share(all[9], all[8]), share(all[11], all[10])
        }' "$work/netlib/selected" "$work/netlib/rows"
}

# The paths of the linear programs that came to their end, a line for each program and variant.
ended_paths()
{
    awk 'split($3, name, ".") == 2 {
            key = name[1] " " $2
            if (!(key in paths))
                order[++rows] = key
            paths[key] = paths[key] " " name[2]
        }
        END { for (row = 1; row <= rows; row++) print "ended:", order[row] ":" paths[order[row]] }' \
        "$work/netlib/rows"
}

# ---- random calls ---------------------------------------------------------------------------------------

# A configuration a line: arguments, then parameters and other variables.
configurations()
{
    cat <<-END
	--largest 400 | getrf.nb=16,trsm.nb=16,potrf.nb=16,geqrf.nb=16
	| $small
	--threads 3 --largest 300 | $small
	| $small,getrf.panel=1 CLBLAS_SHIM_KERNEL=portable
	--threads 2 | $small CLBLAS_SHIM_MEMORY=64M
	--largest 600 | getrf.nb=64 CLBLAS_SHIM_MATH=strict
	END
}

# fuzz NUMBER: this configuration until time is up; after a failure the next one.
fuzz()
{
    local turn=0 count line arguments params variables device=${devices[$1 % ${#devices[@]}]}
    count=$(configurations | wc -l)
    while [ $((end - SECONDS)) -gt 10 ]; do
        line=$(configurations | sed -n "$((($1 + turn) % count + 1))p")
        arguments=${line%%|*} variables=${line#*| }
        params=${variables%% *} variables=${variables#"$params"}
        echo "# seed $((seed + 100 * $1 + turn)):$variables $params $arguments"
        # shellcheck disable=SC2086 # lists of words
        env $variables CLBLAS_SHIM_PARAMS="$params" CLBLAS_SHIM_DEVICE="$device" \
            timeout -k 4 $((end - SECONDS)) "$folder/testing/fuzz/fuzz" \
            --seed $((seed + 100 * $1 + turn)) --count 1000000000 --next "$next" \
            --reference "$next" $arguments
        [ $? != 137 ] || echo "FAILED: did not end in time"
        turn=$((turn + 1))
    done >"$work/fuzz.$1" 2>&1
}

fuzz_table()
{
    echo
    printf '%9s %8s %8s  %s\n' calls device failures 'random calls: seed, configuration'
    awk '
        function finish() {
            if (name != "")
                printf "%9s %8s %8d  %s\n", calls == "" ? "?" : calls, device, failures, name
            all += calls
            all_failures += failures
        }
        /^# seed [0-9]+:/ { finish(); name = substr($0, 8); calls = device = ""; failures = 0 }
        /^# [0-9]+ calls in/ {
            calls = $2
            match($0, /[0-9.]+ % of those/)
            device = substr($0, RSTART, RLENGTH - 9)
        }
        /^FAILED/ { failures++ }
        END { finish(); printf "%9d %8s %8d  all\n", all, "", all_failures; exit all_failures > 0 }' \
        "$work"/fuzz.[0-9]*
}

# The GPUs as CLBLAS_SHIM_DEVICE names them.
gpus()
{
    CLBLAS_SHIM_LOG=info CLBLAS_SHIM_DEVICE=gpu "$folder/testing/fuzz/fuzz" --count 1 --routines gemm 2>&1 |
        sed -n 's/^clblas-shim: device \([0-9]*:[0-9]*\): .*(NVIDIA.*/\1/p' | sort -u
}

# ---- all of it ------------------------------------------------------------------------------------------

register_nvidia
mapfile -t devices < <(gpus)
[ -z "${CLBLAS_SHIM_DEVICE:-}" ] || devices=("$CLBLAS_SHIM_DEVICE")
[ ${#devices[@]} != 0 ] || die "there is no GPU; CLBLAS_SHIM_DEVICE names another device"
uname -srm
echo "$cpus CPUs; $netlib_jobs of netlib's programs and $fuzz_jobs fuzzers at a time"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
for number in $(seq 0 $((fuzz_jobs - 1))); do
    fuzz "$number" &
done
[ "$netlib_jobs" = 0 ] || run_netlib >"$work/netlib.log" 2>&1 &
wait

failed=0
echo
export CLBLAS_SHIM_DEVICE=${devices[0]}
echo "== $(CLBLAS_SHIM_LOG=info "$folder/testing/fuzz/fuzz" --count 1 --routines gemm 2>&1 |
    sed -n 's/^clblas-shim: using //p')"
if [ "$netlib_jobs" != 0 ]; then
    grep -v '^ok ' "$work/netlib.log"
    ! grep -q '^WORSE' "$work/netlib.log" || failed=1
    netlib_table || failed=1
    ended_paths
fi
if [ "$fuzz_jobs" != 0 ]; then
    grep -hE -A 2 '^(FAILED|repeat|there)' "$work"/fuzz.[0-9]*
    fuzz_table || failed=1
fi
[ $failed = 0 ] && echo "all right, $SECONDS s" || echo "FAILED, $SECONDS s"
exit $failed
