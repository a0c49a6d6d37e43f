# SPDX-License-Identifier: BSD-3-Clause
"""What a program's run under the shim was like, next to one without.

usage: compare.py DIRECTORY
DIRECTORY/without and DIRECTORY/with hold the results of the two runs and their output in `out`,
DIRECTORY/report.json is the shim's report. The exit status is 1 when nothing ran on the device, unless
it is not expected to gain, or when a result deviates by more than rounding."""
import json
import os
import sys

import numpy

# Of the largest element; an error in the blocking or the copies is of order one.
BOUND = {"float32": 1e-5, "float64": 1e-13, "linpack": 1e-8}


def read_times(directory):
    with open(os.path.join(directory, "out")) as lines:
        rows = [line.split() for line in lines]
    return {label: (float(first), float(best)) for label, first, best in rows}


def print_report(report):
    for name, row in sorted(report["routines"].items()):
        kernels = ", ".join(row["kernels"])
        declined = ", ".join("%d %s" % (count, why) for why, count in row["declined"].items())
        print("    %s: %d calls, %d on the device%s, %d by %s%s%s" % (
            name, row["calls"], row["device"], " (%s)" % kernels if kernels else "", row["next"],
            report["next"].get(name, "the next BLAS"), " (%s)" % declined if declined else "",
            ", %d recovered" % row["recovered"] if row["recovered"] else ""))
    return sum(row["device"] for row in report["routines"].values())


def main():
    directory = sys.argv[1]
    plain, shim = (os.path.join(directory, name) for name in ("without", "with"))
    with open(os.path.join(directory, "report.json")) as file:
        report = json.load(file)
    good = True
    print("    device: %s" % report["device"].replace("none", "not started"))
    declined = {why for row in report["routines"].values() for why in row["declined"]}
    if print_report(report) == 0 and declined <= {"cost", "small", "quick"}:
        print("    nothing ran on the device: the next BLAS is predicted to be as fast")
    elif not any(row["device"] for row in report["routines"].values()):
        print("    FAILED: nothing ran on the device")
        good = False
    before, after = read_times(plain), read_times(shim)
    for label in before:
        x, y = (numpy.fromfile(os.path.join(d, label)) for d in (plain, shim))
        deviation = float(numpy.max(numpy.abs(x - y)) / numpy.max(numpy.abs(x)))
        print("    %-8s seconds without %.4f, with %.4f (first call %.4f), largest deviation %.1e" % (
            label, before[label][1], after[label][1], after[label][0], deviation))
        if not deviation <= BOUND[label]:
            print("    FAILED: the deviation is larger than rounding explains")
            good = False
    sys.exit(0 if good else 1)


main()
