#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs with wheels from PyPI and scipy's own tests, preloaded and not: the outcome is the same.
#
# `make check-wheels`, or this from the build folder with srcdir set. TAP; status 77: the package index
# does not answer. Packages are installed into testing/wheels of the build folder and stay there; their
# newest versions are taken when FRESH is set.
set -u
unset OPENCL_LAYERS # programs start as those of users do
srcdir=$(cd "${srcdir:-..}" && pwd)
builddir=$PWD
. "$srcdir/testing/environment.sh"
here=$srcdir/testing/wheels
shim=$builddir/.libs/libclblas_shim.so.0
work=$builddir/testing/wheels
packages="numpy scipy scikit-learn numba statsmodels jax"
scipy_tests="test_basic test_decomp_lu test_blas test_lapack test_interpolative test_cython_blas test_cython_lapack"
count=0 failed=0

skip_all()
{
    echo "1..0 # SKIP $1"
    exit 77
}

report()
{
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
    else
        failed=$((failed + 1))
        echo "not ok $count - $2"
    fi
}

# ---- the packages ---------------------------------------------------------------------------------------

# install PYTHON FOLDER: a virtual environment with all packages, unless it is there. A Python of the
# same version as the first one takes the packages from there.
install()
{
    local site=lib/python$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')/site-packages
    [ -z "${FRESH:-}" ] || rm -rf "$2"
    [ -e "$2/complete" ] && return 0
    rm -rf "$2"
    "$1" -m venv "$2" >"$work/install.log" 2>&1 || return 1
    if [ "$2" != "$work/venv-0" ] && [ -e "$work/venv-0/$site/numpy" ]; then
        echo "$work/venv-0/$site" >"$2/$site/first.pth"
        touch "$2/complete"
        return 0
    fi
    timeout 900 "$2/bin/pip" --disable-pip-version-check --timeout 20 --retries 2 install \
        --only-binary :all: $packages pytest hypothesis >>"$work/install.log" 2>&1 || return 1
    touch "$2/complete"
}

mkdir -p "$work"
trap 'kill $(jobs -p) 2>/dev/null' EXIT
[ -e "$shim" ] || skip_all "the shared library is not built"
# The system's Python and the one that is found first, where that is another.
pythons=()
for python in /usr/bin/python3 "$(command -v python3)"; do
    real=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))' 2>/dev/null) || continue
    [[ " ${pythons[*]-} " == *" $real "* ]] || pythons+=("$real")
done
[ ${#pythons[@]} -gt 0 ] || skip_all "no Python"
environments=()
for python in "${pythons[@]}"; do
    folder=$work/venv-${#environments[@]}
    if install "$python" "$folder"; then
        environments+=("$folder")
        echo "# $python: $("$folder/bin/python" "$here/clients.py" versions $packages)"
    else
        echo "# nothing could be installed for $python: $(tail -n 1 "$work/install.log")"
    fi
done
[ ${#environments[@]} -gt 0 ] || skip_all "the packages can't be installed: $(tail -n 1 "$work/install.log")"

# ---- runs -----------------------------------------------------------------------------------------------

# under MODE COMMAND...: without the shim (none), or with it.
under()
{
    local mode=$1
    shift
    case $mode in
    none) timeout -k 5 300 "$@" ;;
    *) timeout -k 5 300 env LD_PRELOAD="$shim" CLBLAS_SHIM=$mode CLBLAS_SHIM_REPRODUCIBLE=1 "$@" ;;
    esac
}

# run ENVIRONMENT MODE CLIENT: output and status in a file, the report in another.
run()
{
    local name=$work/$(basename "$1")-$2-$3
    rm -f "$name".*
    CLBLAS_SHIM_STATS=$name.%p.json under "$2" "$1/bin/python" -W ignore "$here/clients.py" "$3" \
        >"$name.out" 2>&1 </dev/null
    echo "status $?" >>"$name.out"
}

# run_scipy MODE: the outcome of each of scipy's tests.
run_scipy()
{
    local name=$work/scipy-$1 modules=()
    for module in $scipy_tests; do modules+=("scipy.linalg.tests.$module"); done
    (cd "$work" && under "$1" "${environments[0]}/bin/python" -m pytest -v --tb=no -p no:cacheprovider \
        --pyargs "${modules[@]}" </dev/null) >"$name.log" 2>&1
    echo "status $?" >>"$name.log"
    sed -n 's/ *\[ *[0-9]*%\]$//; /::.* [A-Z]*$/p; /^status/p' "$name.log" | sort >"$name.out"
}

# Two at a time, the longest first.
in_turn()
{
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
    "$@" &
}
clients="numpy kmeans interpolative numba sarimax jax"
modes="none auto off"
for mode in $modes; do in_turn run_scipy $mode; done
for environment in "${environments[@]}"; do
    for client in $clients; do
        for mode in $modes always; do
            # Few under the second Python: the wheels are the same.
            [ "$environment" = "${environments[0]}" ] || [ $mode != auto -a $mode != always ] || continue
            in_turn run "$environment" $mode $client
        done
    done
done
wait

# ---- what came of them ----------------------------------------------------------------------------------

# same FILE FILE DESCRIPTION
same()
{
    cmp -s "$1" "$2"
    local status=$?
    [ $status = 0 ] || diff "$1" "$2" | head -n 20 | sed 's/^/# /'
    report $status "$3"
}

# counts MODE CLIENT NAME: the call was intercepted under the name that the wheels use.
counts()
{
    cat "$work/venv-0-$1-$2".*.json 2>/dev/null | grep -q "\"$3\":{\"calls\":[1-9]"
    report $? "$2, $1: calls of $3 are counted"
}

for environment in "${environments[@]}"; do
    venv=$(basename "$environment")
    for client in $clients; do
        grep -q '^status 0$' "$work/$venv-none-$client.out" ||
            sed 's/^/# /' "$work/$venv-none-$client.out"
        for mode in auto off always; do
            [ -e "$work/$venv-$mode-$client.out" ] || continue
            same "$work/$venv-none-$client.out" "$work/$venv-$mode-$client.out" \
                "$venv, $client, $mode: as without the shim"
        done
    done
done
for mode in auto off; do
    same "$work/scipy-none.out" "$work/scipy-$mode.out" "scipy's tests, $mode: as without the shim"
done
passed=$(grep -c ' PASSED$' "$work/scipy-none.out")
echo "# scipy's tests: $passed passed"
[ "$passed" -gt 1000 ]
report $? "scipy's tests were run"
for mode in off auto; do
    counts $mode numpy scipy_cblas_dgemm64_
    counts $mode numpy scipy_dgesv_64_
    counts $mode kmeans scipy_dgemm_
    counts $mode numba scipy_dgesv_
    counts $mode jax scipy_sgetrf_
done
echo "1..$count"
[ $failed = 0 ]
