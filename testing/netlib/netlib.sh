#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# netlib's test programs of BLAS 3, LAPACK's linear equations and eigenvalues with all their inputs, every
# call offloaded, over the reference and over OpenBLAS, compared with what they say without the shim.
#
# usage: netlib.sh, from the build folder (make check-netlib); the settings are variables:
#   PROGRAMS   patterns of names [*], run in this order: blas3-d cblas3-d lin-d rfp-d mixed-ds eig-d-sep ...
#   NEXT       reference openblas, both unless it is set
#   VARIANTS   [own minimal portable streamed panels threads], see variant() below
#   BIG        1: larger sizes than the packaged inputs, up to what the programs have room for; "0 1": both
#   LIMIT      seconds for a program [1800]
#   JOBS       programs at a time [as many as CPUs]
#   DEVICES    values of CLBLAS_SHIM_DEVICE, with semicolons, that they take in turns
#   UNTIL      seconds for all of it; what is not finished then is left out
#   SPLIT      1: the linear programs path by path, as lin-d.GE ..., with fewer sizes of least squares
#   NETLIB     a folder with blas/ and lapack/ that hold the programs, their inputs and the reference
#              libraries, where they are not installed
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
jobs=${JOBS:-$(nproc)}
IFS=';' read -r -a devices <<<"${DEVICES:-}"
suffix= # of the larger sizes' folders
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
if [ -n "${NETLIB:-}" ]; then
    blas_programs=$NETLIB/blas lapack_programs=$NETLIB/lapack
fi
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

# lin NAME PROGRAM INPUT: its lines; with SPLIT one for each path.
list_linear()
{
    if [ -z "${SPLIT:-}" ]; then
        echo "$@"
        return
    fi
    awk -v name="$1" -v rest="$2 $3" 'behind && /^[A-Z]/ { print name "." substr($1, 2), rest }
        /error exits/ { behind = 1 }' "$3"
}

# NAME PROGRAM INPUT, a line each.
list_programs()
{
    for p in s d c z; do
        echo "blas3-$p $blas_programs/xblat3$p $blas_programs/${p}blat3.in"
        echo "cblas3-$p $blas_programs/x${p}cblat3 $blas_programs/${p}in3"
        list_linear "lin-$p" "$lapack_programs/xlintst$p" "$lapack_programs/${p}test.in"
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

# Those of them that are selected, in the order of the patterns.
selected_programs()
{
    local list pattern name program input
    list=$(list_programs)
    set -f
    for pattern in $programs; do
        while read -r name program input; do
            # shellcheck disable=SC2254 # patterns are meant
            case $name in
            $pattern) [ ! -e "$program" ] || [ ! -e "$input" ] || echo "$name $program $input" ;;
            esac
        done <<<"$list"
    done | awk '!seen[$1]++'
}

# ---- what is run ----------------------------------------------------------------------------------------

# variant NAME: the shim's variables. PoCL's basic device computes in the thread that calls: without waking
# others for every kernel these programs take a tenth of the time. Commands of one of its queues that wait for
# another's, as the pipeline's do, lock it up (PoCL 3.1).
small=$(small_blocks "$source_dir")
variant()
{
    case $1-${CLBLAS_SHIM_DEVICE:-} in
    threads-* | streamed-*) ;;
    *-cpu) echo "POCL_DEVICES=${POCL_DEVICES:-basic}" ;;
    esac
    case $1 in
    own) ;;
    minimal | threads) echo "CLBLAS_SHIM_PARAMS=$small" ;;
    portable) echo "CLBLAS_SHIM_PARAMS=$small CLBLAS_SHIM_KERNEL=portable" ;;
    streamed) echo "CLBLAS_SHIM_PARAMS=$small,gemm.stream=1,gemm.threads=2" ;;
    panels) echo "CLBLAS_SHIM_PARAMS=$small,getrf.panel=2,potrf.block=2" ;;
    *) die "no variant $1" ;;
    esac
}

