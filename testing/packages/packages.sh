#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What a distribution does with a release, in a build folder: `make check-packages`, or some steps of it.
#
#   packages.sh [STEP...]    tarball pkgconfig cmake abi reproducible debian autopkgtest spack
#
# Each prints one line; all but the first use what the tarball has installed. Environment: srcdir, VERSION, CC, and
# MIRROR, the Debian mirror, or the running system's.
set -u -o pipefail
cd "${builddir:-.}" || exit 1
build=$PWD
srcdir=$(cd "$srcdir" && pwd)
here=$srcdir/testing/packages
work=$build/testing/packages.work
name=clblas-shim-$VERSION
prefix=$work/usr
jobs=$(nproc)
failed=0
unset LD_PRELOAD DESTDIR MAKEFLAGS MAKELEVEL
case $(uname -m) in
x86_64 | aarch64) provider=--enable-provider ;;
*) provider= ;;
esac

# step NAME: the function of that name with its output in a log. Status 77: its last line says what is missing.
step()
{
    local log=$work/$1.log begin=$SECONDS status
    # Functions whose names would hide a command end in _.
    ("$(declare -F "$1_" || echo "$1")") >"$log" 2>&1 </dev/null
    status=$?
    case $status in
    0) echo "PASS: $1 ($((SECONDS - begin)) s)" ;;
    77) echo "SKIP: $1 ($(tail -n 1 "$log"))" ;;
    *)
        tail -n 20 "$log"
        echo "FAIL: $1 ($((SECONDS - begin)) s), log: $log"
        failed=1
        ;;
    esac
}

need()
{
    command -v "$1" >/dev/null && return
    echo "there is no $1, Debian: ${2-$1}"
    exit 77
}

# unpacked FOLDER: the tarball, in this fresh folder.
unpacked()
{
    rm -rf "$1" && mkdir -p "$1" && tar -C "$1" -xf "$build/$name.tar.xz" && cd "$1/$name" || return
}

# built FOLDER [CONFIGURE-ARGUMENT...]: the tarball, unpacked and built there.
built()
{
    unpacked "$1" || return
    shift
    # shellcheck disable=SC2086 # none, or one
    ./configure $provider "$@" && make -s -j"$jobs"
}

# ---- steps ---------------------------------------------------------------------------------------------

# By the tools that are left when autotools and git are not there.
tarball()
{
    make -s dist || return
    local tools=$work/tools file
    rm -rf "$tools" "$prefix" && mkdir -p "$tools"
    for file in /usr/local/bin/* /usr/bin/* /bin/*; do
        case ${file##*/} in
        auto* | aclocal* | libtool* | m4 | git | git-*) ;;
        *) ln -sf "$file" "$tools" ;;
        esac
    done
    PATH=$tools
    ! command -v autoconf automake git && built "$work/tarball" --prefix="$prefix" CFLAGS=-O0 && make -s install && "$prefix/bin/clblas-shim" --version
}

# runs PROGRAM: it is right, and its product is in the report.
runs()
{
    rm -f report.json
    env "${@:2}" CLBLAS_SHIM_STATS="$PWD/report.json" "$1" && grep '"dgemm_":{"calls":1' report.json
}

pkgconfig()
{
    need pkg-config pkgconf
    export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
    mkdir -p "$work/pkgconfig" && cd "$work/pkgconfig" || return
    [ "$(pkg-config --modversion clblas_shim)" = "$VERSION" ] || return
    # shellcheck disable=SC2046 # a list of flags
    $CC -o linked "$here/project/product.c" $(pkg-config --cflags --libs clblas_shim) -l:libblas.so.3 &&
        runs ./linked LD_LIBRARY_PATH="$prefix/lib" || return
    [ -n "$provider" ] || return 0
    # shellcheck disable=SC2046
    $CC -o provided "$here/project/product.c" $(pkg-config --cflags --libs clblas_shim-blas) && runs ./provided
}

# configured FOLDER VARIABLE=VALUE...: the project, and what FindBLAS has found.
configured()
{
    local folder=$1
    shift
    rm -rf "$folder" && cmake -S "$here/project" -B "$folder" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="${CC##* }" \
        "${@/#/-D}" >"$folder.log" && sed -n 's/^-- BLAS_LIBRARIES=//p' "$folder.log" && cmake --build "$folder"
}

cmake_()
{
    need cmake
    mkdir -p "$work/cmake" && cd "$work/cmake" || return
    configured system BLAS_LIBRARIES=-l:libblas.so.3 LAPACK_LIBRARIES=-l:liblapack.so.3 && runs system/linked || return
    [ -n "$provider" ] || return 0
    local folder=$prefix/lib/clblas-shim
    configured vendor BLA_VENDOR=Generic CMAKE_LIBRARY_PATH="$folder" | grep "^$folder/libblas.so" && runs vendor/found &&
        configured named BLAS_LIBRARIES="$folder/libblas.so" LAPACK_LIBRARIES="$folder/liblapack.so" && runs named/found
}

