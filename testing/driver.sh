#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The log driver of all tests: automake's for TAP, in two turns at a time, and a line when a test has ended.
#
# Each test may use all CPUs, its limits of time allow for one neighbour, and some watch the time, threads or
# memory. However many jobs make has, two tests run at once, or one for every four CPUs, and beside them one of
# those that mostly wait.
#
# usage: driver.sh --test-name NAME --log-file LOG --trs-file RESULTS ... -- COMMAND
name= results= option=
for argument; do
    case $option in
    --test-name) name=$argument ;;
    --trs-file) results=$argument ;;
    esac
    option=$argument
done
here=$(dirname "$0")
turn=0 turns=$(($(nproc 2>/dev/null || echo 1) / 4))
[ $turns -ge 2 ] || turns=2
case ${name#testing/} in
interpose/cache.test | interpose/probe.test | interpose/startup.test | interpose/signals.test | interpose/streams.test | \
    command/progress.test | unit/enqueuer | unit/progress | unit/route | unit/spawn)
    turn=$turns turns=$((turns + 1))
    ;;
esac
mkdir -p testing/turns

# In the first free turn; 75: there is none. The test does not inherit the lock (-o): what it leaves running
# would keep it.
in_a_turn()
{
    free=$turn
    while [ $free -lt $turns ]; do
        free=$((free + 1))
        flock -n -o -E 75 testing/turns/$free /bin/sh "$here/../build-aux/tap-driver.sh" "$@"
        status=$?
        [ $status = 75 ] || return $status
    done
    return 75
}
if command -v flock >/dev/null; then
    while begin=$(date +%s); in_a_turn "$@"; status=$?; [ $status = 75 ]; do
        sleep 0.3
    done
else
    begin=$(date +%s)
    /bin/sh "$here/../build-aux/tap-driver.sh" "$@"
    status=$?
fi
times >"$results.times" # in this shell: a subshell has had no children
awk -v name="$name" -v seconds=$(($(date +%s) - begin)) '
    NR == FNR { gsub(/[ms]/, " "); cpu = FNR == 2 ? 60 * ($1 + $3) + $2 + $4 : 0; next }
    /^:test-result: / { count[$2]++ }
    END {
        failed = count["FAIL"] + count["XPASS"] + count["ERROR"]
        printf "END: %s: %d passed, %s%d skipped, %d s (CPUs %d s)\n", name,
            count["PASS"] + count["XFAIL"], failed ? failed " FAILED, " : "", count["SKIP"], seconds, cpu
    }' "$results.times" "$results" 2>/dev/null
rm -f "$results.times"
exit $status
