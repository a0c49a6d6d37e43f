#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Every kernel family for NVIDIA devices, and the portable one, in under a minute: results and accuracy,
# then rates at n = 4096 of operands that are on the device.
#
# usage: device-kernels.sh [BUILD-FOLDER]            (default: the current folder)
#        device-kernels.sh --shapes [BUILD-FOLDER]
#        device-kernels.sh --plan FILE OLD NEW
#
# With --shapes only rates, of the products in SHAPES (small, narrow and deep ones unless it is set), beside
# cuBLAS where that is: one process after the other, medians, with the kernel that the tables choose.
#
# With --plan also only rates, of the lines "precision | what | shapes" of a file: what is `cublas`, `old` (the build
# OLD), or parameters for NEW, perhaps none; ratios are to a line `cublas` before. Behind them the seconds of `warm
# dgemm` and `warm sgemm` of NEW from empty caches, twice each. The builds are folders made by `device-compare.sh --pack`.
#
# Half of the time is for the results, which are judged side by side, the rest for the rates. A built
# tree needs its programs only (`make bench` and `make check TESTS=` made them). The device is
# CLBLAS_SHIM_DEVICE, `gpu` when that is not set; SIZE is the size for the rates, SECONDS_IN_ALL the
# limit, FAMILIES replaces the list below.
#
# A step that fails, hangs or finds no time does not keep the others from running: TIME is one that took
# too long, unseen one that had no time, none a family that the device does not build. The last lines
# are a short table; the exit status is 1 when a result is wrong or missing.
set -u -o pipefail
only_shapes= plan= old=
[ "${1:-}" != --shapes ] || { only_shapes=yes; shift; }
[ "${1:-}" != --plan ] || { only_shapes=yes plan=$(readlink -f "$2") old=$(readlink -f "$3"); shift 3; }
build=$(readlink -f "${1:-.}")
size=${SIZE:-4096}
limit=${SECONDS_IN_ALL:-57}
export CLBLAS_SHIM_DEVICE=${CLBLAS_SHIM_DEVICE:-gpu}
unset LD_PRELOAD CLBLAS_SHIM_KERNEL CLBLAS_SHIM_PARAMS CLBLAS_SHIM_MATH
. "$(dirname "$0")/nvidia-icd.sh" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache CLBLAS_SHIM_LOG=warn OPENBLAS_NUM_THREADS=1
export LD_LIBRARY_PATH=$build/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$XDG_CACHE_HOME"

# precision, family, judge of the results (fuzz: random products with NaN, Inf and overlapping operands;
# accuracy: also no worse than plain multiply-add), parameters
async=gemm.copy=2,gemm.ku=16
families="
s nv-bf16x6    accuracy
s nv-bf16x6    fuzz     gemm.parts=3
s nv-bf16-sync accuracy
s nv-fp16x3    fuzz
s portable     accuracy
s portable     accuracy gemm.parts=5
d nv-dmma      accuracy
d nv-dmma      fuzz     gemm.parts=3
d nv-dmma      accuracy $async
d portable     accuracy
c nv-bf16x6    fuzz
c nv-bf16-sync fuzz
c nv-fp16x3    fuzz
c portable     fuzz
z nv-dmma      fuzz
z nv-dmma      fuzz     $async
z portable     fuzz
"
families=${FAMILIES:-$families}

die()
{
    echo "device-kernels.sh: $*" >&2
    exit 1
}

# A test program: below .libs where libtool made a wrapper.
test_program()
{
    local program=$build/testing/unit/.libs/$1
    [ -x "$program" ] || program=$build/testing/unit/$1
    echo "$program"
}

# run UNTIL MOST LOG COMMAND...: for MOST seconds, but not longer than UNTIL.
run()
{
    local most=$(($1 - SECONDS)) log=$3
    [ "$most" -lt "$2" ] || most=$2
    shift 3
    [ "$most" -gt 0 ] || { echo "no time left" >"$log"; return 125; }
    timeout -k 1 "$most" "$@" >"$log" 2>&1 </dev/null
}

