#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A trace of CLBLAS_SHIM_TRACE as text: who was busy when during one call.

usage: timeline.py [--call N] [--columns N] TRACE

Each line is a kind of work, each character a stretch of the call's time; a digit is the tenths of it in
which something of that kind was under way, or with `x N` how many threads were at it on average. The
call is the N-th on the device, the last by default.
"""
import argparse
import json

WAITS = ("idle", "enqueue", "wait for uploads", "wait for results")


def union(spans):
    """Disjoint spans that cover the same time."""
    result = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1]:
            result[-1][1] = max(result[-1][1], end)
        else:
            result.append([begin, end])
    return result


def share(spans, begin, end):
    return sum(max(0, min(e, end) - max(b, begin)) for b, e in spans) / (end - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("trace")
    parser.add_argument("--call", type=int, default=-1)
    parser.add_argument("--columns", type=int, default=72)
    options = parser.parse_args()
    with open(options.trace, encoding="utf-8") as file:
        spans = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
    # What is called from outside: names of routines, and `call`.
    calls = sorted((e for e in spans if e["pid"] == 0 and
                    (e["name"] == "call" or e["name"].endswith("_") or "cblas_" in e["name"])),
                   key=lambda e: e["ts"])
    call = calls[options.call]
    begin, end = call["ts"], call["ts"] + call["dur"]
    kinds = {}
    for e in spans:
        if e is not call and e["ts"] < end and e["ts"] + e["dur"] > begin and e["name"] not in WAITS:
            kinds.setdefault((e["pid"], e["name"]), []).append((e["ts"], e["ts"] + e["dur"]))
    print(f"{call['name']}: {1e-3 * call['dur']:.2f} ms")
    step = (end - begin) / options.columns
    for (pid, name), times in sorted(kinds.items(), key=lambda k: (k[0][0], min(k[1]))):
        cover = union(times)
        line = ""
        for i in range(options.columns):
            busy = share(cover, begin + i * step, begin + (i + 1) * step)
            line += " " if busy == 0 else "#" if busy > 0.95 else str(int(10 * busy))
        spent = 1e-3 * sum(e - b for b, e in times)
        print(f"{'host' if pid == 0 else 'device':6} {name[:18]:18} |{line}| {len(times):5} {spent:8.2f} ms")


if __name__ == "__main__":
    main()
