# SPDX-License-Identifier: BSD-3-Clause
# netlib's BLAS 3 programs, for tests that run them with every call offloaded; sourced after common.sh with
# $parts set to the routines, gemm or more of them: what else they test is switched off.
programs=$(dirname "$(ls /usr/lib/*-linux-gnu*/blas/xblat3d 2>/dev/null | head -1)")
[ -x "$programs/xdcblat3" ] || skip_all "netlib's programs are missing (Debian: libblas-test)"
keep_programs

# OpenBLAS lacks two variables of the reference's CBLAS, to which the C programs are linked.
echo 'int RowMajorStrg, CBLAS_CallFromC;' >variables.c
$CC -shared -fPIC -o variables.so variables.c

# run PROGRAM PRELOAD [VARIABLE=VALUE...]: its output in `output`.
run()
{
    program=$1
    preload=$2
    shift 2
    precision=${program#x}
    precision=${precision#blat3}
    precision=${precision%cblat3}
    case $program in
    *cblat3) input=$programs/${precision}in3 ;;
    *) input=$programs/${precision}blat3.in ;;
    esac
    rm -f ./*blat3.out output
    pattern=$(echo "$parts" | sed 's/ /\\|/g')
    sed "/PUT F FOR NO TEST/{/$pattern/I!s/ T / F /}" "$input" >input
    timeout -k 5 300 env LD_LIBRARY_PATH="$folder" LD_PRELOAD="$preload" $(few_threads "$program") "$@" \
        "$programs/$program" <input >stdout 2>stderr
    status=$?
    cat stdout stderr ./*blat3.out >output 2>/dev/null
    return $status
}

same_with_shim()
{
    rm -f report.json*
    run "$program" "$shim $variables" CLBLAS_SHIM_THRESHOLD=0 CLBLAS_SHIM_STATS="$work/report.json" \
        "$@" || return 1
    diff "expected.$program" output
}
passed()
{
    grep -iE 'fatal|fail|suspect' output && return 1
    for routine in $(own_routines); do
        grep -i "$routine *PASSED THE.*COMPUTATIONAL TESTS" output || return 1
    done
}
# The routines of the program's precision, as it calls them, without underscore.
own_routines()
{
    prefix=
    [ "${program%cblat3}" = "$program" ] || prefix=cblas_
    for part in $parts; do
        case $precision$part in
        [sd]he*) ;;
        *) echo "$prefix$precision$part" ;;
        esac
    done
}
# all_offloaded AT_LEAST: in all rows nothing but quick and invalid calls went to the next library, and in
# each of the program's own rows that many did run on the device.
all_offloaded()
{
    consistent report.json || return 1
    for letter in s d c z; do
        for part in $parts; do
            for routine in ${letter}${part}_ cblas_${letter}${part}; do
                next=$(value report.json $routine next)
                declined=$(($(value report.json $routine quick) + $(value report.json $routine invalid)))
                [ "$next" = $declined ] && [ "$(value report.json $routine recovered)" = 0 ] || {
                    cat report.json
                    return 1
                }
            done
        done
    done
    for routine in $(own_routines); do
        case $routine in
        cblas_*) ;;
        *) routine=${routine}_ ;;
        esac
        [ "$(value report.json "$routine" device)" -ge "$1" ] || {
            echo "$routine: not $1 calls on the device"
            cat report.json
            return 1
        }
    done
}

# choose reference|OpenBLAS: what the programs run over from here on. False where there is no such library.
choose()
{
    provider=$1
    variables=
    folder=$reference
    [ "$provider" = reference ] || { variables=$work/variables.so && folder=$openblas; }
    [ -n "$folder" ] || { skip "$provider" "not installed" && false; }
}
# without_shim PROGRAM
without_shim()
{
    check "$provider, $1: runs without the shim" run "$1" "$variables"
    cp output "expected.$1"
}
# with_shim PROGRAM LABEL AT_LEAST [VARIABLE=VALUE...]
with_shim()
{
    program=$1
    label="$provider, $1, $2"
    least=$3
    shift 3
    check "$label: the same output" same_with_shim "$@"
    check "$label: passed" passed
    check "$label: all offloaded" all_offloaded "$least"
}
