#!/usr/bin/env python3
"""Many threads of one process that multiply at once, with the library on and off, in turns.

usage: many.py [--threads N] [--sizes N,...] [--seconds S] [--rounds N] [--precision P] [BUILD-FOLDER]

Each mode is a process of its own, whose threads call dgemm_ again and again, with a C of their own, for S
seconds a round; processes whose turn it is not are stopped. Prints calls a second of all threads, the median of
the rounds. OPENBLAS_NUM_THREADS holds for the next library.
"""
import argparse
import ctypes
import os
import signal
import sys
import threading
import time
from statistics import median

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import Peer, say  # noqa: E402

MODES = ["off", "auto", "always"]


def multiply(function, real, n, a, until, result):
    c = (real * (n * n))()
    size, one, zero, length = ctypes.byref(ctypes.c_int(n)), real(1), real(0), ctypes.c_size_t(1)
    result["ready"].wait()
    calls = 0
    while time.perf_counter() < until[0]:
        function(b"N", b"N", size, size, size, ctypes.byref(one), a, size, a, size, ctypes.byref(zero), c, size,
                 length, length)
        calls += 1
    result["calls"].append(calls if c[0] == c[n * n - 1] == n / 4 else float("nan"))


def serve(library, precision):
    shim = ctypes.CDLL(library)
    real = ctypes.c_float if precision == "s" else ctypes.c_double
    for line in sys.stdin:
        threads, n, seconds = (kind(word) for kind, word in zip((int, int, float), line.split()))
        a = (real * (n * n))(*([0.5] * (n * n)))
        until, result = [0], {"ready": threading.Event(), "calls": []}
        arguments = (shim[f"{precision}gemm_"], real, n, a, until, result)
        team = [threading.Thread(target=multiply, args=arguments) for _ in range(threads)]
        for thread in team:
            thread.start()
        time.sleep(0.1)
        begin = time.perf_counter()
        until[0] = begin + seconds
        result["ready"].set()
        for thread in team:
            thread.join()
        elapsed = time.perf_counter() - begin
        print(sum(result["calls"]) / elapsed, flush=True)


def main():
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default=".")
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=["512", "1024"])
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices="sd", default="d")
    options = parser.parse_args()
    folder, peers, results = os.path.abspath(options.build), [], {}
    for mode in MODES:
        variables = {"CLBLAS_SHIM": mode, "XDG_CACHE_HOME": os.path.join(folder, "testing/cache")}
        variables["CLBLAS_SHIM_NEXT"] = os.environ.get("CLBLAS_SHIM_NEXT", "libopenblas.so.0")
        command = [sys.executable, os.path.abspath(__file__), "--serve",
                   os.path.join(folder, ".libs/libclblas_shim.so.0"), options.precision]
        peers.append(Peer(mode, command, variables))
        peers[-1].ask(f"1 1200 {0.5 if mode == 'off' else 2}", 40)
        peers[-1].process.send_signal(signal.SIGSTOP)
    for turn in range(options.rounds):
        for peer in peers if turn % 2 == 0 else peers[::-1]:
            peer.process.send_signal(signal.SIGCONT)
            for n in options.sizes:
                rate = peer.ask(f"{options.threads} {n} {options.seconds}", 20 + 5 * options.seconds)
                if rate:
                    results.setdefault((peer.name, n), []).append(rate)
            peer.process.send_signal(signal.SIGSTOP)
    for n in options.sizes:
        rates = [f"{peer.name} {median(results[peer.name, n]):9.1f}" for peer in peers if (peer.name, n) in results]
        say(f"{options.threads} threads, n = {n:>5}, calls a second: " + ", ".join(rates))
    for peer in peers:
        peer.process.kill()


if __name__ == "__main__":
    main()
