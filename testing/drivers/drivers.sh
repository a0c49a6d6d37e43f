#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The shim on other OpenCL drivers than the machine's own: what each is measured to do, random calls, netlib's
# BLAS 3 programs. One build runs everywhere. Prints TAP and at the end a table; docs/drivers.md has what it
# printed last. Started from a build folder by `make check-drivers`.
#
#   DRIVERS="pocl7 intel"   which (all): see drivers() below
#   DRIVERS_ROOTS=FOLDER    where what is fetched is kept (testing/drivers.work/roots of the build folder):
#                           Debian systems by debootstrap, which needs root's rights, and wheels by pip. A
#                           second run fetches nothing; remove a folder to have newer versions
#   DRIVERS_LIMIT=SECONDS   for one driver, without what it fetches (1800)
#   DRIVERS_MIRROR=URI      Debian's archive (the one that apt has)
#
# A driver that can't be had here is skipped with the reason. Logs and caches of compiled kernels are in
# testing/drivers.work. The systems are entered in a mount namespace of their own: no mount stays behind.
set -u
unset OPENCL_LAYERS # programs start as those of users do
case $0 in /*) self=$0 ;; *) self=$(pwd)/$0 ;; esac
here=$(cd "$(dirname "$self")" && pwd)
source_dir=$(cd "$here/../.." && pwd)
build=$(pwd)
work=$build/testing/drivers.work
roots=${DRIVERS_ROOTS:-$work/roots}
shim=$build/.libs/libclblas_shim.so.0
fuzz=$build/testing/fuzz/fuzz

# ---- the drivers ----------------------------------------------------------------------------------------
#
# A name, where it runs (here, or the Debian system), and its tests, functions test_... below. fetch_NAME
# gets what it needs, and sets `missing` to why that can't be; use_NAME is its environment.
drivers()
{
    cat <<-END
	host     here    survey random diagonal netlib
	pocl6    trixie  survey random diagonal netlib
	pocl7    sid     survey random diagonal netlib
	intel    here    survey random diagonal netlib
	rusticl  trixie  survey few
	oclgrind here    tiny
	broken   here    broken
	limited  here    limited
	gpus     here    gpus
	END
}

common_packages=pocl-opencl-icd,ocl-icd-libopencl1,libblas3,liblapack3,liblapacke,libblas-test

fetch_host() { need_device; }
use_host() { :; }

fetch_pocl6() { fetch_system trixie $common_packages,mesa-opencl-icd; }
use_pocl6() { only_vendor "$(cat /etc/OpenCL/vendors/pocl.icd)"; }

fetch_pocl7() { fetch_system sid $common_packages; }
use_pocl7() { only_vendor "$(cat /etc/OpenCL/vendors/pocl.icd)"; }

# The wheels want each other in ways that pip does not know, and bring a libOpenCL.so.1 that must not be found.
fetch_intel()
{
    need_loader && fetch_wheels intel intel-opencl-rt tbb tcmlib intel-cmplr-lib-rt
}
use_intel()
{
    only_vendor "$roots/intel/lib/libintelocl.so"
    LD_LIBRARY_PATH=$roots/intel/lib
    export LD_LIBRARY_PATH
}

fetch_rusticl() { fetch_pocl6; }
use_rusticl()
{
    only_vendor "$(cat /etc/OpenCL/vendors/rusticl.icd)"
    RUSTICL_ENABLE=llvmpipe
    export RUSTICL_ENABLE
}

fetch_oclgrind()
{
    need_loader && { find_oclgrind >/dev/null || missing="Oclgrind is not installed"; }
}
use_oclgrind()
{
    only_vendor "$(find_oclgrind)"
    CLBLAS_SHIM_CACHE_DIR=none
    export CLBLAS_SHIM_CACHE_DIR
}
find_oclgrind()
{
    for library in /usr/lib/oclgrind/liboclgrind-rt-icd.so /usr/local/lib/liboclgrind-rt-icd.so \
        /usr/lib/*-linux-gnu*/oclgrind/liboclgrind-rt-icd.so; do
        [ ! -e "$library" ] || { echo "$library" && return 0; }
    done
    return 1
}

fetch_broken() { need_device; }
use_broken() { :; }

