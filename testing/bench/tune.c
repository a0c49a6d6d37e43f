/* The tuner: searches a kernel family's parameters on the device at hand.
 *
 * usage: tune --precision s|d|c|z --family FAMILY [--sizes N,N,...] [--seconds S] [--host 0|1]
 *             [--class CLASS] [--seed N]
 *
 * From the family's row in the tables (CLBLAS_SHIM_PARAMS overrides it) it goes along one parameter
 * after the other, over and over, then changes a few at random, until the time is over. A candidate
 * is built and checked against sums in extended precision, and then takes turns with the best one
 * so far, so that drifting clocks don't matter; what counts is the median of the ratios, the
 * geometric mean over the sizes. Packing is in the time; operands are on the device, or, with
 * --host 1, the default for cpu, in the host's memory. At the end the best take turns with the row
 * that it began from. Progress and the table of the best go to stderr, a row for
 * src/engine/tuning/gemm.def to stdout.
 *
 * Candidates run in a process of their own, which is started again when one of them ends it.
 * Nothing is taken from the cache of compiled kernels unless CLBLAS_SHIM_CACHE_DIR says so. */
#include "tune.h"

#include <ctype.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_SIZES 8
#define BEST      5

/* A candidate takes no longer, or it hangs. */
#define PATIENCE_MS 90000

/* Gains below are noise. */
#define CLEAR 0.993

/* Repetitions and milliseconds of one: of a first look, and of a decision. */
static const struct effort {
    size_t reps, ms;
} look = {3, 15}, decision = {5, 150};

struct point {
    size_t value[CLB_PARAMS];
    double ratio; /* of its time to that of the row in the table */
};

static struct {
    clb_family family;
    const char *class;
    size_t sizes[MAX_SIZES];
    struct tune_task task;
    double seconds;
    uint64_t seed;
} options = {.family = CLB_FAMILIES, .seconds = 60, .seed = 1};

static struct {
    pid_t process;
    FILE *requests;
    int answers;
} worker;

static struct {
    char class[32];
    double threshold;
    size_t smallest;
    struct point start, now;
    struct point best[BEST];
    size_t best_count;
    struct clb_tune_seen seen;
    size_t tried, bad;
    double end;
} search;

/* ---- the worker ---- */

static void start_worker(char **arguments)
{
    int down[2], up[2];
    if (pipe(down) != 0 || pipe(up) != 0)
        bench_fail("no pipe");
    worker.process = fork();
    if (worker.process == 0) {
        dup2(down[0], STDIN_FILENO);
        dup2(up[1], STDOUT_FILENO);
        close(down[1]);
        close(up[0]);
        setenv("TUNE_WORKER", "1", 1);
        setenv("CLBLAS_SHIM_KERNEL", clb_family_name(options.family), 1);
        setenv("CLBLAS_SHIM_CACHE_DIR", "none", 0);
        execv("/proc/self/exe", arguments);
        _exit(1);
    }
    close(down[0]);
    close(up[1]);
    worker.requests = fdopen(down[1], "w");
    worker.answers = up[0];
    if (worker.process < 0 || worker.requests == NULL)
        bench_fail("no process for the candidates");
}

static void stop_worker(void)
{
    fclose(worker.requests);
    close(worker.answers);
    waitpid(worker.process, NULL, 0);
}

/* A line of the worker, false when it ended or is stuck. */
static bool read_answer(char *line, size_t size)
{
    size_t length = 0;
    struct pollfd pollfd = {.fd = worker.answers, .events = POLLIN};
    while (length + 1 < size && poll(&pollfd, 1, PATIENCE_MS) == 1) {
        ssize_t got = read(worker.answers, line + length, 1);
        if (got != 1)
            return false;
        if (line[length] == '\n') {
            line[length] = '\0';
            return true;
        }
        length++;
    }
    return false;
}

static void send_values(const size_t *value)
{
    for (size_t i = 0; i < CLB_PARAMS; i++)
        fprintf(worker.requests, " %zu", value[i]);
}