outcome()
{
    case $1 in 0) echo right ;; 124 | 137) echo TIME ;; 125) echo unseen ;; *) echo WRONG ;; esac
}

# check NUMBER PRECISION FAMILY JUDGE PARAMS
check()
{
    if [ "$4" = fuzz ]; then
        CLBLAS_SHIM_KERNEL=$3 CLBLAS_SHIM_PARAMS=$5 run $((limit / 2)) 25 "$work/check.$1" \
            "$build/testing/fuzz/fuzz" --seed 1 --count 100 --routines "$2gemm" --forms fc --largest 260 --often 1
    else
        run $((limit / 2)) 25 "$work/check.$1" "$(test_program "$4")" "$3" "$2" "$5"
    fi
    outcome $? >"$work/outcome.$1"
}

# The product alone and with packing: the kernel's name and TFLOP/s, best and median.
measure()
{
    CLBLAS_SHIM_KERNEL=$3 CLBLAS_SHIM_PARAMS=$5 run "$limit" 8 "$work/rate.$1" \
        "$build/testing/bench/bench-kernel" --sizes "$size" --precisions "$2" --reps 5
    outcome $? >"$work/result.$1"
    ! grep -q 'no kernel' "$work/rate.$1" || echo none >"$work/result.$1"
    awk '/^[sdcz] +[0-9]/ && NF > 8 { printf "%-26s %7.1f %7.1f %7.1f %7.1f", $3, $6 / 1000, $5 / 1000,
             $9 / 1000, $8 / 1000 }' "$work/rate.$1"
}

