#!/usr/bin/env python3
"""What `auto` costs: the modes off, auto and always in turns, and what auto should have chosen.

usage: bench-regret.py [options] [BUILD-FOLDER]     (default: the current folder, after `make bench`)

Each mode is a process of its own (bench-regret.c) under the preloaded library; in every round they make
the same call one after the other, in every order in turn and with a pause: threads of OpenBLAS spin for some
30 ms after a call, those of a driver up to 200 ms, into the next mode's. The result is the median of a mode's times. Where
auto is slower than the better side by more than a twentieth, the case is measured three times more; calls
that stayed on the CPU are measured once more, last, without always, and beside a second process without
the library, the control: how far it is from the first is what the machine itself disturbs. A mode whose first
call takes longer than --slow makes no second one. Rows are appended to the table as they are measured, and
cases that are in it already are not measured again, so that a run that was ended goes on.

  --kind cpu|gpu    sizes and limits: for a device that shares the CPU, or has memory of its own
  --next LIBRARY    CLBLAS_SHIM_NEXT [OpenBLAS, or the reference where there is none]
  --clock wall|cpu  what is compared; cpu where other programs disturb a device that is the CPU [by kind]
  --lives           processes from their start to their end, with 1, 4 and 100 calls: without and with the
                    library, with a cache that is warm or empty

The summary lists what auto has lost and missed: a loss is a call on the device that took more than a
twentieth longer than without; a miss one below nine tenths of the speed of the better side.
"""
import argparse
import csv
import itertools
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from statistics import median

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import Peer, say  # noqa: E402

MODES = ("off", "auto", "always")
TIMES = (*MODES, "control")
COLUMNS = ("routine", "trans", "m", "n", "k", "nrhs", *TIMES, "side")
SQUARE = {"gpu": (100, 200, 300, 400, 500, 600, 800, 1000, 1500, 2000, 3000, 4096, 8192),
          "cpu": (100, 200, 300, 400, 512, 700, 1000, 1500, 2000)}
FEW = {"gpu": (200, 400, 600, 800, 1000, 2000, 4096), "cpu": (200, 400, 512, 700, 1000, 1500)}
DOUBLE = ("gemm", "syrk", "syr2k", "symm", "trmm", "trsm", "getrf", "potrf", "geqrf", "getrs", "trtri",
          "potri", "getri", "ormqr", "orgqr")
OTHERS = {"s": ("gemm", "syrk", "trsm", "getrf", "potrf", "geqrf"), "c": ("gemm", "getrf"),
          "z": ("gemm", "herk", "trsm", "getrf")}
# GPU-BLOB's families of products, by p.
FAMILIES = (lambda p: (p, p, 16 * p), lambda p: (32, 32, 64 * p), lambda p: (16 * p, p, p),
            lambda p: (64 * p, 32, 32), lambda p: (p, 16 * p, p), lambda p: (32, 64 * p, 32),
            lambda p: (p, p, 32), lambda p: (16 * p, 16 * p, p), lambda p: (4 * p, 64, 4 * p))
LEANING = {"gpu": ((8192, 128), (20000, 64), (20000, 500), (100000, 128)), "cpu": ((4000, 64), (8000, 200))}
FEW_RIGHT = {"gpu": ((1000, 100), (2000, 1), (2000, 64), (4096, 1), (4096, 256)),
             "cpu": ((1000, 1), (1000, 100), (2000, 32))}


def make_cases(kind, precisions):
    """(routine, trans, m, n, k, nrhs)"""
    cases = []

    def add(routine, m, n, k, nrhs, trans="NN"):
        case = (routine, trans, m, n, k, nrhs)
        if case not in cases:
            cases.append(case)
    for p in precisions:
        for stem in DOUBLE if p == "d" else OTHERS[p]:
            for n in (SQUARE if p == "d" else FEW)[kind]:
                heavy = stem in ("geqrf", "getri", "potri", "orgqr", "ormqr", "syr2k") or p != "d"
                if n < 8192 or not heavy:
                    add(p + stem, n, n, n, n)
        if p in "sd":
            for family in FAMILIES:
                for q in (64, 128, 256, 512) if kind == "gpu" else (32, 64, 128):
                    add(p + "gemm", *family(q), 0, "NT" if q == 128 else "NN")
        if p == "d":
            for m, n in LEANING[kind]:
                add("dgetrf", m, n, 0, 0)
                add("dgeqrf", m, n, 0, 0)
                add("dsyrk", 0, n, m, 0)
                add("dsyrk", 0, min(m, 8192), n, 0)
            for n, few in FEW_RIGHT[kind]:
                add("dgetrs", n, n, 0, few)
                add("dtrsm", n, few, 0, 0)
                add("dtrmm", n, few, 0, 0)
    return cases


