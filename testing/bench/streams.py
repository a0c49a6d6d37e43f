#!/usr/bin/env python3
"""Settings of the streamed pipeline next to each other and to NVBLAS, host to host, in one run.

usage: streams.py [options] [BUILD-FOLDER]       (default: the current folder, after `make bench`)

Every setting is a process of its own with its CLBLAS_SHIM_PARAMS, and all of them take turns, forwards
and backwards, on C that the program wrote before (warm) and on C that it never touched (fresh). What
fails or does not answer in time is left out; when the time is over, what there is by then is
printed. The table comes last: medians in milliseconds, the first setting's median over the others',
NVBLAS at its best over each, and the bound of peers.py.

A setting is NAME=KEY=VALUE,KEY=VALUE...; `--set` replaces the list and may be repeated.
"""
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from statistics import median

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import Bench, bound_of, say  # noqa: E402

# Each differs from the default in what its name says.
SETTINGS = [
    ("default", ""),
    ("2 queues", "gemm.queues=2"),
    ("2 queues, 2M pieces", "gemm.queues=2,gemm.piece=2M"),
    ("2M pieces", "gemm.piece=2M"),
    ("8M pieces", "gemm.piece=8M"),
    ("8 threads", "gemm.threads=8"),
    ("15 threads", "gemm.threads=15"),
    ("15 threads, 9 upload", "gemm.threads=15,gemm.uploaders=9"),
    ("6 of 12 upload", "gemm.uploaders=6"),
    ("8 of 12 upload", "gemm.uploaders=8"),
    ("bands of 384", "gemm.band_m=384,gemm.band_n=384"),
    ("bands of 896, 256", "gemm.band_m=896,gemm.band_n=256"),
    ("bands of 1408, 512", "gemm.band_m=1408,gemm.band_n=512"),
    ("bands of 2048, 512", "gemm.band_m=2048,gemm.band_n=512"),
    ("strips whole", "gemm.strip=1M"),
    ("strips of 264", "gemm.strip=264"),
    ("C not faulted in", "gemm.fault=1"),
    ("C in small pages", "gemm.fault=2"),
]
NVBLAS = "NVBLAS, pinning"


def parse_setting(text):
    name, _, parameters = text.partition("=")
    return name, parameters


