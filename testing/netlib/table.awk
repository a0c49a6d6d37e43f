# Rows "NEXT VARIANT PROGRAM TESTS FAILED ERRORS STATUS CALLS DEVICE FLOPS FLOPS_DEVICE BASE-TESTS BASE-FAILED
# BASE-ERRORS BASE-STATUS" as Markdown, with a line of sums for each next library and variant.
BEGIN {
    print "| next | variant | program | tests | failed | failed without | errors | errors without |" \
        " calls with work | on the device | operations there |"
    print "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
}
$1 " " $2 != group { finish(); group = $1 " " $2; split("", sum) }
{
    line($1, $2, $3, $4, $5, $13, $6, $14, $8, $9, $10, $11)
    for (i = 4; i <= NF; i++)
        sum[i] += $i
    rows++
}
END { finish() }

function finish()
{
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