def name_of(case):
    return f"{case[0]} {case[1]} " + "x".join(str(x) for x in case[2:] if x)


# Cases of whole processes, by the work of a call.
LIVES = (("dgemm", 200), ("dgemm", 500), ("dgemm", 700), ("dgemm", 1000), ("dgemm", 2000), ("sgemm", 1000),
         ("dgetrf", 500), ("dgetrf", 1000), ("dpotrf", 1000), ("zgemm", 500))


class Regret:
    def __init__(self, options):
        self.options, self.began = options, time.time()
        self.program = os.path.join(options.build, "testing/bench/bench-regret")
        self.library = os.path.join(options.build, ".libs/libclblas_shim.so.0")
        self.rows, self.processes = {}, {}
        self.orders = itertools.cycle(itertools.permutations(options.modes))

    def left(self):
        return self.options.seconds - (time.time() - self.began)

    def environment(self, mode, **more):
        extra = {"CLBLAS_SHIM": mode, "LD_PRELOAD": self.library, **more}
        if self.options.next:
            extra["CLBLAS_SHIM_NEXT"] = self.options.next
        return extra

    def start(self, mode):
        if mode not in self.processes:
            shim = "off" if mode == "control" else mode
            # By the report auto's side is known; the others keep one too, since it takes a microsecond a call.
            environment = self.environment(shim, CLBLAS_SHIM_STATS="/dev/null")
            self.processes[mode] = Peer(mode, [self.program], environment)
        return self.processes[mode]

    def ask(self, mode, case, calls):
        """Seconds of a call, and how many calls of the routine have run on the device."""
        peer = self.start(mode)
        if peer.lost is not None:
            return None
        if mode != self.last_mode:
            time.sleep(self.options.pause)
        self.last_mode = mode
        peer.send(" ".join(str(x) for x in case) + f" {calls}")
        answer = self.receive(peer)
        return answer

    def receive(self, peer):
        line = peer.process.stdout.readline().split()
        if len(line) != 4:
            peer.log.seek(0)
            peer.lost = (peer.log.read().strip().splitlines() or ["it ended"])[-1]
            say(f"# {peer.name} is lost: {peer.lost}")
            return None
        return float(line[2 if self.options.clock == "cpu" else 0]), float(line[3])

    def measure(self, case, reps):
        """Medians by mode, and the side of auto's last call."""
        times, slow, side = {mode: [] for mode in TIMES}, set(), "cpu"
        for mode in self.options.modes:
            first = self.ask(mode, case, 1)
            if first is None:
                continue
            if mode == "auto":
                for _ in range(self.options.wait):  # the first call of a kind may begin a start
                    before = first
                    first = self.ask(mode, case, 1) or first
                    if first[1] > before[1]:
                        break
                self.last_device = first[1]
            if first[0] > self.options.slow:
                times[mode].append(first[0])
                slow.add(mode)
        quick = min((t[0] for t in times.values() if t), default=0)
        calls = 1 if quick > 0.02 else 3
        for turn in range(reps):
            for mode in next(self.orders):
                if mode in slow:
                    continue
                before = self.last_device if mode == "auto" else 0
                answer = self.ask(mode, case, calls)
                if answer is None:
                    continue
                times[mode].append(answer[0])
                if mode == "auto":
                    side = "device" if answer[1] > before else "cpu"
                    self.last_device = answer[1]
        return {mode: median(t) if t else math.nan for mode, t in times.items()}, side

    last_mode = None
    last_device = 0  # how many calls of the last routine auto has made there

    def warm_up(self):
        """Enough work for a start, which this is not to judge."""
        n = 6000 if self.options.kind == "gpu" else 1500
        for _ in range(60):
            answer = self.ask("auto", ("dgemm", "NN", n, n, n, 0), 1)
            if answer is None or answer[1] > 0:
                return
        say("# the device has not been started")

    def read_table(self):
        try:
            with open(self.options.csv, newline="") as file:
                for row in csv.DictReader(file):
                    case = (row["routine"], row["trans"], *(int(row[x]) for x in ("m", "n", "k", "nrhs")))
                    self.rows[case] = ({mode: float(row[mode]) for mode in TIMES}, row["side"])
        except FileNotFoundError:
            with open(self.options.csv, "w", newline="") as file:
                csv.writer(file).writerow(COLUMNS)

    def run(self, cases):
        self.read_table()
        if "auto" in self.options.modes:
            self.warm_up()
        measured = []
        for case in cases:
            if case in self.rows:
                continue
            if self.left() < 2:
                say(f"# the time is over; {len(cases) - len(self.rows)} cases are left for another run")
                break
            times, side = self.measure(case, self.options.reps)
            if times["auto"] > 1.05 * min(times["off"], times["always"]):
                times, side = self.measure(case, 3 * self.options.reps)
            self.rows[case] = times, side
            self.write_row(case)
            measured.append(case)
        self.measure_alone([case for case in measured if self.rows[case][1] == "cpu"])
        for peer in self.processes.values():
            peer.close()

    def write_row(self, case):
        times, side = self.rows[case]
        with open(self.options.csv, "a", newline="") as file:
            csv.writer(file).writerow((*case, *(f"{times[mode]:.6g}" for mode in TIMES), side))

    def measure_alone(self, cases):
        """Calls that stayed on the CPU, off beside auto and the control, when no driver's thread spins after
        calls of always. These rows replace those before them."""
        if not {"off", "auto"} <= set(self.options.modes):
            return
        modes, self.options.modes = self.options.modes, ["off", "auto", "control"]
        self.orders = itertools.cycle(itertools.permutations(self.options.modes))
        for case in cases:
            if self.left() < 2 - self.options.alone:
                break
            times, side = self.measure(case, 2 * self.options.reps)
            if side == "cpu":
                self.rows[case] = {**times, "always": self.rows[case][0]["always"]}, side
                self.write_row(case)
        self.options.modes = modes

    # ---- whole processes ----

    def life(self, case, calls, environment):
        command = [self.program, *(str(x) for x in case), str(calls)]
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith("CLBLAS_SHIM") or k == "CLBLAS_SHIM_CACHE_DIR"}
        begin = time.time()
        subprocess.run(command, env={**clean, **environment}, stdout=subprocess.DEVNULL, check=True)
        return time.time() - begin

    def lives(self):
        say("\n== whole processes: ms without the library, with a warm cache, with an empty one")
        worst = 0
        for routine, n in LIVES:
            for calls in (1, 4, 100):
                if self.left() < 3:
                    return
                case = (routine, "NN", n, n, n, n)
                none = {"BENCH_NEXT": self.options.next} if self.options.next else {}
                times = {"none": [], "warm": [], "cold": []}
                for _ in range(self.options.reps):
                    times["none"].append(self.life(case, calls, none))
                    times["warm"].append(self.life(case, calls, self.environment("auto")))
                    folder = tempfile.mkdtemp()
                    cold = self.environment("auto", CLBLAS_SHIM_CACHE_DIR=folder)
                    times["cold"].append(self.life(case, calls, cold))
                    shutil.rmtree(folder, ignore_errors=True)
                result = {key: median(value) for key, value in times.items()}
                lost = [key for key in ("warm", "cold") if result[key] > 1.05 * result["none"] + 0.01]
                worst += len(lost)
                say(f"{routine:8} {n:5} x {calls:3} " + " ".join(f"{1e3 * t:9.1f}" for t in result.values())
                    + "".join(f"  LOST {key}" for key in lost))
        say(f"{worst} lives are longer than 1.05 + 10 ms")

    # ---- what comes of it ----

    def summary(self):
        lost, missed, ratios, noise, good = [], [], [], [], 0
        for case, (times, side) in self.rows.items():
            off, auto, always = (times[mode] for mode in MODES)
            if math.isnan(auto) or math.isnan(off):
                continue
            best = min(off, always) if not math.isnan(always) else off
            if side == "cpu":
                ratios.append(auto / off)
                noise += [times["control"] / off] if times["control"] > 0 else []
            good += best >= 0.9 * auto
            if side == "device" and auto > 1.05 * off:
                lost.append((auto / off, case))
            if best < 0.9 * auto:
                missed.append((auto / best, case, side))
        say(f"\n== {len(self.rows)} cases, {sum(side == 'device' for _, side in self.rows.values())} on the "
            "device")
        if ratios:
            say(f"auto / off where auto stays on the CPU: median {median(ratios):.3f}, worst {max(ratios):.2f}")
        if noise:
            say(f"control / off there: median {median(noise):.3f}, worst {max(noise):.2f}")
        say(f"speed of auto at least 0.9 of the better side: {100 * good / max(len(self.rows), 1):.1f} %")
        say(f"lost on the device, more than 5 %: {len(lost)}")
        for ratio, case in sorted(lost, reverse=True):
            say(f"  {ratio:6.2f}  {name_of(case)}")
        say(f"missed, more than a tenth: {len(missed)}")
        for ratio, case, side in sorted(missed, reverse=True)[:self.options.list]:
            times = self.rows[case][0]
            say(f"  {ratio:6.2f}  {name_of(case):40} on the {side}; ms "
                + " ".join(f"{mode} {1e3 * times[mode]:.3f}" for mode in MODES))

    def plot(self, path):
        """off / auto over the time without the library, both logarithmic."""
        points = [(t["off"], t["off"] / t["auto"], side, name_of(case))
                  for case, (t, side) in self.rows.items() if t["off"] > 0 and t["auto"] > 0]
        if not points:
            return
        width, height, edge = 800, 500, 60
        x0, x1 = math.log10(min(p[0] for p in points)), math.log10(max(p[0] for p in points)) + 1e-9
        y0 = min(-0.3, *(math.log10(p[1]) for p in points))
        y1 = max(0.3, *(math.log10(p[1]) for p in points))

        def at(seconds, ratio):
            x = edge + (math.log10(seconds) - x0) / (x1 - x0) * (width - 2 * edge)
            y = height - edge - (math.log10(ratio) - y0) / (y1 - y0) * (height - 2 * edge)
            return x, y
        lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                 'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
        for ratio in (0.1, 0.5, 0.9, 1, 2, 5, 10, 20, 50):
            if y0 <= math.log10(ratio) <= y1:
                y = at(10 ** x0, ratio)[1]
                lines.append(f'<line x1="{edge}" x2="{width - edge}" y1="{y:.1f}" y2="{y:.1f}" stroke='
                             f'"{"black" if ratio == 1 else "lightgray"}"/><text x="20" y="{y + 4:.1f}">'
                             f'{ratio:g}</text>')
        for exponent in range(math.ceil(x0), math.floor(x1) + 1):
            x = at(10 ** exponent, 1)[0]
            lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{edge}" y2="{height - edge}" stroke="lightgray"/>'
                         f'<text x="{x - 15:.1f}" y="{height - edge + 20}">{10.0 ** exponent:g} s</text>')
        for seconds, ratio, side, name in points:
            x, y = at(seconds, ratio)
            lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{"crimson" if side == "device" else "steelblue"}">'
                         f'<title>{name}: {ratio:.2f}</title></circle>')
        lines.append(f'<text x="{edge}" y="30">time without / time with auto, over the time without; red: on the '
                     'device, blue: on the CPU</text></svg>')
        with open(path, "w") as file:
            file.write("\n".join(lines) + "\n")


