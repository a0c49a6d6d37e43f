# SPDX-License-Identifier: BSD-3-Clause
# LAPACK's own tests of linear equations, xlintst*, for tests that run them with every call offloaded and
# blocked by 8 columns; sourced after common.sh with $kinds set to what they test: GE, PO, TR, or QR\|LS; the rest
# is left out. They say what they say without the shim, and the report has the operations on the device.
#
# Products stay on the CPU: netlib-blas3.test has them, and here they would take minutes.
programs=$(dirname "$(ls /usr/lib/*-linux-gnu*/lapack/xlintstd 2>/dev/null | head -1)")
[ -x "$programs/xlintstd" ] || skip_all "LAPACK's programs are missing (Debian: liblapack-test)"
keep_programs
. "$srcdir/testing/blocks.sh"
small=$(small_blocks "$srcdir")

# The sizes are as they are; one block size of the reference's is enough, and two numbers of columns.
prepare()
{
    sed -e '/^[SDCZ][A-Z][A-Z0-9]\( \|$\)/{/^[SDCZ]\('"$kinds"'\) /!d}' \
        -e '/values of NB$/s/^5/1/' -e 's/^1 3 3 3 20 /20 /' -e 's/^1 0 5 9 1 /1 /' \
        -e '/values of NRHS$/s/^3/2/' -e 's/^1 2 15  *Values of NRHS/1 15 Values of NRHS/' "$programs/$1test.in" >input
}

# run PRECISION [VARIABLE=VALUE...]: the program's output but for the time it took, in `output`.
run()
{
    program=$programs/xlintst$1
    threads=$(few_threads "$1")
    prepare "$1"
    shift
    timeout -k 5 400 env LD_LIBRARY_PATH="$folders" $threads "$@" "$program" <input >stdout 2>stderr || return
    cat stdout stderr | sed '/[Tt]ime used/d' >output
}

with_shim()
{
    rm -f report.json*
    run "$@" LD_PRELOAD="$shim" CLBLAS_SHIM_THRESHOLD=0 CLBLAS_SHIM_STATS="$work/report.json" \
        CLBLAS_SHIM_THRESHOLD_SGEMM=1000 CLBLAS_SHIM_THRESHOLD_DGEMM=1000 \
        CLBLAS_SHIM_THRESHOLD_CGEMM=1000 CLBLAS_SHIM_THRESHOLD_ZGEMM=1000 || return
    diff expected output
}
passed()
{
    grep "All tests for .*\($kinds\).* passed the threshold" output && ! grep -iE 'fail|illegal' output
}

# offloaded ROUTINE AT_LEAST REASON...: that many calls on the device, the others declined for these
# reasons, none recovered.
offloaded()
{
    consistent report.json || return
    routine=$1
    device=$(value report.json "$routine" device)
    declined=0
    [ "$device" -ge "$2" ] || { echo "$routine: $device calls on the device"; cat report.json; return 1; }
    shift 2
    for reason; do
        declined=$((declined + $(value report.json "$routine" "$reason")))
    done
    [ "$(value report.json "$routine" recovered)" = 0 ] &&
        [ "$(value report.json "$routine" next)" = "$declined" ] || { cat report.json; return 1; }
}
# Panels are a small part of the operations: there were many steps.
mostly_on_device()
{
    awk -v all="$(value report.json "$1" flops)" -v device="$(value report.json "$1" flops_device)" \
        'BEGIN { exit !(device > 0.75 * all && device < all) }' || { cat report.json; return 1; }
}

# over reference|OpenBLAS FAMILY PRECISIONS...: the functions linear and mixed judge the report. False where there is
# no such library.
over()
{
    name=$1
    family=$2
    shift 2
    case $name in
    reference) folders=${reference:+$reference:$programs} ;;
    *) folders=$openblas ;;
    esac
    [ -n "$folders" ] || { skip "$name" "not installed"; return 1; }
    for precision; do
        label="$name, $family, xlintst$precision"
        check "$label: runs without the shim" run "$precision"
        mv output expected
        check "$label: the same output" with_shim "$precision" CLBLAS_SHIM_KERNEL="$family" \
            CLBLAS_SHIM_PARAMS="$small"
        check "$label: passed" passed
        case $precision in
        ds | zc) check "$label: offloaded" mixed "$precision" ;;
        *) check "$label: offloaded" linear "$precision" ;;
        esac
    done
    return 0
}
