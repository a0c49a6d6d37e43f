# SPDX-License-Identifier: BSD-3-Clause
"""Eigenvalues of a symmetric matrix (dsyevd) and singular values of a general one (dgesdd), with vectors.
The shim has neither, but LAPACK's own routines call products, triangular products and reflectors by
name, and those go to the device.

usage: spectra.py [N]                                                    (default: 1200)

A line for each: seconds, the residual |AZ - ZL| / (n|A|u), |AV - US| / (n|A|u), and the vectors' distance from
orthogonal |Z'Z - 1| / (n u), all by random vectors. The exit status is 1 when one of them is above 1.

Over the reference libraries, without the shim and with it:

    export LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/lapack:/usr/lib/x86_64-linux-gnu/blas
    spectra.py; CLBLAS_SHIM_STATS=- LD_PRELOAD=libclblas_shim.so.0 spectra.py"""
import ctypes
import sys
import time

import numpy

LAPACK = ctypes.CDLL("liblapack.so.3")
UNIT = 2.0 ** -53


def call(name, letters, *arguments):
    """Seconds; letters are arguments of one character, integers go by reference, as Fortran has it."""
    info, begin = ctypes.c_int(), time.perf_counter()
    getattr(LAPACK, name)(
        *[ctypes.c_char_p(letter.encode()) for letter in letters],
        *[ctypes.byref(ctypes.c_int(x)) if isinstance(x, int) else x.ctypes.data_as(ctypes.c_void_p)
          for x in arguments],
        ctypes.byref(info), *[ctypes.c_size_t(1) for _ in letters])
    if info.value != 0:
        sys.exit("%s: info is %d" % (name, info.value))
    return time.perf_counter() - begin


def times(matrix, vectors):
    """The product by matrix-vector products, which stay on the CPU."""
    return numpy.stack([matrix @ v for v in vectors.T], axis=1)


def orthogonality(z, w):
    return numpy.linalg.norm(times(z.T, times(z, w)) - w) / (len(z) * UNIT * numpy.linalg.norm(w))


def residual(a, right, values, left, w):
    """|A*right*w - left*diag(values)*w| / (n |A| |w| u)."""
    error = times(a, times(right, w)) - times(left, values[:, None] * w)
    return numpy.linalg.norm(error) / (len(a) * UNIT * numpy.linalg.norm(a) * numpy.linalg.norm(w))


def eigenvalues(a, w):
    n = len(a)
    z, values = a.copy(order="F"), numpy.zeros(n)
    work, iwork = numpy.zeros(1 + 6 * n + 2 * n * n), numpy.zeros(3 + 5 * n, numpy.int32)
    seconds = call("dsyevd_", "VL", n, z, n, values, work, work.size, iwork, iwork.size)
    return seconds, residual(a, z, values, z, w), orthogonality(z, w)


def singular_values(a, w):
    n = len(a)
    copy, u, vt = (a.copy(order="F") for _ in range(3))
    values, work, iwork = numpy.zeros(n), numpy.zeros(6 * n * n + 100 * n), numpy.zeros(8 * n, numpy.int32)
    seconds = call("dgesdd_", "A", n, n, copy, n, values, u, n, vt, n, work, work.size, iwork)
    return (seconds, residual(a, vt.T, values, u, w),
            max(orthogonality(u, w), orthogonality(vt, w)))


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1200
    numbers = numpy.random.default_rng(7)
    a, w = numbers.uniform(-1, 1, (n, n)), numbers.standard_normal((n, 4))
    good = True
    for name, function, matrix in (("dsyevd", eigenvalues, a + a.T), ("dgesdd", singular_values, a)):
        seconds, error, angle = function(matrix, w)
        print("%s %5d %8.3f s  residual %.3g  orthogonality %.3g" % (name, n, seconds, error, angle))
        good = good and error <= 1 and angle <= 1
    sys.exit(0 if good else 1)


main()
