#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What `auto` costs: the modes off, auto and always in turns, on calls drawn at random.

usage: bench-regret.py [options] [BUILD-FOLDER]     (default: the current folder, after `make bench`)

Calls are drawn from the table of routines (bench-regret.c --draw): all routines, precisions and letters, sizes from
16 to 20000, at most 4 GiB and --most seconds of the next library. Each mode is a process of its own under the
preloaded library, and there is a second one of off, the control. In a round each makes a group of the same call,
in every order in turn; processes whose turn it is not are stopped, since threads of OpenBLAS spin for some 30 ms
after a call, and those of a driver up to 200 ms, into the next mode's. A group is a row of calls, as programs
make them, of 20 ms or more, and counts by its median. What is compared is the median of the ratios of
neighbouring groups. auto has made --before calls of the kind when it is judged; a group with a call that was
declined because the device was not ready is made again when it is, unless --cold.

A call of which off and the control differ by more than a tenth is measured again, and left out and counted if they
still do. So is one that auto has missed, which is slower than 0.9 of the better side: it has missed only if it
misses again, by new processes, since where memory lies makes some slower for good. A mode that takes twice as long
as the best makes one group only.

Shares are given separately for calls that the device wins by 1.1 times or more and that the CPU wins so; calls are
drawn until there are --each of both. Rows are appended to the table as they are measured, and calls that are in
it already are not measured again, so that a run that was ended goes on.

  --kind cpu|gpu    limits: for a device that shares the CPU, or has memory of its own
  --next LIBRARY    CLBLAS_SHIM_NEXT [OpenBLAS, or the reference where there is none]
  --clock wall|cpu  what is compared; cpu where other programs disturb a device that is the CPU [by kind]
  --seed N          what is drawn [the day]
  --unknown         a cache of its own that has compiled kernels (clblas-shim warm --all) and nothing else
  --cold            an empty cache, and no call waits for kernels
  --programs        whole programs of mixed calls of 1 to 60 s, auto and off in turns, with a cache that is warm, or
                    empty (--cold)
  --lives           processes from their start to their end, with 1, 4 and 100 calls: without the library
                    twice, and with it, with a cache that is warm or empty; those that are longer once more
  --mixed           what auto adds to a call on the device, in a program of dgemm of several sizes in random order
  --after           CPU time of a process in the second after its last call, on the device and without it
  --beside          a call that the next library makes while kernels are compiled, and one in off while that is
                    stopped, in turns
"""
import argparse
import csv
import datetime
import itertools
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from statistics import median

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import Peer, say  # noqa: E402

CACHES = ("CLBLAS_SHIM_CACHE_DIR", "CUDA_CACHE_PATH", "POCL_CACHE_DIR")
MODES = ("off", "auto", "always")
TIMES = (*MODES, "control")
RATIOS = ("auto/off", "control/off", "auto/always", "off/always")
COLUMNS = ("routine", "trans", "m", "n", "k", "nrhs", *TIMES, *RATIOS, "side")
MOST_CALLS = 1000  # of a group: those of clb_trial_run
SHORT = 0.1  # seconds of a call that is made several times in a group
SHORTER = 3  # times as many rounds of calls that are shorter than a group
TINY = 2e-3  # seconds of a call beside which a report of all that it calls takes long
READY = 60  # seconds that kernels may take
MOST_BYTES = min(4 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 6)  # four processes
WINS = 1.1  # times as fast as the other side
MISSED = 1 / 0.9
STARTS = "zgemm3m"  # is not judged
IMPOSSIBLE = 50  # times the rate of a product of order 1000
MIXED = (300, 400, 500, 600, 700, 800, 1000, 1200, 1500, 2000)  # orders


def name_of(case):
    return f"{case[0]} {case[1]} " + "x".join(str(x) for x in case[2:] if x)


# Cases of whole processes, by the work of a call.
LIVES = (("dgemm", 200), ("dgemm", 500), ("dgemm", 700), ("dgemm", 1000), ("dgemm", 2000), ("sgemm", 1000),
         ("dgetrf", 500), ("dgetrf", 1000), ("dpotrf", 1000), ("zgemm", 500))


# Cases of bursts, and how many calls.
BURSTS = ((("dgemm", 1000), 5), (("dgemm", 1000), 100), (("sgemm", 500), 300), (("zgemm", 400), 20),
          (("dsyrk", 1000), 20), (("dtrsm", 1000), 20), (("dgetrf", 1000), 20), (("dpotrf", 1000), 20),
          (("dgeqrf", 500), 20))


class Case:
    """What a case has taken: medians by mode, medians of the ratios of neighbours, auto's side."""

    def __init__(self, times, ratios, side):
        self.times, self.ratios, self.side = times, ratios, side

    def against_best(self):
        """How many times as long as the better side auto takes."""
        known = [self.ratios[x] for x in ("auto/off", "auto/always") if not math.isnan(self.ratios[x])]
        return max(known, default=math.nan)

    def winner(self):
        """The side that is faster by WINS, or None."""
        gain = self.ratios["off/always"]
        return "device" if gain >= WINS else "cpu" if gain <= 1 / WINS else None

    def is_disturbed(self):
        return self.ratios["control/off"] < 0.9 or self.ratios["control/off"] > 1.1


