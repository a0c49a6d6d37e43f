#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two builds of the shim on one device, in turns: is one slower than the other?

usage: compare-builds.py [--cpu] [--threads N] [--seconds S] [--only ROUTINE,...] [--largest N] OLD-BUILD NEW-BUILD

Each build is loaded into a process of its own, over OpenBLAS, and both do every call in turns, forwards
and backwards. A line for each: the least wall time and the least CPU time of all threads, in milliseconds,
and old / new (above 1: the new one is faster); then the median of old / new of wall times, turn by turn. Where that median
is below 0.98, the call is done once more; where it is so twice, the line ends with SLOWER, and the program with status 1. On a
machine that others use too, --by-cpu takes the median of CPU times.

--cpu has sizes for a CPU device; the others are for a GPU, where the kernels alone are compared as well
(`resident`, by bench-peer: needs `make bench` in both folders). Each build keeps compiled kernels in its
folder's testing/cache. A build may carry settings of its own, FOLDER,KEY=VALUE,... (CLBLAS_SHIM_PARAMS), so
that one build is compared with itself.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import threading
import time

try:
    import numpy  # fills large matrices ten times as fast as LAPACK's larnv
except ImportError:
    numpy = None

# Routine, precision, order, and how many threads make the call at once.
GPU = [("gemm", p, n, 1) for n in (300, 512, 600, 800, 1024, 2048, 4096, 8192, 16384) for p in "sd"]
GPU += [("gemm", "c", 4096, 1), ("gemm", "z", 4096, 1), ("gemm", "d", 12288, 1)]
GPU += [("getrf", p, n, 1) for p, n in (("d", 1000), ("d", 2000), ("d", 8192), ("s", 8192), ("d", 16384))]
GPU += [("potrf", "d", n, 1) for n in (1000, 2000, 8192, 16384)]
GPU += [("geqrf", "d", n, 1) for n in (1000, 2000, 4096, 16384)]
GPU += [(routine, "d", 8192, 1) for routine in ("trsm", "getrs", "syrk", "trmm")]
GPU += [("gemm", "d", n, threads) for n in (512, 1024, 2048) for threads in (2, 16)]
RESIDENT = [(p, n) for n in (1024, 4096, 8192) for p in "sd"]
CPU = [("gemm", p, n, 1) for p in "sd" for n in (256, 300, 512, 600, 800, 1024, 2048)]
CPU += [("gemm", p, n, 1) for p in "cz" for n in (256, 512, 1024)]
CPU += [(r, p, 1000, 1) for r in ("syrk", "syr2k", "symm", "trmm", "trsm") for p in "sdz"]
CPU += [("getrf", p, n, 1) for p in "sd" for n in (500, 1000, 2000)] + [("getrf", "z", 1000, 1)]
CPU += [(r, p, 1000, 1) for r in ("potrf", "geqrf", "getrs", "potri") for p in "sdz"]
CPU += [(r, "d", 2000, 1) for r in ("potrf", "geqrf")]
CPU += [("gemm", "d", 512, threads) for threads in (2, 16)]


def call(function, letters, *arguments):
    """By Fortran's rules: letters first, their lengths last."""
    function(*[ctypes.c_char_p(letter.encode()) for letter in letters],
             *map(ctypes.byref, arguments), *[ctypes.c_size_t(1)] * len(letters))