fetch_limited() { need_device; }
use_limited()
{
    mkdir -p loader
    cp "$build/testing/unit/.libs/limits.so" loader/libOpenCL.so.1 2>/dev/null ||
        cp "$build/testing/drivers/.libs/limits.so" loader/libOpenCL.so.1
    LD_LIBRARY_PATH=$(pwd)/loader
    export LD_LIBRARY_PATH
    unset CLBLAS_SHIM_DEVICE
}

fetch_gpus()
{
    need_device && { find_clang >/dev/null || missing="no clang that compiles OpenCL C for AMD's GPUs"; }
}
use_gpus() { use_limited; }
find_clang()
{
    for clang in ${CLANG:-} clang-19 clang-18 clang-17 clang-16 clang-15 clang-14 clang; do
        if "$clang" --print-targets 2>/dev/null | grep -q amdgcn; then
            echo "$clang" && return 0
        fi
    done
    return 1
}

# ---- what is fetched ------------------------------------------------------------------------------------

need_loader()
{
    [ -n "$(ls /usr/lib/*-linux-gnu*/libOpenCL.so.1 2>/dev/null)" ] || missing="no libOpenCL.so.1"
    [ -z "$missing" ]
}
need_device()
{
    need_loader && { [ -n "$(ls /etc/OpenCL/vendors/*.icd 2>/dev/null)" ] || missing="no OpenCL driver"; }
}

# The archive that the system's packages come from.
print_mirror()
{
    if [ -n "${DRIVERS_MIRROR:-}" ]; then
        echo "$DRIVERS_MIRROR"
        return
    fi
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk -v release="$codename" '$1 == release && $2 == "main" { print $3; exit }'
}

# fetch_system SUITE PACKAGES: a minimal Debian with these. It stands under its name only when it is complete.
fetch_system()
{
    suite=$1
    [ ! -e "$roots/$suite/.complete" ] || return 0
    mirror=$(print_mirror)
    log=$work/$suite.log
    if [ "$(id -u)" != 0 ]; then
        missing="debootstrap needs root's rights"
    elif ! command -v debootstrap >/dev/null; then
        missing="debootstrap is not installed"
    elif ! unshare -m true 2>/dev/null; then
        missing="no mount namespaces here"
    elif [ -z "$mirror" ]; then
        missing="apt has no Debian archive"
    else
        echo "# fetching Debian $suite into $roots"
        rm -rf "${roots:?}/$suite" "$roots/$suite.new"
        mkdir -p "$roots"
        if timeout -k 10 1200 nice debootstrap --variant=minbase --include="$2" "$suite" \
            "$roots/$suite.new" "$mirror" >"$log" 2>&1; then
            rm -rf "$roots/$suite.new/var/cache/apt/archives"
            echo "$2" >"$roots/$suite.new/.complete"
            mv "$roots/$suite.new" "$roots/$suite"
        else
            rm -rf "$roots/$suite.new"
            missing="debootstrap of $suite failed: $(tail -n 1 "$log")"
        fi
    fi
    [ -z "$missing" ]
}

# Words that start pip.
find_pip()
{
    for pip in "${PYTHON3:-python3} -m pip" pip3 pip; do
        # shellcheck disable=SC2086 # a list of words
        ! $pip --version >/dev/null 2>&1 || { echo "$pip" && return; }
    done
}

