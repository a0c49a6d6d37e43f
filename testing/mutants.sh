#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Do the tests notice? Plants one defect after the other in a copy of the sources and runs the tests of `make
# check` that should fail. On demand, not part of any target: minutes for each.
#
# usage, in a build folder: ../testing/mutants.sh [NAME...]
# Prints a line for each: caught, MISSED, or STALE where the pattern no longer changes its file.
set -u
srcdir=$(cd "$(dirname "$0")/.." && pwd)
work=$PWD/mutants.work
jobs=$(nproc)

# name | file | sed command | tests
mutants='
wrong-ld           | src/engine/device_blas/update.c             | s/\.ld = x->ld,/.ld = x->ld + 1,/                                | testing/unit/getrf testing/unit/potrf
dropped-wait       | src/engine/transfer/transfer_queue.c  | s/slot, transfer->before, event)/slot, NULL, event)/ | testing/unit/reorder
block-edge         | src/engine/gemm/unified.c             | s/rect\.cols = clb_min(plan->tile\[1\], problem->n - rect\.col);/rect.cols = clb_min(plan->tile[1], problem->n - rect.col) - (plan->tile[1] > problem->n - rect.col);/ | testing/unit/gemm testing/unit/level3
beta-ignored       | src/blas/merge.t.h             | s/c\[i\] = alpha \* p\[i\] + beta \* c\[i\];/c[i] = alpha * p[i] + c[i];/ | testing/unit/gemm testing/unit/level3
info-off-by-one    | src/engine/lapack/getrf.c             | s/result->info = k + info;/result->info = k + info - 1;/ | testing/unit/getrf
conjugate-dropped  | src/engine/gemm/structure.c           | s/\.conjugated = x\.op == CLB_OP_C,/.conjugated = false,/        | testing/unit/level3 testing/fuzz/kernels.test
pivot-off-by-one   | src/engine/lapack/getrf.c             | s/ipiv\[i\] += (int64_t)k;/ipiv[i] += (int64_t)k + (i == k \&\& k > 0);/ | testing/unit/getrf
status-dropped     | src/engine/ocl/queue.c                | s/if (clb_cl_check(state, "a command") != CLB_OK ||/if (/           | testing/unit/faults
min-work-compare   | src/shim/entry/abi.h            | s/return work < atomic_load_explicit(&symbol->min_work/return work > atomic_load_explicit(\&symbol->min_work/ | testing/interpose/preload.test testing/interpose/stats.test
no-quick-return    | src/blas/call.c                | s/strchr("mnkr", \*s) != NULL \&\& clb_call_size/strchr("r", *s) != NULL \&\& clb_call_size/ | testing/unit/routines
launch-not-counted | src/engine/ocl/queue.c                | s/if (launch == 0 ||/if (launch >= 0 ||/                         | testing/unit/faults
skip-ends-early    | kernels/cpu_product.h          | s/end = min(end, (int)row_end + cut\.a);/end = min(end, (int)row_end + cut.a - 2 * CLB_KU);/ | testing/unit/level3
skip-begins-late   | kernels/cpu_product.h          | s/begin = max(begin, (int)col + cut\.b);/begin = max(begin, (int)col + cut.b + 2 * CLB_KU);/ | testing/unit/level3
wanted-edge        | kernels/cpu_product.h          | s/(int)row + cut\.c >= (int)(col + CLB_PARTS \* CLB_NR)/(int)row + cut.c >= (int)col/ | testing/unit/level3
triangle-diagonal  | kernels/gemm_cpu.cl           | s/behind > 0 : behind < 0/behind > 1 : behind < 0/               | testing/unit/level3
pack-conjugate     | kernels/gemm_cpu.cl            | s/CLB_PAIRS(0, conj ? CLB_SIGN : 0)/CLB_PAIRS(0, 0)/             | testing/unit/check testing/unit/level3
pack-tail          | kernels/gemm_cpu.cl            | s/dst\[i\] = src\[i\];/dst[i] = 0;/                                | testing/unit/gemm
move-itself        | kernels/laswp.h                | s/column + moves\[k\]\.y);/column + moves[k].x);/                  | testing/unit/getrf testing/unit/trsm
solve-conjugate    | kernels/trsm.cl                | s/x\.odd = -x\.odd;/x.odd = x.odd;/                             | testing/unit/trsm
pivot-smallest     | kernels/getf2.cl               | s/if (key > best->key ||/if (key < best->key ||/                 | testing/unit/getrf testing/unit/check
root-inexact       | kernels/potf2.cl               | s/const real root = sqrt(x);/const real root = sqrt(x) * (real)1.0001;/ | testing/unit/potrf
hermitian-diagonal | src/engine/gemm/structure_make.c | s/memset(to + real, 0, real);/memset(to + real, 0, 0);/            | testing/unit/level3
'

say() { printf '%-20s %s\n' "$1" "$2"; }

mkdir -p "$work"
if [ ! -e "$work/build/config.status" ]; then
    tar -C "$srcdir" --exclude=./build --exclude=./.git --exclude=mutants.work -cf - . | tar -C "$work" -xf - || exit
    mkdir -p "$work/build/testing"
    [ ! -d testing/cache ] || cp -r testing/cache "$work/build/testing/"
    (cd "$work/build" && ../configure CFLAGS='-O1 -g' && make -j"$jobs" && make -j"$jobs" check TESTS=) \
        >"$work/log" 2>&1 || { tail "$work/log"; exit 1; }
fi
missed=0
while read -r line; do
    [ -n "$line" ] || continue
    # Fields stand between single bars; the code has double ones.
    IFS=$'\t' read -r name file command tests <<<"$(sed 's/ \+| \+/\t/g' <<<"$line")"
    [ $# -eq 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
    cp "$srcdir/$file" "$work/whole" || { say "$name" STALE; missed=$((missed + 1)); continue; }
    sed -e "$command" "$work/whole" >"$work/$file"
    if cmp -s "$work/whole" "$work/$file"; then
        say "$name" "STALE: $file"
        missed=$((missed + 1))
    elif ! make -C "$work/build" -j"$jobs" >"$work/$name.log" 2>&1; then
        say "$name" "STALE: $file does not compile"
        missed=$((missed + 1))
    # One that hangs is noticed, too.
    elif timeout -k 10 900 make -C "$work/build" -k -j"$jobs" check TESTS="$tests" >>"$work/$name.log" 2>&1; then
        say "$name" "MISSED by $tests"
        missed=$((missed + 1))
    else
        say "$name" "caught by $(sed -n 's/^END: \([^:]*\): .* FAILED.*/\1/p' "$work/$name.log" | xargs)"
    fi
    cp "$srcdir/$file" "$work/$file"
done <<<"$mutants"
[ $missed = 0 ]
