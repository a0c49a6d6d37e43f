#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the first call of a routine takes beyond later ones, with kernels compiled and the driver started.

usage: first.py BUILD [--sizes N,N,...] [--routines dgetrf,...] [--later N] [--processes N]

BUILD is a build folder, or a library. Each routine and size runs in a process of its own with mode `always`, in a
cache of its own, whose kernels have been compiled and checked by a process before it, whose results were not
verified: so the first call is verified, as it is when a program first uses a routine. With several processes, each
with a copy of that cache, medians are printed. Other variables of the shim
(CLBLAS_SHIM_DEVICE and so on) are the caller's.
"""
import argparse
import ctypes
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from array import array

ROUTINES = "dgetrf,sgetrf,dpotrf,dgeqrf,dtrsm,dormqr,dgemm"


class Problem:
    """The arguments of a call; what it overwrites is made new before each."""

    def __init__(self, library, name, n):
        self.stem, self.n = name[1:], n
        self.single = name[0] == "s"
        self.function = getattr(library, name + "_")
        self.element = 4 if self.single else 8
        size = n * n * self.element
        numbers = random.Random(1)
        # Of a length that is no multiple of a column's, so that columns differ.
        block = array("f" if self.single else "d", (numbers.random() - 0.5 for _ in range(1000003))).tobytes()
        self.source = ctypes.create_string_buffer(size)
        for at in range(0, size, len(block)):
            length = min(len(block), size - at)
            ctypes.memmove(ctypes.byref(self.source, at), block, length)
        if self.stem in ("potrf", "trsm"):
            self.add_to_diagonal(float(n))
        self.a = ctypes.create_string_buffer(size)
        self.c = ctypes.create_string_buffer(size)
        self.tau = ctypes.create_string_buffer(n * self.element)
        self.work = ctypes.create_string_buffer(64 * n * self.element)
        self.ipiv = (ctypes.c_int * n)()
        self.info = ctypes.c_int(0)
        self.integer = ctypes.byref(ctypes.c_int(n))
        self.lwork = ctypes.byref(ctypes.c_int(64 * n))
        self.one = ctypes.byref((ctypes.c_float if self.single else ctypes.c_double)(1))
        self.zero = ctypes.byref((ctypes.c_float if self.single else ctypes.c_double)(0))

    def add_to_diagonal(self, value):
        numbers = (ctypes.c_float if self.single else ctypes.c_double).from_buffer
        for i in range(self.n):
            numbers(self.source, i * (self.n + 1) * self.element).value += value

    def renew(self):
        ctypes.memmove(self.a, self.source, len(self.source))
        if self.stem in ("trsm", "ormqr", "gemm"):
            ctypes.memmove(self.c, self.source, len(self.source))
        if self.stem == "ormqr":  # reflectors of one element each, tau = 2/(1 + |v|^2)
            ctypes.memset(self.a, 0, len(self.a))
            numbers = (ctypes.c_float if self.single else ctypes.c_double).from_buffer
            for i in range(self.n):
                numbers(self.tau, i * self.element).value = 2

    def call(self):
        n, a, c, info = self.integer, self.a, self.c, ctypes.byref(self.info)
        letters = [ctypes.c_char_p(letter) for letter in (b"L", b"N", b"T")]
        left, plain, turned = letters
        begin = time.perf_counter()
        if self.stem == "gemm":
            self.function(plain, plain, n, n, n, self.one, a, n, self.source, n, self.zero, c, n)
        elif self.stem == "trsm":
            self.function(left, left, plain, plain, n, n, self.one, a, n, c, n)
        elif self.stem == "getrf":
            self.function(n, n, a, n, self.ipiv, info)
        elif self.stem == "potrf":
            self.function(left, n, a, n, info)
        elif self.stem == "geqrf":
            self.function(n, n, a, n, self.tau, self.work, self.lwork, info)
        elif self.stem == "ormqr":
            self.function(left, turned, n, n, n, a, n, self.tau, c, n, self.work, self.lwork, info)
        else:
            sys.exit(f"first.py does not know {self.stem}")
        return time.perf_counter() - begin


def run(library, name, n, later):
    """In a process of its own: print the seconds of the first call and the median of later ones."""
    blas = ctypes.CDLL(library)
    small = Problem(blas, "dgemm", 400)
    small.renew()
    small.call()  # starts the driver
    problem = Problem(blas, name, n)
    seconds = []
    for _ in range(1 + later):
        problem.renew()
        seconds.append(problem.call())
        if problem.info.value != 0:
            sys.exit(f"{name} {n}: info is {problem.info.value}")
    print(seconds[0], statistics.median(seconds[1:]))


def library_of(build):
    path = os.path.join(build, ".libs", "libclblas_shim.so.0")
    return os.path.abspath(path if os.path.isdir(build) else build)


def measure(arguments, name, n):
    folder = tempfile.mkdtemp(prefix="first-")
    command = [sys.executable, __file__, arguments.build, "--run", name, str(n), "--later", str(arguments.later)]
    compiled, copy = os.path.join(folder, "compiled"), os.path.join(folder, "copy")
    environment = dict(os.environ, CLBLAS_SHIM="always", CLBLAS_SHIM_CACHE_DIR=copy)
    results = []
    try:
        subprocess.run(command, env=dict(environment, CLBLAS_SHIM_CACHE_DIR=compiled, CLBLAS_SHIM_VERIFY="0"),
                       check=True, stdout=subprocess.PIPE)
        for _ in range(arguments.processes):
            shutil.copytree(compiled, copy)
            result = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            results.append([float(word) for word in result.stdout.split()])
            shutil.rmtree(copy)
    finally:
        shutil.rmtree(folder)
    return [statistics.median(column) for column in zip(*results)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--sizes", default="3000")
    parser.add_argument("--routines", default=ROUTINES)
    parser.add_argument("--later", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(library_of(arguments.build), arguments.run[0], int(arguments.run[1]), arguments.later)
        return
    print("routine      n   first, ms   later, ms   more, ms   ratio")
    for n in arguments.sizes.split(","):
        for name in arguments.routines.split(","):
            first, later = measure(arguments, name, int(n))
            print(f"{name:8} {n:>5} {1e3 * first:11.1f} {1e3 * later:11.1f} {1e3 * (first - later):10.1f} "
                  f"{first / later:7.2f}", flush=True)


if __name__ == "__main__":
    main()
