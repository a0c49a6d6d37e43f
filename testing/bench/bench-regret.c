/* One process that calls routines by their public names, for bench-regret.py.
 *
 * usage: bench-regret < CASES                                  answers every line with a line
 *        bench-regret ROUTINE TRANS M N K NRHS CALLS           makes the calls and ends
 *
 * A case is the same words in a line: "dgemm NT 512 512 512 0 5". TRANS is transa and transb; sizes
 * that the routine has not are ignored. The answer is the median and the best of the seconds of
 * CALLS calls, the median of the process's CPU seconds, and how many calls of the name have run on
 * the device so far, -1 where there is no shim or it keeps no report. Contents are as good as
 * random and well conditioned, and are the same before every call.
 *
 * The names are those of LD_PRELOAD, or of the library in BENCH_NEXT. */
#include "bench.h"
#include "next/next.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MATRICES = 3, ARGUMENTS = 20, MOST_CALLS = 1000 };

struct task {
    struct clb_call call;
    size_t calls;
};

/* Memory is kept from case to case. Its first `dirty` bytes have been written to. */
static struct arena {
    char *data;
    size_t bytes, dirty;
} arenas[MATRICES], pristine, workspace, pivots, taus;

static void make_room(struct arena *arena, size_t bytes)
{
    if (arena->bytes >= bytes)
        return;
    if (arena->data != NULL)
        bench_release(arena->data, arena->bytes);
    arena->data = bench_memory(bytes);
    arena->bytes = arena->dirty = bytes;
}

/* ---- contents -------------------------------------------------------------------------------- */

/* No column length divides it, so that columns differ. */
#define BLOCK ((size_t)8 * 524287)

/* Small numbers, so that triangles with a diagonal of ones are well conditioned. */
static const char *random_block(size_t real)
{
    static char *blocks[2];
    char **block = &blocks[real == sizeof(double)];
    uint64_t state = 1;
    if (*block != NULL)
        return *block;
    *block = bench_memory(BLOCK);
    for (size_t i = 0; i < BLOCK / real; i++) {
        const double value = bench_random(&state) * 0x1p-15;
        if (real == sizeof(double))
            ((double *)(void *)*block)[i] = value;
        else
            ((float *)(void *)*block)[i] = (float)value;
    }
    return *block;
}

static void fill(struct arena *arena, size_t bytes, size_t real)
{
    const char *block = random_block(real);
    for (size_t at = 0; at < bytes; at += BLOCK)
        memcpy(arena->data + at, block, clb_min(BLOCK, bytes - at));
}

static void put_ones(char *data, size_t count, size_t step, clb_precision precision)
{
    for (size_t i = 0; i < count; i++) {
        if (clb_precision_real_size(precision) == sizeof(double))
            memcpy(data + i * step, &(double){1}, sizeof(double));
        else
            memcpy(data + i * step, &(float){1}, sizeof(float));
    }
}

static bool needs_diagonal(const struct clb_call *call)
{
    struct clb_shape shape;
    const char *stem = clb_routines[call->routine].stem;
    return (clb_call_shape(call, 'A', &shape) && shape.triangle) || strcmp(stem, "getrs") == 0 ||
           strcmp(stem, "getri") == 0;
}

/* ---- a call ---------------------------------------------------------------------------------- */

typedef void any_function(const void *, ...);

static void invoke(any_function *function, const struct clb_call *call)
{
    static const char letters[] = "NTC";
    const int sizes[] = {(int)call->m,   (int)call->n,   (int)call->k,   (int)call->nrhs,
                         (int)call->lda, (int)call->ldb, (int)call->ldc, (int)call->lwork};
    const void *x[ARGUMENTS] = {0};
    int info = 0;
    size_t count = 0;
    for (const char *s = clb_routines[call->routine].signature; *s != '\0'; s++) {
        switch (*s) {
        case 's':
        case 'u':
            x[count++] = "L";
            break;
        case 'd':
            x[count++] = "N";
            break;
        case 't':
            x[count++] = &letters[call->transa];
            break;
        case 'T':
            x[count++] = &letters[call->transb];
            break;
        case '*':
            x[count++] = call->alpha;
            break;
        case '+':
            x[count++] = call->beta;
            break;
        case 'A':
        case 'B':
        case 'C':
            x[count++] = arenas[*s - 'A'].data;
            x[count++] = &sizes[4 + *s - 'A'];
            break;
        case 'p':
            x[count++] = pivots.data;
            break;
        case 'q':
            x[count++] = taus.data;
            break;
        case 'w':
            x[count++] = workspace.data;
            x[count++] = &sizes[7];
            break;
        case 'i':
            x[count++] = &info;
            break;
        default:
            x[count++] = &sizes[*s == 'm' ? 0 : *s == 'n' ? 1 : *s == 'k' ? 2 : 3];
        }
    }
    function(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10], x[11], x[12], x[13],
             x[14], x[15], x[16], x[17], x[18], x[19]);
    if (info != 0)
        bench_fail("%s: info = %d", clb_routines[call->routine].name, info);
}

static void *names; /* where the functions are */

