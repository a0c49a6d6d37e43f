/* Calls of BLAS libraries by name, timed. Each library is loaded in a child process, which finds it
 * as a call of the shim would, or opens the one that is named. */
#include "measure.h"
#include "base/symbols.h"
#include "next/next.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define WORK_COLUMNS 256 /* of a workspace: what LAPACK asks for at most is half of that */

clb_routine clb_find_routine(const char *name)
{
    size_t length = strlen(name), i = 0;
    length -= length > 0 && name[length - 1] == '_';
    while (i < CLB_ROUTINES && (strlen(clb_routines[i].name) != length ||
                                strncmp(clb_routines[i].name, name, length) != 0))
        i++;
    return (clb_routine)i;
}

double clb_call_flops(clb_routine routine, size_t n)
{
    const struct clb_routine_info *info = &clb_routines[routine];
    double order = (double)n;
    return (clb_precision_parts(info->precision) == 2 ? 8 : 2) *
           clb_work_of(info->row, order, order, order);
}

struct clb_call_bytes clb_call_traffic(clb_routine routine, size_t n)
{
    const struct clb_routine_info *info = &clb_routines[routine];
    const struct clb_call call = {
        .routine = routine, .m = (int64_t)n, .n = (int64_t)n, .k = (int64_t)n, .nrhs = (int64_t)n};
    struct clb_call_bytes bytes = {0};
    for (const char *name = "ABC"; *name != '\0'; name++) {
        struct clb_shape shape;
        if (!clb_call_shape(&call, *name, &shape))
            continue;
        double size = (double)n * (double)n * (double)clb_precision_size(info->precision) /
                      (shape.triangle ? 2 : 1);
        /* With beta = 0 the result is not read. */
        bytes.read += shape.written && strchr(info->signature, '+') != NULL ? 0 : size;
        bytes.written += shape.written ? size : 0;
    }
    return bytes;
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* Square matrices, as far as the routine has them. `pristine` is what those that it writes to are
 * set to before each call. */
struct operands {
    struct clb_call call;
    size_t n, bytes;
    void *matrix[3], *pristine[3];
};

/* Entries are about 1/n, the diagonal 2: a triangle of it is well conditioned, all of it positive
 * definite, and as reflectors they are harmless. */
static void fill(clb_precision precision, size_t n, unsigned char *matrix)
{
    size_t parts = clb_precision_parts(precision), count = n * n * parts;
    uint64_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double value = (double)(int64_t)(state >> 11) * 0x1p-52 - 1;
        value = i % (parts * (n + 1)) == 0 ? 2 : value / (double)n;
        if (clb_precision_real_size(precision) == sizeof(float))
            ((float *)(void *)matrix)[i] = (float)value;
        else
            ((double *)(void *)matrix)[i] = value;
    }
}

static bool open_operands(struct operands *x, clb_routine routine, size_t n)
{
    static const clb_scalar one = {.d = {1, 0}}, one_single = {.s = {1, 0}}, zero;
    const clb_precision precision = clb_routines[routine].precision;
    bool single = clb_precision_real_size(precision) == sizeof(float), all = true;
    int64_t order = (int64_t)n;
    *x = (struct operands){.n = n, .bytes = n * n * clb_precision_size(precision)};
    for (int i = 0; i < 3; i++) {
        struct clb_shape shape;
        if (!clb_call_shape(&(struct clb_call){.routine = routine}, "ABC"[i], &shape))
            continue;
        x->matrix[i] = malloc(x->bytes);
        x->pristine[i] = shape.written ? malloc(x->bytes) : NULL;
        if (x->matrix[i] == NULL || (shape.written && x->pristine[i] == NULL))
            return false;
        fill(precision, n, shape.written ? x->pristine[i] : x->matrix[i]);
    }
    x->call = (struct clb_call){.routine = routine,
                                .precision = precision,
                                .transa = CLB_OP_N,
                                .transb = CLB_OP_N,
                                .m = order,
                                .n = order,
                                .k = order,
                                .nrhs = order,
                                .lda = order,
                                .ldb = order,
                                .ldc = order,
                                .alpha = single ? &one_single : &one,
                                .beta = &zero,
                                .a = x->matrix[0],
                                .b = x->matrix[1],
                                .c = x->matrix[2],
                                .lwork = WORK_COLUMNS * order};
    x->call.ipiv = calloc(n, sizeof(int64_t));
    x->call.tau = calloc(n, clb_precision_size(precision));
    if (strchr(clb_routines[routine].signature, 'w') != NULL)
        x->call.work = malloc(WORK_COLUMNS * n * clb_precision_size(precision));
    all = x->call.ipiv != NULL && x->call.tau != NULL &&
          (x->call.work != NULL || strchr(clb_routines[routine].signature, 'w') == NULL);
    return all;
}

static void close_operands(struct operands *x)
{
    for (int i = 0; i < 3; i++) {
        free(x->matrix[i]);
        free(x->pristine[i]);
    }
    free(x->call.ipiv);
    free(x->call.tau);
    free(x->call.work);
}

