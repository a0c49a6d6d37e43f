# SPDX-License-Identifier: BSD-3-Clause
"""A program that knows nothing of the shim: products of random matrices with numpy.

usage: matmul.py DIRECTORY [N]

Prints a line "label first-seconds best-seconds" for each precision and writes the product to
DIRECTORY/label as double precision numbers."""
import os
import sys
import time

import numpy


def main():
    directory = sys.argv[1]
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    random = numpy.random.RandomState(1)
    for kind in (numpy.float32, numpy.float64):
        a = random.uniform(-1, 1, (n, n)).astype(kind)
        b = random.uniform(-1, 1, (n, n)).astype(kind)
        seconds = []
        for _ in range(4):
            begin = time.perf_counter()
            c = a @ b
            seconds.append(time.perf_counter() - begin)
        label = numpy.dtype(kind).name
        print(label, seconds[0], min(seconds[1:]))
        c.astype(numpy.float64).tofile(os.path.join(directory, label))


main()
