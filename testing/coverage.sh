#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# How much of src/ do the tests run? Builds a tree with gcc's counters, runs its tests, and prints the lines
# that hold code and those that ran, by folder and in all, and the functions that never ran. On demand: half an
# hour.
#
# usage: testing/coverage.sh [--all] [--again | --report] [--source TREE] FOLDER [TEST...]
#   --all          make check-full instead of make check
#   --again        add to the counts that FOLDER has
#   --report       only count what ran until now
#   --source TREE  another tree than the one of this script
# Generated entries have a row of their own and are not in the sum. FOLDER is made and holds the build, and
# lines.txt (file, line, count), functions.txt (those that never ran), lines-not-run.txt (of other functions).
# TEST: run these only. Where a test limits the size of files, gcc's counts are cut short and begin anew: such
# tests run last, and what lines.txt had before is kept.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
target=check again= report=
while [ $# -gt 0 ]; do
    case $1 in
    --all) target=check-full ;;
    --again) again=1 ;;
    --report) report=1 ;;
    --source) source=$(cd "$2" && pwd); shift ;;
    --*) sed -n '3,/^set/s/^# \?//p' "$0" >&2; exit 2 ;;
    *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || { sed -n '3,/^set/s/^# \?//p' "$0" >&2; exit 2; }
mkdir -p "$1"
cd "$1"
shift
run()
{
    "${build[@]}" $target TESTS="$1" >check.log 2>&1 || echo "tests failed, see $PWD/check.log"
    grep '^# \|^END:.*FAILED' check.log || true
}

