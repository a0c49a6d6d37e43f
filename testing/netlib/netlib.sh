#!/bin/bash
# netlib's test programs of BLAS 3, LAPACK's linear equations and eigenvalues with all their inputs, every
# call offloaded, over the reference and over OpenBLAS, compared with what they say without the shim.
#
# usage: netlib.sh, from the build folder (make check-netlib); the settings are variables:
#   PROGRAMS   patterns of names [*]: blas3-d cblas3-d lin-d rfp-d mixed-ds eig-d-sep ...
#   NEXT       reference openblas, both unless it is set
#   VARIANTS   [own minimal portable streamed panels], see variant() below
#   BIG        1: larger sizes than the packaged inputs, up to what the programs have room for
#   LIMIT      seconds for a program [1800]
#   FRESH      1: run again what was run before with this library
#   LAPACK_SRC a source tree of netlib's LAPACK: its testers are run over its own libraries, with `tree` as the
#              next library
#   DOC        file for the table
#   KEPT       1: runs nothing, makes the table of what was run
# Results are kept in netlib/ of the build folder, so that an interrupted run goes on where it was. Exits
# with an error when anything is worse than without the shim.
set -u
here=$(cd "$(dirname "$0")" && pwd)
source_dir=$(cd "$here/../.." && pwd)
build=$(pwd)
shim=$build/.libs/libclblas_shim.so.0
work=$build/netlib
programs=${PROGRAMS:-*}
limit=${LIMIT:-1800}
BIG=${BIG:-}
. "$source_dir/testing/blocks.sh"

die()
{
    echo "check-netlib: $*" >&2
    exit 2
}
[ -e "$shim" ] || die "the shared library is not built"
mkdir -p "$work"

# ---- where the programs and libraries are ---------------------------------------------------------------

first()
{
    # shellcheck disable=SC2086 # a pattern
    ls -d $1 2>/dev/null | head -1
}
blas_programs=$(first '/usr/lib/*-linux-gnu*/blas')
lapack_programs=$(first '/usr/lib/*-linux-gnu*/lapack')
openblas=$(first '/usr/lib/*-linux-gnu*/openblas-*')
reference=$blas_programs:$lapack_programs
known="reference ${openblas:+openblas}"
if [ -n "${LAPACK_SRC:-}" ]; then
    "$here/build.sh" "$LAPACK_SRC" "$work/built" || die "building $LAPACK_SRC failed"
    blas_programs=$work/built/programs
    lapack_programs=$work/built/programs
    known=tree
fi
[ -x "$lapack_programs/xlintstd" ] && [ -x "$blas_programs/xblat3d" ] ||
    die "netlib's programs are missing (Debian: libblas-test liblapack-test)"

# OpenBLAS lacks two variables of the reference's CBLAS, to which the C programs are linked.
variables=$work/variables.so
echo 'int RowMajorStrg, CBLAS_CallFromC;' |
    ${CC:-cc} -x c -shared -fPIC -o "$variables" - || die "no C compiler"

