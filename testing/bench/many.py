#!/usr/bin/env python3
"""Many threads of one process that multiply at once, with the library on and off, in turns.

usage: many.py [--threads N] [--sizes N,...] [--seconds S] [--rounds N] [--precision P] [--modes M,...]
               [BUILD-FOLDER]

Each mode is a process of its own, whose threads call dgemm_ again and again, with a C of their own, for S
seconds a round; processes whose turn it is not are stopped. What counts is the steady state, so each warms up
before: one thread multiplies matrices of order 3000 for two seconds and, with the library on, until the device
has computed one of them, twenty seconds at most; then there is a round that does not count. Prints calls a second
of all threads, the median of the rounds, and how many of the calls the device has computed. OPENBLAS_NUM_THREADS
holds for the next library.
"""
import argparse
import array
import ctypes
import json
import os
import signal
import sys
import threading
import time
from statistics import median

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import Peer, say  # noqa: E402

MODES = ["off", "auto", "always"]
WARM_ORDER = 3000
WARM_SECONDS = 2
WARM_MOST = 20  # seconds until the device is there


class Server:
    """The process of a mode, whose threads multiply."""

    def __init__(self, library, precision):
        self.shim = ctypes.CDLL(library)
        self.real = ctypes.c_float if precision == "s" else ctypes.c_double
        self.letter = "f" if precision == "s" else "d"
        self.name = f"{precision}gemm_"
        self.operands = {}

    def operand(self, n):
        """Halves. Of all threads and rounds."""
        if n not in self.operands:
            self.operands[n] = (self.real * (n * n)).from_buffer(array.array(self.letter, [0.5]) * (n * n))
        return self.operands[n]

    def device_calls(self):
        """Calls of the name on the device, by the report."""
        text = ctypes.create_string_buffer(1 << 20)
        function = self.shim.clblas_shim_report
        function.restype, function.argtypes = ctypes.c_size_t, (ctypes.c_char_p, ctypes.c_size_t)
        function(text, len(text))
        return json.loads(text.value)["routines"].get(self.name, {"device": 0})["device"]

    def multiply(self, n, start, goes_on):
        """How often, while goes_on()."""
        a, c, function = self.operand(n), (self.real * (n * n))(), self.shim[self.name]
        ctypes.memset(c, 1, ctypes.sizeof(c))  # not by the first call, which would wait for the memory
        size, length = ctypes.byref(ctypes.c_int(n)), ctypes.c_size_t(1)
        one, zero = ctypes.byref(self.real(1)), ctypes.byref(self.real(0))
        start()
        calls = 0
        while goes_on():
            function(b"N", b"N", size, size, size, one, a, size, a, size, zero, c, size, length, length)
            calls += 1
        return calls if calls == 0 or c[0] == c[n * n - 1] == n / 4 else float("nan")

    def warm_up(self, is_on):
        begin = time.perf_counter()

        def goes_on():
            passed = time.perf_counter() - begin
            return passed < WARM_SECONDS or (is_on and passed < WARM_MOST and self.device_calls() == 0)
        self.multiply(WARM_ORDER, lambda: None, goes_on)
        return time.perf_counter() - begin

    def run_round(self, threads, n, seconds):
        """Calls a second of all threads."""
        until, calls = [0], []

        def begin():
            until[0] = time.perf_counter() + seconds
        barrier = threading.Barrier(threads, action=begin)

        def run():
            calls.append(self.multiply(n, barrier.wait, lambda: time.perf_counter() < until[0]))
        self.operand(n)
        team = [threading.Thread(target=run) for _ in range(threads)]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
        return sum(calls) / (time.perf_counter() - until[0] + seconds)


def serve(library, precision):
    server = Server(library, precision)
    for line in sys.stdin:
        task, *words = line.split()
        if task == "warm":
            print(server.warm_up(words[0] != "off"), flush=True)
        elif task == "device":
            print(server.device_calls(), flush=True)
        else:
            print(server.run_round(int(words[0]), int(words[1]), float(words[2])), flush=True)


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
    parser.add_argument("--modes", default=",".join(MODES), help="of off, auto, always")
    options = parser.parse_args()
    folder, peers, results, on_device = os.path.abspath(options.build), [], {}, {}
    for mode in options.modes.split(","):
        variables = {"CLBLAS_SHIM": mode, "CLBLAS_SHIM_STATS": "/dev/null",
                     "XDG_CACHE_HOME": os.path.join(folder, "testing/cache")}
        variables["CLBLAS_SHIM_NEXT"] = os.environ.get("CLBLAS_SHIM_NEXT", "libopenblas.so.0")
        command = [sys.executable, os.path.abspath(__file__), "--serve",
                   os.path.join(folder, ".libs/libclblas_shim.so.0"), options.precision]
        peers.append(Peer(mode, command, variables))
        peers[-1].ask(f"warm {mode}", 2 * WARM_MOST)
        peers[-1].process.send_signal(signal.SIGSTOP)
    for turn in range(-1, options.rounds):
        for peer in peers if turn % 2 == 0 else peers[::-1]:
            peer.process.send_signal(signal.SIGCONT)
            for n in options.sizes:
                before = peer.ask("device")
                rate = peer.ask(f"round {options.threads} {n} {options.seconds}", 20 + 5 * options.seconds)
                if rate and turn >= 0:
                    results.setdefault((peer.name, n), []).append(rate)
                    on_device[peer.name, n] = on_device.get((peer.name, n), 0) + peer.ask("device") - before
            peer.process.send_signal(signal.SIGSTOP)
    for n in options.sizes:
        rates = [f"{peer.name} {median(results[peer.name, n]):9.1f}" for peer in peers if (peer.name, n) in results]
        parts = [f"{peer.name} {on_device[peer.name, n]:.0f}" for peer in peers if on_device.get((peer.name, n))]
        say(f"{options.threads} threads, n = {n:>5}, calls a second: " + ", ".join(rates)
            + ("; calls on the device: " + ", ".join(parts) if parts else ""))
    for peer in peers:
        peer.process.kill()


if __name__ == "__main__":
    main()
