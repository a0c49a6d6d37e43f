# SPDX-License-Identifier: BSD-3-Clause
# For the tests of this folder, sourced first: those of testing/interpose, and the command.
. "$srcdir/testing/interpose/common.sh"
command=$builddir/clblas-shim
[ -x "$command" ] || skip_all "the command is not built (no jansson)"

# fails STATUS TEXT COMMAND...: it ends with this status and one line on stderr that has the text.
fails()
{
    expected=$1
    text=$2
    shift 2
    "$@" >fails.out 2>fails.err </dev/null
    status=$?
    [ $status = "$expected" ] && [ "$(grep -c . fails.err)" = 1 ] && grep -qF -e "$text" fails.err || {
        echo "status $status, not $expected, or another message than one line with: $text"
        cat fails.err
        return 1
    }
}

# prints TEXT COMMAND...: it succeeds and the text, a regular expression, is in its output.
prints()
{
    text=$1
    shift
    "$@" >prints.out 2>&1 || { echo "status $?"; cat prints.out; return 1; }
    grep -q -e "$text" prints.out || { cat prints.out; return 1; }
}

# has_terminal: script(1) can make one. A bare root may be without /dev/pts. Otherwise no_terminal says why.
no_terminal="script(1) makes no terminal: is /dev/pts there?"
has_terminal()
{
    command -v script >/dev/null && script -qec true /dev/null </dev/null >/dev/null 2>&1
}