class Regret:
    def __init__(self, options):
        self.options, self.began = options, time.time()
        self.program = os.path.join(options.build, "testing/bench/bench-regret")
        self.library = os.path.join(options.build, ".libs/libclblas_shim.so.0")
        self.rows, self.processes, self.seen = {}, {}, set()
        self.on_device = {}  # how many calls of a routine a process has made there
        self.side = {}  # where it has made its last ones
        self.never = set()  # cases that the device leaves to the CPU in always, too: it does not win these
        self.starting = {}  # how many it has not, because the device was not ready
        self.refused = set()  # cases that the next library has not made
        self.least = {}  # seconds of a case that nothing could compute in less
        self.logged = {}  # bytes that a process has written on stderr
        self.running = None  # the process that is not stopped
        self.own = tempfile.mkdtemp() if options.cold or options.unknown else None  # cache
        if options.unknown:
            subprocess.run([os.path.join(options.build, "clblas-shim"), "warm", "--all"], check=True,
                           env={**os.environ, **dict.fromkeys(CACHES, self.own)})
        self.rate = None  # multiplications with an addition in a second of the next library
        self.reports = True  # whether processes keep a report, by which auto's side is known
        self.orders = itertools.cycle(itertools.permutations(TIMES))

    def left(self):
        return self.options.seconds - (time.time() - self.began)

    def environment(self, mode, **more):
        extra = {"CLBLAS_SHIM": mode, "LD_PRELOAD": self.library, **more}
        if self.own is not None:
            extra.update(dict.fromkeys(CACHES, self.own))
        if self.options.next:
            extra["CLBLAS_SHIM_NEXT"] = self.options.next
        if mode == "auto" and not self.options.cold:
            extra[f"CLBLAS_SHIM_THRESHOLD_{STARTS.upper()}"] = "1"
        return extra

    def turn_to(self, mode):
        """The mode's process, the only one that runs."""
        key = (mode, self.reports)
        peer = self.processes.get(key)
        if peer is not None and peer is self.running:
            return peer
        if self.running is not None:
            self.running.process.send_signal(signal.SIGSTOP)
        if peer is None:
            shim = "off" if mode == "control" else mode
            # The others keep a report too, since it takes some tenths of a microsecond a call.
            extra = {"CLBLAS_SHIM_STATS": "/dev/null"} if self.reports else {}
            if mode == "auto" and self.options.log:
                extra.update(CLBLAS_SHIM_LOG="debug", CLBLAS_SHIM_LOG_FILE=self.options.log)
            peer = self.processes[key] = Peer(mode, [self.program], self.environment(shim, **extra))
        else:
            peer.process.send_signal(signal.SIGCONT)
        self.running = peer
        return peer

    def end(self, key):
        peer = self.processes.pop(key, None)
        if peer is None:
            return
        peer.process.send_signal(signal.SIGCONT)
        peer.close()
        if self.running is peer:
            self.running = None
        self.starting = {of: count for of, count in self.starting.items() if of[0] != key[0]}
        self.on_device = {of: count for of, count in self.on_device.items() if of[0] is not peer}

    def end_all(self):
        for key in list(self.processes):
            self.end(key)

    def ask(self, mode, case, calls):
        """Seconds of a call, and how many calls of the routine have run on the device; of calls all of which
        found the device ready, where it is so within a minute."""
        answer = self.ask_once(mode, case, calls)
        end = time.time() + READY
        while not self.options.cold and answer is not None and answer[2] > self.starting.get((mode, case[0]), 0) and time.time() < end:
            self.starting[mode, case[0]] = answer[2]
            self.settle(mode)
            answer = self.ask_once(mode, case, calls)
        return answer

    def ask_once(self, mode, case, calls):
        peer = self.turn_to(mode)
        peer.send(" ".join(str(x) for x in case) + f" {calls}")
        line = peer.process.stdout.readline().split()
        ended, size = len(line) != 6, os.fstat(peer.log.fileno()).st_size
        if ended or size > self.logged.get(peer, 0):  # the process writes at the same offset
            self.logged[peer] = size
            lines = os.pread(peer.log.fileno(), 4096, max(0, size - 4096)).decode().strip().splitlines()
            why = lines[-1] if lines else "it ended"
            if ended or (mode == "off" and "illegal" in why):
                if case not in self.refused:
                    say(f"# {peer.name} can't make {name_of(case)}: {why}")
                self.refused.add(case)
                if ended:
                    self.end((mode, self.reports))
                return None
        if mode == "off" and float(line[0]) < self.least.get(case, 0):
            self.refused.add(case)
        before, count = self.on_device.get((peer, case[0]), 0), float(line[3])
        self.on_device[peer, case[0]] = count
        self.side[mode] = "device" if count > before else "cpu"
        return float(line[2 if self.options.clock == "cpu" else 0]), count, float(line[4])

    def settle(self, mode):
        """Waits until the process uses no more CPU time: kernels are built by then."""
        def ticks():
            with open(f"/proc/{self.turn_to(mode).process.pid}/stat") as file:
                return sum(int(x) for x in file.read().rsplit(")", 1)[1].split()[11:13])
        for _ in range(100):
            before = ticks()
            time.sleep(0.05)
            if ticks() - before <= 1:
                return

    def first_calls(self, case):
        """Seconds of a call of each mode that is not its first, and auto's side. Modes that are too slow for a
        second call are returned as well."""
        took, slow, side = {}, set(), "cpu"
        for mode in self.options.modes:
            if mode == "always" and case in self.never:
                continue
            answer = first = self.ask(mode, case, 1)
            if answer is None:
                continue
            if answer[0] > self.options.slow:
                slow.add(mode)
                took[mode] = answer[0]
                continue
            # The first call of a routine may begin what is made ready behind the program's back.
            if (mode, case[0]) not in self.seen:
                self.settle(mode)
                answer = first = self.ask(mode, case, 1) or first
            self.seen.add((mode, case[0]))
            if mode == "auto":
                self.ask(mode, case, self.options.before - 1)
            if answer[0] < SHORT or answer[0] > 2 * took.get("off", math.inf):
                answer = self.ask(mode, case, 1) or first
            if mode == "auto":
                side = self.side[mode]
            if mode == "always" and self.reports and self.side[mode] == "cpu":
                self.never.add(case)
            else:
                took[mode] = answer[0]
        return took, slow, side

    def measure(self, case):
        first = self.first_calls(case)
        self.reports = first[0].get("off", TINY) >= TINY
        if not self.reports:
            self.warm_up()
        result = self.measure_groups(case, *(first if self.reports else self.first_calls(case)))
        self.reports = True
        return result

    def measure_groups(self, case, took, slow, side):
        if "off" in took and "off" not in slow:
            answer = [self.ask("control", case, 1) for _ in range(2)][1]
            if answer is not None:
                took["control"] = answer[0]
        times = {mode: [] for mode in TIMES}
        best = min(took.values(), default=math.inf)
        for turn in range(self.options.reps * (1 if best > self.options.group else SHORTER)):
            this = {mode: took[mode] for mode in slow}
            for mode in sorted(took, key=next(self.orders).index):
                if mode in slow or (turn > 0 and times[mode][0] > 2 * best):
                    continue
                calls = min(max(math.ceil(self.options.group / max(took[mode], 1e-6)), 3), MOST_CALLS)
                answer = self.ask(mode, case, calls if took[mode] < SHORT else 1)
                if answer is None:
                    continue
                this[mode] = answer[0]
                if mode == "auto":
                    side = self.side[mode]
            for mode in TIMES:
                # A mode that dropped out has its first group's time for a neighbour.
                times[mode].append(this.get(mode, times[mode][0] if times[mode] else math.nan))
            best = min([best, *this.values()])

        def ratio(name):
            a, b = (times[mode] for mode in name.split("/"))
            return median(x / y for x, y in zip(a, b))
        return Case({mode: median(t) for mode, t in times.items()}, {name: ratio(name) for name in RATIOS}, side)

    def judge(self, case):
        """The case; measured once more where it is disturbed, and by new processes where it has missed."""
        result = self.measure(case)
        if result.is_disturbed() and self.left() > 1:
            result = self.measure(case)
        if result.is_disturbed() or not result.against_best() > MISSED or self.left() < 1:
            return result
        self.renew()
        again = self.measure(case)
        say(f"# {name_of(case)}: missed, {result.against_best():.2f} on the {result.side}; "
            f"again {again.against_best():.2f} on the {again.side}")
        return again if again.against_best() < result.against_best() else result

    def renew(self):
        """All processes are started anew."""
        self.end_all()
        self.seen.clear()
        self.warm_up()

    def warm_up(self):
        """Starts auto's device, which this is not to judge: by a routine for which the user has set a threshold."""
        if "auto" in self.options.modes and not self.options.cold:
            answer = self.ask("auto", (STARTS, "NN", 300, 300, 300, 0), 1)
            if answer is not None and self.reports and self.side["auto"] != "device":
                say("# the device has not been started")

    def read_table(self):
        try:
            with open(self.options.csv, newline="") as file:
                for row in csv.DictReader(file):
                    case = (row["routine"], row["trans"], *(int(row[x]) for x in ("m", "n", "k", "nrhs")))
                    self.rows[case] = Case({x: float(row[x]) for x in TIMES}, {x: float(row[x]) for x in RATIOS},
                                           row["side"])
        except FileNotFoundError:
            with open(self.options.csv, "w", newline="") as file:
                csv.writer(file).writerow(COLUMNS)

    def draw(self, batch, count=50, most=None):
        """Cases that the next library takes at most so many seconds for, about."""
        if self.rate is None:
            self.rate = 1e9 / self.ask("off", ("dgemm", "NN", 1000, 1000, 1000, 0), 5)[0]
        command = [self.program, "--draw", str(self.options.seed * 1000 + batch), str(count), str(MOST_BYTES),
                   str(self.rate * (most or self.options.most) / 2)]
        environment = {**os.environ, **self.environment("off")}
        lines = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
        for line in lines.splitlines():
            words = line.split()
            case = (*words[:2], *map(int, words[2:6]))
            self.least[case] = float(words[6]) / (IMPOSSIBLE * self.rate)
            yield case

    def shares(self):
        """The cases that a side wins, by side."""
        return {side: [case for case, row in self.rows.items() if not row.is_disturbed() and row.winner() == side]
                for side in ("device", "cpu")}

    def run(self):
        self.read_table()
        self.warm_up()
        for batch in itertools.count():
            for case in self.draw(batch):
                if min(map(len, self.shares().values())) >= self.options.each:
                    return
                if self.left() < 2:
                    say("# the time is over")
                    return
                if case in self.rows or case[0] == STARTS:
                    continue
                row = self.judge(case)
                if case not in self.refused:
                    self.rows[case] = row
                    self.write_row(case)

    def write_row(self, case):
        row = self.rows[case]
        with open(self.options.csv, "a", newline="") as file:
            csv.writer(file).writerow((*case, *(f"{row.times[x]:.6g}" for x in TIMES),
                                       *(f"{row.ratios[x]:.4g}" for x in RATIOS), row.side))

    # ---- whole processes ----

    def life(self, case, calls, environment):
        command = [self.program, *(str(x) for x in case), str(calls)]
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith("CLBLAS_SHIM") or k == "CLBLAS_SHIM_CACHE_DIR"}
        begin = time.time()
        subprocess.run(command, env={**clean, **environment}, stdout=subprocess.DEVNULL, check=True)
        return time.time() - begin

    def live(self, case, calls):
        """Seconds of a process without the library, twice, and with it by caches."""
        none = {"BENCH_NEXT": self.options.next} if self.options.next else {}
        times = {"none": [], "control": [], **{cache: [] for cache in self.options.caches.split(",")}}
        for _ in range(self.options.reps):
            for name in ("none", "control"):
                times[name].append(self.life(case, calls, none))
            if "warm" in times:
                times["warm"].append(self.life(case, calls, self.environment("auto")))
            if "cold" in times:
                folder = tempfile.mkdtemp()
                cold = self.environment("auto", CLBLAS_SHIM_CACHE_DIR=folder)
                times["cold"].append(self.life(case, calls, cold))
                shutil.rmtree(folder, ignore_errors=True)
        result = {key: median(value) for key, value in times.items()}
        return result, [key for key in result if result[key] > 1.05 * result["none"] + 0.01]

    def lives(self):
        names = ["none", "control", *self.options.caches.split(",")]
        say(f"\n== whole processes, ms: without the library twice, and with it by its cache")
        say(" " * 20 + " ".join(f"{name:>9}" for name in names))
        lost = {name: 0 for name in names}
        for routine, n in LIVES:
            for calls in (1, 4, 100):
                if self.left() < 3:
                    return
                case = (routine, "NN", n, n, n, n)
                result, late = self.live(case, calls)
                if late:
                    say("  " + f"{routine} {n} x {calls}: {' and '.join(late)} longer, once more")
                    result, late = self.live(case, calls)
                for name in late:
                    lost[name] += 1
                say(f"{routine:8} {n:5} x {calls:3} " + " ".join(f"{1e3 * result[name]:9.1f}" for name in names)
                    + "".join(f"  LOST {name}" for name in late))
        say("longer than 1.05 + 10 ms, twice: " + ", ".join(f"{lost[name]} {name}" for name in names[1:]))

    def program_of(self, mode, cases, seconds):
        """Seconds of the calls of one process, which repeats cases at random for so long, its cases, and the
        seconds before its first call on the device."""
        if self.options.cold:
            self.own = tempfile.mkdtemp()
        environment = self.environment(mode, CLBLAS_SHIM_STATS="/dev/null")
        peer, took, made, of, first = Peer(mode, [self.program], environment), 0, [], iter(cases), math.inf
        generator = random.Random(self.options.seed)
        while took < seconds:
            case = next(of, None) if seconds == math.inf else generator.choice(cases)
            if case is None:
                break
            peer.send(" ".join(str(x) for x in case) + " 1")
            line = peer.process.stdout.readline().split()
            if not line and mode == "off":  # OpenBLAS 0.3.26 ends in some calls of xGEMMT
                cases.remove(case)
                return self.program_of(mode, cases, seconds)
            took += float(line[5])
            first = min(first, took if float(line[3]) > 0 else math.inf)
            made.append(case)
        peer.close()
        if self.options.cold:
            shutil.rmtree(self.own, ignore_errors=True)
        return took, made, first

    def programs(self):
        say("\n== whole programs of mixed calls, s: off, auto, auto / off; when auto is on the device")
        ratios, generator = [], random.Random(self.options.seed)
        for batch in range(self.options.reps):
            seconds = self.options.length or 60 ** generator.random()
            cases = list(self.draw(batch, 10, seconds / 20))
            self.end_all()
            off, made, _ = self.program_of("off", cases, seconds)
            auto, _, first = self.program_of("auto", made, math.inf)
            ratios.append(auto / off)
            say(f"{len(made):6} calls {off:9.3f} {auto:9.3f} {ratios[-1]:7.3f} {first:7.3f}")
        say(f"median of auto / off: {median(ratios):.3f}, worst {max(ratios):.3f}")

    # ---- a mixed program ----

    def mixed(self):
        """In rows of calls of all sizes, auto and always in turns."""
        generator, modes = random.Random(self.options.seed), ("auto", "always")
        times = {(mode, n): [] for mode in modes for n in MIXED}
        for turn in range(-3, 10 * self.options.reps):
            for mode in modes if turn % 2 else modes[::-1]:
                for n in generator.sample(MIXED, len(MIXED)):
                    answer = self.ask(mode, ("dgemm", "NN", n, n, n, 0), 1)
                    if turn >= 0 and answer is not None:
                        times[mode, n].append(answer[0])
        say("\n== dgemm in a mixed program, us: auto, always, the difference, the quotient")
        for n in MIXED:
            auto, always = (1e6 * median(times[mode, n]) for mode in modes)
            say(f"{n:5} {auto:9.1f} {always:9.1f} {auto - always:8.1f} {auto / always:6.3f}")

    # ---- the second after ----

    def cpu_of(self, mode):
        """CPU seconds that the threads of the mode's process have used so far."""
        folder = f"/proc/{self.turn_to(mode).process.pid}/task"
        used = 0
        for thread in os.listdir(folder):
            with open(f"{folder}/{thread}/schedstat") as file:
                used += int(file.read().split()[0])
        return 1e-9 * used

    def after(self):
        say("\n== CPU time in the second after the last call, ms; on the device twice, since the first calls load kernels")
        say(" " * 20 + " ".join(f"{x:>9}" for x in ("off", "device", "again")))
        for (routine, n), calls in BURSTS:
            case, used = (routine, "NN", n, n, n, n), []
            for mode in ("off", "always", "always"):
                if self.left() < 3 or self.ask(mode, case, calls) is None:
                    return
                begin = self.cpu_of(mode)
                time.sleep(1)
                used.append(self.cpu_of(mode) - begin)
            say(f"{routine:8} {n:5} x {calls:3} " + " ".join(f"{1e3 * seconds:9.2f}" for seconds in used))

    # ---- beside the helper ----

    def helpers(self, *others):
        """The ids of the helper's processes, which have the cache of this run."""
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{process}/environ") as file:
                    if f"CLBLAS_SHIM_CACHE_DIR={self.own}" in file.read() and int(process) not in others:
                        yield int(process)
            except OSError:
                pass  # it has ended

    def beside(self):
        """auto's calls while the helper works, and off's while it is stopped, until auto is on the device."""
        self.own, self.options.cold, self.options.clock = tempfile.mkdtemp(), self.options.kind == "gpu", "wall"
        case, times = ("dgemm", "NN", 2000, 2000, 2000, 0), {"auto": [], "off": []}
        self.ask_once("auto", (STARTS, "NN", 500, 500, 500, 0), 1)
        self.side.clear()
        while self.side.get("auto") != "device" and self.left() > 0:
            for mode, sent in ("off", signal.SIGSTOP), ("auto", signal.SIGCONT):
                self.turn_to(mode)
                helpers = list(self.helpers(*(peer.process.pid for peer in self.processes.values())))
                for process in helpers:
                    os.kill(process, sent)
                took = [self.ask_once(mode, case, 1)[0] for _ in range(2)]
                times[mode] += took if helpers else []
        self.end_all()
        shutil.rmtree(self.own, ignore_errors=True)
        busy, control = (median(times[mode]) if times[mode] else math.nan for mode in times)
        say(f"\n== dgemm 2000 in auto while kernels are compiled, and in off while not, ms: {1e3 * busy:.2f}, "
            f"{1e3 * control:.2f}, {busy / control:.3f} of {len(times['auto'])} and {len(times['off'])} calls")

    # ---- what comes of it ----

    def summary(self):
        """A side's share, and with few misses by the rule of three what it is at least."""
        dropped = [case for case, row in self.rows.items() if row.is_disturbed()]
        say(f"\n== {len(self.rows)} calls, seed {self.options.seed}; disturbed and left out: {len(dropped)}")
        missed = []
        for side, cases in self.shares().items():
            misses = [(self.rows[case].against_best(), case) for case in cases if self.rows[case].against_best() > MISSED]
            missed += misses
            if cases:
                say(f"the {side} wins {len(cases)}: within 0.9 of it {100 * (1 - len(misses) / len(cases)):.1f} %, "
                    f"at least {100 * (1 - max(3, len(misses) + 2 * math.sqrt(len(misses))) / len(cases)):.1f} %")
        rest = [row for row in self.rows.values() if not row.is_disturbed()]
        lost = [case for case, row in self.rows.items()
                if row in rest and row.side == "device" and row.ratios["auto/off"] > 1.1]
        say(f"on the device {sum(row.side == 'device' for row in rest)}, of which lose more than a tenth {len(lost)}")
        stayed = [row.ratios["auto/off"] for row in rest if row.side == "cpu"]
        if stayed:
            say(f"auto / off of calls that stay on the CPU: median {median(stayed):.3f}, worst {max(stayed):.2f}")
        for ratio, case in sorted(missed, reverse=True)[:self.options.list]:
            row = self.rows[case]
            say(f"  {ratio:6.2f}  {name_of(case):40} on the {row.side}; ms "
                + " ".join(f"{mode} {1e3 * row.times[mode]:.3f}" for mode in MODES))

    def plot(self, path):
        """off / auto over the time without the library, both logarithmic."""
        points = [(t["off"], t["off"] / t["auto"], side, name_of(case))
                  for case, t, side in ((case, row.times, row.side) for case, row in self.rows.items())
                  if t["off"] > 0 and t["auto"] > 0]
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
    parser.add_argument("--reps", type=int, default=7, help="rounds of a case")
    parser.add_argument("--group", type=float, default=0.02, help="seconds of a group of calls, at least")
    parser.add_argument("--slow", type=float, default=2, help="seconds of a call that is made once")
    parser.add_argument("--seconds", type=float, help="for everything [480 on a GPU, 3600 on a CPU]")
    parser.add_argument("--seed", type=int, default=int(datetime.date.today().strftime("%Y%m%d")))
    parser.add_argument("--each", type=int, default=60, help="calls that each side wins")
    parser.add_argument("--most", type=float, default=2, help="seconds of a call of the next library, about")
    parser.add_argument("--before", type=int, default=5, help="calls of auto before it is judged")
    parser.add_argument("--unknown", action="store_true")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--length", type=float, help="seconds of a program [1 to 60]")
    parser.add_argument("--log", help="a file for what auto logs of its decisions")
    parser.add_argument("--list", type=int, default=60, help="misses to print")
    parser.add_argument("--csv", default="regret.csv")
    parser.add_argument("--svg", default="regret.svg")
    parser.add_argument("--modes", default=",".join(MODES), help="of off, auto, always")
    parser.add_argument("--lives", action="store_true")
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--after", action="store_true")
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--caches", default="warm,cold", help="of lives: warm, cold (an empty one)")
    options = parser.parse_args()
    options.modes = options.modes.split(",")
    options.clock = options.clock or ("cpu" if options.kind == "cpu" else "wall")
    options.seconds = options.seconds or (480 if options.kind == "gpu" else 3600)
    regret = Regret(options)
    for question in ("lives", "after", "beside", "mixed", "programs"):
        if getattr(options, question):
            getattr(regret, question)()
            regret.end_all()
            return
    say(f"# seed {options.seed}, next library {options.next or 'as found'}")
    try:
        regret.run()
    finally:
        regret.end_all()
        regret.summary()
        regret.plot(options.svg)
        say(f"# {time.time() - regret.began:.0f} s; {options.csv}, {options.svg}")


if __name__ == "__main__":
    main()
