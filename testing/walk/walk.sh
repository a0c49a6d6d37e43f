#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What has to be read to follow a call: the source files whose functions run in one warm dgemm_ and in one dgetrf_, the
# third equal call on its side, on all threads, in the default mode (`auto`), on a device that shares the host's memory and, forced by
# gemm.stream, by the path of one with its own. Counted are these files, the project's headers and tables that they include (.h, .def,
# .t.h), and the .cl files of the kernels that ran with what these include; generated files are not. The table has the
# files and their lines, those that ran among them, functions, and the depth of the stack at the first kernel.
# Builds the library with -finstrument-functions in a folder of its own.
#
#   testing/walk/walk.sh [--source TREE] [FOLDER]
#
# TREE: another checkout than this script's, for a comparison. FOLDER defaults to build/walk. The files of each row are in
# FOLDER/NAME.files, the functions in FOLDER/NAME.functions.
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
if [ "${1-}" = --source ]; then
    top=$(cd "$2" && pwd)
    shift 2
fi
folder=${1:-$top/build/walk}
mkdir -p "$folder" && cd "$folder"
if [ ! -e Makefile ]; then
    [ -x "$top/configure" ] || (cd "$top" && ./bootstrap) >/dev/null 2>&1
    "$top/configure" -q CFLAGS='-O1 -g -fno-inline -finstrument-functions' >/dev/null
fi
make -s -j"$(nproc)" >/dev/null 2>&1
library=$folder/.libs/libclblas_shim.so.0
cc -std=gnu11 -D_GNU_SOURCE -O1 -rdynamic -o walk "$here/walk.c" -llapack -lblas -ldl -lpthread

# The function through which all kernels are launched, whatever it is called.
WALK_LAUNCH_OFFSET=$(nm "$library" | awk '$3 ~ /^clb_(lane|queue_set|queue|kernel)_launch$/ { print $1 }')
export WALK_LAUNCH_OFFSET OPENBLAS_NUM_THREADS=1 XDG_CACHE_HOME=$folder/cache CLBLAS_SHIM_PROBE=$folder/clblas-shim-probe
mkdir -p "$XDG_CACHE_HOME"
list=$(mktemp)
trap 'rm -f "$list"' EXIT

# with_includes: of the names read, those below $top, and the project's files that they include; .cl files look in
# kernels, C files where the compiler has found it (its dependency files).
with_includes()
{
    /usr/bin/python3 - "$top" "$folder" <<'END'
import pathlib, re, sys
top, folder = map(pathlib.Path, sys.argv[1:])
depends = {}
for rule in folder.rglob(".deps/*.Plo"):
    names = re.sub(r"\\\n", " ", rule.read_text()).split()
    for name in names:
        if name.endswith(".c"):
            depends[(folder / name).resolve()] = {(folder / other.rstrip(":")).resolve() for other in names[1:]}
found, left = set(), [pathlib.Path(name).resolve() for name in open(folder / "ran").read().split()]
while left:
    file = left.pop()
    if file in found or not file.is_file() or top not in file.parents or folder in file.parents:
        continue
    found.add(file)
    if file.suffix == ".c":
        left += [name for name in depends.get(file, ()) if name.suffix in (".h", ".def")]
    elif top / "kernels" in file.parents:
        left += [top / "kernels" / name for name in re.findall(r'#\s*include "([^"]+)"', file.read_text())]
for file in sorted(found):
    print(file.relative_to(top))
END
}

# walk NAME ROUTINE N SIDE PARAMS: a line of the table.
walk()
{
    local name=$1 routine=$2 n=$3 side=$4 params=$5 family
    if [ "$side" = device ]; then
        # Compile and check what the call needs, and see which kernels it runs.
        env ${params:+CLBLAS_SHIM_PARAMS=$params} CLBLAS_SHIM=always CLBLAS_SHIM_TRACE=$folder/trace \
            CLBLAS_SHIM_STATS=$folder/stats LD_PRELOAD="$library" ./walk "$routine" "$n" device >/dev/null
    fi
    env ${params:+CLBLAS_SHIM_PARAMS=$params} LD_PRELOAD="$library" ./walk "$routine" "$n" "$side" >"$list"
    grep '^0x' "$list" | addr2line -f -e "$library" | paste - - >"$name.functions"
    cut -f 2 "$name.functions" | sed 's/:[0-9?].*//' | grep -v '^??' | xargs -n 1 realpath -m | sort -u >ran
    local ran
    ran=$(grep -vc "^$folder/" ran)
    if [ "$side" = device ]; then
        family=$(grep -o '"gemm-[a-z0-9]*' stats | head -n 1 | tr -d '"' | tr - _)
        grep -o '"name":"clb_[a-z0-9_]*"' trace | sort -u | sed 's/.*:"\(.*\)"/\1/' | while read -r kernel; do
            grep -lE "\<(KERNEL_NAME\()?$kernel *\(" "$top"/kernels/*.cl "$top"/kernels/*.h |
                grep -E "/$family|/[^/]*(cpu|operand|structure|laswp|trsm|getf2|potf2|tile)[^/]*$" || :
        done | grep -v 'portable' >>ran
        echo "$top/kernels/$family.cl" >>ran
    fi
    with_includes >"$name.files"
    printf '%-8s %-22s %6d %7d %6d %10d %6d\n' "$routine" "$name" "$(wc -l <"$name.files")" \
        "$(cd "$top" && xargs cat <"$folder/$name.files" | wc -l)" "$ran" "$(grep -c '^0x' "$list")" \
        "$(awk '$1 == "depth" { print $2 }' "$list")"
}
printf '%-8s %-22s %6s %7s %6s %10s %6s\n' routine call files lines ran functions depth
walk dgemm-unified dgemm 1500 device ""
walk dgemm-discrete dgemm 1500 device gemm.stream=1
walk dgetrf-unified dgetrf 1500 device ""
walk dgetrf-discrete dgetrf 1500 device gemm.stream=1,getrf.panel=2
walk dgemm-declined dgemm 150 next ""

# A call whose side is known asks nothing anew.
for name in dgemm-unified dgemm-discrete dgemm-declined; do
    asked=$(grep -oE '/(cost|profile|tuning|host_blas)\.c:|/next/call\.c:' "$name.functions" | sort | uniq -c | tr -d '\n' || :)
    echo "$name: ${asked:-no function of cost.c, profile.c, tuning.c or host_blas.c (next/call.c) ran}"
done