# fetch_wheels FOLDER PACKAGE...: the libraries of wheels in FOLDER/lib, their names in FOLDER/versions.
fetch_wheels()
{
    folder=$roots/$1
    shift
    [ ! -e "$folder/versions" ] || return 0
    log=$work/wheels.log
    pip=$(find_pip)
    if [ -z "$pip" ]; then
        missing="no pip"
    else
        echo "# fetching $*"
        rm -rf "$folder"
        mkdir -p "$folder/wheels"
        # shellcheck disable=SC2086 # a list of words
        if timeout -k 10 120 $pip download --quiet --retries 1 --timeout 30 --no-deps \
            --only-binary :all: -d "$folder/wheels" "$@" >"$log" 2>&1 &&
            "${PYTHON3:-python3}" "$here/unpack.py" "$folder/lib" "$folder"/wheels/*.whl >>"$log" 2>&1; then
            (cd "$folder/wheels" && ls) >"$folder/versions"
        else
            missing="pip can't fetch $*: $(tail -n 1 "$log")"
        fi
        rm -rf "$folder/wheels"
    fi
    [ -z "$missing" ]
}

# ---- TAP, within a driver's run -------------------------------------------------------------------------

# check DESCRIPTION COMMAND...: the command's output appears only when it fails.
check()
{
    description="$driver: $1"
    shift
    if "$@" >check.log 2>&1; then
        echo "ok - $description"
    else
        sed 's/^/# /' check.log | tail -n 40
        echo "not ok - $description"
        return 1
    fi
}
skip()
{
    echo "ok - $driver: $1 # SKIP $2"
}
# note KEY VALUE...: a column of the table.
note()
{
    echo "$@" >>row
}

# only_vendor LIBRARY: no other driver than this is seen.
only_vendor()
{
    rm -rf vendors
    mkdir vendors
    echo "$1" >vendors/driver.icd
    OCL_ICD_VENDORS=$(pwd)/vendors/
    export OCL_ICD_VENDORS
}

# limited_to SECONDS COMMAND...: signals of its own group, so that the driver's limit ends this too.
limited_to()
{
    seconds=$1
    shift
    timeout --foreground -k 5 "$seconds" "$@"
}

# ---- tests ----------------------------------------------------------------------------------------------

# In a fresh process with nothing compiled: which device and kernel, the first calls, the rates.
test_survey()
{
    XDG_CACHE_HOME=$(mktemp -d)
    if check "first calls with nothing compiled" limited_to 600 env XDG_CACHE_HOME="$XDG_CACHE_HOME" \
        POCL_MAX_PTHREAD_COUNT=1 CLBLAS_SHIM=always CLBLAS_SHIM_LOG=info CLBLAS_SHIM_STATS=/dev/null \
        "$build/testing/drivers/survey" "$shim"; then
        mv check.log survey.log
        sed -n 's/^clblas-shim: using \(.*\), at most.*/# \1/p' survey.log
        sed -n 's/^clblas-shim: device [0-9:]*: \(.*\)/version \1/p' survey.log >>row
        note picks "$(sed -n 's/.*gemm_\([a-z0-9_]*\).cl from.*: ok.*/\1/p' survey.log | tail -n 1)"
        grep '^[sd] ' survey.log >>row
        check "products are right" awk '/^[sd] / { n++; if ($NF != "right") bad = 1 } { print }
            END { exit bad || n != 2 }' survey.log
        check "single precision on the device" awk '/^s / { good = $5 == $6 } { print } END { exit !good }' \
            survey.log
    fi
    rm -rf "$XDG_CACHE_HOME"
    XDG_CACHE_HOME=$cache
}

