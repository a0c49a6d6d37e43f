/* SPDX-License-Identifier: BSD-3-Clause
 * One process that calls routines by their public names, for bench-regret.py.
 *
 * usage: bench-regret < CASES                                  answers every line with a line
 *        bench-regret ROUTINE LETTERS M N K NRHS CALLS         makes the calls and ends
 *        bench-regret --draw SEED COUNT BYTES WORK             prints so many cases, and their work
 *
 * A case is the same words in a line: "dtrsm TNRUN 512 512 512 0 5". LETTERS are transa, transb,
 * side, uplo and diag; those left out, and sizes and letters that the routine has not, are ignored.
 * The answer is the median and the best of the seconds of CALLS calls, the median of the process's
 * CPU seconds, how many calls of the name have run on the device so far, and how many were declined
 * because it was not ready (-1 where there is no shim or it keeps no report), and the sum of the
 * calls' seconds. Contents are as good as random and well conditioned, and are the same before
 * every call.
 *
 * Cases are drawn from the table of routines: each routine as often, letters at random, sizes from
 * 16, right-hand sides from 1, to 20000 so that each ratio is as likely; only what takes at most
 * BYTES of memory and WORK multiplications with an addition.
 *
 * The names are those of LD_PRELOAD, or of the library in BENCH_NEXT. */
#include "bench.h"
#include "tools/command/trial.h"
#include "report.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct task {
    struct clb_call call;
    size_t calls;
};

static void *names; /* where the functions are */

struct counts {
    double device, starting;
};

static struct counts counts_of(const struct clb_call *call)
{
    typedef size_t report_function(char *, size_t);
    static char text[1 << 20];
    char name[32];
    void *symbol = dlsym(RTLD_DEFAULT, "clblas_shim_report");
    if (symbol == NULL)
        return (struct counts){-1, -1};
    report_function *report;
    memcpy(&report, &symbol, sizeof report);
    report(text, sizeof text);
    snprintf(name, sizeof name, "%s_", clb_routines[call->routine].name);
    return (struct counts){report_number(text, name, "device"),
                           report_number(text, name, "starting")};
}

static void do_task(struct task *task, FILE *answers)
{
    char name[32];
    snprintf(name, sizeof name, "%s_", clb_routines[task->call.routine].name);
    const struct clb_target target = {.function = bench_symbol(names, name)};
    const struct clb_trial_time time =
        clb_trial_run(&task->call, &target, 0, task->calls, INFINITY);
    const struct counts counts = counts_of(&task->call);
    fprintf(answers, "%.9g %.9g %.9g %g %g %.9g\n", time.median, time.best, time.cpu, counts.device,
            counts.starting, time.all);
    fflush(answers);
}

static clb_op op_of(char letter)
{
    return letter == 'T' ? CLB_OP_T : letter == 'C' ? CLB_OP_C : CLB_OP_N;
}

static void set_letters(struct clb_call *call, const char *letters)
{
    char all[6] = "NNLLN";
    memcpy(all, letters, clb_min(strlen(letters), sizeof all - 1));
    call->transa = op_of(all[0]);
    call->transb = op_of(all[1]);
    call->right = all[2] == 'R';
    call->upper = all[3] == 'U';
    call->unit = all[4] == 'U';
}

static bool parse(const char *line, struct task *task)
{
    char name[16], letters[8] = "";
    long long m, n, k, nrhs, calls;
    if (sscanf(line, "%15s %7s %lld %lld %lld %lld %lld", name, letters, &m, &n, &k, &nrhs,
               &calls) != 7)
        return false;
    for (int r = 0; r < CLB_ROUTINES; r++) {
        if (strcmp(clb_routines[r].name, name) != 0)
            continue;
        *task = (struct task){clb_trial_make((clb_routine)r, m, n, k, nrhs), (size_t)calls};
        set_letters(&task->call, letters);
        return true;
    }
    return false;
}

/* ---- cases at random ---- */

static double from_0_to_1(uint64_t *state)
{
    return (bench_random(state) + 1) / 2;
}

