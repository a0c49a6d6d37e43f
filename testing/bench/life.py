#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whole lives of processes and what they leave running: off, auto and always, each in a fresh process.

usage: life.py [options] BUILD-FOLDER       (kernels compiled before: clblas-shim warm)

A child makes the same calls one after the other, on matrices of random numbers, in one or more threads at once.
Printed are the seconds of all its calls, of the first and of the later ones (medians), how long the process took to end
after the last, the CPU time that it used in the second after the last, and the names of its threads then, in
milliseconds unless said otherwise.

  --calls ROUTINE,N,COUNT[,THREADS] ...   [dgetrf,16384,1 dgetrf,16384,3 dgemm,8192,1 dgemm,1000,4,1|2|16]
  --modes MODE,...                        [off,auto,always]
  --next LIBRARY                          CLBLAS_SHIM_NEXT [libopenblas.so.0]
"""
import argparse
import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from statistics import median

import numpy as np

CALLS = ("dgetrf,16384,1", "dgetrf,16384,3", "dgemm,8192,1", "dgemm,1000,4,1", "dgemm,1000,4,2", "dgemm,1000,4,16")


def child(routine, n, count, threads):
    shim = ctypes.CDLL(os.environ["LIFE_SHIM"])
    generator = np.random.default_rng(n)
    kind = np.float32 if routine[0] == "s" else np.float64
    matrices = [[np.asfortranarray(generator.random((n, n), dtype=kind)) for _ in range(3)] for _ in range(threads)]
    size, info, one, zero = ctypes.c_int(n), ctypes.c_int(0), np.ones(1, kind), np.zeros(1, kind)
    pivots = [np.zeros(n, np.int32) for _ in range(threads)]
    function = getattr(shim, routine + "_")
    refer, pointer = ctypes.byref, lambda array: array.ctypes.data_as(ctypes.c_void_p)

    def call(thread):
        a, b, c = matrices[thread]
        if routine.endswith("gemm"):
            function(b"N", b"N", refer(size), refer(size), refer(size), pointer(one), pointer(a), refer(size),
                     pointer(b), refer(size), pointer(zero), pointer(c), refer(size), ctypes.c_size_t(1), ctypes.c_size_t(1))
        else:
            function(refer(size), refer(size), pointer(c), refer(size), pointer(pivots[thread]), refer(info))

    times = []
    for _ in range(count):
        if not routine.endswith("gemm"):
            for a, _, c in matrices:
                np.copyto(c, a)
        others = [threading.Thread(target=call, args=(thread,)) for thread in range(1, threads)]
        begin = time.perf_counter()
        for other in others:
            other.start()
        call(0)
        for other in others:
            other.join()
        times.append(time.perf_counter() - begin)
    after = time.process_time()
    if os.environ.get("LIFE_AFTER"):
        time.sleep(1)
    after = time.process_time() - after
    names = sorted(open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task"))
    report = ctypes.create_string_buffer(1 << 20)
    shim.clblas_shim_report(report, ctypes.c_size_t(len(report)))
    row = json.loads(report.value)["routines"].get(routine + "_", {})
    print(json.dumps({"times": times, "after": after, "threads": names, "device": row.get("device", 0), "end": time.time()}),
          flush=True)


def live(options, mode, routine, n, count, threads):
    build = os.path.abspath(options.build)
    environment = dict(os.environ, CLBLAS_SHIM=mode, CLBLAS_SHIM_NEXT=options.next, CLBLAS_SHIM_STATS="/dev/null",
                       LIFE_SHIM=os.path.join(build, ".libs/libclblas_shim.so.0"))
    if threads > 1 or n < 4000:
        environment["LIFE_AFTER"] = "1"
    process = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", routine, str(n), str(count), str(threads)],
                             env=environment, stdout=subprocess.PIPE, text=True, check=False)
    end = time.time()
    if process.returncode != 0:
        return f"ended with {process.returncode}"
    told = json.loads(process.stdout)
    times = [1e3 * seconds for seconds in told["times"]]
    later = f"{median(times[1:]):9.1f}" if times[1:] else f"{'':9}"
    kinds = " ".join(f"{name} {told['threads'].count(name)}" for name in dict.fromkeys(told["threads"]))
    after = f"{1e3 * told['after']:7.1f}" if "LIFE_AFTER" in environment else f"{'':7}"
    return (f"{sum(times):9.1f} {times[0]:9.1f} {later} {1e3 * (end - told['end']):7.1f} {after} "
            f"{told['device']:3}  {kinds}")


def main():
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], *map(int, sys.argv[3:]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", nargs="+", default=CALLS)
    parser.add_argument("--modes", default="off,auto,always")
    parser.add_argument("--next", default="libopenblas.so.0")
    parser.add_argument("build")
    options = parser.parse_args()
    print(f"{'calls':22} {'mode':7} {'all':>9} {'first':>9} {'later':>9} {'end':>7} {'after':>7} dev  threads")
    for calls in options.calls:
        routine, n, count, threads = (calls.split(",") + ["1"])[:4]
        for mode in options.modes.split(","):
            print(f"{calls:22} {mode:7} {live(options, mode, routine, int(n), int(count), int(threads))}", flush=True)


main()