abi()
{
    need abidiff abigail-tools
    "$here/abi.sh" "${LIBRARY:-$prefix/lib/libclblas_shim.so.0}"
}

# Two builds that differ in folder, time, time zone, locale, umask and number of jobs.
dist()
{
    make -s dist
}

reproducible()
{
    need faketime
    export SOURCE_DATE_EPOCH=1700000000
    (umask 022 && jobs=1 LC_ALL=C TZ=UTC built "$work/one" --prefix=/usr && make install DESTDIR="$work/one/root") || return
    (
        umask 027
        export LC_ALL=C.UTF-8 TZ=Asia/Kathmandu
        unpacked "$work/another/much-longer" && faketime '2031-02-03 04:05:06' sh -c "./configure $provider --prefix=/usr &&
            make -j2 && make install DESTDIR='$work/one/other'"
    ) || return
    diff -r --no-dereference "$work/one/root" "$work/one/other" && echo "$(find "$work/one/root" -type f | wc -l) files are equal"
}

# mounted ROOT COMMAND...: with /proc and /sys in that root, which go with the command.
mounted()
{
    # shellcheck disable=SC2016
    unshare --mount sh -c 'mount -t proc proc "$0/proc" && mount -t sysfs sys "$0/sys" && exec "$@"' "$@"
}

# in_root ROOT COMMAND: by a shell there.
in_root()
{
    mounted "$1" chroot "$1" env -i PATH="$PATH" DEBIAN_FRONTEND=noninteractive DEB_BUILD_OPTIONS="parallel=$jobs" sh -ec "$2"
}

# The packages, in a root that has nothing else, judged by lintian.
debian()
{
    need debootstrap
    local release root=$work/root mirror
    release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    [ "$(id -u)" = 0 ] && grep -q '^ID=debian$' /etc/os-release || { echo "only as root on Debian"; return 77; }
    mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)}
    rm -rf "$root" "$root.test"
    debootstrap --variant=buildd "$release" "$root" "$mirror" || { echo "no packages from $mirror"; return 77; }
    cp -a "$root" "$root.test" && mkdir "$root/src" && tar -C "$root/src" -xf "$build/$name.tar.xz" || return
    [ "$(sed -n '1s/.*(\(.*\)).*/\1/p' "$root/src/$name/debian/changelog")" = "$VERSION" ] ||
        { echo "debian/changelog is not of $VERSION"; return 1; }
    in_root "$root" "cd /src/$name && apt-get -q -y --no-install-recommends build-dep ./ && dpkg-buildpackage -us -uc" &&
        in_root "$root" 'apt-get -q -y --no-install-recommends install lintian && cd /src && lintian --allow-root --fail-on error,warning *.changes' &&
        rm -rf "$work/debs" && mkdir "$work/debs" && cp "$root"/src/*.dsc "$root"/src/*.tar.xz "$root"/src/*.deb "$work/debs"
}

# debian/tests in a root with nothing but the packages and what they depend on.
autopkgtest_()
{
    need autopkgtest
    [ -e "$work/debs/clblas-shim_$VERSION.dsc" ] || { echo "no packages were built"; return 77; }
    mounted "$work/root.test" autopkgtest --no-built-binaries "$work"/debs/*_"$VERSION"_*.deb "$work/debs/clblas-shim_$VERSION.dsc" -- chroot "$work/root.test"
}

# The recipe, in a repository of its own, with what the tarball has; Debian's packages are the other ones.
spack_()
{
    need spack "none, see docs/guides/packages.md"
    local folder=$work/spack package
    unpacked "$folder" && mkdir -p "$folder/repo/packages/clblas-shim/test" "$folder/scope" || return
    cp packaging/spack/package.py "$folder/repo/packages/clblas-shim"
    cp testing/packages/project/product.c "$folder/repo/packages/clblas-shim/test"
    printf 'repo:\n  namespace: clblas\n' >"$folder/repo/repo.yaml"
    printf 'repos: [%s/repo]\n' "$folder" >"$folder/scope/repos.yaml"
    printf 'config:\n  install_tree: {root: %s/tree}\n  build_stage: [%s/stage]\n' "$folder" "$folder" >"$folder/scope/config.yaml"
    {
        echo 'packages:'
        for package in openblas@0.3.20 netlib-lapack@3.9.0~external-blas+shared jansson@2.10 opencl-c-headers@2022.01.04 \
            opencl-icd-loader@2022.01.04 pkgconf@1.8.1 gmake@4.3; do
            echo "  ${package%%@*}: {buildable: false, externals: [{spec: $package, prefix: /usr}]}"
        done
    } >"$folder/scope/packages.yaml"
    spack -C "$folder/scope" dev-build -d "$PWD" clblas-shim@"$VERSION" &&
        spack -C "$folder/scope" test run clblas-shim
}

# ---- the steps wanted ----------------------------------------------------------------------------------
mkdir -p "$work"
if [ $# = 0 ]; then
    set -- tarball pkgconfig cmake abi
    [ -n "${QUICK-}" ] || set -- "$@" reproducible debian autopkgtest spack
fi
for step; do
    step "$step"
done
exit $failed
