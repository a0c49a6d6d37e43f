#!/usr/bin/env python3
"""Level 3 and solves by a library's Fortran names, host to host: milliseconds, median and best.

usage: level3.py [--sizes N,N,...] [--reps N] [--cold] [--routines NAME,...] LIBRARY

LIBRARY is the shim's (with CLBLAS_SHIM=always, and CLBLAS_SHIM_NEXT for the rest), OpenBLAS's or NVBLAS's,
with NVBLAS_CONFIG_FILE; factorisations over NVBLAS are those of the reference's LAPACK with NVBLAS
preloaded. Each gets a process of its own. A call that is not timed comes first, unless --cold says that a
slow library need not warm up. A few rows or a random combination of the columns are checked; dgetrf's
matrices may be as large as memory, also behind the 2^31st entry. Needs numpy.
"""
import argparse
import ctypes
import sys
import threading
import time
from statistics import median

import numpy as np


def integer(value):
    return ctypes.byref(ctypes.c_int(value))


def real(value):
    return ctypes.byref(ctypes.c_double(value))


def data(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def letter(text):
    return ctypes.c_char_p(text.encode())


LENGTH = ctypes.c_long(1)


def matrix(rows, cols, dtype=float):
    """Random entries in (-1/2, 1/2), by several threads."""
    a = np.empty((rows, cols), dtype=dtype, order="F")

    def fill(part):
        random = np.random.default_rng((part, rows, cols, time.time_ns()))
        for j in range(part, cols, 8):
            a[:, j] = random.random(rows) - 0.5
            if dtype is complex:
                a[:, j] += 1j * (random.random(rows) - 0.5)
    threads = [threading.Thread(target=fill, args=(part,)) for part in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return a


class Level3:
    def __init__(self, library, reps, cold):
        self.library, self.reps, self.cold = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL), reps, cold

    def time(self, name, call, prepare=lambda: None):
        times = []
        for _ in range(self.reps + (not self.cold)):
            prepare()
            time.sleep(0.01)
            begin = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - begin))
        timed = times[not self.cold:]
        print(f"{name:16} {median(timed):9.2f} {min(timed):9.2f}", flush=True)

    @staticmethod
    def judge(got, wanted, n):
        error = np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-300)
        if not error < 1e-13 * n:
            sys.exit(f"WRONG: {error}")

    def rank_k(self, n, dtype, name):
        a, c = matrix(n, n, dtype), matrix(n, n, dtype)
        self.time(f"{name} {n}", lambda: getattr(self.library, name + "_")(
            letter("L"), letter("N"), integer(n), integer(n), real(1), data(a), integer(n), real(0), data(c),
            integer(n), LENGTH, LENGTH))
        self.judge(c[-1, :], a[-1, :] @ a.conj().T, n)

    def dsyrk(self, n):
        self.rank_k(n, float, "dsyrk")

    def zherk(self, n):
        self.rank_k(n, complex, "zherk")

    def dsymm(self, n):
        a, b, c = (matrix(n, n) for _ in range(3))
        self.time(f"dsymm {n}", lambda: self.library.dsymm_(
            letter("L"), letter("L"), integer(n), integer(n), real(1), data(a), integer(n), data(b), integer(n),
            real(0), data(c), integer(n), LENGTH, LENGTH))
        self.judge(c[-1, :], a[-1, :] @ b, n)

    def dtrmm(self, n):
        a, b = matrix(n, n), matrix(n, n)
        x = b.copy(order="F")

        def prepare():
            x[...] = b
        self.time(f"dtrmm {n}", lambda: self.library.dtrmm_(
            letter("L"), letter("L"), letter("N"), letter("N"), integer(n), integer(n), real(1), data(a),
            integer(n), data(x), integer(n), LENGTH, LENGTH, LENGTH, LENGTH), prepare)
        self.judge(x[-1, :], a[-1, :] @ b, n)

    @staticmethod
    def judge_factor(factor, product, v, n, name):
        """|R^T R v - product| relative to its largest entry; R is the factor's upper triangle."""
        got = np.zeros(n)
        rv = np.zeros(n)
        for j in range(n):
            rv[:j + 1] += factor[:j + 1, j] * v[j]
        for j in range(n):
            got[j] = factor[:j + 1, j] @ rv[:j + 1]
        if not np.abs(got - product).max() < 1e-12 * np.abs(product).max():
            sys.exit(f"WRONG: {name}")

    def dpotrf(self, n):
        a, v, info = matrix(n, n), matrix(n, 1)[:, 0], ctypes.c_int(0)
        a[np.arange(n), np.arange(n)] = n
        x = a.copy(order="F")
        product = n * v
        for j in range(n):  # the upper triangle stands for both
            product[:j] += a[:j, j] * v[j]
            product[j] += a[:j, j] @ v[:j]

        def prepare():
            x[...] = a
        self.time(f"dpotrf {n}", lambda: self.library.dpotrf_(
            letter("U"), integer(n), data(x), integer(n), ctypes.byref(info), LENGTH), prepare)
        if info.value != 0:
            sys.exit(f"WRONG: info {info.value}")
        self.judge_factor(x, product, v, n, "dpotrf")

    def dgeqrf(self, n):
        a, v, info = matrix(n, n), matrix(n, 1)[:, 0], ctypes.c_int(0)
        x, tau, work = a.copy(order="F"), np.zeros(n), np.zeros(256 * n)

        def prepare():
            x[...] = a
        self.time(f"dgeqrf {n}", lambda: self.library.dgeqrf_(
            integer(n), integer(n), data(x), integer(n), data(tau), data(work), integer(256 * n),
            ctypes.byref(info)), prepare)
        self.judge_factor(x, a.T @ (a @ v), v, n, "dgeqrf")

    def dgesv(self, n):
        for rhs in (1, 1024):
            a, b = matrix(n, n), matrix(n, rhs)
            factors, x = a.copy(order="F"), b.copy(order="F")
            pivots, info = np.zeros(n, dtype=np.int32), ctypes.c_int(0)

            def prepare():
                factors[...] = a
                x[...] = b
            self.time(f"dgesv {n} {rhs}", lambda: self.library.dgesv_(
                integer(n), integer(rhs), data(factors), integer(n), data(pivots), data(x), integer(n),
                ctypes.byref(info)), prepare)
            residual = np.abs(a[:200] @ x - b[:200]).max() / (n * np.abs(x).max())
            if info.value != 0 or not residual < 1e-12:
                sys.exit(f"WRONG: info {info.value}, residual {residual}")

    def dgetrf(self, n):
        """One matrix, factored once; P*A*v = L*(U*v) with a random v, column by column."""
        a, v = matrix(n, n), matrix(n, 1)[:, 0]
        product, norm = a @ v, np.sqrt(n * np.mean([a[:, j] @ a[:, j] for j in range(0, n, 97)]))
        pivots, info = np.zeros(n, dtype=np.int32), ctypes.c_int(0)
        begin = time.perf_counter()
        self.library.dgetrf_(integer(n), integer(n), data(a), integer(n), data(pivots), ctypes.byref(info))
        seconds = time.perf_counter() - begin
        upper, result = np.zeros(n), np.zeros(n)
        for j in range(n):
            upper[:j + 1] += a[:j + 1, j] * v[j]
        for j in range(n):
            result[j] += upper[j]
            result[j + 1:] += a[j + 1:, j] * upper[j]
        for i, pivot in enumerate(pivots - 1):
            product[[i, pivot]] = product[[pivot, i]]
        error = np.linalg.norm(result - product) / (n * norm * np.linalg.norm(v) * 2.0 ** -53)
        print(f"{'dgetrf ' + str(n):16} {1e3 * seconds:9.2f}   info {info.value}, residual {error:.2g} n|A||v|u")
        if not error < 1:
            sys.exit("WRONG")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("library")
    parser.add_argument("--sizes", default="8192")
    parser.add_argument("--reps", type=int, default=4)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--routines", default="dsyrk,dsymm,dtrmm,zherk")
    options = parser.parse_args()
    level3 = Level3(options.library, options.reps, options.cold)
    for n in map(int, options.sizes.split(",")):
        for routine in options.routines.split(","):
            getattr(level3, routine)(n)


if __name__ == "__main__":
    main()
