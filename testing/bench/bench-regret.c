/* One process that calls routines by their public names, for bench-regret.py.
 *
 * usage: bench-regret < CASES                                  answers every line with a line
 *        bench-regret ROUTINE TRANS M N K NRHS CALLS           makes the calls and ends
 *
 * A case is the same words in a line: "dgemm NT 512 512 512 0 5". TRANS is transa and transb; sizes
 * that the routine has not are ignored. The answer is the median and the best of the seconds of
 * CALLS calls, the median of the process's CPU seconds, how many calls of the name have run on the
 * device so far, and how many were declined because it was not ready; -1 where there is no shim or
 * it keeps no report. Contents are as good as random and well conditioned, and are the same before
 * every call.
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
    fprintf(answers, "%.9g %.9g %.9g %g %g\n", time.median, time.best, time.cpu, counts.device,
            counts.starting);
    fflush(answers);
}

static bool parse(const char *line, struct task *task)
{
    char name[16], trans[8];
    long long m, n, k, nrhs, calls;
    if (sscanf(line, "%15s %7s %lld %lld %lld %lld %lld", name, trans, &m, &n, &k, &nrhs, &calls) !=
        7)
        return false;
    for (int r = 0; r < CLB_ROUTINES; r++) {
        if (strcmp(clb_routines[r].name, name) != 0)
            continue;
        *task = (struct task){clb_trial_make((clb_routine)r, m, n, k, nrhs), (size_t)calls};
        task->call.transa = trans[0] == 'T' ? CLB_OP_T : trans[0] == 'C' ? CLB_OP_C : CLB_OP_N;
        task->call.transb = trans[0] != '\0' && trans[1] == 'T' ? CLB_OP_T : CLB_OP_N;
        return true;
    }
    return false;
}

int main(int count, char **arguments)
{
    char line[256] = "";
    struct task task;
    const char *next = getenv("BENCH_NEXT");
    names = next != NULL ? bench_open(next) : RTLD_DEFAULT;
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