static double time_once(struct operands *x, const struct clb_target *target)
{
    for (int i = 0; i < 3; i++) {
        if (x->pristine[i] != NULL)
            memcpy(x->matrix[i], x->pristine[i], x->bytes);
    }
    /* Pivots that a routine reads: no interchanges. */
    for (size_t i = 0; i < x->n; i++)
        clb_integer_set(x->call.ipiv, i, target->ilp64, (int64_t)i + 1);
    double begin = clb_now();
    clb_next_call(target, CLB_ABI_FORTRAN, &x->call);
    return clb_now() - begin;
}

/* ---- whether the shim's device did it -------------------------------------------------------- */

struct reporter {
    const void *function; /* an address in the library */
    size_t (*report)(char *buffer, size_t size);
};

static void find_reporter(const struct clb_objects *objects, void *argument)
{
    struct reporter *reporter = argument;
    struct clb_object *home = clb_object_at(objects, reporter->function);
    const void *address = home != NULL ? clb_object_find(home, "clblas_shim_report").address : NULL;
    memcpy(&reporter->report, &address, sizeof address);
}

/* Calls so far that were computed on the shim's device alone. */
static json_int_t count_device_calls(const struct reporter *reporter)
{
    char text[65536];
    json_int_t calls = 0;
    const char *name;
    json_t *row, *report = NULL;
    if (reporter->report != NULL && reporter->report(text, sizeof text) < sizeof text)
        report = json_loads(text, 0, NULL);
    json_object_foreach(json_object_get(report, "routines"), name, row) calls +=
        json_integer_value(json_object_get(row, "device"));
    json_decref(report);
    return calls;
}

/* ---- in the child ---------------------------------------------------------------------------- */

static json_t *time_size(const struct clb_target *target, const struct reporter *reporter,
                         clb_routine routine, size_t n)
{
    struct operands operands;
    double seconds[15];
    size_t count = 0;
    json_t *row = NULL;
    if (open_operands(&operands, routine, n)) {
        time_once(&operands, target);
        json_int_t before = count_device_calls(reporter);
        double begun = clb_now();
        do
            seconds[count++] = time_once(&operands, target);
        while (count < CLB_COUNT_OF(seconds) && clb_now() - begun < 0.5);
        bool device = count_device_calls(reporter) == before + (json_int_t)count;
        row = json_pack("{s:I,s:f,s:b}", "n", (json_int_t)n, "seconds", clb_median(seconds, count),
                        "device", device);
    }
    close_operands(&operands);
    return row;
}

/* The shim's own search refuses copies of the shim, so a library that is named is opened here.
 * False: it can't be, or has no such routine. */
static bool find_target(const char *library, clb_routine routine, struct clb_target *target)
{
    struct clb_next_symbol *symbol = &clb_symbol_at(routine, 0)->next;
    const struct clb_target *next = clb_next_try(symbol, __builtin_return_address(0));
    void *handle = library != NULL ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *address = handle != NULL ? dlsym(handle, symbol->name) : NULL,
         *probe = handle != NULL ? dlsym(handle, symbol->probe) : NULL;
    *target = (struct clb_target){.ilp64 = next != NULL && next->ilp64};
    if (library == NULL && next != NULL)
        target->function = next->function;
    memcpy(&target->function, &address, library != NULL ? sizeof address : 0);
    void (*function)(void);
    memcpy(&function, &probe, sizeof function);
    if (probe != NULL) /* the shim has none: its integers are the next library's */
        target->ilp64 = clb_next_probe_ilp64(function, symbol->probe, CLB_ABI_FORTRAN);
    return target->function != NULL;
}

static json_t *time_sizes(const char *library, clb_routine routine, const size_t *sizes,
                          size_t count)
{
    struct clb_target target;
    struct reporter reporter = {0};
    json_t *rows = json_array();
    if (!find_target(library, routine, &target))
        return rows;
    memcpy(&reporter.function, &target.function, sizeof reporter.function);
    clb_objects_visit(find_reporter, &reporter);
    for (size_t i = 0; i < count; i++) {
        json_t *row = time_size(&target, &reporter, routine, sizes[i]);
        if (row != NULL)
            json_array_append_new(rows, row);
    }
    return rows;
}

/* ---- in this process ------------------------------------------------------------------------- */

struct calls {
    const char *library;
    clb_routine routine;
    const size_t *sizes;
    size_t count;
};

static json_t *answer_calls(void *argument)
{
    const struct calls *calls = argument;
    unsetenv("LD_PRELOAD");
    unsetenv("CLBLAS_SHIM_TRACE");
    setenv("CLBLAS_SHIM", "always", 0);
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "1", 0);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    return time_sizes(calls->library, calls->routine, calls->sizes, calls->count);
}

json_t *clb_time_calls(const char *library, clb_routine routine, const size_t *sizes, size_t count)
{
    struct calls calls = {library, routine, sizes, count};
    return clb_ask_child(answer_calls, &calls);
}
