#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whole programs without the library and with it, in turns: their time, and the CPU time they use.

usage: programs.py [options] [BUILD-FOLDER] [PROGRAM...]     (default: the current folder, all programs)

  --reps N          rounds [5]
  --next LIBRARY    CLBLAS_SHIM_NEXT
  --python PROGRAM  with NumPy [this one]
  --hpcc PROGRAM    HPC Challenge [of PATH]
  --order N         of HPL's matrix [2000]

Programs: numpy and octave have products, systems and factorisations of many sizes, small ones mostly;
numpy-large and octave-large some of order 2000; hpcc solves one system (HPL). One that is not there is
skipped. The medians of the rounds are printed, the medians of the ratios of a round, also that of a second run
without the library (the control: what the machine itself disturbs), and how many calls ran on the device.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from statistics import median

NUMPY = """
import sys, numpy as np
rng = np.random.default_rng(3)
mixed = [16] * 4000 + [60] * 1500 + [150] * 300 + [300] * 60 + [500] * 12 + [700] * 4
for n in [2000] * 4 if sys.argv[1:] == ["large"] else rng.permutation(mixed):
    a = rng.standard_normal((n, n)) + n * np.eye(n)
    b = rng.standard_normal((n, n))
    c = a @ b
    x = np.linalg.solve(a, b[:, :5])
    np.linalg.cholesky(a @ a.T)
    f = a.astype(np.float32) @ b.astype(np.float32)
    assert np.abs(a @ x - b[:, :5]).max() < 1e-6
"""
OCTAVE = """
rand("state", 3);
sizes = [repmat(16, 1, 4000), repmat(60, 1, 1500), repmat(150, 1, 300), repmat(300, 1, 60), ...
         repmat(500, 1, 12), repmat(700, 1, 4)];
sizes = sizes(randperm(numel(sizes)));
if %d
  sizes = repmat(2000, 1, 4);
end
for n = sizes
  a = rand(n) + n * eye(n);
  b = rand(n);
  c = a * b;
  x = a \\ b(:, 1:min(n, 5));
  r = chol(a * a');
  f = single(a) * single(b);
  assert(max(max(abs(a * x - b(:, 1:min(n, 5))))) < 1e-6);
end
"""
HPL = """HPLinpack benchmark input file
Innovative Computing Laboratory, University of Tennessee
HPL.out      output file name (if any)
8            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
{order}      Ns
1            # of NBs
{block}      NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
1            Ps
1            Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
"""


def make_programs(options, folder):
    """Commands by name, without what is not there."""
    programs = {}
    if subprocess.run([options.python, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode == 0:
        programs["numpy"] = [options.python, "-c", NUMPY]
        programs["numpy-large"] = [options.python, "-c", NUMPY, "large"]
    if shutil.which("octave-cli"):
        for name, large in ("octave", 0), ("octave-large", 1):
            programs[name] = ["octave-cli", "--norc", "--no-history", "--eval", OCTAVE % large]
    if options.hpcc:
        with open(os.path.join(folder, "hpccinf.txt"), "w") as file:
            file.write(HPL.format(order=options.order, block=128))
        programs["hpcc"] = [options.hpcc]
    return programs


def run(command, folder, environment):
    """Seconds, and CPU seconds."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("CLBLAS_SHIM") or k == "CLBLAS_SHIM_CACHE_DIR"}
    begin = time.time()
    process = subprocess.Popen(command, cwd=folder, env={**clean, **environment}, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{command[0]} has failed")
    return time.time() - begin, usage.ru_utime + usage.ru_stime


def device_calls(path):
    with open(path) as file:
        report = json.load(file)
    return sum(routine.get("device", 0) for routine in report.get("routines", {}).values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default=".")
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--next")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--hpcc", default=shutil.which("hpcc"))
    parser.add_argument("--order", type=int, default=2000)
    options = parser.parse_args()
    auto = {"LD_PRELOAD": os.path.abspath(os.path.join(options.build, ".libs/libclblas_shim.so.0"))}
    if options.next:
        auto["CLBLAS_SHIM_NEXT"] = options.next
    with tempfile.TemporaryDirectory() as folder:
        programs = make_programs(options, folder)
        report = os.path.join(folder, "report.json")
        print("program       seconds: without  with   ratio control   CPU seconds: without  with   ratio   device calls")
        for name in options.programs or programs:
            if name not in programs:
                print(f"{name:13} skipped: it is not there")
                continue
            command, results = programs[name], {"none": [], "auto": [], "control": []}
            run(command, folder, {**auto, "CLBLAS_SHIM_STATS": report})
            calls = device_calls(report) if os.path.exists(report) else 0
            for turn in range(options.reps):
                for mode in ("none", "auto", "control")[::1 if turn % 2 == 0 else -1]:
                    results[mode].append(run(command, folder, auto if mode == "auto" else {}))
            none, with_it = ([median(r[i] for r in results[mode]) for i in (0, 1)] for mode in ("none", "auto"))

            def ratio(mode, i):
                return median(a[i] / b[i] for a, b in zip(results[mode], results["none"]))
            print(f"{name:13} {none[0]:16.3f} {with_it[0]:6.3f} {ratio('auto', 0):6.3f} {ratio('control', 0):7.3f} "
                  f"{none[1]:20.3f} {with_it[1]:6.3f} {ratio('auto', 1):6.3f} {calls:10}", flush=True)


if __name__ == "__main__":
    main()