class Server:
    """The calls of one library, by its public names, on square matrices."""

    def __init__(self, path):
        self.shim = ctypes.CDLL(path)
        self.lapack = ctypes.CDLL("liblapack.so.3")
        self.task = self.prepared = None

    def fill(self, precision, n, dominant):
        """Random numbers; where the diagonal is to dominate, small ones beside a diagonal of ones."""
        real, letter = (ctypes.c_float, "s") if precision in "sc" else (ctypes.c_double, "d")
        parts = 2 if precision in "cz" else 1
        matrix = (real * (n * n * parts))()
        rows = ctypes.c_int(parts * n)
        if numpy is not None:
            values = numpy.frombuffer(matrix, dtype=real)
            numpy.random.default_rng(n).random(out=values, dtype=values.dtype)
            values -= 0.5
        else:
            seed = (ctypes.c_int * 4)(1, 2, 3, 5)
            call(getattr(self.lapack, letter + "larnv_"), "", ctypes.c_int(2), seed,
                 ctypes.c_int(n * n * parts), matrix)
        if dominant:
            none = ctypes.c_int(0)
            call(getattr(self.lapack, letter + "lascl_"), "G", none, none, real(n), real(1), rows,
                 ctypes.c_int(n), matrix, rows, none)
            for i in range(n):
                at = (i * n + i) * parts
                matrix[at:at + parts] = [1, 0][:parts]
        return matrix

    def prepare(self, routine, precision, n):
        """The function, its letters and arguments, and what is copied before a call: to, from."""
        a = self.fill(precision, n, routine not in ("gemm", "getrf", "geqrf"))
        b, c = self.fill(precision, n, False), self.fill(precision, n, False)
        size, info, one, zero = ctypes.c_int(n), ctypes.c_int(0), type(a)(), type(a)()
        one[0] = 1
        pivots = (ctypes.c_int * n)(*range(1, n + 1))
        copied = (c, b) if routine in ("trmm", "trsm", "getrs") else None
        product = (size, size, one, a, size, b, size, zero, c, size)
        if routine == "gemm":
            letters, arguments = "NN", (size, *product)
        elif routine == "syrk":
            letters, arguments = "LN", (size, size, one, a, size, zero, c, size)
        elif routine in ("syr2k", "symm"):
            letters, arguments = ("LN" if routine == "syr2k" else "LL"), product
        elif routine in ("trmm", "trsm"):
            letters, arguments = "LLNN", (size, size, one, a, size, c, size)
        elif routine == "getrs":
            letters, arguments = "N", (size, size, a, size, pivots, c, size, info)
        else:
            copied = (type(a)(), a)
            letters, arguments = {"getrf": ("", (size, size, copied[0], size, pivots, info)),
                                  "geqrf": ("", (size, size, copied[0], size, b, c,
                                                 ctypes.c_int(n * n), info)),
                                  "potrf": ("L", (size, copied[0], size, info)),
                                  "potri": ("L", (size, copied[0], size, info))}[routine]
        return getattr(self.shim, f"{precision}{routine}_"), letters, arguments, copied

    def measure(self, *task):
        if self.task != task:
            self.task = task
            self.prepared = [self.prepare(*task[:3]) for thread in range(task[3])]
        for function, letters, arguments, copied in self.prepared:
            if copied is not None:
                ctypes.memmove(*copied, ctypes.sizeof(copied[0]))
        others = [threading.Thread(target=call, args=(function, letters, *arguments))
                  for function, letters, arguments, copied in self.prepared[1:]]
        function, letters, arguments, copied = self.prepared[0]
        wall, cpu = time.perf_counter(), time.process_time()
        for thread in others:
            thread.start()
        call(function, letters, *arguments)
        for thread in others:
            thread.join()
        return [1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu)]

    def on_device(self, name):
        report = ctypes.create_string_buffer(1 << 20)
        self.shim.clblas_shim_report(report, ctypes.c_size_t(len(report)))
        row = json.loads(report.value)["routines"][name]
        return row["calls"] == row["device"]


def serve(path):
    server = Server(path)
    for line in sys.stdin:
        routine, precision, n, threads = line.split()
        times = server.measure(routine, precision, int(n), int(threads))
        print(*times, int(server.on_device(f"{precision}{routine}_")), flush=True)


class Peer:
    def __init__(self, build, command, threads, parameters):
        cache = os.path.join(build, "testing/cache")
        env = dict(os.environ, BENCH_SHIM=library(build), XDG_CACHE_HOME=cache, CLBLAS_SHIM="always",
                   CLBLAS_SHIM_STATS="/dev/null", POCL_MAX_PTHREAD_COUNT=threads,
                   OPENBLAS_NUM_THREADS=threads, CLBLAS_SHIM_PARAMS=parameters)
        env.setdefault("CLBLAS_SHIM_NEXT", "libopenblas.so.0")
        self.arguments = (build, command, threads, parameters)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=env)

    def again(self):
        self.process.communicate()
        return Peer(*self.arguments)

    def ask(self, task):
        try:
            self.process.stdin.write(task + "\n")
            self.process.stdin.flush()
            return [float(word) for word in self.process.stdout.readline().split()]
        except OSError:
            return []