def find_openblas():
    for path in ("/usr/lib/x86_64-linux-gnu/libopenblas.so.0", "/usr/lib/libopenblas.so.0"):
        if os.path.exists(path):
            return path
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default=".", help="the folder where `make bench` ran")
    parser.add_argument("--kind", choices=("cpu", "gpu"), default="gpu" if shutil.which("nvidia-smi") else "cpu")
    parser.add_argument("--next", default=find_openblas())
    parser.add_argument("--clock", choices=("wall", "cpu"))
    parser.add_argument("--precisions", default="dszc")
    parser.add_argument("--reps", type=int, default=5, help="rounds of a case")
    parser.add_argument("--slow", type=float, default=2, help="seconds of a call that is made once")
    parser.add_argument("--wait", type=int, default=0, help="calls of auto that may pass until the device is ready")
    parser.add_argument("--seconds", type=float, help="for everything [480 on a GPU, 3600 on a CPU]")
    parser.add_argument("--only", default="", help="cases whose names have this part")
    parser.add_argument("--every", type=int, default=1, help="of the cases, each so manieth")
    parser.add_argument("--list", type=int, default=60, help="misses to print")
    parser.add_argument("--csv", default="regret.csv")
    parser.add_argument("--svg", default="regret.svg")
    parser.add_argument("--modes", default=",".join(MODES), help="of off, auto, always")
    parser.add_argument("--pause", type=float, help="seconds between calls of two modes [0.03 on a GPU, else 0]")
    parser.add_argument("--alone", type=float, default=30,
                        help="seconds beyond those for calls that stayed on the CPU")
    parser.add_argument("--lives", action="store_true")
    options = parser.parse_args()
    options.modes = options.modes.split(",")
    options.clock = options.clock or ("cpu" if options.kind == "cpu" else "wall")
    if options.pause is None:
        options.pause = 0.03 if options.kind == "gpu" else 0
    options.seconds = options.seconds or (480 if options.kind == "gpu" else 3600)
    regret = Regret(options)
    if options.lives:
        regret.lives()
        return
    cases = [case for case in make_cases(options.kind, options.precisions) if options.only in name_of(case)]
    cases = cases[::options.every]
    say(f"# {len(cases)} cases, next library {options.next or 'as found'}")
    try:
        regret.run(cases)
    finally:
        regret.summary()
        regret.plot(options.svg)
        say(f"# {time.time() - regret.began:.0f} s; {options.csv}, {options.svg}")


if __name__ == "__main__":
    main()