# NAME PROGRAM INPUT, a line each.
list_programs()
{
    for p in s d c z; do
        echo "blas3-$p $blas_programs/xblat3$p $blas_programs/${p}blat3.in"
        echo "cblas3-$p $blas_programs/x${p}cblat3 $blas_programs/${p}in3"
        echo "lin-$p $lapack_programs/xlintst$p $lapack_programs/${p}test.in"
        echo "rfp-$p $lapack_programs/xlintstrf$p $lapack_programs/${p}test_rfp.in"
        for input in "$lapack_programs"/*.in; do
            name=$(basename "$input" .in)
            case $name in
            *test | *test_rfp | *blat[123] | "$p"in[123]) continue ;;
            nep | sep | se2 | svd | glm | gqr | gsv | csd | lse) ;;
            "$p"*) name=${name#"$p"} ;;
            *) continue ;;
            esac
            echo "eig-$p-$name $lapack_programs/xeigtst$p $input"
        done
    done
    for p in ds zc; do
        echo "mixed-$p $lapack_programs/xlintst$p $lapack_programs/${p}test.in"
    done
}

is_selected()
{
    local pattern
    set -f
    for pattern in $programs; do
        # shellcheck disable=SC2254 # patterns are meant
        case $1 in
        $pattern)
            set +f
            return 0
            ;;
        esac
    done
    set +f
    return 1
}

# ---- what is run ----------------------------------------------------------------------------------------

# variant NAME: the shim's variables.
small=$(small_blocks "$source_dir")
variant()
{
    case $1 in
    own) ;;
    minimal) echo "CLBLAS_SHIM_PARAMS=$small" ;;
    portable) echo "CLBLAS_SHIM_PARAMS=$small CLBLAS_SHIM_KERNEL=portable" ;;
    streamed) echo "CLBLAS_SHIM_PARAMS=$small,gemm.stream=1,gemm.threads=2" ;;
    panels) echo "CLBLAS_SHIM_PARAMS=$small,getrf.panel=2" ;;
    *) die "no variant $1" ;;
    esac
}

# With BIG, as many values as before but larger ones; the programs have room for 65 (BLAS) and 132.
make_input()
{
    case ${BIG:+$1} in
    blas3-*) sed '/VALUES OF N$/s/^0 1 2 3 5 9 /0 1 31 33 63 65 /' "$2" ;;
    cblas3-*) sed '/VALUES OF N$/{s/^1 2 3 5 7 9 /1 2 31 33 63 65 /;s/^0 1 2 3 5 9 /0 1 31 33 63 65 /;}' "$2" ;;
    lin-*) sed -e '/Values of [MN] /s/^0 1 2 3 5 10 50 /0 1 2 17 65 100 120 /' \
        -e '/Values of NB /s/^1 3 3 3 20 /1 3 8 16 48 /' "$2" ;;
    eig-?-sep | eig-?-se2) sed '/Values of N /s/^0 1 2 3 5 20 /0 1 3 17 50 64 /' "$2" ;;
    *) cat "$2" ;;
    esac
}

# run_program FOLDER NAME PROGRAM INPUT LIBRARIES PRELOAD [VARIABLE=VALUE...]: its row in FOLDER/NAME.row
run_program()
{
    local folder=$1 name=$2 program=$3 input=$4 libraries=$5 preload=$6 status begin=$SECONDS
    local place=$folder/$name
    shift 6
    rm -rf "$place" "$folder/$name.row"
    mkdir -p "$place"
    make_input "$name" "$input" >"$place/input"
    (
        cd "$place" &&
            timeout -k 10 "$limit" env LD_LIBRARY_PATH="$libraries" LD_PRELOAD="$preload" "$@" \
                "$program" <input >stdout 2>stderr
    )
    status=$?
    [ $status -ne 124 ] && [ $status -ne 137 ] || echo "$name: no end within $limit s" >&2
    local numbers='0 0 0 0'
    [ ! -e "$place/report.json" ] || numbers=$(awk -f "$here/report.awk" "$place/report.json")
    find "$place" -type f ! -name input ! -name 'report.json*' -exec cat {} + >"$place.output"
    rm -rf "$place"
    grep ' out of .*tests failed' "$place.output" |
        sed 's/^ *\(.*[^ ]\) *: *\([0-9]*\) out of.*/\2 \1/' >"$folder/$name.failures"
    echo "$(awk -f "$here/tally.awk" "$place.output") $status $numbers $((SECONDS - begin))" >"$folder/$name.row"
}

# Is there a row that is newer than what it tests?
is_done() { [ -z "${FRESH:-}" ] && [ -e "$1" ] && [ "$1" -nt "$2" ]; }

# Failures of a group of tests that are more than both libraries have without the shim: some tests compare
# two routines' results and depend on the conditions of random matrices.
new_failures()
{
    local name=$1 folder=$2 next
    for next in $known; do
        cat "$work/$next${BIG:+-big}/none/$name.failures"
    done |
        awk '{ group = $0; sub(/^[0-9]+ /, "", group) }
            without && $1 + 0 > known[group] { known[group] = $1 + 0 }
            !without && $1 + 0 > known[group] + 0 { print; found = 1 }
            END { exit !found }' without=1 /dev/stdin without=0 "$folder/$name.failures"
}

# Worse than without the shim: failures, errors, tests that were not run, the exit status.
is_worse()
{
    new_failures "$3" "$4" >/dev/null || awk -v run="$1" -v base="$2" 'BEGIN {
        split(run, r, " "); split(base, b, " ")
        exit !(r[1] < b[1] || r[3] > b[3] || r[4] != b[4])
    }'
}

# libraries_of NEXT; preload_of NEXT NAME
libraries_of()
{
    case $1 in
    reference) echo "$reference" ;;
    openblas) echo "$openblas" ;;
    tree) echo "$work/built/lib" ;;
    *) die "no next library $1" ;;
    esac
}
preload_of()
{
    case $1-$2 in openblas-cblas3-*) echo "$variables" ;; esac
}