static char one_of(const char *letters, uint64_t *state)
{
    return letters[(size_t)(from_0_to_1(state) * (double)strlen(letters)) % strlen(letters)];
}

static int64_t draw_size(double least, uint64_t *state)
{
    return (int64_t)(least * pow(20000 / least, from_0_to_1(state)));
}

/* The sizes that `limits` compares are exchanged where they are the wrong way round. */
static void obey(struct clb_call *call, const char *limits)
{
    for (; *limits != '\0'; limits += limits[2] == ' ' ? 3 : 2) {
        size_t *of[2] = {&call->k, &call->k};
        for (int i = 0; i < 2; i++)
            of[i] = limits[i] == 'm'   ? &call->m
                    : limits[i] == 'n' ? &call->n
                    : limits[i] == 'o' ? (call->right ? &call->n : &call->m)
                                       : &call->k;
        const size_t less = clb_min(*of[0], *of[1]), more = clb_max(*of[0], *of[1]);
        *of[0] = less;
        *of[1] = more;
    }
}

static double bytes_of(const struct clb_call *call)
{
    double bytes = 0;
    for (char matrix = 'A'; matrix <= 'C'; matrix++) {
        struct clb_shape shape;
        if (clb_call_shape(call, matrix, &shape))
            bytes += (double)shape.rows * (double)shape.cols *
                     (double)clb_precision_size(call->precision);
    }
    return bytes;
}

static void draw(uint64_t seed, size_t count, double most_bytes, double most_work)
{
    for (uint64_t state = seed; count > 0;) {
        const clb_routine routine =
            (clb_routine)(from_0_to_1(&state) * (CLB_ROUTINES - 1e-9)); /* below CLB_ROUTINES */
        const struct clb_routine_info *info = &clb_routines[routine];
        struct clb_call call = clb_trial_make(routine, draw_size(16, &state), draw_size(16, &state),
                                              draw_size(16, &state), draw_size(1, &state));
        const char *trans = *info->trans != '\0' ? info->trans : "N";
        const char letters[] = {one_of(trans, &state), one_of(trans, &state), one_of("LR", &state),
                                one_of("LU", &state),  one_of("NU", &state),  '\0'};
        char name[32];
        snprintf(name, sizeof name, "%s_", info->name);
        set_letters(&call, letters);
        obey(&call, info->limits);
        obey(&call, info->limits); /* where exchanging two has made another pair wrong */
        const double work = clb_work_of(info->row, (double)clb_call_size(&call, info->sizes[0]),
                                        (double)clb_call_size(&call, info->sizes[1]),
                                        (double)clb_call_size(&call, info->sizes[2])) *
                            (clb_precision_parts(call.precision) == 2 ? 4 : 1);
        if (work > most_work || bytes_of(&call) > most_bytes || dlsym(names, name) == NULL ||
            clb_routine_has_flag(routine, 'b'))
            continue;
        printf("%s %s %zu %zu %zu %zu %g\n", info->name, letters, call.m, call.n, call.k, call.nrhs,
               work);
        count--;
    }
}

int main(int count, char **arguments)
{
    char line[256] = "";
    struct task task;
    const char *next = getenv("BENCH_NEXT");
    names = next != NULL ? bench_open(next) : RTLD_DEFAULT;
    if (count == 6 && strcmp(arguments[1], "--draw") == 0) {
        draw(strtoull(arguments[2], NULL, 10), strtoull(arguments[3], NULL, 10),
             strtod(arguments[4], NULL), strtod(arguments[5], NULL));
        return EXIT_SUCCESS;
    }
    /* Libraries that print to stdout must not be taken for an answer. */
    FILE *answers = fdopen(dup(STDOUT_FILENO), "w");
    if (answers == NULL || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        bench_fail("no stdout");
    for (int i = 1; i < count; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s ", arguments[i]);
    if (count > 1) {
        if (!parse(line, &task))
            bench_fail("see the head of bench-regret.c");
        do_task(&task, answers);
        return EXIT_SUCCESS;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (!parse(line, &task))
            bench_fail("not a case: %s", line);
        do_task(&task, answers);
    }
    return EXIT_SUCCESS;
}
