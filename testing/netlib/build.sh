#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# build.sh SOURCE FOLDER: libblas.so.3 (with its C names), liblapack.so.3 and the testers of a source tree of
# netlib's LAPACK, in FOLDER/lib and FOLDER/programs, by the tree's own makefiles in a copy of it. It is not
# built again where that is already there. Needs a Fortran and a C compiler and time: minutes on two CPUs.
set -eu
source=$(cd "$1" && pwd)
mkdir -p "$2/lib" "$2/programs"
cd "$2"
folder=$PWD
tree=$folder/source
jobs=$(nproc)
[ "$(cat built 2>/dev/null)" != "$source" ] || exit 0
[ -e "$source/TESTING/LIN/Makefile" ] && [ -e "$source/CBLAS/testing/Makefile" ] || {
    echo "$source is no source tree of LAPACK" >&2
    exit 1
}
mkdir -p "$tree"
cp -pR "$source"/. "$tree"
cd "$tree"
# Their archives and ours; modules and tests find the rest by the names of make.inc.example.
sed -e "s|^CC *=.*|CC = ${CC:-cc}|" -e "s|^FC *=.*|FC = ${FC:-gfortran}|" \
    -e 's|^CFLAGS *=.*|CFLAGS = -O2 -fPIC|' -e 's|^FFLAGS *=.*|FFLAGS = -O2 -frecursive -fPIC|' \
    -e 's|^FFLAGS_NOOPT *=.*|FFLAGS_NOOPT = -O0 -frecursive -fPIC|' make.inc.example >make.inc
for part in blaslib cblaslib lapacklib tmglib; do
    make -j"$jobs" "$part"
done

# shared NAME ARCHIVES...; xerbla_ is in two of them, of which the first counts.
shared()
{
    local name=$1
    shift
    "${FC:-gfortran}" -shared -Wl,-soname,"$name" -Wl,-z,muldefs -o "$folder/lib/$name" \
        -Wl,--whole-archive "$@" \
        -Wl,--no-whole-archive
}
shared libblas.so.3 librefblas.a libcblas.a
shared liblapack.so.3 liblapack.a -Wl,--no-whole-archive "$folder/lib/libblas.so.3"
blas=$folder/lib/libblas.so.3
libraries="BLASLIB=$blas CBLASLIB=$blas LAPACKLIB=$folder/lib/liblapack.so.3"
# shellcheck disable=SC2086 # a list of settings
{
    make -j"$jobs" -C BLAS/TESTING $libraries xblat3s xblat3d xblat3c xblat3z
    make -j"$jobs" -C CBLAS/testing $libraries xscblat3 xdcblat3 xccblat3 xzcblat3
    make -j"$jobs" -C TESTING/LIN $libraries
    make -j"$jobs" -C TESTING/EIG $libraries
}
cp -p BLAS/TESTING/xblat3? BLAS/TESTING/?blat3.in CBLAS/testing/x?cblat3 CBLAS/testing/?in3 \
    TESTING/LIN/xlintst* TESTING/EIG/xeigtst? TESTING/*.in "$folder/programs"
echo "$source" >"$folder/built"
