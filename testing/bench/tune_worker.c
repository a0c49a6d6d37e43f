/* Builds, checks and times the tuner's candidates. */
#include "start.h"
#include "tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIZES 8
#define MAX_REPS  31

/* A candidate that is so much slower at first sight is not worth more time. */
#define HOPELESS 1.25

/* An odd size, for a check with padding on every side. */
enum { ODD_M = 517, ODD_N = 389, ODD_K = 1031 };

/* A set of values, built, with its own matrices of each size. */
struct contender {
    size_t value[CLB_PARAMS];
    struct clb_gemm_variant variant;
    struct resident resident[MAX_SIZES];
    size_t launches[MAX_SIZES];
    bool ready;
};

static const struct tune_task *task;
static struct clb_runtime *runtime;
static struct clb_gemm_tuning row;
static struct contender base, candidate;
static struct resident odd;
static double least; /* seconds that one time takes, and the rest before it */

static struct clb_gemm whole_problem(const struct resident *r)
{
    static const double one_d[2] = {1}, zero[2];
    static const float one_s[2] = {1};
    bool single = clb_precision_real_size(task->precision) == sizeof(float);
    return (struct clb_gemm){.precision = task->precision,
                             .transa = CLB_OP_N,
                             .transb = CLB_OP_N,
                             .m = r->m,
                             .n = r->n,
                             .k = r->k,
                             .alpha = single ? (const void *)one_s : one_d,
                             .beta = zero,
                             .a = r->host[0],
                             .b = r->host[1],
                             .c = r->host[2],
                             .lda = r->m,
                             .ldb = r->k,
                             .ldc = r->m};
}

static double time_host(const struct contender *c, size_t size)
{
    const struct clb_gemm problem = whole_problem(&c->resident[size]);
    double begin = bench_now(), seconds;
    size_t runs = 0;
    do {
        struct clb_gemm_progress progress;
        resident_need(clb_gemm_run(runtime, &c->variant, &problem, &progress), "product");
        clb_gemm_progress_free(&progress);
        runs++;
        seconds = bench_now() - begin;
    } while (seconds < least);
    return seconds / (double)runs;
}

static double time_one(struct contender *c, size_t size)
{
    struct resident *r = &c->resident[size];
    if (task->host)
        return time_host(c, size);
    resident_time(r, true, true, least, &c->launches[size]); /* until the clock has settled */
    return resident_time(r, true, true, least, &c->launches[size]);
}

static bool right_at(struct contender *c, size_t size)
{
    struct resident *r = &c->resident[size];
    if (!task->host)
        return resident_right(r, false);
    const struct bench_product product = {(int)task->precision, r->m,       r->n,      r->k,
                                          r->host[0],           r->host[1], r->host[2]};
    return bench_product_right(&product, 1, 256);
}

/* Build, check with the variant's own check and at an odd size, make ready to be timed. */
static const char *prepare(struct contender *c, const size_t *value)
{
    struct clb_gemm_tuning tuning = row;
    c->ready = false;
    memcpy(c->value, value, sizeof c->value);
    memcpy(tuning.value, value, sizeof tuning.value);
    clb_status status = clb_gemm_variant_make(runtime, task->precision, &tuning, &c->variant);
    if (status != CLB_OK)
        return clb_status_name(status);
    status = resident_use(&odd, &c->variant);
    if (status == CLB_OK)
        status = resident_enqueue(&odd, true, true);
    if (status != CLB_OK)
        return clb_status_name(status);
    if (!resident_right(&odd, false) || !resident_right(&odd, true))
        return "wrong";
    for (size_t i = 0; i < task->size_count && !task->host; i++) {
        c->launches[i] = 1;
        status = resident_use(&c->resident[i], &c->variant);
        if (status != CLB_OK)
            return clb_status_name(status);
    }
    for (size_t i = 0; i < task->size_count; i++)
        time_one(c, i); /* the first launch may compile */
    c->ready = true;
    return NULL;
}

