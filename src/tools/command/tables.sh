# SPDX-License-Identifier: BSD-3-Clause
# Tables of the sources as text, for what is made from them; sourced by documents.sh and testing/docs.test.
# Environment: srcdir CC.

# expand_table DEFINITIONS FILE...: the tables with their macros defined so that each row becomes @ and string
# literals. A row a line, its fields separated by tabs.
expand_table()
{
    expanded=$1
    shift
    { printf '%s\n' "$expanded"; cat "$@"; } | $CC -E -P -I"$srcdir/src" -x c - | { tr -d '\n' && echo; } |
        tr '@' '\n' | sed -n -e 's/^ *"//' -e 's/" *$//' -e 's/" *"//g' -e 's/\\"/"/g' -e 's/\\t/	/gp'
}

# A row for each variable: suffix, placeholder, default and help.
list_variables()
{
    expand_table '#define CLB_CONFIG(suffix, field, kind, placeholder, default, help) @ suffix "\t" placeholder "\t" default "\t" help' \
        "$srcdir/src/host/config.def"
}