# With BIG, as many values as before but larger ones; the programs have room for 65 (BLAS) and 132.
make_input()
{
    case ${suffix:+$1} in
    blas3-*) sed '/VALUES OF N$/s/^0 1 2 3 5 9 /0 1 31 33 63 65 /' "$2" ;;
    cblas3-*) sed '/VALUES OF N$/{s/^1 2 3 5 7 9 /1 2 31 33 63 65 /;s/^0 1 2 3 5 9 /0 1 31 33 63 65 /;}' "$2" ;;
    lin-*) sed -e '/Values of [MN] /s/^0 1 2 3 5 10 50 /0 1 2 17 65 100 120 /' \
        -e '/Values of NB /s/^1 3 3 3 20 /1 3 8 16 48 /' "$2" ;;
    eig-?-sep | eig-?-se2) sed '/Values of N /s/^0 1 2 3 5 20 /0 1 3 17 50 64 /' "$2" ;;
    *) cat "$2" ;;
    esac
}

# Twenty matrices of the largest size in the place of those of several sizes, where a list of N is.
make_many()
{
    awk 'held != "" {
            largest = 0
            for (i = 1; i <= NF && $i ~ /^[0-9]+$/; i++)
                largest = $i > largest ? $i : largest
            if (/Matrix dimensions|[Vv]alues of N([^A-Z]|$)/) {
                sub(/^[0-9]+/, "20", held)
                $0 = ""
                for (i = 0; i < 20; i++)
                    $0 = $0 largest " "
            }
            print held
            held = ""
        }
        /^[0-9]+ .*Number of (matrix dimensions|values of N) *$/ { held = $0; next }
        { print }' "$1"
}

# The path's part of a linear program's input; least squares are most of all calls, in the smallest sizes.
make_part()
{
    case $1 in
    lin-*.LS) sed -e '/Number of values of [MN]$/s/^7 /3 /' \
        -e '/Values of [MN] /s/^0 1 2 3 5 10 50 /3 10 50 /' \
        -e '/^3 .*Number of values of NRHS/s/^3/1/' -e '/Values of NRHS/s/^1 2 15 /2 /' \
        -e '/^5 .*Number of values of NB/s/^5/2/' -e '/Values of NB /s/^1 3 3 3 20 /3 20 /' \
        -e '/Values of NX /s/^1 0 5 9 1 /0 1 /' ;;
    *) cat ;;
    esac |
        case $1 in
        lin-*.*) awk -v path="${1#*.}" '/error exits/ { behind = 1; print; next }
            !behind || substr($1, 2) == path' ;;
        *) cat ;;
        esac
}

# run_program FOLDER NAME PROGRAM INPUT LIBRARIES PRELOAD [VARIABLE=VALUE...]: its row in FOLDER/NAME.row
run_program()
{
    local folder=$1 name=$2 program=$3 input=$4 libraries=$5 preload=$6 status begin=$SECONDS
    local place=$folder/$name most=$limit
    shift 6
    [ -z "${UNTIL:-}" ] || [ $((UNTIL - SECONDS)) -ge "$most" ] || most=$((UNTIL - SECONDS))
    [ "$most" -gt 0 ] || return 0
    rm -rf "$place" "$folder/$name.row"
    mkdir -p "$place"
    make_input "$name" "$input" | make_part "$name" >"$place/input"
    (
        cd "$place" &&
            timeout --foreground -k 2 "$most" env LD_LIBRARY_PATH="$libraries" LD_PRELOAD="$preload" "$@" \
                "$program" <input >stdout 2>stderr
    )
    status=$?
    if [ $status -eq 124 ] || [ $status -eq 137 ]; then
        echo "$name: no end within $most s" >&2
        [ "$most" -eq "$limit" ] || return 0
    fi
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
        cat "$work/$next$suffix/none/$name.failures"
    done |
        awk '{ group = $0; sub(/^[0-9]+ /, "", group) }
            without && $1 + 0 > known[group] { known[group] = $1 + 0 }
            !without && $1 + 0 > known[group] + 0 { print; found = 1 }
            END { exit !found }' without=1 /dev/stdin without=0 "$folder/$name.failures"
}