static double device_calls(const struct clb_call *call)
{
    typedef size_t report_function(char *, size_t);
    static char text[1 << 20];
    char name[32];
    void *symbol = dlsym(RTLD_DEFAULT, "clblas_shim_report");
    if (symbol == NULL)
        return -1;
    report_function *report;
    memcpy(&report, &symbol, sizeof report);
    report(text, sizeof text);
    snprintf(name, sizeof name, "%s_", clb_routines[call->routine].name);
    return bench_report_number(text, name, "device");
}

static double cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static size_t largest_size(const struct clb_call *call)
{
    const int64_t sizes[] = {call->m, call->n, call->k, call->nrhs};
    size_t most = 1;
    for (size_t i = 0; i < CLB_COUNT_OF(sizes); i++)
        most = clb_max(most, (size_t)sizes[i]);
    return most;
}

static void make_operands(struct clb_call *call)
{
    static size_t last_real;
    const clb_precision precision = call->precision;
    const size_t size = clb_precision_size(precision), real = clb_precision_real_size(precision);
    const size_t most = largest_size(call);
    for (int i = 0; i < MATRICES; i++) {
        struct clb_shape shape;
        struct arena *arena = &arenas[i];
        if (!clb_call_shape(call, (char)('A' + i), &shape))
            continue;
        const size_t rows = clb_max((size_t)shape.rows, 1);
        const size_t bytes = rows * clb_max((size_t)shape.cols, 1) * size;
        make_room(arena, bytes);
        if (last_real != real)
            arena->dirty = arena->bytes;
        fill(arena, clb_min(arena->dirty, arena->bytes), real);
        arena->dirty = shape.written ? bytes : 0;
        *(i == 0 ? &call->lda : i == 1 ? &call->ldb : &call->ldc) = (int64_t)rows;
        if (i == 0 && needs_diagonal(call)) {
            put_ones(arena->data, clb_min(rows, (size_t)shape.cols), (rows + 1) * size, precision);
            arena->dirty = bytes;
        }
    }
    last_real = real;
    call->lwork = (int64_t)(128 * most);
    make_room(&workspace, 128 * most * size);
    make_room(&pivots, most * sizeof(int));
    make_room(&taus, most * size);
    for (size_t i = 0; i < most; i++)
        ((int *)(void *)pivots.data)[i] = (int)i + 1;
    put_ones(taus.data, most, size, precision);
}

/* Products leave nothing behind that the next call reads. */
static bool is_overwritten(const struct clb_call *call, int i)
{
    struct clb_shape shape;
    return clb_call_shape(call, (char)('A' + i), &shape) && shape.written &&
           !(i == 2 && clb_signature_has(call, '+'));
}

static void do_task(struct task *task, FILE *answers)
{
    static double seconds[MOST_CALLS], cpu[MOST_CALLS];
    static const double one_d[2] = {1}, zero[2];
    static const float one_s[2] = {1};
    struct clb_call *call = &task->call;
    char name[32];
    any_function *function;
    snprintf(name, sizeof name, "%s_", clb_routines[call->routine].name);
    void (*found)(void) = bench_symbol(names, name);
    memcpy(&function, &found, sizeof function);
    const bool single = clb_precision_real_size(call->precision) == sizeof(float);
    call->alpha = single ? (const void *)one_s : one_d;
    call->beta = zero;
    make_operands(call);
    int saved = 0;
    while (saved < MATRICES && !is_overwritten(call, saved))
        saved++;
    const size_t bytes = saved < MATRICES ? arenas[saved].dirty : 0;
    make_room(&pristine, bytes + 1);
    if (saved < MATRICES)
        memcpy(pristine.data, arenas[saved].data, bytes);
    const size_t calls = clb_min(clb_max(task->calls, 1), MOST_CALLS);
    for (size_t i = 0; i < calls; i++) {
        if (saved < MATRICES && i > 0)
            memcpy(arenas[saved].data, pristine.data, bytes);
        const double cpu_begin = cpu_now(), begin = bench_now();
        invoke(function, call);
        seconds[i] = bench_now() - begin;
        cpu[i] = cpu_now() - cpu_begin;
    }
    const double best = bench_best(seconds, calls), device = device_calls(call);
    fprintf(answers, "%.9g %.9g %.9g %g\n", bench_median(seconds, calls), best,
            bench_median(cpu, calls), device);
    fflush(answers);
}

static bool parse(const char *line, struct task *task)
{
    char name[16], trans[8];
    long long m, n, k, nrhs, calls;
    if (sscanf(line, "%15s %7s %lld %lld %lld %lld %lld", name, trans, &m, &n, &k, &nrhs, &calls) !=
        7)
        return false;
    *task = (struct task){.call = {.m = m, .n = n, .k = k, .nrhs = nrhs}, .calls = (size_t)calls};
    for (int r = 0; r < CLB_ROUTINES; r++) {
        if (strcmp(clb_routines[r].name, name) != 0)
            continue;
        task->call.routine = (clb_routine)r;
        task->call.precision = clb_routines[r].precision;
        task->call.transa = trans[0] == 'T' ? CLB_OP_T : trans[0] == 'C' ? CLB_OP_C : CLB_OP_N;
        task->call.transb = trans[0] != '\0' && trans[1] == 'T' ? CLB_OP_T : CLB_OP_N;
        task->call.symbol = clb_symbol_at((clb_routine)r, 0);
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