# without_shim NAME PROGRAM INPUT: over all libraries, once.
without_shim()
{
    local next folder
    for next in $known; do
        folder=$work/$next${BIG:+-big}/none
        is_done "$folder/$1.row" "$2" ||
            run_program "$folder" "$@" "$(libraries_of $next)" "$(preload_of $next "$1")"
    done
}

# one NEXT VARIANT NAME PROGRAM INPUT
one()
{
    local next=$1 variant=$2 name=$3 libraries preload
    local base=$work/$next${BIG:+-big}/none folder=$work/$next${BIG:+-big}/$variant
    shift 2
    if [ -n "${KEPT:-}" ] && ! { [ -e "$base/$name.row" ] && [ -e "$folder/$name.row" ]; }; then
        return
    fi
    libraries=$(libraries_of "$next") preload=$(preload_of "$next" "$name")
    without_shim "$@"
    is_done "$folder/$name.row" "$(readlink -f "$shim")" ||
        # shellcheck disable=SC2046 # a list of variables
        run_program "$folder" "$@" "$libraries" "$shim $preload" \
            CLBLAS_SHIM_THRESHOLD=0 CLBLAS_SHIM_STATS="$folder/$name/report.json" $(variant "$variant")
    local row before verdict=ok
    row=$(cat "$folder/$name.row") before=$(cat "$base/$name.row")
    is_worse "$row" "$before" "$name" "$folder" && verdict=WORSE && worse=$((worse + 1))
    echo "$next${BIG:+-big} $variant $name $row" |
        awk -v verdict=$verdict -v before="$before" '{
            split(before, b, " ")
            printf "%-5s %-13s %-9s %-11s %7d tests, %d (%d) failed, %d (%d) errors, %d of %d calls on the device, %d s\n",
                verdict, $1, $2, $3, $4, $5, b[2], $6, b[3], $9, $8, $12 }'
    echo "$next${BIG:+-big} $variant $name ${row% *} $(echo "$before" | cut -d ' ' -f 1-4)" >>"$rows"
}

# ---- all of it ------------------------------------------------------------------------------------------

write_document()
{
    cat <<-END
	# Conformance

	netlib's own test programs (Debian's libblas-test and liblapack-test) under the preloaded library with
	threshold 0, so that every call that is supported runs on the device; here on PoCL, a CPU device.
	*Failed without* and *errors without* are the same programs without the shim. A call with work is valid,
	no quick return and not one of those that the next library makes in the course of one of the shim's own;
	what is not on the device of these are factorisations of a single panel. Programs without such calls use
	none of the routines that the shim has. Operations are counted by the routines' formulas, also for products
	with alpha = 0, which are quick returns.

	A test that fails over another of these libraries without the shim too may fail: LAPACK's test of xTFSM
	compares two solutions of random systems and passes or not by their rounding.

	The table is made by

	\`\`\`sh
	$command
	\`\`\`

	Variants: *own* has the device's own tiles and blocks; *minimal* has the smallest ones
	(\`$small\`), with which these
	small matrices have many tiles and panels; *portable* is minimal with the other kernel family,
	*streamed* with the pipeline for devices that have memory of their own, *panels* with LU's panels on the
	device. \`-big\` are larger sizes, up to 120.

	END
    awk -f "$here/table.awk" "$rows"
}

worse=0
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
for next in ${NEXT:-$known}; do
    case " $known " in
    *" $next "*) ;;
    *)
        echo "skipped: there is no $next"
        continue
        ;;
    esac
    for variant in ${VARIANTS:-own minimal portable streamed panels}; do
        while read -r name program input; do
            is_selected "$name" && [ -e "$program" ] && [ -e "$input" ] &&
                one "$next" "$variant" "$name" "$program" "$input"
        done < <(list_programs)
    done
done
[ -s "$rows" ] || die "no program is selected"
command="make check-netlib"
for setting in PROGRAMS NEXT VARIANTS BIG; do
    [ -z "${!setting:-}" ] || command+=" $setting='${!setting}'"
done
write_document >"$work/conformance.md"
[ -z "${DOC:-}" ] || cp "$work/conformance.md" "$DOC"
echo "$(wc -l <"$rows") runs, $worse worse than without the shim; the table is in $work/conformance.md"
[ $worse -eq 0 ]
