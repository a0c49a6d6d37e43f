# SPDX-License-Identifier: BSD-3-Clause
# Rows "NEXT VARIANT PROGRAM TESTS FAILED ERRORS STATUS CALLS DEVICE FLOPS FLOPS_DEVICE BASE-TESTS BASE-FAILED
# BASE-ERRORS BASE-STATUS" as Markdown, with a line of sums for each next library and variant. Rows of a program
# with several inputs, eig-s-sep or lin-s.GE, are one line.
BEGIN {
    print "| next | variant | program | tests | failed | failed without | errors | errors without |" \
        " calls with work | on the device | operations there |"
    print "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
}
{
    program = $3
    sub(/\..*/, "", program)
    if (program ~ /^eig-/)
        program = substr(program, 1, 5)
}
$1 " " $2 != group { finish(); group = $1 " " $2; split("", sum) }
program != this { finish_program(); this = program }
{
    for (i = 4; i <= NF; i++) {
        sum[i] += $i
        part[i] += $i
    }
    rows++
    parts++
}
END { finish() }

function finish_program()
{
    if (parts > 0) {
        split(group, name, " ")
        line(name[1], name[2], this (parts > 1 ? ", " parts " inputs" : ""), part[4], part[5], part[13], part[6],
            part[14], part[8], part[9], part[10], part[11])
    }
    split("", part)
    parts = 0
}
function finish()
{
    finish_program()
    if (rows > 1) {
        split(group, name, " ")
        line(name[1], name[2], "**all " rows "**", sum[4], sum[5], sum[13], sum[6], sum[14], sum[8], sum[9],
            sum[10], sum[11])
    }
    rows = 0
}
function share(part, all)
{
    return all > 0 ? sprintf("%.1f %%", 100 * part / all) : "-"
}
function line(next_, variant, program, tests, failed, failed0, errors, errors0, calls, device, flops, there)
{
    printf "| %s | %s | %s | %d | %d | %d | %d | %d | %d | %s | %s |\n", next_, variant, program, tests,
        failed, failed0, errors, errors0, calls, share(device, calls), share(there, flops)
}
