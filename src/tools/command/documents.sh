#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes what is installed for the command from commands.def, config.def and docs/report.md:
#
#   documents.sh command-manual | library-manual | bash-completion | zsh-completion
#
# Environment: srcdir CC VERSION.
set -eu
. "$srcdir/src/tools/command/tables.sh"
commands=$srcdir/src/tools/command/commands.def

list_commands()
{
    expand_table '#define CLB_COMMAND(name, operands, summary, text) @ #name "\t" operands "\t" summary "\t" text
#define CLB_OPTION(command, letter, name, argument, help)' "$commands"
}

# Of one command, or of all: its name, the option's letter, name, argument and help.
list_options()
{
    expand_table '#define CLB_COMMAND(name, operands, summary, text)
#define CLB_OPTION(command, letter, name, argument, help) @ #command "\t" #letter "\t" name "\t" argument "\t" help' \
        "$commands" | sed "s/'//g" | awk -F '\t' -v command="${1-}" 'command == "" || $1 == command'
}

# Text as roff has it: no hyphen may become another character, no line begins with a control character.
escape()
{
    sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^[.']/\\\\\&&/" -e 's/`\([^`]*\)`/\\fB\1\\fR/g'
}

head_of()
{
    printf '.\\" Made by src/tools/command/documents.sh; do not edit.\n'
    printf '.TH %s %s "" "clblas\\-shim %s"\n.SH NAME\n%s\n' "$1" "$2" "$VERSION" "$3"
}

print_command_manual()
{
    head_of clblas-shim 1 'clblas\-shim \- run BLAS and LAPACK calls of programs on an OpenCL device'
    printf '.SH SYNOPSIS\n'
    list_commands | escape | awk -F '\t' '{ printf ".B clblas\\-shim %s\n[OPTION...] %s\n.br\n", $1, $2 }'
    cat <<'END'
.SH DESCRIPTION
Runs unmodified programs under the library \fBclblas_shim\fR(7), which computes their large BLAS and LAPACK calls on an
OpenCL device, and tells what comes of it. \fB\-\-help\fR after a command prints its options, \fB\-\-version\fR the
version. Messages are one line on standard error.
.SH COMMANDS
END
    list_commands | escape | while IFS='	' read -r name operands summary text; do
        printf '.SS %s\n.B clblas\\-shim %s\n[OPTION...] %s\n.PP\n%s\n' "$name" "$name" "$operands" "$text"
        list_options "$name" | escape | awk -F '\t' '{
            printf ".TP\n.BR \\-%s , \" \" \\-\\-%s%s\n%s\n", $2, $3, $4 == "" ? "" : "=\\fI" $4 "\\fR", $5 }'
    done
    cat <<'END'
.SH EXIT STATUS
0 where all went well, 1 for a failure, 64 where the command was used wrongly, unless a command above says otherwise.
.SH ENVIRONMENT
The variables of \fBclblas_shim\fR(7), \fBTMPDIR\fR, and \fBNO_COLOR\fR, which keeps colours from a terminal.
.SH SEE ALSO
\fBclblas_shim\fR(7), \fBld.so\fR(8)
END
}

# The rows of a table of docs/report.md whose header begins so, as definitions.
print_table()
{
    sed -n "/^| $1 |/,/^\$/p" "$srcdir/docs/report.md" | sed -n 's/^| \(`[^|]*`\) | \(.*\) |$/\1\t\2/p' | escape |
        awk -F '\t' '{ printf ".TP\n%s\n%s\n", $1, $2 }'
}

print_library_manual()
{
    head_of clblas_shim 7 'clblas_shim \- BLAS and LAPACK on an OpenCL device for unmodified programs'
    cat <<'END'
.SH SYNOPSIS
\fBclblas\-shim run\fR \fIprogram\fR
.br
\fBLD_PRELOAD=libclblas_shim.so.0\fR \fIprogram\fR
.br
\fBcc\fR \fIprogram.c\fR \fB\-lclblas_shim \-lblas\fR
.SH DESCRIPTION
The library has the names of BLAS's and LAPACK's routines for products, triangular systems, LU, Cholesky, QR and LQ
factorisations and inverses. It computes large calls on an OpenCL device. All other calls, and what a device that
fails has left undone, are computed by the next library: the BLAS and LAPACK that the program would have used without it.
.SH ENVIRONMENT
All variables are optional. An invalid value is reported by one line on standard error, and the default holds. Set\-uid
programs ignore all of them and stay on the CPU.
END
    list_variables | escape | awk -F '\t' '{
        printf ".TP\n.BR CLBLAS_SHIM%s = \\fI%s\\fR\n%s. Default: %s.\n", $1, $2, $4, $3 }'
    printf '.SH REPORT\n'
    printf '.B CLBLAS_SHIM_STATS\nwrites a JSON object with these fields, which \\fBclblas\\-shim report\\fR adds up.\n'
    print_table field
    printf '.SH REASONS\nWhy a call was not computed on the device:\n'
    print_table reason
    cat <<'END'
.SH FILES
\fI~/.cache/clblas\-shim\fR has compiled kernels, and what has become of their checks.
.SH SEE ALSO
\fBclblas\-shim\fR(1), \fBclinfo\fR(1)
END
}

list_routines()
{
    expand_table '#define NAME(name, ...) @ #name "\t"
#define CLB_ROUTINE(stem, letters, ...) CLB_NAMES_##letters(NAME, stem)' "$srcdir/src/blas/routines.def" | tr -d '\t' | tr '\n' ' '
}

# Where a command takes a program the words behind it are completed as that program's.
print_completion()
{
    names=$(list_commands | cut -f 1 | tr '\n' ' ')
    printf '# bash completion of clblas-shim. Made by src/tools/command/documents.sh; do not edit.\n'
    printf '_clblas_shim()\n{\n    local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words= at=2\n'
    printf '    if [ "$COMP_CWORD" = 1 ]; then\n        words="%s--help --version"\n    fi\n' "$names"
    printf '    case $COMP_CWORD:$command:$current in\n    1:*) ;;\n'
    for name in $names; do
        printf '    *:%s:-*) words="%s--help" ;;\n' "$name" "$(list_options "$name" | awk -F '\t' '{ printf "--%s ", $3 }')"
    done
    printf '    *:warm:* | *:bench:*) words="%s" ;;\n    *:ladder:*) words="gemm lu" ;;\n' "$(list_routines)"
    cat <<'END'
    *:run:* | *:doctor:*)
        while [ $at -lt $COMP_CWORD ]; do
            case ${COMP_WORDS[at]} in
            -d | --device | -p | --pid) at=$((at + 2)) ;;
            -*) at=$((at + 1)) ;;
            *) break ;;
            esac
        done
        if [ $at -lt $COMP_CWORD ] && declare -F _command_offset >/dev/null; then
            _command_offset $at
            return
        elif [ $at = $COMP_CWORD ]; then
            mapfile -t COMPREPLY < <(compgen -c -- "$current" | sort -u)
            return
        fi
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _clblas_shim clblas-shim
END
}

# Descriptions as zsh's _arguments has them: no bracket or colon ends them early, no quote the word.
print_zsh_completion()
{
    printf '#compdef clblas-shim\n# zsh completion of clblas-shim. Made by src/tools/command/documents.sh; do not edit.\n'
    printf '_clblas-shim()\n{\n    local -a commands=(\n'
    list_commands | sed "s/'/'\\\\''/g" | awk -F '\t' "{ printf \"        '%s:%s'\\n\", \$1, \$3 }"
    printf '    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n'
    printf '    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in\n'
    for name in $(list_commands | cut -f 1); do
        printf "    %s) _arguments -S -A '-*'" "$name"
        list_options "$name" | sed -e 's/[]:[]/\\&/g' -e "s/'/'\\\\''/g" | awk -F '\t' '{
            action = $4 ~ /FILE/ ? "_files" : " "
            printf " \\\n        '"'(-%s --%s)'{-%s%s,--%s%s}'[%s]%s'"'", $2, $3, $2, $4 == "" ? "" : "+", $3,
                $4 == "" ? "" : "=", $5, $4 == "" ? "" : ":" $4 ":" action }'
        case $name in
        run | doctor) words='*::program:_normal' ;;
        warm | bench) words="*:routine:($(list_routines))" ;;
        ladder) words='1:ladder:(gemm lu)' ;;
        report) words='*:report:_files' ;;
        *) words= ;;
        esac
        printf ' \\\n        %s%s ;;\n' "'(-h --help)'{-h,--help}'[print help]'" "${words:+ '$words'}"
    done
    printf '    esac\n}\n[ "${funcstack[1]}" != _clblas-shim ] || _clblas-shim "$@"\n'
}

case ${1-} in
command-manual) print_command_manual ;;
library-manual) print_library_manual ;;
bash-completion) print_completion ;;
zsh-completion) print_zsh_completion ;;
*) exit 2 ;;
esac