build_and_run()
{
    [ -x "$source/configure" ] || (cd "$source" && ./bootstrap) >bootstrap.log 2>&1

    # Counts are written when a process exits. Children of tests end by _exit(), which runs no destructors: every
    # program gets an _exit() that first writes the counts of all objects in it, the library's included.
    cat >coverage.h <<'END'
#ifndef __ASSEMBLER__
#pragma GCC visibility push(default) /* the library finds the program's */
extern void __gcov_dump(void);
extern void __gcov_reset(void);
struct coverage_object {
    void (*dump)(void);
    void (*reset)(void);
};
__attribute__((weak)) void coverage_register(void (*dump)(void), void (*reset)(void));
__attribute__((weak)) void coverage_forget(void (*dump)(void)); /* an object that is unloaded */
#ifndef PIC /* of a program */
extern void _exit(int status) __attribute__((noreturn));
extern long syscall(long number, ...);
__attribute__((weak)) struct coverage_object coverage_objects[8] = {{0, 0}};
__attribute__((weak)) void coverage_register(void (*dump)(void), void (*reset)(void))
{
    int i = 0;
    while (i < 7 && coverage_objects[i].dump && coverage_objects[i].dump != dump)
        i++;
    coverage_objects[i].dump = dump;
    coverage_objects[i].reset = reset;
}
__attribute__((weak)) void coverage_forget(void (*dump)(void))
{
    int i = 0, last = 0;
    while (i < 8 && coverage_objects[i].dump != dump)
        i++;
    while (last < 8 && coverage_objects[last].dump)
        last++;
    if (i < last) {
        coverage_objects[i] = coverage_objects[last - 1];
        coverage_objects[last - 1].dump = 0;
    }
}
/* A child of vfork() shares its counters with the parent: they begin anew, or the parent would write none. */
__attribute__((weak)) void _exit(int status)
{
    for (int i = 0; i < 8 && coverage_objects[i].dump; i++) {
        coverage_objects[i].dump();
        coverage_objects[i].reset();
    }
    for (;;)
        syscall(__NR_exit_group_, status);
}
#endif
#pragma GCC visibility pop
__attribute__((constructor)) static void coverage_of_this_object(void)
{
    if (coverage_register)
        coverage_register(__gcov_dump, __gcov_reset);
}
__attribute__((destructor)) static void coverage_of_no_object(void)
{
    if (coverage_forget)
        coverage_forget(__gcov_dump);
}
#endif
END
    number=$(echo '#include <sys/syscall.h>
__NR_exit_group' | gcc -E -P - | tail -1)
    sed -i "s/__NR_exit_group_/$number/" coverage.h

    if [ -z "$again" ]; then
        find . -name '*.gcda' -delete
        rm -f lines.txt
        [ -e config.status ] || "$source/configure" -q CC=gcc CFLAGS='-O1 -g'
    fi
    exports='-Wl,--export-dynamic-symbol=_exit -Wl,--export-dynamic-symbol=coverage_*'
    build=(make -k -j2 CFLAGS="-O1 -g --coverage -include $PWD/coverage.h" LDFLAGS="--coverage $exports")
    "${build[@]}" >build.log 2>&1 || { tail build.log; exit 1; }
    limited=$(cd "$source" && grep -l 'ulimit -f' testing/*/*.test | xargs)
    if [ $# -gt 0 ]; then
        run "$*"
    else
        all=$(printf 'include Makefile\ncoverage-tests: ; @echo $(TESTS)\n' | make -s -f - coverage-tests)
        run "$(tr ' ' '\n' <<<"$all" | grep -vxF "$(tr ' ' '\n' <<<"$limited")" | xargs)"
        count >/dev/null
        run "$limited"
    fi
}

count()
{
    find src entries -name '*.gcno' 2>/dev/null | sort >notes.txt || true
    python3 - "$source" <<'END'
import collections, json, os, subprocess, sys

source = os.path.realpath(sys.argv[1])
lines = collections.defaultdict(int)
functions = set()
if os.path.exists("lines.txt"):
    for row in open("lines.txt"):
        name, line, count = row.split()
        lines[name, int(line)] = int(count)
for note in open("notes.txt"):
    note = note.strip()
    text = subprocess.run(["gcov", "--json-format", "--stdout", note], capture_output=True, text=True).stdout
    for part in text.splitlines():
        if not part.startswith("{"):
            continue
        report = json.loads(part)
        for file in report["files"]:
            name = os.path.realpath(os.path.join(report["current_working_directory"], file["file"]))
            if name.startswith(source + "/src/"):
                name = os.path.relpath(name, source)
            elif name.startswith(os.getcwd() + "/entries/"):
                name = os.path.relpath(name)
            else:
                continue
            for line in file["lines"]:
                place = name, line["line_number"]
                lines[place] = max(lines[place], line["count"])
            for function in file["functions"]:
                functions.add((name, function["start_line"], function["end_line"], function["name"]))

with open("lines.txt", "w") as out:
    for (name, line), count in sorted(lines.items()):
        print(name, line, count, file=out)
# A function of a template, or of a header, is one of its places.
places = {function[:3]: False for function in functions}
for name, start, end in places:
    places[name, start, end] = any(lines.get((name, line)) for line in range(start, end + 1))
idle = {(name, line) for (name, start, end), ran in places.items() if not ran for line in range(start, end + 1)}
with open("functions.txt", "w") as out:
    for name, start, end, function in sorted(functions):
        if not places[name, start, end]:
            print(f"{name}:{start}: {function}", file=out)
with open("lines-not-run.txt", "w") as out:
    for (name, line), count in sorted(lines.items()):
        if count == 0 and (name, line) not in idle:
            where = source if name.startswith("src/") else "."
            text = open(os.path.join(where, name)).read().splitlines()[line - 1]
            print(f"{name}:{line}: {text.strip()}", file=out)

folders = collections.defaultdict(lambda: [0, 0])
for (name, line), count in lines.items():
    for folder in (os.path.dirname(name), "in all")[:2 if name.startswith("src/") else 1]:
        folders[folder][0] += 1
        folders[folder][1] += count > 0
print(f"{'folder':16}{'lines':>8}{'ran':>8}{'%':>8}{'not':>8}")
for folder, (all_lines, ran) in sorted(folders.items(), key=lambda row: (row[0] == "in all", row[0])):
    print(f"{folder:16}{all_lines:8}{ran:8}{100 * ran / all_lines:8.2f}{all_lines - ran:8}")
ran = [ran for (name, _, _), ran in places.items() if name.startswith("src/")]
print("functions of src that never ran:", ran.count(False), "of", len(ran))
END
}

[ -n "$report" ] || build_and_run "$@"
count
