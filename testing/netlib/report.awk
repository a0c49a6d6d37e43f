# SPDX-License-Identifier: BSD-3-Clause
# The sums of a report's rows: "CALLS DEVICE FLOPS FLOPS_DEVICE". Quick returns, invalid calls and those that the
# next library makes for one of the shim's own (reentrant) are not counted.
{
    while (match($0, /"calls":[^{]*\{[^}]*\},"declined":\{[^}]*\}/)) {
        row = substr($0, RSTART, RLENGTH)
        $0 = substr($0, RSTART + RLENGTH)
        calls += value(row, "calls") - value(row, "reentrant") - value(row, "quick") - value(row, "invalid")
        device += value(row, "device")
        flops += value(row, "flops")
        flops_device += value(row, "flops_device")
    }
}
END { printf "%d %d %.4g %.4g\n", calls, device, flops, flops_device }

function value(row, key)
{
    if (!match(row, "\"" key "\":[-+.0-9e]+"))
        return 0
    return substr(row, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