# cublas_rates PRECISION SIZES: PRECISION MxNxK and TFLOP/s in lines.
cublas_rates()
{
    local size
    for size in ${2//,/ }; do
        [ "$size" != "${size#*x}" ] || size=${size}x${size}x$size
        echo "run $1 ${size//x/ } warm"
    done >"$work/tasks"
    timeout 60 "$build/testing/bench/bench-peer" cublas <"$work/tasks" 2>/dev/null | paste -d ' ' "$work/tasks" - |
        awk 'NF == 7 && $7 > 0 { print $2, $3 "x" $4 "x" $5, (/^run [cz]/ ? 8e-12 : 2e-12) * $3 * $4 * $5 / $7 }'
}

# planned WHAT PRECISION SHAPES REPETITIONS: the lines of bench-kernel.
planned()
{
    local of=$build params=$1
    [ "$1" != old ] || of=$old params=
    CLBLAS_SHIM_PARAMS=$params timeout 60 "$of/testing/bench/bench-kernel" --precisions "$2" --sizes "$3" --reps "$4" </dev/null
}

# The lines of a plan; fails when a result is wrong. All is compiled first, side by side.
measure_plan()
{
    local precision what shapes
    while IFS='|' read -r precision what shapes; do
        [ "$what" = cublas ] || planned "$what" "$precision" 64 1 >"$work/compiled" 2>&1 &
    done <"$work/plan"
    wait
    printf '%s %-20s %-30s %8s %8s %8s %6s\n' p shape kernel alone packed cuBLAS ratio
    while IFS='|' read -r precision what shapes; do
        [ "$what" != cublas ] || { cublas_rates "$precision" "$shapes" >>"$work/cublas"; continue; }
        planned "$what" "$precision" "$shapes" 7 | awk -v what="$what" '
            FILENAME != "-" { peer[$1 " " $2] = $3; next }
            /^[sdcz] +[0-9]/ {
                other = peer[$1 " " $2]
                printf "%s %-20s %-30s %8.1f %8.1f %8s %6s %s%s\n", $1, $2, $3, $5 / 1000, $8 / 1000,
                    other ? sprintf("%.1f", other) : "-", other ? sprintf("%.2f", $8 / 1000 / other) : "-",
                    what, /WRONG/ ? " WRONG" : ""
            }' "$work/cublas" -
    done <"$work/plan" | tee "$work/table"
    ! grep -q WRONG "$work/table"
}

# Seconds of `warm dgemm` and `warm sgemm` with empty caches, and of their programs.
time_warm()
{
    local routine
    for routine in dgemm dgemm sgemm sgemm; do
        rm -rf "$work/warm" && mkdir "$work/warm"
        XDG_CACHE_HOME=$work/warm CUDA_CACHE_PATH=$work/warm CLBLAS_SHIM_PROBE=$build/clblas-shim-probe \
            CLBLAS_SHIM_LOG=info CLBLAS_SHIM_LOG_FILE=$work/warm/log \
            bash -c 'time -p timeout 30 "$0" warm $1' "$build/clblas-shim" $routine 2>&1 |
            grep '^real\|^gemm\|^direct\|^devices'
        sed -n 's/.*\(from [a-z]*\): ok, \(.* ms\).*\(MR=[0-9]* \).*NR=\([0-9]*\)/    \2 \1 \3\4/p' "$work/warm/log"
    done
}

[ -x "$build/testing/bench/bench-kernel" ] || die "make bench first"
[ -n "$only_shapes" ] || [ -x "$(test_program accuracy)" ] || die "make check TESTS= first"
here=$(cd "$(dirname "$0")" && pwd)
cd "$work" || exit 1
register_nvidia
nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv,noheader 2>/dev/null
if [ -n "$only_shapes" ]; then
    sizes=${SHAPES:-512,1000,1024,1500,2048,128x128x65536,256x256x200000,16384x128x16384,128x16384x16384}
    printf '%s|%s|%s\n' d cublas "$sizes" d "" "$sizes" s cublas "$sizes" s "" "$sizes" >"$work/plan"
    [ -z "$plan" ] || tr -d ' ' <"$plan" >"$work/plan"
    touch "$work/cublas"
    measure_plan
    failed=$?
    [ -z "$old" ] || time_warm
    exit $failed
fi

number=0
checks=()
while read -r precision family judge params; do
    [ -n "$precision" ] || continue
    number=$((number + 1))
    check $number "$precision" "$family" "$judge" "$params" &
    checks+=($!)
    # Not all at once: the judges compute what they compare with.
    [ $((number % $(nproc))) != 0 ] || { wait "${checks[@]}"; checks=(); }
done <<<"$families"
wait "${checks[@]}"
echo "results and accuracy: $SECONDS s"

number=0
failed=0
while read -r precision family judge params; do
    [ -n "$precision" ] || continue
    number=$((number + 1))
    rates=$(measure $number "$precision" "$family" "$judge" "$params")
    seen=$(cat "$work/outcome.$number" 2>/dev/null || echo unseen)
    rated=$(cat "$work/result.$number" 2>/dev/null || echo unseen)
    printf '%s %-13s %-9s %-6s %-6s %s %s\n' "$precision" "$family" "$judge" "$seen" "$rated" "$rates" \
        "$params" >>"$work/table"
    [ "$seen$rated" = rightright ] && continue
    failed=1
    echo
    echo "== $precision $family $params: $judge $seen, rate $rated"
    [ "$seen" = right ] || grep -v '^ok\|^PASS' "$work/check.$number" | tail -n 12
    [ "$rated" = right ] || tail -n 6 "$work/rate.$number"
done <<<"$families"

echo
echo "== $(sed -n 's/^# device //p' "$work"/rate.* | head -n 1); n = $size, TFLOP/s; $SECONDS s in all"
printf '%s %-13s %-9s %-6s %-6s %-26s %7s %7s %7s %7s\n' p family judge result rate kernel product median \
    packed median
cat "$work/table"
[ $failed = 0 ] && echo "all right" || echo "FAILED"
exit $failed