/* Time of a candidate as a ratio to the base's, 0 when it is bad; `what` says more. */
static double try_values(char **arguments, struct effort effort, const size_t *value,
                         const size_t *base, char *what, size_t size)
{
    double ratio = 0;
    char *end;
    fprintf(worker.requests, "try %zu %zu", effort.reps, effort.ms);
    send_values(value);
    send_values(base);
    fputc('\n', worker.requests);
    fflush(worker.requests);
    if (!read_answer(what, size)) {
        kill(worker.process, SIGKILL);
        stop_worker();
        start_worker(arguments);
        snprintf(what, size, "it crashed or hung");
    } else if (strncmp(what, "ok ", 3) == 0) {
        ratio = strtod(what + 3, &end);
        memmove(what, end, strlen(end) + 1);
    } else {
        memmove(what, what + 4, strlen(what + 4) + 1);
    }
    search.tried++;
    search.bad += ratio == 0;
    return ratio;
}

/* ---- the search ---- */

/* Keep the best, sorted. */
static void note_point(const struct point *point)
{
    size_t at = search.best_count;
    while (at > 0 && search.best[at - 1].ratio > point->ratio)
        at--;
    if (at == BEST)
        return;
    search.best_count += search.best_count < BEST;
    memmove(&search.best[at + 1], &search.best[at],
            (search.best_count - at - 1) * sizeof search.best[0]);
    search.best[at] = *point;
}

/* "MR 128 -> 256, NR ..." */
static void print_changes(const size_t *from, const size_t *to)
{
    const char *between = "";
    for (int i = 0; i < CLB_PARAMS; i++) {
        if (from[i] == to[i])
            continue;
        fprintf(stderr, "%s%s %zu -> %zu", between, clb_param_name((clb_param)i), from[i], to[i]);
        between = ", ";
    }
}

/* True when the changed values are the best now. */
static bool consider(char **arguments, struct point point)
{
    const struct clb_tune_space *space = clb_tune_space_of(options.family);
    size_t real = clb_precision_real_size(options.task.precision);
    char what[512];
    if (space->repair != NULL)
        space->repair(point.value);
    if (!space->sensible(point.value, real) || clb_tune_was_seen(&search.seen, point.value))
        return false;
    double ratio = try_values(arguments, look, point.value, search.now.value, what, sizeof what);
    bool better = ratio > 0 && ratio < CLEAR;
    if (better)
        ratio = try_values(arguments, decision, point.value, search.now.value, what, sizeof what);
    better = ratio > 0 && ratio < CLEAR;
    fprintf(stderr, "%4.0f s  ", search.end - bench_now());
    if (ratio > 0)
        fprintf(stderr, "%.3f  ", ratio);
    else
        fprintf(stderr, "%s  ", what);
    print_changes(search.now.value, point.value);
    fputs(better ? "  *\n" : "\n", stderr);
    if (ratio > 0) {
        point.ratio = ratio * search.now.ratio;
        note_point(&point);
    }
    if (better)
        search.now = point;
    return better;
}

static bool time_is_left(void)
{
    return bench_now() < search.end;
}

/* Every value of every parameter, the others kept; whether anything became better. */
static bool sweep(char **arguments)
{
    const struct clb_tune_space *space = clb_tune_space_of(options.family);
    bool better = false;
    for (size_t a = 0; a < space->count; a++) {
        for (size_t v = 0; v < space->axes[a].count && time_is_left(); v++) {
            struct point point = search.now;
            point.value[space->axes[a].param] = space->axes[a].values[v];
            better |= consider(arguments, point);
        }
    }
    return better;
}

static size_t pick(size_t count)
{
    return (size_t)((bench_random(&options.seed) + 1) / 2 * (double)count) % count;
}

static void wander(char **arguments)
{
    const struct clb_tune_space *space = clb_tune_space_of(options.family);
    /* In a small space everything may have been seen. */
    for (size_t misses = 0; time_is_left() && misses < 10000; misses++) {
        struct point point = search.now;
        for (size_t changes = 2 + pick(2); changes > 0; changes--) {
            const struct clb_tune_axis *axis = &space->axes[pick(space->count)];
            point.value[axis->param] = axis->values[pick(axis->count)];
        }
        size_t tried = search.tried;
        if (consider(arguments, point))
            sweep(arguments);
        misses = search.tried != tried ? 0 : misses;
    }
}

/* ---- the result ---- */