# calls LABEL LEAST ARGUMENT... [-- VARIABLE=VALUE...]: random calls, of which LEAST percent or more of those
# that have work are on the device.
calls()
{
    label=$1
    least=$2
    shift 2
    arguments=
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        arguments="$arguments $1"
        shift
    done
    [ $# -eq 0 ] || shift
    rm -f fuzz.log
    # shellcheck disable=SC2086 # a list of words
    check "$label" limited_to 1000 env "$@" "$fuzz" $arguments
    right=$?
    mv check.log fuzz.log
    summary=$(sed -n 's/^# \([0-9]* calls in.*\)/\1/p' fuzz.log)
    echo "#   ${summary:-no calls}"
    share=$(echo "$summary" | sed -n 's/.* \([0-9.]*\) % on the device.*\|.* a second, \([0-9.]*\) %.*/\1\2/p')
    note calls "$(echo "${summary:-0}" | cut -d " " -f 1)" $right "${share:-0}"
    [ "$least" = 0 ] || check "$label: at least $least % on the device" sh -c \
        'tail -n 40 fuzz.log; awk "BEGIN { exit !($1 + 0 >= $2) }"' sh "${share:-0}" "$least"
}

test_random()
{
    . "$source_dir/testing/blocks.sh"
    small=$(small_blocks "$source_dir")
    calls "own tiles" 50 --seed 101 --count 2000 --seconds 120 --largest 300
    calls "smallest tiles" 50 --seed 4711 --count 3000 --seconds 120 -- CLBLAS_SHIM_PARAMS=gemm.tile=min
    calls "small blocks, streamed" 50 --seed 103 --count 2000 --seconds 120 -- \
        CLBLAS_SHIM_PARAMS="$small,gemm.stream=1,gemm.threads=2,getrf.panel=2"
    calls "portable kernels" 50 --seed 104 --count 2000 --seconds 120 -- \
        CLBLAS_SHIM_KERNEL=portable CLBLAS_SHIM_PARAMS="$small"
}

# Cholesky's diagonal blocks by the device, as on a GPU. A device that the kernel's own check rejects is left
# out of it, which is no error.
test_diagonal()
{
    calls "Cholesky's diagonal blocks by the device" 0 --seed 99 --count 300 --routines potrf -- \
        CLBLAS_SHIM_KERNEL=cpu CLBLAS_SHIM_PARAMS=potrf.block=2
}

# The calls of a slow device that has no double precision and takes subnormal numbers for zero. Its compiler
# takes minutes where the machine is loaded.
test_few()
{
    calls "small calls" 1 --seed 105 --count 200 --largest 24 --seconds 900 --hang 800 --flush
}

test_tiny()
{
    calls "tiny calls" 50 --seed 106 --count 80 --largest 9 --seconds 300 -- CLBLAS_SHIM_PARAMS=gemm.tile=min
}

# netlib_run PROGRAM INPUT [VARIABLE=VALUE...]
netlib_run()
{
    program=$1
    input=$2
    shift 2
    rm -f ./*blat3.out
    limited_to 300 env "$@" "$program" <"$input" >output 2>errors
    cat output ./*blat3.out 2>/dev/null
}
netlib_same()
{
    netlib_run "$@" LD_PRELOAD="$shim" CLBLAS_SHIM_THRESHOLD=0 CLBLAS_SHIM_STATS="$(pwd)/report.json" \
        >shimmed.out
    cat errors
    ! grep -iE 'fatal|fail|suspect' shimmed.out && diff expected.out shimmed.out
}
# The share of all calls that were on the device, most of the others being empty or invalid.
netlib_share()
{
    tr ',{' '\n\n' <report.json | awk -F: '/^"calls"/ { calls += $2 } /^"device":[0-9]/ { device += $2 }
        END { print device " of " calls " calls on the device"; exit !(device > calls / 3) }'
}
test_netlib()
{
    folder=$(ls -d /usr/lib/*-linux-gnu*/blas 2>/dev/null | head -n 1)
    if [ ! -x "$folder/xblat3d" ]; then
        skip "netlib's BLAS 3 programs" "libblas-test is not installed"
        return
    fi
    LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
    for letter in s d c z; do
        program=$folder/xblat3$letter
        input=$folder/${letter}blat3.in
        netlib_run "$program" "$input" >expected.out
        rm -f report.json
        if check "xblat3$letter says what it says without the shim" netlib_same "$program" "$input"; then
            note netlib 0
        else
            note netlib 1
        fi
        check "xblat3$letter: on the device" netlib_share
    done
}

