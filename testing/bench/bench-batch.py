#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Batches of products by the preloaded library, with `auto` and with `off`, each in a process of its own.

The two take turns, so that both meet the same machine. Run in a build folder:

    ../testing/bench/bench-batch.py --next LIBOPENBLAS [--count 64] [--size 300] [--precision d] [--groups] [--turns 30]

Prints the median milliseconds of both, the median of the turns' ratios auto / off, and how many calls of `auto` were
the device's. The first calls, in which `auto` decides and the device starts, are not counted.
"""
import argparse
import ctypes
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import time

TYPES = {"s": ("f", 4, 1), "d": ("d", 8, 1), "c": ("f", 8, 2), "z": ("d", 16, 2)}


def memory(elements, precision):
    code, size, parts = TYPES[precision]
    pattern = b"".join(struct.pack(code, random.uniform(-1, 1)) for _ in range(997 * parts))
    data = ctypes.create_string_buffer(elements * size)
    whole = pattern * (elements * size // len(pattern) + 1)
    ctypes.memmove(data, whole, elements * size)
    return data


def make_call(options):
    """A function that calls the batch once."""
    code, size, parts = TYPES[options.precision]
    n, count = ctypes.c_int(options.size), ctypes.c_int(options.count)
    each = options.size * options.size
    stride, one = ctypes.c_int(each), ctypes.c_int(1)
    kind = ctypes.c_float if code == "f" else ctypes.c_double
    alpha, beta = (kind * 2)(1, 0), (kind * 2)(0, 0)
    operands = [memory(each * options.count, options.precision) for _ in range(3)]
    by = ctypes.byref
    names = ctypes.CDLL(None)
    if not options.groups:
        function = names[options.precision + "gemm_batch_strided_"]
        a, b, c = operands
        arguments = (b"N", b"N", by(n), by(n), by(n), alpha, a, by(n), by(stride), b, by(n), by(stride), beta, c,
                     by(n), by(stride), by(count), ctypes.c_size_t(1), ctypes.c_size_t(1))
    else:
        function = names[options.precision + "gemm_batch_"]
        a, b, c = [(ctypes.c_void_p * options.count)(*[ctypes.addressof(x) + i * each * size
                                                       for i in range(options.count)]) for x in operands]
        arguments = (b"N", b"N", by(n), by(n), by(n), alpha, a, by(n), b, by(n), beta, c, by(n), by(one), by(count),
                     ctypes.c_size_t(1), ctypes.c_size_t(1))
    return lambda: (function(*arguments), operands)


def report():
    names = ctypes.CDLL(None)
    names.clblas_shim_report.restype = ctypes.c_size_t
    text = ctypes.create_string_buffer(1 << 20)
    names.clblas_shim_report(text, ctypes.c_size_t(len(text)))
    return json.loads(text.value)["routines"]


def child(options):
    """A call for each line that comes, answered with its seconds; at the end the calls on the device."""
    call = make_call(options)
    for line in sys.stdin:
        begin = time.perf_counter()
        call()
        print(time.perf_counter() - begin, flush=True)
    print(sum(row["device"] for name, row in report().items() if "batch" in name), flush=True)


def start(mode, arguments, options):
    environment = dict(os.environ, CLBLAS_SHIM=mode, CLBLAS_SHIM_STATS="/dev/null", LD_PRELOAD=options.shim)
    if options.next:
        environment["CLBLAS_SHIM_NEXT"] = options.next
    return subprocess.Popen([sys.executable, __file__, "--child", *arguments], env=environment, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


def one(process):
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--shim", default=os.path.abspath(".libs/libclblas_shim.so.0"))
    parser.add_argument("--next", help="the next library")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--size", type=int, default=300)
    parser.add_argument("--precision", default="d", choices="sdcz")
    parser.add_argument("--groups", action="store_true", help="xGEMM_BATCH instead of xGEMM_BATCH_STRIDED")
    parser.add_argument("--first", type=int, default=10, help="calls that are not counted")
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    processes = [start(mode, sys.argv[1:], options) for mode in ("auto", "off")]
    turns = [[one(process) for process in processes] for _ in range(options.first + options.turns)]
    turns = turns[options.first:]
    auto, off = ([1e3 * turn[i] for turn in turns] for i in range(2))
    for process in processes:
        process.stdin.close()
    device = int(processes[0].stdout.readline())
    flops = 2e-9 * options.count * options.size ** 3 * (4 if options.precision in "cz" else 1)
    print(f"{options.count} x {options.precision}gemm {options.size}: auto {statistics.median(auto):.3f} ms "
          f"({1e3 * flops / statistics.median(auto):.0f} GFLOP/s), off {statistics.median(off):.3f} ms, auto / off "
          f"{statistics.median(a / o for a, o in zip(auto, off)):.3f}, on the device {device} of "
          f"{options.first + options.turns} calls")


if __name__ == "__main__":
    main()
