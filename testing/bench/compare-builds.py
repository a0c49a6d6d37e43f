#!/usr/bin/env python3
"""Two builds of the shim on one device, in turns: is one slower than the other?

usage: compare-builds.py [--seconds S] OLD-BUILD NEW-BUILD       (build folders, after `make bench`)

Products host to host and of resident operands by bench-peer, factorisations and systems by bench-lu;
every figure is measured by both builds in turns, forwards and backwards. Each build has a cache of its
own. A line for each: medians in milliseconds and old / new (above 1: the new one is faster).
"""
import argparse
import os
import subprocess
import tempfile
import time
from statistics import median

PRODUCTS = [(p, n) for n in (1024, 2048, 4096, 8192) for p in "sd"] + [("c", 4096), ("z", 4096), ("d", 12288)]
RESIDENT = [(p, n) for n in (1024, 4096, 8192) for p in "sd"]
LAPACK = [("getrf", "d", 2048), ("getrf", "d", 8192), ("getrf", "s", 8192), ("potrf", "d", 8192),
          ("geqrf", "d", 4096), ("trsm", "d", 8192), ("getrs", "d", 8192), ("syrk", "d", 8192),
          ("trmm", "d", 8192)]


class Peer:
    def __init__(self, build, cache, what):
        env = dict(os.environ, BENCH_SHIM=os.path.join(build, ".libs/libclblas_shim.so.0"),
                   XDG_CACHE_HOME=cache, CLBLAS_SHIM="always", CLBLAS_SHIM_STATS="/dev/null")
        self.process = subprocess.Popen([os.path.join(build, "testing/bench/bench-peer"), what],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=env)

    def ask(self, task):
        try:
            self.process.stdin.write(task + "\n")
            self.process.stdin.flush()
            return float(self.process.stdout.readline())
        except (OSError, ValueError):
            return None


def measure(peers, task, reps):
    times = [[], []]
    for turn in range(reps + 1):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            seconds = peers[which].ask(task)
            if seconds and turn > 0:  # the first one warms up
                times[which].append(1e3 * seconds)
    return times


def lapack(builds, caches, routine, precision, n, rounds):
    times = [[], []]
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            command = [os.path.join(builds[which], "testing/bench/bench-lu"), "--alone", "1",
                       "--threads", str(min(16, os.cpu_count())), "--routines", routine, "--sizes",
                       str(n), "--precisions", precision, "--seconds", "1"]
            if routine in ("syrk", "trmm"):
                command += ["--forms", "LN" if routine == "syrk" else "LLN"]
            env = dict(os.environ, XDG_CACHE_HOME=caches[which])
            result = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env,
                                    timeout=120, check=False)
            for line in result.stdout.splitlines():
                word = line.split()
                if len(word) > 3 and word[0] == precision + routine:
                    times[which].append(float(word[3]))
    return times


def show(what, p, n, old, new, ratio):
    print(f"{what:10} {p:2} {n:>6} {old:>10} {new:>10} {ratio:>8}", flush=True)


def compare(what, p, n, times):
    if all(times):
        old, new = map(median, times)
        show(what, p, n, f"{old:.3f}", f"{new:.3f}", f"{old / new:.3f}")
    else:
        show(what, p, n, "failed", "", "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--reps", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("builds", nargs=2)
    options = parser.parse_args()
    end = time.time() + options.seconds
    with tempfile.TemporaryDirectory() as folder:
        caches = [os.path.join(folder, name) for name in ("old", "new")]
        for cache in caches:
            os.mkdir(cache)
        show("", "", "", "old ms", "new ms", "old/new")
        for what, tasks in (("shim", PRODUCTS), ("resident", RESIDENT)):
            peers = [Peer(build, cache, what) for build, cache in zip(options.builds, caches)]
            for p, n in tasks:
                if time.time() > end:
                    break
                compare(what, p, n, measure(peers, f"run {p} {n} {n} {n} warm", options.reps))
            for peer in peers:
                peer.process.communicate()
        for routine, p, n in LAPACK:
            if time.time() > end:
                break
            compare(routine, p, n,
                    lapack(options.builds, caches, routine, p, n, options.rounds))


main()
