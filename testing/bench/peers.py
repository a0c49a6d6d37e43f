#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The shim next to its peers, alternating in one run.

usage: peers.py [options] [BUILD-FOLDER]         (default: the current folder, after `make bench`)

Every peer is a process of its own (bench-peer.c) that multiplies when told to; the
peers of a shape take turns, forwards and backwards, and the ratio is the median of the ratios of one
round, because speeds drift. On the device each works untimed for a while before it is timed: at the
limit of its power the device's clock depends on what it has just done. A peer that is missing is left
out with a message. The last table has limits that this project has set itself for an H200: what the
shim must reach, and what it should.

  on the device    operands there already, the shim's packing included: shim, shim strict, shim fast
                   (single precision), CLBlast, cuBLAS (without TF32)
  host to host     xgemm_ on memory that the program wrote before (warm) or never touched (fresh) C
                   of: shim, shim with a third of the memory that the matrices take, the next BLAS
                   (OpenBLAS), NVBLAS with and without its pinning of memory

The bound for host to host, with T the time of A and B over the link, W that of the kernels on the
device (both measured here) and D that of C over the link, is the larger of D and max over t of
t*T + (1-t^2)*W: no schedule over squares ends before.

Needs an OpenCL device; CLBLAS_SHIM_DEVICE chooses one. BENCH_SHIM, BENCH_OPENBLAS, BENCH_CLBLAST and
BENCH_NVBLAS name the libraries when they are elsewhere than usual.
"""
import argparse
import glob
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from statistics import median

ELEMENT = {"s": 4, "d": 8, "c": 8, "z": 16}
FLOPS = {"s": 2, "d": 2, "c": 8, "z": 8}


def say(*words):
    print(*words, flush=True)


class Peer:
    """A process that answers tasks with seconds. `lost` says why it answers no more."""

    def __init__(self, name, command, extra=None, drop=()):
        self.name, self.lost = name, None
        environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", *drop)}
        environment.update(extra or {})
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log)

    def ask(self, task, limit=300):
        self.send(task)
        return self.receive(limit)

    def send(self, task):
        """Without waiting for the answer: several peers may prepare at once."""
        try:
            self.process.stdin.write((task + "\n").encode())
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def receive(self, limit=300):
        if self.lost is not None:
            return None
        ready = select.select([self.process.stdout], [], [], max(limit, 0))[0]
        answer = self.process.stdout.readline() if ready else b""
        if answer:
            return float(answer)
        if not ready:
            self.process.kill()
        self.close()
        self.log.seek(0)
        lines = self.log.read().strip().splitlines()
        self.lost = "no answer in time" if not ready else lines[-1] if lines else "it ended"
        say(f"# {self.name} is left out: {self.lost}")
        return None

    def close(self):
        if self.process.poll() is None:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder, self.rows = options, folder, []
        self.program = os.path.join(options.build, "testing/bench/bench-peer")
        if not os.access(self.program, os.X_OK):
            sys.exit(f"{self.program} is missing: make bench")
        where = subprocess.run([self.program, "where"], stdout=subprocess.PIPE, text=True, check=True)
        self.shim, self.openblas, self.core = (where.stdout.split("\n") + ["", ""])[:3]
        if self.core:
            os.environ.setdefault("OPENBLAS_CORETYPE", self.core)
        if options.threads:
            os.environ["OPENBLAS_NUM_THREADS"] = os.environ["POCL_MAX_PTHREAD_COUNT"] = options.threads

    def start(self, kind, name=None, extra=None, **more):
        return Peer(name or kind, [self.program, kind], extra, **more)

    def start_shim(self, name="shim", **extra):
        settings = {"CLBLAS_SHIM": "always", "CLBLAS_SHIM_STATS": "/dev/null", **extra}
        if self.openblas:
            settings.setdefault("CLBLAS_SHIM_NEXT", self.openblas)
        return self.start("shim", name, settings)

    def resident_peers(self):
        peers = [self.start("resident", "shim")]
        if "s" in self.options.precisions:
            peers += [self.start("resident", f"shim {math}", {"CLBLAS_SHIM_MATH": math})
                      for math in ("strict", "fast")]
        return peers + [self.start("clblast"), self.start("cublas")]

    def nvblas(self, pinned):
        patterns = ("/usr/local/cuda*/lib64/libnvblas.so*", "/usr/local/cuda*/targets/*/lib/libnvblas.so*",
                    "/usr/lib/x86_64-linux-gnu/libnvblas.so*")
        found = [p for pattern in patterns for p in sorted(glob.glob(pattern))]
        library = os.environ.get("BENCH_NVBLAS") or (found[0] if found else None)
        name = "nvblas pinned" if pinned else "nvblas"
        # Without a GPU it hands everything to the other library.
        if library is None or not self.openblas or not shutil.which("nvidia-smi"):
            say(f"# {name} is left out: no libnvblas.so, no GPU of NVIDIA's or no OpenBLAS for it")
            return []
        path = os.path.join(self.folder, name.replace(" ", "-") + ".conf")
        with open(path, "w") as file:
            file.write(f"NVBLAS_LOGFILE {self.folder}/nvblas.log\nNVBLAS_GPU_LIST 0\n"
                       f"NVBLAS_CPU_BLAS_LIB {self.openblas}\nNVBLAS_TILE_DIM 2048\n"
                       + ("NVBLAS_AUTOPIN_MEM_ENABLED\n" if pinned else ""))
        return [self.start("preloaded", name, {"LD_PRELOAD": library, "NVBLAS_CONFIG_FILE": path})]

    def host_peers(self):
        return ([self.start_shim(), self.start("next", "next BLAS")]
                + self.nvblas(True) + self.nvblas(False))

    def turns(self, peers, p, m, n, k, memory="warm"):
        """Times of each peer, round by round; None where a peer sat out."""
        task = f"run {p} {m} {n} {k} {memory}"
        work = FLOPS[p] * m * n * k * 1e-12
        times = {peer.name: [] for peer in peers}
        spent = {}
        for peer in peers:
            slow = peer.name in ("next BLAS", "nvblas") and work > self.options.slow
            strict = peer.name in ("shim strict", "shim fast") and p != "s"
            if slow or strict or (memory == "fresh" and peer.name == "nvblas"):
                continue
            first = peer.ask(task)
            if first is not None:
                spent[peer.name] = 0.0
        for turn in range(self.options.reps):
            for peer in peers if turn % 2 == 0 else peers[::-1]:
                seconds = None
                enough = turn >= 3 and spent.get(peer.name, 0) > self.options.seconds
                if peer.name in spent and not enough:
                    time.sleep(self.options.pause * 1e-3)
                    seconds = peer.ask(task)
                    spent[peer.name] += seconds or 0
                times[peer.name].append(seconds)
        return {name: list_ for name, list_ in times.items() if any(list_)}

    def record(self, where, p, m, n, k, memory, times, bound=None, base="shim"):
        work = FLOPS[p] * m * n * k
        say(f"\n== {p} {m} x {n} x {k}, {where}{'' if where == 'device' else ', C ' + memory}"
            + (f"; bound {1e3 * bound:.2f} ms" if bound else ""))
        say(f"{'':16} {'median ms':>10} {'best ms':>10} {'TFLOP/s':>9} {'shim is':>9}"
            + (f" {'of bound':>9}" if bound else ""))
        for name, list_ in times.items():
            good = [t for t in list_ if t]
            pairs = [t / s for t, s in zip(list_, times.get(base, [])) if t and s]
            row = {"where": where, "p": p, "m": m, "n": n, "k": k, "c": memory, "peer": name,
                   "median": median(good), "best": min(good), "reps": len(good),
                   "tflops": work / median(good) * 1e-12, "shim_is": median(pairs) if pairs else None,
                   "bound": bound}
            self.rows.append(row)
            say(f"{name:16} {1e3 * row['median']:10.3f} {1e3 * row['best']:10.3f} {row['tflops']:9.3f}"
                + (f" {row['shim_is']:8.2f}x" if pairs else f" {'':9}")
                + (f" {bound / row['median']:9.2f}" if bound else ""))

    def find(self, where, p, m, n, k, peer, memory="warm"):
        for row in self.rows:
            if (row["where"], row["p"], row["m"], row["n"], row["k"], row["peer"],
                    row["c"]) == (where, p, m, n, k, peer, memory):
                return row
        return None


def on_device(bench, options):
    peers = bench.resident_peers()
    for n in options.resident:
        for p in options.precisions:
            if p in "sd" or n <= options.complex_max:
                times = bench.turns(peers, p, n, n, n)
                if times:
                    bench.record("device", p, n, n, n, "warm", times)
    for peer in peers:
        peer.close()


def measure_link(bench, options):
    """Bytes a second up and down."""
    peer = bench.start("link")
    rates = []
    for memory in ("warm", "fresh"):
        times = [peer.ask(f"run s {options.link_mib} 1 1 {memory}") for _ in range(7)]
        rates.append((options.link_mib << 20) / min(times[1:]) if times[-1] else None)
    peer.close()
    if all(rates):
        say(f"\n# link {rates[0] * 1e-9:.1f} GB/s up, {rates[1] * 1e-9:.1f} GB/s down")
    return rates


def bound_of(p, m, n, k, kernels, link):
    up, down = ((m * k + k * n) * ELEMENT[p] / link[0], m * n * ELEMENT[p] / link[1])
    pipeline = kernels + up * up / (4 * kernels) if up < 2 * kernels else up
    return max(pipeline, down)


def host_to_host(bench, options, link):
    peers = bench.host_peers()
    kernels = bench.start("resident", "kernels")
    for p, m, n, k in options.shapes:
        alone = [kernels.ask(f"run {p} {m} {n} {k} warm") for _ in range(5)]
        kernels.ask("drop")
        bound = bound_of(p, m, n, k, median(alone), link) if alone[-1] and all(link) else None
        for memory in ("warm", "fresh"):
            times = bench.turns(peers, p, m, n, k, memory)
            if times:
                bench.record("host", p, m, n, k, memory, times, bound)
        if bench.find("host", p, m, n, k, "shim") and (p, m, n, k) in options.limited:
            limit = (m * k + k * n + m * n) * ELEMENT[p] // 3
            small = bench.start_shim("shim, a third", CLBLAS_SHIM_MEMORY=str(limit))
            times = bench.turns([peers[0], small], p, m, n, k)
            small.close()
            bench.record("host, less memory", p, m, n, k, "warm", times, bound)
        for peer in peers:
            peer.ask("drop")
    for peer in [*peers, kernels]:
        peer.close()


def requirements(bench):
    """Name, value, required, goal; larger is better unless the name ends in ms."""
    def ratio(p, n, peer, base="shim", where="device"):
        mine, other = (bench.find(where, p, n, n, n, x) for x in (base, peer))
        if base == "shim" and other:
            return other["shim_is"]
        return other["median"] / mine["median"] if mine and other else None

    def milliseconds(p, n):
        row = bench.find("host", p, n, n, n, "shim")
        return row and 1e3 * row["median"]

    def nvblas(p, n):
        found = [r for r in (ratio(p, n, x, where="host") for x in ("nvblas", "nvblas pinned")) if r]
        return min(found) if found else None

    def of_bound(p, m, n, k):
        row = bench.find("host", p, m, n, k, "shim")
        return row and row["bound"] and row["bound"] / row["median"]

    def less_memory(p, n):
        row = bench.find("host, less memory", p, n, n, n, "shim, a third")
        return row and 1 / row["shim_is"]

    yield "DGEMM 8192 on the device / cuBLAS", ratio("d", 8192, "cublas"), 0.92, 1.0
    yield "DGEMM 8192 on the device / CLBlast", ratio("d", 8192, "clblast"), 4, None
    yield "SGEMM 8192 on the device / cuBLAS", ratio("s", 8192, "cublas"), 1.6, 2.4
    yield "SGEMM 8192 fast / cuBLAS", ratio("s", 8192, "cublas", "shim fast"), None, 3.8
    yield "SGEMM 8192 strict / cuBLAS", ratio("s", 8192, "cublas", "shim strict"), 0.95, 1.0
    yield "CGEMM 4096 on the device / cuBLAS", ratio("c", 4096, "cublas"), 0.8, 1.0
    yield "ZGEMM 4096 on the device / cuBLAS", ratio("z", 4096, "cublas"), 0.8, 1.0
    for p, n, most, goal, times in (("d", 8192, 36, 28, 7), ("d", 16384, 220, 195, 7),
                                    ("s", 8192, 22, 16, 6), ("s", 16384, 130, 90, 6)):
        yield f"{p}gemm_ {n} host to host, ms", milliseconds(p, n), most, goal
        yield f"{p}gemm_ {n} / NVBLAS at its best", nvblas(p, n), times, None
    yield "dgemm_ 16384 x 16384 x 256 of bound", of_bound("d", 16384, 16384, 256), 0.75, 0.9
    yield "dgemm_ 16384 x 256 x 16384 of bound", of_bound("d", 16384, 256, 16384), 0.75, 0.9
    yield "dgemm_ 16384, a third of the memory", less_memory("d", 16384), 0.75, 0.9
    yield "sgemm_ 16384, a third of the memory", less_memory("s", 16384), 0.75, 0.9


def print_requirements(bench):
    say(f"\n{'measure':38} {'value':>8} {'required':>9} {'goal':>6}")
    for name, value, required, goal in requirements(bench):
        if value is None:
            continue
        def met(limit):
            return value <= limit if name.endswith("ms") else value >= limit
        verdict = "goal" if goal is not None and met(goal) else \
            "met" if required is None or met(required) else "MISSED"
        say(f"{name:38} {value:8.2f} {required or '':>9} {goal or '':>6}  {verdict}")


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default=".", help="the folder where `make bench` ran")
    parser.add_argument("--precisions", default="sdcz")
    parser.add_argument("--resident", type=numbers, default=[2048, 4096, 8192], metavar="N,...",
                        help="sizes on the device")
    parser.add_argument("--complex-max", type=int, default=4096, metavar="N",
                        help="the largest of them for complex matrices")
    parser.add_argument("--host", type=numbers, default=[8192, 16384], metavar="N,...",
                        help="sizes host to host, single and double")
    parser.add_argument("--skinny", type=numbers, default=[16384, 256], metavar="LARGE,SMALL",
                        help="also LARGE x LARGE x SMALL and LARGE x SMALL x LARGE, double")
    parser.add_argument("--limited", type=numbers, default=[16384], metavar="N,...",
                        help="host sizes also with a third of the memory that they take")
    parser.add_argument("--reps", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3, help="of a peer for a shape, at most")
    parser.add_argument("--pause", type=float, default=40, metavar="MS",
                        help="before each: idle threads of OpenBLAS spin for a while")
    parser.add_argument("--slow", type=float, default=4, metavar="TFLOP",
                        help="larger problems are too slow for the next BLAS and unpinned NVBLAS")
    parser.add_argument("--link-mib", type=int, default=256)
    parser.add_argument("--threads", help="of OpenBLAS and PoCL")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    options.precisions = [p for p in options.precisions if p in ELEMENT]
    real = [p for p in options.precisions if p in "sd"]
    options.shapes = [(p, n, n, n) for n in options.host for p in real]
    options.limited = [(p, n, n, n) for n in options.limited for p in real]
    if len(options.skinny) == 2 and "d" in real:
        large, small = options.skinny
        options.shapes += [("d", large, large, small), ("d", large, small, large)]
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        say(f"# {time.strftime('%Y-%m-%d', time.gmtime())}, shim {bench.shim}, next {bench.openblas}")
        on_device(bench, options)
        link = measure_link(bench, options)
        host_to_host(bench, options, link)
    print_requirements(bench)
    say(f"# {time.time() - began:.0f} s")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"date": time.strftime("%Y-%m-%d", time.gmtime()), "link": link,
                       "rows": bench.rows}, file, indent=1)


if __name__ == "__main__":
    main()