def library(build):
    return os.path.join(build, ".libs/libclblas_shim.so.0")


def take_turns(peers, task, seconds):
    """For so many seconds and at least five turns after one that warms up: the least times of both, the pairs
    turn by turn, and whether a call was not on the device; None where one fails."""
    best, off, end, pairs = [None, None], "", None, []
    while len(pairs) < 6 or time.time() < end:
        pair = [None, None]
        for which in (0, 1) if len(pairs) % 2 == 0 else (1, 0):
            answer = peers[which].ask(task)
            if not answer:
                return None
            off = "  not on the device" if answer[2:] == [0] else off
            pair[which] = answer[:2] if answer[2:] else [1e3 * answer[0]]
            if pairs:
                best[which] = pair[which] if best[which] is None else list(map(min, best[which], pair[which]))
        pairs.append(pair)
        end = end or time.time() + seconds
    return best, pairs[1:], off


def compare(label, peers, task, seconds, column):
    """True unless the new build is slower twice, the second time in new processes: where the memory of one lies
    makes a row differ by 4 %."""
    medians = []
    while len(medians) < 2 and (not medians or medians[0] < 0.98):
        if medians:
            peers[:] = [peer.again() for peer in peers]
        result = take_turns(peers, task, seconds)
        if result is None:
            print(f"{label:18} failed", flush=True)
            return True
        best, pairs, off = result
        medians.append(statistics.median(old[min(column, len(old) - 1)] / new[min(column, len(new) - 1)]
                                         for old, new in pairs))
    figures = "".join(f"{old:10.3f}{new:10.3f}{old / new:8.3f}" for old, new in zip(*best))
    slower = max(medians) < 0.98
    print(f"{label:18}{figures}{max(medians):8.3f}{len(pairs):6}{off}{'  SLOWER' if slower else ''}", flush=True)
    return not slower


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve(sys.argv[2])
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--threads", default=str(min(16, os.cpu_count())))
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--only", default="", help="of the table's first column, and resident")
    parser.add_argument("--largest", type=int, default=1 << 30, metavar="N")
    parser.add_argument("--by-cpu", action="store_true", help="the median of CPU times decides")
    parser.add_argument("builds", nargs=2)
    options = parser.parse_args()

    def wanted(routine, n):
        return n <= options.largest and (not options.only or routine in options.only.split(","))
    tasks = [task for task in (CPU if options.cpu else GPU) if wanted(task[0], task[2])]
    resident = [] if options.cpu else [task for task in RESIDENT if wanted("resident", task[1])]
    builds = [(os.path.abspath(folder), parameters)
              for folder, _, parameters in (build.partition(",") for build in options.builds)]
    share = options.seconds / (len(tasks) + len(resident))
    print(f"{'':18}{'old wall':>10}{'new wall':>10}{'ratio':>8}{'old CPU':>10}{'new CPU':>10}"
          f"{'ratio':>8}{'median':>8}{'turns':>6}")
    command = [sys.executable, os.path.abspath(__file__), "--serve"]
    peers = [Peer(build, command + [library(build)], options.threads, parameters)
             for build, parameters in builds]
    column, equal = int(options.by_cpu), True
    for routine, p, n, threads in tasks:
        label = f"{p}{routine} {n}" + (f" x {threads}" if threads > 1 else "")
        equal &= compare(label, peers, f"{routine} {p} {n} {threads}", share, column)
    for peer in peers:
        peer.process.communicate()
    if resident:
        peers = [Peer(build, [os.path.join(build, "testing/bench/bench-peer"), "resident"],
                      options.threads, parameters) for build, parameters in builds]
        for p, n in resident:
            equal &= compare(f"resident {p} {n}", peers, f"run {p} {n} {n} {n} warm", share, 0)
    return 0 if equal else 1


sys.exit(main())