/* The median of candidate / base at one size, and the candidate's median time. */
static double compare(size_t size, size_t reps, double *seconds)
{
    double ratios[MAX_REPS], times[MAX_REPS];
    size_t done = 0;
    while (done < reps) {
        bool first = done % 2 == 0;
        double other = first ? 0 : time_one(&base, size);
        times[done] = time_one(&candidate, size);
        if (first)
            other = time_one(&base, size);
        ratios[done] = times[done] / other;
        if (++done == 1 && ratios[0] > HOPELESS)
            break;
    }
    *seconds = bench_median(times, done);
    return bench_median(ratios, done);
}

static void answer_try(size_t reps, const size_t *value, const size_t *base_value, FILE *answers)
{
    double seconds[MAX_SIZES], product = 1;
    const char *reason = NULL;
    if (!base.ready || memcmp(base.value, base_value, sizeof base.value) != 0)
        reason = prepare(&base, base_value);
    if (reason != NULL)
        bench_fail("the base is bad: %s", reason);
    reason = prepare(&candidate, value);
    for (size_t i = 0; i < task->size_count && reason == NULL; i++) {
        product *= compare(i, reps < MAX_REPS ? reps : MAX_REPS, &seconds[i]);
        if (!right_at(&candidate, i))
            reason = "wrong";
    }
    if (reason != NULL) {
        fprintf(answers, "bad %s\n", reason);
        return;
    }
    fprintf(answers, "ok %.5f", pow(product, 1.0 / (double)task->size_count));
    for (size_t i = 0; i < task->size_count; i++)
        fprintf(answers, " %.9g", seconds[i]);
    fputc('\n', answers);
}

static void answer_start(FILE *answers)
{
    fprintf(stderr, "# device %s, driver %s\n", runtime->device.name, runtime->device.driver);
    fprintf(answers, "%s %.0f %zu", clb_tuning_class(&runtime->device), row.threshold,
            row.smallest);
    for (size_t i = 0; i < CLB_PARAMS; i++)
        fprintf(answers, " %zu", row.value[i]);
    fputc('\n', answers);
}

static size_t read_values(char **text, size_t *values, size_t count)
{
    size_t read = 0;
    for (char *end; read < count; read++, *text = end) {
        values[read] = strtoull(*text, &end, 10);
        if (end == *text)
            break;
    }
    return read;
}

static void open_matrices(void)
{
    for (size_t i = 0; i < task->size_count; i++) {
        size_t n = task->sizes[i];
        resident_open(&base.resident[i], runtime, task->precision, n, n, n);
        resident_open(&candidate.resident[i], runtime, task->precision, n, n, n);
    }
    resident_open(&odd, runtime, task->precision, ODD_M, ODD_N, ODD_K);
}

int tune_worker(const struct tune_task *given)
{
    char line[4096];
    FILE *answers = stdout;
    task = given;
    if (task->size_count > MAX_SIZES)
        bench_fail("too many sizes");
    runtime = bench_start_device();
    resident_need(clb_tuning_gemm(&runtime->device, task->precision, CLB_MATH_FAST, 0, &row),
                  "a row to begin with");
    while (fgets(line, sizeof line, stdin) != NULL) {
        size_t numbers[2 + 2 * CLB_PARAMS];
        char *text = line + 3;
        if (strcmp(line, "start\n") == 0) {
            answer_start(answers);
        } else if (read_values(&text, numbers, CLB_COUNT_OF(numbers)) == CLB_COUNT_OF(numbers)) {
            if (odd.queue_set == NULL)
                open_matrices();
            least = 1e-3 * (double)numbers[1];
            answer_try(numbers[0], numbers + 2, numbers + 2 + CLB_PARAMS, answers);
        } else {
            bench_fail("not a request: %s", line);
        }
        fflush(answers);
    }
    return 0;
}