# Drivers that are none: alone the next library serves, and beside a good one they are not in its way.
test_broken()
{
    : >empty.icd
    echo "$(pwd)/nowhere.so" >absent.icd
    ls /lib/*-linux-gnu*/libm.so.6 | head -n 1 >no-driver.icd
    echo "no library at all" >garbage.so
    echo "$(pwd)/garbage.so" >garbage.icd
    printf '\177ELF\002\001 and then \000 nothing' >binary.icd
    for kind in empty absent no-driver garbage binary none; do
        rm -rf alone beside
        mkdir alone beside
        [ $kind = none ] || cp $kind.icd alone/0.icd
        [ $kind = none ] || cp $kind.icd beside/0.icd
        cp /etc/OpenCL/vendors/*.icd beside
        calls "$kind alone" 0 --seed 107 --count 60 -- CLBLAS_SHIM_DEVICE= OCL_ICD_VENDORS="$(pwd)/alone/"
        check "$kind alone: the next library serves, nothing is printed" \
            awk '/calls in .* 0.0 % of those/ { good = 1 } { print } /clblas-shim|OpenCL/ { bad = 1 }
                END { exit !good || bad }' fuzz.log
        calls "$kind beside a good one" 50 --seed 107 --count 100 -- OCL_ICD_VENDORS="$(pwd)/beside/"
    done
}

# Devices with less of something, by a loader that reports and enforces it: limits.c.
test_limited()
{
    # Without double precision half of the calls are the next library's, and with them all that it calls.
    for device in amd:50 intel:50 nofp64:5 memory:20 group128:50 group64:50 local16:50; do
        calls "${device%:*}" "${device#*:}" --seed 108 --count 2000 --seconds 200 -- LIMITS="${device%:*}"
    done
}

# Each kernel with the options that a GPU of AMD's or Intel's gets, through the compilers on which their drivers
# are built: clang's for AMD's processors, and clang to SPIR-V for Intel's, as far as they are installed. The
# options are those of programs that the limited devices build.
test_gpus()
{
    clang=$(find_clang)
    spirv=
    for name in 14 15 16 17 18 19; do
        spirv=$(command -v llvm-spirv-$name || echo "$spirv")
    done
    for device in amd intel; do
        rm -f build.log
        calls "programs of a GPU of $device's" 50 --seed 109 --count 400 --seconds 400 --hang 300 -- \
            LIMITS=$device CLBLAS_SHIM_LOG=info CLBLAS_SHIM_LOG_FILE="$(pwd)/build.log"
        sed -n 's/.* \([a-z0-9_]*\.cl\) from .*: ok, .* ms (\(.*\))$/\1 \2/p' build.log | sort -u >$device.programs
        check "$device: programs of all precisions" awk '{ seen[$1 $2 $3] } { print } END { exit length(seen) < 8 }' \
            $device.programs
    done
    for processor in gfx906 gfx90a gfx1030; do
        check "amd: $processor: all programs, within local memory and work-group" \
            compile_all amd.programs compile_amd $processor
    done
    if [ -n "$spirv" ]; then
        check "intel: SPIR-V of all programs" compile_all intel.programs compile_spirv
    else
        skip "intel: SPIR-V of all programs" "llvm-spirv is not installed"
    fi
}

# compile_all LIST COMPILER...: COMPILER... SOURCE OPTION... for each line of the list.
compile_all()
{
    list=$1
    shift
    while read -r source options; do
        # shellcheck disable=SC2086 # a list of words
        "$@" "$source_dir/kernels/$source" $options || { echo "$source $options"; return 1; }
    done <"$list"
}
clang_for()
{
    target=$1
    shift
    "$clang" -x cl -cl-std=CL1.2 -target "$target" -nogpulib -Xclang -finclude-default-header -O3 -Wall \
        -Wno-unused-function -I "$source_dir/kernels" "$@"
}
# What the compiler says of each kernel stands at the end of the assembly, in alphabetical order.
compile_amd()
{
    processor=$1
    shift
    clang_for amdgcn-amd-amdhsa -mcpu="$processor" -S -o program.s "$@" &&
        awk '$1 == ".group_segment_fixed_size:" { local = $2 }
            $1 == ".max_flat_workgroup_size:" { group = $2 }
            $1 == ".name:" && $2 ~ /^clb_/ { name = $2 }
            $1 == ".vgpr_count:" { registers = $2 }
            $1 == ".vgpr_spill_count:" {
                kernels++
                print name, "work-items", group, "local memory", local, "registers", registers, "spilled", $2
                bad += local > 32768 || group > 256
            }
            END { exit kernels == 0 || bad }' program.s
}
compile_spirv()
{
    clang_for spir64-unknown-unknown -Xclang -disable-llvm-passes -emit-llvm -c -o program.bc "$@" && "$spirv" program.bc -o program.spv
}

# ---- one driver -----------------------------------------------------------------------------------------

# enter SYSTEM COMMAND...: in the Debian system, as root; the build and the source are where they are here.
enter()
{
    system=$1
    shift
    exec unshare -m --propagation private sh -c '
        root=$1 source=$2 build=$3
        shift 3
        for folder in proc sys dev; do
            mount --rbind "/$folder" "$root/$folder" || exit 98
        done
        mount -t tmpfs tmpfs "$root/tmp" || exit 98
        for folder in "$source" "$build"; do
            mkdir -p "$root$folder" && mount --bind "$folder" "$root$folder" || exit 98
        done
        exec chroot "$root" /usr/bin/env -C "$build" "$@"' enter "$roots/$system" "$source_dir" "$build" "$@"
}

# The tests of one driver, in the place where it is; standard output is TAP without numbers.
run_driver()
{
    driver=$1
    tests=$2
    srcdir=$source_dir
    . "$source_dir/testing/environment.sh"
    cache=$work/$driver/cache
    XDG_CACHE_HOME=$cache
    mkdir -p "$cache" && cd "$work/$driver" || exit 99
    rm -f row
    if "$fuzz" --none 2>&1 | grep 'GLIBC_'; then
        skip "all" "this build needs a newer C library than the system has"
        return
    fi
    "use_$driver"
    for test in $tests; do
        "test_$test"
    done
}

if [ "${1-}" = --run ]; then
    run_driver "$2" "$3"
    exit 0
fi
if [ "${1-}" = --enter ]; then
    enter "$2" sh "$self" --run "$3" "$4"
fi

# ---- all ------------------------------------------------------------------------------------------------

# The row of a driver for the table, from what its tests noted.
print_row()
{
    awk -v driver="$1" '
        $1 == "version" { $1 = ""; version = substr($0, 2) }
        $1 == "picks" { picks = $2 }
        $1 == "s" || $1 == "d" { first[$1] = $2; rate[$1] = $4 ($3 == 1024 ? "" : " (n = " $3 ")")
            if ($5 == 0) rate[$1] = "next BLAS" }
        $1 == "calls" { calls += $2; failed += $3; shares = shares (shares == "" ? "" : " ") int($4 + 0.5) }
        $1 == "netlib" { programs++; differ += $2 }
        function known(text) { return text == "" ? "-" : text }
        END {
            printf "| %s | %s | %s | %d, %s | %s | %s | %s | %s | %s | %s |\n", driver, known(version), known(picks),
                calls, failed == 0 ? "all right" : failed " runs failed", shares,
                programs == 0 ? "-" : programs - differ " of " programs " as without",
                known(rate["s"]), known(rate["d"]), known(first["s"]), known(first["d"])
        }' "$work/$1/row"
}

# Gives the lines of TAP their numbers, each as soon as it is there.
numbered()
{
    while IFS= read -r line; do
        case $line in
        "ok - "*) number=$((number + 1)) && line="ok $number - ${line#ok - }" ;;
        "not ok - "*) number=$((number + 1)) && line="not ok $number - ${line#not ok - }" ;;
        esac
        printf '%s\n' "$line"
    done
}
count_results()
{
    number=$((number + $(grep -cE '^(not )?ok -' "$1")))
    skipped=$((skipped + $(grep -c '^ok - .*# SKIP' "$1")))
    passed=$((passed + $(grep '^ok - ' "$1" | grep -vc '# SKIP')))
    failed=$((failed + $(grep -c '^not ok' "$1")))
}

selected=${DRIVERS:-$(drivers | awk '{ print $1 }')}
mkdir -p "$work"
passed=0 failed=0 skipped=0 number=0
table=$work/table
{
    echo "| driver | device (platform, version) | picks | random calls | % on the device | netlib BLAS 3 | s 1024 | d 1024 | first s | first d |"
    echo "|---|---|---|---|---|---|---|---|---|---|"
} >"$table"
for driver in $selected; do
    entry=$(drivers | awk -v name="$driver" '$1 == name')
    if [ -z "$entry" ]; then
        number=$((number + 1)) failed=$((failed + 1))
        echo "not ok $number - $driver: no such driver, there are: $(drivers | awk '{ printf "%s ", $1 }')"
        continue
    fi
    # shellcheck disable=SC2086 # a list of words
    set -- $entry
    place=$2
    shift 2
    missing=
    begin=$(date +%s)
    "fetch_$driver"
    if [ -n "$missing" ]; then
        number=$((number + 1)) skipped=$((skipped + 1))
        echo "ok $number - $driver # SKIP $missing"
        continue
    fi
    fetched=$(($(date +%s) - begin))
    rm -f "$work/$driver/row"
    mkdir -p "$work/$driver"
    begin=$(date +%s)
    case $place in
    here) set -- --run "$driver" "$*" ;;
    *) set -- --enter "$place" "$driver" "$*" ;;
    esac
    { timeout -k 10 "${DRIVERS_LIMIT:-1800}" nice sh "$self" "$@" 2>&1
      status=$?
      # 124 and 137: the time limit.
      [ $status = 0 ] || echo "not ok - $driver: ended with status $status"; } |
        tee "$work/$driver/tap" | numbered
    took=$(($(date +%s) - begin))
    count_results "$work/$driver/tap"
    echo "# $driver: $took s, and $fetched s to fetch it"
    [ ! -e "$work/$driver/row" ] || print_row "$driver" >>"$table"
done
echo "1..$number"
sed 's/^/# /' "$table"
echo "# $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
