# SPDX-License-Identifier: BSD-3-Clause
"""check_report.py FILE...: each file is a report of CLBLAS_SHIM_STATS with exactly the documented keys."""
import json
import sys

REASONS = set("off small cost quick invalid query nodevice nofp64 nomemory slow quarantined forked "
              "reentrant starting dry-run".split())
TOP = {"version", "device", "next", "routines"}
WRITTEN = {"written"}  # where it is in a file
RATE = {"dropped", "gflops", "used", "gflops_used"}  # of the optional key "rates"
ROUTINE = {"calls", "device", "next", "recovered", "flops", "flops_device", "seconds_device",
           "seconds_next", "kernels", "declined"}
PREDICTED = {"predicted", "measured", "predicted_device", "predicted_next", "seconds_saved",
             "seconds_saved_measured"}  # optional, all or none
INSIDE = {"inside", "flops_inside", "seconds_inside"}  # the same


def check(report):
    assert set(report) - {"rates"} - WRITTEN == TOP, set(report)
    assert all(set(rate) == RATE for rate in report.get("rates", [])), report["rates"]
    assert set(report["next"]) == set(report["routines"]), report["next"]
    for name, routine in report["routines"].items():
        assert set(routine) - PREDICTED - INSIDE == ROUTINE, (name, set(routine))
        assert INSIDE <= set(routine) or not INSIDE & set(routine), (name, set(routine))
        assert PREDICTED <= set(routine) or not PREDICTED & set(routine), (name, set(routine))
        assert routine.get("measured", 0) <= routine.get("predicted", 0) <= routine["calls"], name
        assert routine["calls"] == routine["device"] + routine["next"] + routine["recovered"], name
        assert set(routine["declined"]) <= REASONS, routine["declined"]
        assert sum(routine["declined"].values()) == routine["next"], name
        assert sum(routine["kernels"].values()) == routine["device"] + routine["recovered"], name
        assert 0 <= routine["flops_device"] <= routine["flops"], name
        assert routine["calls"] > 0, name


for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        try:
            check(json.load(file))
        except (AssertionError, ValueError) as problem:
            sys.exit(f"{path}: {problem}")
