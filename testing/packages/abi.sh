#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What the library exports against the last release, whose names are in abi/VERSION and whose header is abi/VERSION.h.
#
#   abi.sh LIBRARY              what was removed, changed and added; fails for the first two
#   abi.sh --debian SYMBOLS.MAP Debian's symbols file: each name with the first release that has it
#   abi.sh --record VERSION     store what the sources export, when VERSION is released
set -u
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../..

releases()
{
    find "$here/abi" -name '*[0-9]' -exec basename {} \; | LC_ALL=C sort -V
}

# names RELEASE: a form is a library's prefix and suffix about the names of its routines.
names()
{
    awk '$1 == "form" { form[++forms] = $0 }
        $1 == "name" { print $2 }
        $1 == "routine" {
            for (i = 1; i <= length($3); i++)
                for (f = 1; f <= forms; f++) {
                    split(form[f], part)
                    if (part[2] == $4)
                        print part[3] substr($3, i, 1) $2 part[4]
                }
        }' "$here/abi/$1" | tr -d '"' | LC_ALL=C sort
}

# names_of SYMBOLS.MAP
names_of()
{
    sed -n 's/^ *\([A-Za-z0-9_]*\);$/\1/p' "$1"
}

# ---- a release -----------------------------------------------------------------------------------------

# expand DEFINITION [LINE]: the rows that the table makes with it, each between @.
expand()
{
    printf '%s\n#include "blas/routines.def"\n%s\n' "$1" "${2-}" | ${CC:-cc} -E -P -I"$source/src" - |
        tr '@' '\n' | grep -E '^(form|routine) '
}

record()
{
    rows=$(expand '#define CLB_ROUTINE(stem, precisions, library, ...) @routine stem precisions library@')
    for library in $(echo "$rows" | awk '{ print $4 }' | sort -u); do
        expand "#define CLB_FORM(stem, kind, prefix, suffix, ...) @form $library #prefix #suffix@
#define CLB_ROUTINE(...)" "CLB_FORMS_$library(CLB_FORM, x)"
    done
    echo "$rows"
    names_of "$source/src/shim/entry/symbols.map.h" | sed 's/^/name /'
}

# ---- Debian's symbols file -----------------------------------------------------------------------------

debian()
{
    version=$(sed -n 's/^AC_INIT(\[clblas-shim\], \[\([^]]*\)\].*/\1/p' "$source/configure.ac")
    printf "libclblas_shim.so.0 libclblas-shim0 #MINVER#\n* Build-Depends-Package: libclblas-shim-dev\n"
    {
        for release in $(releases); do
            names "$release" | sed "s/\$/ $release/"
        done
        names_of "$1" | sed "s/\$/ $version/"
    } | awk '!($1 in seen) { seen[$1]; print " " $1 "@Base " $2 }' | LC_ALL=C sort
}

# ---- comparison ----------------------------------------------------------------------------------------

# A library with the release's names, of which only the functions of clblas_shim.h have types.
build_release()
{
    {
        echo '#include "release.h"'
        sed -n 's/^\([a-z].*(.*)\);$/\1 { return 0; }/p' "$here/abi/$1.h"
    } >"$work/api.c"
    names "$1" | sed '/^clblas_shim_/d; s/.*/void &(void) {}/' >"$work/names.c"
    cp "$here/abi/$1.h" "$work/release.h"
    cc=${CC:-cc}
    $cc -w -fno-builtin -fPIC -c -o "$work/names.o" "$work/names.c" && $cc -g -fPIC -c -o "$work/api.o" "$work/api.c" &&
        $cc -shared -Wl,-soname,libclblas_shim.so.0 -o "$work/release.so" "$work/names.o" "$work/api.o"
}

compare()
{
    last=$(releases | tail -n 1)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    build_release "$last" || return
    # Bit 4 of the status is any change; additions are none.
    abidiff --no-added-syms "$work/release.so" "$1" >"$work/differences"
    status=$?
    nm -D --defined-only "$1" | awk '{ print $3 }' | LC_ALL=C sort >"$work/now"
    names "$last" | LC_ALL=C comm -13 - "$work/now" >"$work/added"
    [ $status = 0 ] || cat "$work/differences"
    sed -n "1,10s/^/added: /p" "$work/added"
    echo "against $last: $(wc -l <"$work/added") names added, $([ $status = 0 ] && echo none removed or changed || echo see above)"
    return $status
}

case ${1-} in
--debian) debian "$2" ;;
--record) record >"$here/abi/$2" && cp "$source/include/clblas_shim.h" "$here/abi/$2.h" ;;
/* | *.so*) compare "$1" ;;
*) sed -n '3,/^set/{/^set/!s/^# \{0,1\}//p;}' "$0"; exit 2 ;;
esac
