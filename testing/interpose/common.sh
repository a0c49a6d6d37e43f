# SPDX-License-Identifier: BSD-3-Clause
# For the tests of this folder, sourced first. They compile small programs that know nothing of the
# shim, run them under it, and speak TAP.
#
# Environment, from AM_TESTS_ENVIRONMENT: srcdir builddir CC FC PYTHON3 SANITIZE SEED FULL.
set -u
case $srcdir in /*) ;; *) srcdir=$builddir/$srcdir ;; esac
here=$srcdir/testing/interpose
libdir=$builddir/.libs
shim=$libdir/libclblas_shim.so.0
seed=${SEED:-1}
test_name=$(basename "$0" .test)
work=$builddir/testing/interpose/$test_name.work
count=0
layer=${OPENCL_LAYERS:-}
unset OPENCL_LAYERS

skip_all()
{
    echo "1..0 # SKIP $1"
    exit 0
}

[ -e "$shim" ] || skip_all "the shared library is not built"
[ -z "${SANITIZE:-}" ] || skip_all "the sanitizers' runtime does not work under a preload"
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 99
trap 'rc=$?; cd "$builddir" && rm -rf "$work"; exit $rc' EXIT

# ---- TAP ------------------------------------------------------------------------------------------------

# report STATUS DESCRIPTION: 0 is success. Returns STATUS.
report()
{
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
    fi
    return "$1"
}

# check DESCRIPTION COMMAND...: the command's output appears only when it fails.
check()
{
    description=$1
    shift
    "$@" >check.log 2>&1
    status=$?
    [ $status -eq 0 ] || { sed 's/^/# /' check.log; echo "# status $status: $*"; }
    report $status "$description"
}

skip()
{
    count=$((count + 1))
    echo "ok $count - $1 # SKIP $2"
}

# True in `make check-full` and for a test that is run by hand: all of it. In `make check` FULL is empty.
full()
{
    [ -n "${FULL-yes}" ]
}

# For tests of results, not of how a program starts: they take the programs that tests keep.
keep_programs()
{
    [ -z "$layer" ] || export OPENCL_LAYERS="$layer"
}

# few_threads WHAT: PoCL's threads for netlib's BLAS program or LAPACK's precision, VARIABLE=VALUE for env,
# or nothing for all of them. To wake them takes half the time of small calls: but for D there is one.
few_threads()
{
    case $1 in d | xblat3d) ;; *) echo POCL_MAX_PTHREAD_COUNT=1 ;; esac
}

finish()
{
    echo "1..$count"
    exit 0
}

# ---- programs -------------------------------------------------------------------------------------------

# A library by its soname, where the dynamic linker would find it; fails when there is none.
find_library()
{
    for directory in $(echo "${LD_LIBRARY_PATH:-}" | tr : ' ') \
        /usr/lib/*-linux-gnu* /usr/lib/*-linux-gnu*/blas /usr/lib/*-linux-gnu*/openblas* \
        /usr/lib/*-linux-gnu*/blas64 /usr/lib/*-linux-gnu*/openblas64* \
        /usr/lib64 /usr/local/lib /usr/lib; do
        if [ -e "$directory/$1" ]; then
            echo "$directory/$1"
            return 0
        fi
    done
    return 1
}

# The folders of the reference and of the optimised BLAS under the name of $blas; empty: none.
blas=libblas.so.3
find_provider()
{
    for directory in /usr/lib/*-linux-gnu*/$1; do
        [ -e "$directory/$blas" ] && echo "$directory" && return 0
    done
    return 1
}
reference=$(find_provider blas)
openblas=$(find_provider 'openblas-*') || openblas=
find_library $blas >/dev/null || skip_all "no $blas"

# compile OUTPUT SOURCE [FLAGS...]: a C program or plugin of this folder.
compile()
{
    output=$1
    source=$2
    shift 2
    $CC -std=gnu11 -D_GNU_SOURCE -O1 -g -Wall -I"$here" -o "$output" "$here/$source" "$@" -lpthread -ldl -lm
}