# The numbers of tests that failed, or of the types of matrices: failed number|type FILE...
failed()
{
    local -A patterns=([number]='(result +|test\( *)[0-9]+' [type]='type[= ]+[0-9]+')
    local pattern=${patterns[$1]}
    shift
    cat "$@" 2>/dev/null | grep -E 'result +[0-9]+ is|test\( *[0-9]+\)' | grep -oE "$pattern" |
        grep -oE '[0-9]+' | sort -u
}

# all_failed number|type FILE OTHER...: what failed in the one file failed in the others, too.
all_failed()
{
    local here
    here=$(failed "$1" "$2")
    [ -n "$here" ] && [ -z "$(comm -23 <(echo "$here") <(failed "$1" "${@:3}"))" ]
}

# What failed is a matter of chance: without the shim tests of the same group fail as well on other random matrices,
# the same tests or tests of matrices of the same types.
is_chance()
{
    local name=$1 folder=$2 next group others=()
    for next in $known; do
        others+=("$work/$next$suffix/many/$name" "$work/$next$suffix/none/$name")
    done
    while read -r _ group; do
        cat "${others[@]/%/.failures}" 2>/dev/null | grep -q "^[0-9]* $group\$" || return 1
    done < <(new_failures "$name" "$folder")
    others=("${others[@]/%/.output}")
    all_failed number "$folder/$name.output" "${others[@]}" ||
        all_failed type "$folder/$name.output" "${others[@]}"
}

# Worse than without the shim: failures, errors, tests that were not run, the exit status.
is_worse()
{
    { new_failures "$3" "$4" >/dev/null && ! is_chance "$3" "$4"; } || awk -v run="$1" -v base="$2" 'BEGIN {
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

# without_shim NAME PROGRAM INPUT: over every library, since failures are compared with those over any.
without_shim()
{
    local next folder
    for next in $known; do
        folder=$work/$next$suffix/none
        mkdir -p "$folder"
        (
            flock 9
            is_done "$folder/$1.row" "$2" ||
                run_program "$folder" "$@" "$(libraries_of "$next")" "$(preload_of "$next" "$1")"
        ) 9>"$folder/$1.lock"
    done
}

# many_without NAME PROGRAM INPUT: more matrices, to see what fails by chance.
many_without()
{
    local next folder input
    for next in $known; do
        folder=$work/$next$suffix/many
        mkdir -p "$folder"
        (
            flock 9
            make_input "$1" "$3" >"$folder/$1.sizes"
            make_many "$folder/$1.sizes" >"$folder/$1.input"
            is_done "$folder/$1.row" "$2" || suffix='' \
                run_program "$folder" "$1" "$2" "$folder/$1.input" "$(libraries_of "$next")" \
                    "$(preload_of "$next" "$1")"
        ) 9>"$folder/$1.lock"
    done
}

# with_shim NEXT VARIANT NAME PROGRAM INPUT: its row, and a line that says what it is.
with_shim()
{
    local next=$1 variant=$2 name=$3 folder=$work/$1$suffix/$2
    shift 2
    without_shim "$@"
    # shellcheck disable=SC2046 # a list of variables
    is_done "$folder/$name.row" "$(readlink -f "$shim")" ||
        run_program "$folder" "$@" "$(libraries_of "$next")" "$shim $(preload_of "$next" "$name")" \
            CLBLAS_SHIM_THRESHOLD=0 CLBLAS_SHIM_STATS="$folder/$name/report.json" $(variant "$variant") \
            ${device:+"CLBLAS_SHIM_DEVICE=$device"}
    case $name in
    eig-*) ! new_failures "$name" "$folder" >/dev/null || many_without "$@" ;;
    esac
    judge "$next" "$variant" "$name"
}

