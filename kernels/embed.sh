#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# embed.sh FILE.cl: a C file on standard output that holds the kernel file as a byte array, the files that it includes
# in their places (and what those include, relative to its folder), with #line directives so that build logs name the
# file. It defines clb_kernel_FILE for .../kernels/FILE.cl, and kernel_FOLDER_FILE for a file of another folder.
set -e
file=$1
base=$(basename "$file")
folder=$(basename "$(dirname "$file")")
name=clb_kernel_${base%.cl}
[ "$folder" = kernels ] || name=kernel_${folder}_${base%.cl}
printf '/* Made by kernels/embed.sh from %s. */\n' "$base"
printf '#include "engine/kernel/kernels.h"\n\nstatic const char text[] = {\n'
inline()
{
    awk -v base="$base" -v folder="$(dirname "$file")" '
        function put(name, path,   line, lines, part, status) {
            printf "#line 1 \"%s\"\n", name
            while ((status = (getline line < path)) > 0) {
                lines++
                if (line !~ /^#include "/) {
                    print line
                    continue
                }
                split(line, part, "\"")
                put(part[2], folder "/" part[2])
                printf "#line %d \"%s\"\n", lines + 1, name
            }
            if (status < 0) {
                print base ": " path " is missing" > "/dev/stderr"
                exit 1
            }
            close(path)
        }
        BEGIN { put(base, folder "/" base) }'
}

text=$(inline)
printf '%s\n' "$text" | od -An -v -tu1 | sed -e 's/[0-9][0-9]*/&,/g'
printf '0};\n\nextern const struct clb_source %s;\n' "$name"
printf 'const struct clb_source %s = {"%s", text, sizeof text - 1};\n' "$name" "$base"