# What makes complex arithmetic of test programs fast, where the compiler knows it.
fast_complex()
{
    echo 'int x;' >flag.c
    $CC -fcx-limited-range -c -o flag.o flag.c 2>/dev/null && echo -fcx-limited-range
}

# preloaded [-u VARIABLE...] [VARIABLE=VALUE...] COMMAND...: with the shim, the report in report.json.
preloaded()
{
    rm -f report.json report.json.*
    timeout -k 5 300 env LD_PRELOAD="$shim" CLBLAS_SHIM_STATS="${CLBLAS_SHIM_STATS-$work/report.json}" \
        env "$@"
}

# quiet COMMAND...: succeeds when the command does and prints nothing.
quiet()
{
    "$@" >quiet.log 2>&1 || { status=$?; cat quiet.log; return $status; }
    [ ! -s quiet.log ] || { echo "unexpected output:"; cat quiet.log; return 1; }
}

# ---- reports --------------------------------------------------------------------------------------------

# value FILE ROUTINE KEY: a number of a routine's row, 0 when it is not there.
value()
{
    sed -n 's/.*"'"$2"'":{\("calls"[^{]*{[^}]*},"declined":{[^}]*}\)}.*/\1/p' "$1" |
        tr '{},' '\n\n\n' | sed -n 's/^"'"$3"'":\([0-9].*\)/\1/p' | grep . || echo 0
}

# expect FILE ROUTINE KEY=NUMBER...
expect()
{
    [ -s "$1" ] || { echo "no report $1"; return 1; }
    file=$1
    routine=$2
    shift 2
    for pair; do
        found=$(value "$file" "$routine" "${pair%%=*}")
        [ "$found" = "${pair#*=}" ] || {
            echo "$routine: ${pair%%=*} is $found, not ${pair#*=}, in"
            cat "$file"
            return 1
        }
    done
}

# consistent FILE: calls = device + next + recovered, next = the sum of declined, in every row.
consistent()
{
    [ -s "$1" ] || { echo "no report $1"; return 1; }
    sed 's/.*"routines"://' "$1" | grep -o '"[A-Za-z0-9_]*":{"calls"[^{]*{[^}]*},"declined":{[^}]*}' |
        awk -F'[{}]' '
            { rows++; split("", v); n = split($2, item, ",")
              for (i = 1; i <= n; i++) { split(item[i], p, ":"); v[p[1]] = p[2] }
              declined = 0; n = split($5, item, ",")
              for (i = 1; i <= n; i++) { split(item[i], p, ":"); declined += p[2] }
              if (v["\"calls\""] != v["\"device\""] + v["\"next\""] + v["\"recovered\""] ||
                  v["\"next\""] != declined) { print "inconsistent: " $0; bad = 1 } }
            END { exit bad || rows == 0 }'
}

# on_device FILE ROUTINE: every call of the routine, at least one, and none recovered.
on_device()
{
    consistent "$1" || return 1
    calls=$(value "$1" "$2" calls)
    [ "$calls" -gt 0 ] && [ "$calls" = "$(value "$1" "$2" device)" ] || {
        echo "$2 was not computed on the device:"
        cat "$1"
        return 1
    }
}

# logged PATTERN, not_logged PATTERN: a line of CLBLAS_SHIM_LOG_FILE=$work/log.
logged()
{
    grep -q "$1" log || { cat log; return 1; }
}
not_logged()
{
    ! grep -q "$1" log || { cat log; return 1; }
}

# ---- the device -----------------------------------------------------------------------------------------

# require_device: skips the test where there is no OpenCL device. Compiles the kernels on the way.
require_device()
{
    compile probe client.c -l:$blas || skip_all "no C compiler for the test programs"
    preloaded env CLBLAS_SHIM_THRESHOLD=0 ./probe >/dev/null 2>&1
    grep -q '"device":"none"' report.json 2>/dev/null && skip_all "no OpenCL device"
}
# The rows of the table of routines: stem, precisions, library and ops.
routines()
{
    sed -n 's/^CLB_ROUTINE(\([a-z0-9]*\), \([sdcz]*\), \([A-Z]*\), .*, \([a-z0-9]*\), "[^"]*")$/\1 \2 \3 \4/p' \
        "$srcdir/src/blas/routines.def"
}