/* The best take turns with the row that the search began from. */
static void finish(char **arguments)
{
    const struct point *winner = &search.start;
    double least = 1;
    char what[512];
    fprintf(stderr, "# %zu tried, %zu of them bad\n%8s  %s\n", search.tried, search.bad, "time",
            "ms for each size, changes");
    for (size_t i = 0; i < search.best_count; i++) {
        const struct point *point = &search.best[i];
        double ratio =
            try_values(arguments, decision, point->value, search.start.value, what, sizeof what);
        if (ratio == 0)
            continue;
        fprintf(stderr, "%7.3fx ", ratio);
        for (char *text = what; *text != '\0';)
            fprintf(stderr, " %.3f", 1e3 * strtod(text, &text));
        fputs("  ", stderr);
        print_changes(search.start.value, point->value);
        fputc('\n', stderr);
        if (ratio < least && ratio < CLEAR) {
            least = ratio;
            winner = point;
        }
    }
    if (winner == &search.start)
        fprintf(stderr, "# nothing is clearly better than the row in the table\n");
    else
        fprintf(stderr, "# %.1f %% less time than with the row in the table\n", 100 * (1 - least));
    struct clb_gemm_tuning row = {options.family, search.threshold, search.smallest, {0}};
    memcpy(row.value, winner->value, sizeof row.value);
    clb_tune_print_row(options.class != NULL ? options.class : search.class, options.task.precision,
                       &row);
}

static void begin(void)
{
    char line[1024], *text = line;
    fputs("start\n", worker.requests);
    fflush(worker.requests);
    if (!read_answer(line, sizeof line))
        bench_fail("there is no row for the family, or no device");
    text = line + strcspn(line, " ");
    snprintf(search.class, sizeof search.class, "%.*s", (int)(text - line), line);
    search.threshold = strtod(text, &text);
    search.smallest = strtoull(text, &text, 10);
    for (int i = 0; i < CLB_PARAMS; i++)
        search.start.value[i] = strtoull(text, &text, 10);
    search.start.ratio = 1;
    search.now = search.start;
    clb_tune_was_seen(&search.seen, search.start.value);
    search.end = bench_now() + options.seconds;
}

static void parse_sizes(const char *text)
{
    char *end;
    for (; options.task.size_count < MAX_SIZES && *text != '\0'; text = end + (*end == ',')) {
        size_t size = strtoul(text, &end, 10);
        if (size == 0)
            bench_fail("%s is no list of sizes", text);
        options.sizes[options.task.size_count++] = size;
    }
}

static void parse(int count, char **arguments)
{
    int precision = -1, host = -1;
    const char *sizes = NULL;
    for (int i = 1; i + 1 < count; i += 2) {
        const char *name = arguments[i], *value = arguments[i + 1];
        if (strcmp(name, "--precision") == 0)
            precision = bench_precision((char)tolower((unsigned char)*value));
        else if (strcmp(name, "--sizes") == 0)
            sizes = value;
        else if (strcmp(name, "--seconds") == 0)
            options.seconds = strtod(value, NULL);
        else if (strcmp(name, "--host") == 0)
            host = atoi(value);
        else if (strcmp(name, "--class") == 0)
            options.class = value;
        else if (strcmp(name, "--seed") == 0)
            options.seed = strtoull(value, NULL, 10);
        for (int f = 0; f < CLB_FAMILIES && strcmp(name, "--family") == 0; f++) {
            if (strcmp(clb_family_name((clb_family)f), value) == 0)
                options.family = (clb_family)f;
        }
    }
    if (precision < 0 || options.family == CLB_FAMILIES)
        bench_fail("usage: tune --precision s|d|c|z --family FAMILY; more at the head of tune.c");
    bool cpu = options.family == CLB_FAMILY_CPU;
    parse_sizes(sizes != NULL ? sizes : cpu ? "512,1024,2048" : "2048,4096,8192");
    options.task.precision = (clb_precision)precision;
    options.task.sizes = options.sizes;
    options.task.host = host < 0 ? cpu : host > 0;
}

int main(int count, char **arguments)
{
    parse(count, arguments);
    if (getenv("TUNE_WORKER") != NULL)
        return tune_worker(&options.task);
    signal(SIGPIPE, SIG_IGN);
    start_worker(arguments);
    begin();
    while (time_is_left() && sweep(arguments)) {
    }
    wander(arguments);
    finish(arguments);
    stop_worker();
    return 0;
}