# judge NEXT VARIANT NAME: what was run, next to the same program without the shim; 1 when it is worse.
judge()
{
    local folder=$work/$1$suffix/$2 base=$work/$1$suffix/none verdict=ok row before
    [ -e "$folder/$3.row" ] && [ -e "$base/$3.row" ] || return 0
    row=$(cat "$folder/$3.row") before=$(cat "$base/$3.row")
    ! is_worse "$row" "$before" "$3" "$folder" || verdict=WORSE
    echo "$1$suffix $2 $3 $row" |
        awk -v verdict=$verdict -v before="$before" '{
            split(before, b, " ")
            printf "%-5s %-13s %-9s %-11s %7d tests, %d (%d) failed, %d (%d) errors, %d of %d calls on the device, %d s\n",
                verdict, $1, $2, $3, $4, $5, b[2], $6, b[3], $9, $8, $12 }'
    echo "$1$suffix $2 $3 ${row% *} $(echo "$before" | cut -d ' ' -f 1-4)" >>"$rows"
    [ $verdict = ok ]
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
	with alpha = 0, which are quick returns. A line of the eigenvalue programs is the sum of their inputs.

	A test that fails over another of these libraries without the shim too may fail: LAPACK's test of xTFSM
	compares two solutions of random systems and passes or not by their rounding. Where a test of the eigenvalue
	programs fails, the program is run without the shim on twenty matrices of the largest size for each of one:
	what fails there as well, the same tests or those of matrices of the same type, is a matter of chance.

	The table is made by

	\`\`\`sh
	$command
	\`\`\`

	Variants: *own* has the device's own tiles and blocks; *minimal* has the smallest ones
	(\`$small\`),
	with which these small matrices have many tiles and panels: at n = 50 LU, Cholesky and QR have seven panels.
	*portable* is minimal with the other kernel family, *streamed* with the pipeline for devices that have memory
	of their own, *panels* with LU's panels and Cholesky's diagonal blocks on the device, *threads* on PoCL's
	device of several threads. The others, but for *streamed*, are on its basic one, which computes in the thread
	that calls (\`POCL_DEVICES=basic\`). \`-big\` are larger sizes, up to 120.

	END
    awk -f "$here/table.awk" "$rows"
}

# parallel COMMAND...: in the background, when fewer than `jobs` are there.
parallel()
{
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n
    done
    "$@" &
}

run_all()
{
    local size next variant name program input device= turn=0
    while read -r name program input; do
        for size in $sizes; do
            suffix=${size#0}
            for next in $nexts; do
                for variant in $variants; do
                    [ ${#devices[@]} = 0 ] || device=${devices[turn++ % ${#devices[@]}]}
                    parallel with_shim "$next" "$variant" "$name" "$program" "$input"
                done
            done
        done
    done <<<"$list"
    wait
}
# In the order of the table.
judge_all()
{
    local size next variant name program input
    for size in $sizes; do
        suffix=${size#0}
        for next in $nexts; do
            for variant in $variants; do
                while read -r name program input; do
                    judge "$next" "$variant" "$name" || worse=$((worse + 1))
                done <<<"$list"
            done
        done
    done
}

sizes=
for size in ${BIG:-0}; do
    [ "$size" = 0 ] && sizes="$sizes 0" || sizes="$sizes -big"
done
nexts=
for next in ${NEXT:-$known}; do
    case " $known " in
    *" $next "*) nexts="$nexts $next" ;;
    *) echo "skipped: there is no $next" ;;
    esac
done
variants=${VARIANTS:-own minimal portable streamed panels threads}
list=$(selected_programs)
[ -n "$list" ] || die "no program is selected"
echo "$list" >"$work/selected"
rows=$work/rows
: >"$rows"
if [ -z "${KEPT:-}" ]; then
    run_all
fi
worse=0
: >"$rows"
judge_all >/dev/null
command="make check-netlib"
for setting in PROGRAMS NEXT VARIANTS BIG; do
    [ -z "${!setting:-}" ] || command+=" $setting='${!setting}'"
done
write_document >"$work/conformance.md"
[ -z "${DOC:-}" ] || cp "$work/conformance.md" "$DOC"
echo "$(wc -l <"$rows") runs, $worse worse than without the shim; the table is in $work/conformance.md"
[ $worse -eq 0 ]
