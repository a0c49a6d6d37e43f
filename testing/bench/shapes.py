#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Settings or builds next to each other on products of many shapes, host to host, on one device.

usage: shapes.py [--seconds S] [--shapes TASK,...] [--set NAME=[FOLDER,]KEY=VALUE,...]... [BUILD-FOLDER]

A task is dgemm:N, dgemm:MxNxK or dsyrk:NxK (s, c, z likewise; syrk: the lower triangle of A*A^T), with
/tn, /nt or /tt behind it for transposed operands of a product, then a word for operands of extreme scale, and then
/fresh for C that was never touched. Of extreme scale are /rows (row i of op(A) is multiplied by one of 2^-90 to 2^90,
column j of op(B) by one of 2^-20 to 2^20), /first and /last (the first or the last element of A is 2^70), and /nan
(the first one is).
Each setting is a process with its CLBLAS_SHIM_PARAMS, and with its own build where it names one; all take
turns, forwards and backwards, and a task has its share of the time. A process is stopped when it is not its
turn: drivers have threads that go on spinning after a call. They start one after the other, because the first
one compiles. What does not answer in time is left out. The table comes last, also where the run is ended:
milliseconds, median and best of each setting.
"""
import argparse
import ctypes
import os
import re
import signal
import sys
import time
from statistics import median

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import Peer, say  # noqa: E402

SHAPES = "dgemm:1024,sgemm:1024,dgemm:2048,sgemm:2048,dgemm:4096,sgemm:4096,dsyrk:300x100000,dgemm:8192x8192x64"
REALS = {"s": (ctypes.c_float, 1), "d": (ctypes.c_double, 1), "c": (ctypes.c_float, 2), "z": (ctypes.c_double, 2)}


def parse_task(text):
    pattern = r"([sdcz])(gemm|syrk):([0-9x]+)(/[nt]{2})?(/rows|/first|/last|/nan)?(/fresh)?"
    p, routine, sizes, forms, scale, fresh = re.fullmatch(pattern, text).groups()
    sizes = [int(size) for size in sizes.split("x")]
    m, n, k = sizes * 3 if len(sizes) == 1 else [sizes[0], *sizes] if len(sizes) == 2 else sizes
    return p, routine, (forms or "/nn")[1:].upper().encode(), m, n, k, (scale or "/")[1:], fresh is not None


def scale_vectors(memory, real, parts, vectors, length, largest, columns):
    """Fill a matrix with numbers times one of 2^-largest to 2^largest for each of its columns, or else rows."""
    def number(place, vector):
        return (place * 7919 % 4099 / 4099 - 0.5) * 2.0 ** (vector * 7919 % (2 * largest + 1) - largest)
    if columns:
        made = [(real * (length * parts))(*[number(i, e) for i in range(length * parts)]) for e in range(2 * largest + 1)]
    else:
        made = [(real * (vectors * parts))(*[number(i + seed, i // parts) for i in range(vectors * parts)])
                for seed in range(13)]
    size = ctypes.sizeof(made[0])
    for i in range(vectors if columns else length):
        ctypes.memmove(memory + i * size, made[i % len(made)], size)


class Server:
    """The calls of one library, by its public names."""

    def __init__(self, path):
        self.shim = ctypes.CDLL(path)
        self.libc = ctypes.CDLL(None)
        self.libc.mmap.restype = ctypes.c_void_p
        self.task, self.memory = None, []

    def map(self, size):
        """Pages that nobody has touched: private, anonymous."""
        return ctypes.c_void_p(self.libc.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, ctypes.c_long(0)))

    def unmap(self, memory):
        self.libc.munmap(memory[0], ctypes.c_size_t(memory[1]))

    def prepare(self, task):
        p, _, forms, m, n, k, scale, _ = parse_task(task)
        real, parts = REALS[p]
        for memory in self.memory:
            self.unmap(memory)
        self.memory = []
        for elements in (m * k, k * n, m * n):
            size = elements * parts * ctypes.sizeof(real)
            self.memory.append((self.map(size), size))
            block = (real * 4099)(*[(i * 7919 % 4099) / 4099 - 0.5 for i in range(4099)])
            for at in range(0, size, ctypes.sizeof(block)):
                ctypes.memmove(self.memory[-1][0].value + at, block, min(size - at, ctypes.sizeof(block)))
        a, b = self.memory[0][0].value, self.memory[1][0].value
        if scale == "rows":
            scale_vectors(a, real, parts, m, k, 90, forms[:1] != b"N")
            scale_vectors(b, real, parts, n, k, 20, forms[1:] == b"N")
        elif scale:
            at = a + (m * k - 1) * parts * ctypes.sizeof(real) if scale == "last" else a
            real.from_address(at).value = float("nan") if scale == "nan" else 2.0**70
        self.task = task

    def measure(self, task):
        if self.task != task:
            self.prepare(task)
        p, routine, forms, m, n, k, _, fresh = parse_task(task)
        real, parts = REALS[p]
        if fresh:
            self.unmap(self.memory[2])
            self.memory[2] = (self.map(self.memory[2][1]), self.memory[2][1])
        a, b, c = (memory[0] for memory in self.memory)
        m, n, k = (ctypes.byref(ctypes.c_int(size)) for size in (m, n, k))
        lda, ldb = (m if forms[:1] == b"N" else k), (k if forms[1:] == b"N" else n)
        one, zero = ((real * parts)(value) for value in (1, 0))
        function = getattr(self.shim, f"{p}{routine}_")
        length = ctypes.c_size_t(1)
        begin = time.perf_counter()
        if routine == "gemm":
            function(forms[:1], forms[1:], m, n, k, one, a, lda, b, ldb, zero, c, m, length, length)
        else:
            function(b"L", b"N", n, k, one, a, n, zero, c, n, length, length)
        return time.perf_counter() - begin


def serve(path):
    server = Server(path)
    for line in sys.stdin:
        print(server.measure(line.strip()), flush=True)


def start(options, setting):
    name, _, parameters = setting.partition("=")
    build, _, rest = parameters.partition(",")
    folder = os.path.abspath(build if "=" not in build and build else options.build)
    parameters = rest if "=" not in build else parameters
    library = os.path.join(folder, ".libs/libclblas_shim.so.0")
    variables = {"CLBLAS_SHIM": "always", "CLBLAS_SHIM_STATS": "/dev/null", "CLBLAS_SHIM_LOG_FILE": "/dev/null",
                 "XDG_CACHE_HOME": os.path.join(folder, "testing/cache"), "CLBLAS_SHIM_PARAMS": parameters}
    variables["CLBLAS_SHIM_NEXT"] = os.environ.get("CLBLAS_SHIM_NEXT", "libopenblas.so.0")
    return Peer(name, [sys.executable, os.path.abspath(__file__), "--serve", library], variables)


def table(options, names, times):
    say("\n" + " " * 18 + "".join(f" {task:>19}" for task in options.shapes))
    for name in names:
        line = f"{name:18}"
        for task in options.shapes:
            seconds = times.get((name, task))
            line += f" {1e3 * median(seconds):9.3f} ({1e3 * min(seconds):7.3f})" if seconds else f" {'-':>19}"
        say(line)


def run(options, times, peers):
    end = time.time() + options.seconds
    for setting in options.settings:
        peer = start(options, setting)
        for p in sorted({task[0] for task in options.shapes}):
            peer.ask(f"{p}gemm:1024", min(40 if not peers else 15, end - time.time()))
        peers.append(peer)
    say(f"# {options.seconds - (end - time.time()):.1f} s to start {len(peers)}")
    for peer in peers:
        peer.process.send_signal(signal.SIGSTOP)
    for i, task in enumerate(options.shapes):
        share = (end - time.time()) / (len(options.shapes) - i)
        stop, turn = time.time() + share, 0
        while turn < options.turns and time.time() < stop:
            for peer in peers if turn % 2 == 0 else peers[::-1]:
                if peer.lost is not None or time.time() > end:
                    continue
                peer.process.send_signal(signal.SIGCONT)
                for call in range(options.calls + (2 if turn == 0 else 1)):
                    time.sleep(options.pause * 1e-3)
                    seconds = peer.ask(task, min(10, end - time.time()))
                    if seconds and call > 0:
                        times.setdefault((peer.name, task), []).append(seconds)
                if peer.lost is None:
                    peer.process.send_signal(signal.SIGSTOP)
            turn += 1
        say(f"# {task}: {turn} turns")


def main():
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default=".")
    parser.add_argument("--set", action="append", dest="settings", metavar="NAME=[FOLDER,]KEY=VALUE,...")
    parser.add_argument("--shapes", type=lambda text: text.split(","), default=SHAPES.split(","))
    parser.add_argument("--seconds", type=float, default=60, help="for everything")
    parser.add_argument("--turns", type=int, default=9, help="at most")
    parser.add_argument("--calls", type=int, default=4, help="of a turn, behind one that is not timed")
    parser.add_argument("--pause", type=float, default=1, metavar="MS", help="before each call")
    options = parser.parse_args()
    options.settings = options.settings or ["default="]
    times, peers = {}, []
    signal.signal(signal.SIGALRM, lambda *_: sys.exit("# ended by the clock"))
    signal.alarm(int(options.seconds) + 10)
    try:
        run(options, times, peers)
    finally:
        signal.alarm(0)
        table(options, [peer.name for peer in peers], times)
        for peer in peers:
            if peer.process.poll() is None:
                peer.process.kill()


if __name__ == "__main__":
    main()
