#!/bin/sh
# embed.sh FILE.cl: a C file on standard output that holds the kernel file as a byte array, the files
# of this folder that it includes in their places, with #line directives so that build logs name the
# file.
set -e
file=$1
base=$(basename "$file")
name=clb_kernel_$(basename "$file" .cl)
printf '/* Made by kernels/embed.sh from %s. */\n' "$base"
printf '#include "kernel/kernels.h"\n\nstatic const char text[] = {\n'
inline()
{
    awk -v base="$base" -v folder="$(dirname "$file")" '
        /^#include "/ {
            name = $2
            gsub(/"/, "", name)
            printf "#line 1 \"%s\"\n", name
            path = folder "/" name
            while ((status = (getline line < path)) > 0)
                print line
            if (status < 0) {
                print base ": " path " is missing" > "/dev/stderr"
                exit 1
            }
            printf "#line %d \"%s\"\n", NR + 1, base
            next
        }
        NR == 1 { printf "#line 1 \"%s\"\n", base }
        { print }' "$file"
}

text=$(inline)
printf '%s\n' "$text" | od -An -v -tu1 | sed -e 's/[0-9][0-9]*/&,/g'
printf '0};\n\nconst struct clb_source %s = {"%s", text, sizeof text - 1};\n' "$name" "$base"