class Streams:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.end = options.began + options.seconds
        self.bench = Bench(options, folder)
        self.times = {}  # (peer, precision, memory): seconds
        self.bounds = {}
        self.peers = []

    def left(self):
        return self.end - time.time()

    def start(self):
        """The first process compiles, the others find its programs."""
        common = {"CLBLAS_SHIM_LOG_FILE": "/dev/null"}
        for name, parameters in self.options.settings:
            parameters = ",".join(x for x in (self.options.params, parameters) if x)
            extra = {**common, **({"CLBLAS_SHIM_PARAMS": parameters} if parameters else {})}
            self.peers.append(self.bench.start_shim(name, **extra))
            if len(self.peers) == 1:
                for p in self.options.precisions:
                    self.peers[0].ask(f"run {p} 1024 1024 1024 warm", min(30, self.left()))
        for peer in self.bench.nvblas(True):
            peer.name = NVBLAS
            self.peers.append(peer)

    def task(self, p, memory):
        n = self.options.n
        return f"run {p} {n} {n} {n} {memory}"

    def open(self, p):
        """Matrices and the first products, of a few processes at once."""
        group = max(1, (os.cpu_count() or 1) // 2)
        every = self.peers
        for i in range(0, len(every), group):
            some = [peer for peer in every[i:i + group] if peer.lost is None]
            for peer in some:
                peer.send(self.task(p, "warm"))
            for peer in some:
                peer.receive(min(30, self.left()))

    def rounds(self, p, memory, share):
        """Turns until the share of the time is spent; at least one as long as there is time."""
        begin, turn = time.time(), 0
        enough = begin + share
        while turn < self.options.reps and self.left() > 1:
            if turn > 0 and time.time() + (time.time() - begin) / turn > enough:
                break
            for peer in self.peers if turn % 2 == 0 else self.peers[::-1]:
                slow = peer.name == NVBLAS and turn >= 3
                if peer.lost is not None or slow or self.left() < 1:
                    continue
                time.sleep(self.options.pause * 1e-3)
                seconds = peer.ask(self.task(p, memory), min(20, self.left()))
                if seconds:
                    self.times.setdefault((peer.name, p, memory), []).append(seconds)
            turn += 1
        say(f"# {p} {memory}: {turn} rounds, {time.time() - begin:.1f} s")

    def measure_bounds(self):
        n, link = self.options.n, None
        peer = self.bench.start("link")
        rates = []
        for memory in ("warm", "fresh"):
            times = [peer.ask(f"run s 256 1 1 {memory}", min(10, self.left())) for _ in range(5)]
            rates.append((256 << 20) / min(times[1:]) if all(times) else None)
        peer.close()
        if all(rates):
            link = rates
            say(f"# link {rates[0] * 1e-9:.1f} GB/s up, {rates[1] * 1e-9:.1f} GB/s down")
        kernels = self.bench.start("resident", "kernels")
        for p in self.options.precisions:
            alone = [kernels.ask(self.task(p, "warm"), min(15, self.left())) for _ in range(3)]
            if all(alone) and link:
                self.bounds[p] = bound_of(p, n, n, n, median(alone), link)
                say(f"# {p}: the kernels alone {1e3 * median(alone):.2f} ms, bound "
                    f"{1e3 * self.bounds[p]:.2f} ms")
        kernels.close()

    def table(self):
        columns = [(p, memory) for p in self.options.precisions for memory in ("warm", "fresh")]
        medians = {key: 1e3 * median(values) for key, values in self.times.items()}
        names = [peer.name for peer in self.peers]
        n = self.options.n
        say(f"\n== C = A*B, n = {n}, host to host: median ms (best), and the first setting's median / "
            "this one's; x: NVBLAS's / this one's")
        say(f"{'':22}" + "".join(f" {p + ' ' + memory:>25}" for p, memory in columns))
        for name in names:
            line = f"{name:22}"
            for p, memory in columns:
                value = medians.get((name, p, memory))
                first = medians.get((names[0], p, memory))
                nvblas = medians.get((NVBLAS, p, memory))
                if value is None:
                    line += f" {'-':>25}"
                    continue
                best = 1e3 * min(self.times[(name, p, memory)])
                line += f" {value:7.2f} ({best:6.2f})" + (f" {first / value:4.2f}" if first else "")
                line += f" {nvblas / value:3.1f}x" if nvblas else f" {'':4}"
            say(line)
        for p, bound in self.bounds.items():
            say(f"bound {p}: {1e3 * bound:.2f} ms")


def stop(number, _frame):
    """Whatever ends the run, the table is printed."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default=".", help="the folder where `make bench` ran")
    parser.add_argument("--set", type=parse_setting, action="append", dest="settings",
                        metavar="NAME=KEY=VALUE,...")
    parser.add_argument("--params", default="", help="that all settings have besides their own")
    parser.add_argument("-n", type=int, default=8192)
    parser.add_argument("--precisions", default="sd")
    parser.add_argument("--reps", type=int, default=15, help="rounds at most")
    parser.add_argument("--seconds", type=float, default=105, help="for everything")
    parser.add_argument("--pause", type=float, default=10, metavar="MS", help="before each call")
    parser.add_argument("--threads", help="of OpenBLAS and PoCL")
    options = parser.parse_args()
    options.began = time.time()
    options.settings = options.settings or SETTINGS
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, stop)
    signal.alarm(int(options.seconds) + 5)
    with tempfile.TemporaryDirectory() as folder:
        streams = Streams(options, folder)
        try:
            streams.start()
            say(f"# {time.time() - options.began:.1f} s to start")
            for i, p in enumerate(options.precisions):
                share = (streams.left() - 12) / (len(options.precisions) - i)
                begin = time.time()
                streams.open(p)
                say(f"# {p}: {time.time() - begin:.1f} s to prepare")
                share -= time.time() - begin
                streams.rounds(p, "warm", 0.45 * share)
                streams.rounds(p, "fresh", 0.55 * share)
            if streams.left() > 8:
                streams.measure_bounds()
        except KeyboardInterrupt as reason:
            say(f"# ended by {reason}")
        finally:
            signal.alarm(0)
            streams.table()
            say(f"# {time.time() - options.began:.0f} s")
            sys.stdout.flush()
            for peer in streams.peers:
                if peer is not None and peer.process.poll() is None:
                    peer.process.kill()


if __name__ == "__main__":
    main()
