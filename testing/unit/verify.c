/* CLBLAS_SHIM_VERIFY: in each family of routines bits are flipped in what kernels have computed,
 * and kernels are dropped although their events say that they ran. With VERIFY=1 no wrong result
 * reaches the caller: the next library computes it, and after a flip the device is quarantined;
 * that a kernel was not run is noticed before. First uses are verified once. */
#include "fakecl.h"
#include "route/run.h"
#include "routed.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PARAMS   "gemm.tile=min,trsm.nb=8,trsm.part=8,getrf.nb=8,potrf.nb=8,geqrf.nb=8"
#define STREAMED PARAMS ",gemm.stream=1,gemm.threads=2"

enum { M = 45, N = 37, K = 29, RIGHT = 21, PAD = 3, MATRICES = 3, WORK = 64 * (M + N) };

/* ---- calls of any routine -------------------------------------------------------------------- */

struct operands {
    char *data[MATRICES];
    size_t bytes[MATRICES], ld[MATRICES];
    struct clb_shape shape[MATRICES];
    char tau[16 * M], work[16 * WORK];
    int64_t ipiv[M], info;
};

static double element_at(const struct clb_call *call, const char *at, size_t part)
{
    const bool single = clb_precision_real_size(call->precision) == sizeof(float);
    return single ? (double)((const float *)(const void *)at)[part]
                  : ((const double *)(const void *)at)[part];
}

static void put_element(const struct clb_call *call, char *at, double re, double im)
{
    const double parts[2] = {re, im};
    const bool single = clb_precision_real_size(call->precision) == sizeof(float);
    for (size_t part = 0; part < clb_precision_parts(call->precision); part++) {
        if (single)
            ((float *)(void *)at)[part] = (float)parts[part];
        else
            ((double *)(void *)at)[part] = parts[part];
    }
}

static char *at_of(const struct clb_call *call, const struct operands *x, size_t matrix, size_t i,
                   size_t j)
{
    return x->data[matrix] + (i + j * x->ld[matrix]) * clb_precision_size(call->precision);
}

static bool is_of(const struct clb_call *call, const char *stems)
{
    return strstr(stems, clb_routines[call->routine].stem) != NULL;
}

/* Triangles, factors and what is definite are well conditioned. */
static void fill_matrix(const struct clb_call *call, struct operands *x, size_t matrix,
                        uint64_t *seed)
{
    const struct clb_shape *shape = &x->shape[matrix];
    const bool dominant = matrix == 0 && (shape->triangle || is_of(call, "getrs getri gesv"));
    for (size_t j = 0; j < (size_t)shape->cols; j++) {
        for (size_t i = 0; i < (size_t)shape->rows; i++) {
            double re = random_uniform(seed), im = random_uniform(seed);
            if (dominant && i == j)
                re = 2 + re * re, im = 0;
            else if (dominant)
                re /= 2 * N, im /= 2 * N;
            put_element(call, at_of(call, x, matrix, i, j), re, im);
        }
    }
}

/* H = I - tau*v*v^H with tau = 2/|v|^2. */
static void fill_tau(const struct clb_call *call, struct operands *x)
{
    const bool lq = clb_routine_has_flag(call->routine, 'l');
    const size_t rows = (size_t)x->shape[0].rows, cols = (size_t)x->shape[0].cols;
    for (size_t j = 0; j < (size_t)call->k && j < clb_min(rows, cols); j++) {
        double norm = 1;
        for (size_t i = j + 1; i < (lq ? cols : rows); i++) {
            const char *at = lq ? at_of(call, x, 0, j, i) : at_of(call, x, 0, i, j);
            for (size_t part = 0; part < clb_precision_parts(call->precision); part++)
                norm += element_at(call, at, part) * element_at(call, at, part);
        }
        put_element(call, x->tau + j * clb_precision_size(call->precision), 2 / norm, 0);
    }
}

static void connect(struct clb_call *call, struct operands *x)
{
    call->a = x->data[0];
    call->b = x->data[1];
    call->c = x->data[2];
    call->lda = (int64_t)x->ld[0];
    call->ldb = (int64_t)x->ld[1];
    call->ldc = (int64_t)x->ld[2];
    call->ipiv = x->ipiv;
    call->tau = x->tau;
    call->work = x->work;
    call->lwork = WORK;
    call->info = &x->info;
}

static void make_operands(struct clb_call *call, struct operands *x, uint64_t *seed)
{
    memset(x, 0, sizeof *x);
    for (size_t i = 0; i < MATRICES; i++) {
        if (!clb_call_shape(call, (char)('A' + i), &x->shape[i]))
            continue;
        x->ld[i] = (size_t)x->shape[i].rows + PAD;
        x->bytes[i] = x->ld[i] * (size_t)x->shape[i].cols * clb_precision_size(call->precision);
        x->data[i] = calloc(1, x->bytes[i]);
        if (x->data[i] == NULL)
            abort();
        fill_matrix(call, x, i, seed);
    }
    fill_tau(call, x);
    for (size_t i = 0; i < N; i++) { /* in the narrow width of the reference */
        const int32_t pivot = (int32_t)(i + 1 + random_below(seed, N - i));
        memcpy((char *)x->ipiv + i * sizeof pivot, &pivot, sizeof pivot);
    }
}

static void free_operands(struct operands *x)
{
    for (size_t i = 0; i < MATRICES; i++)
        free(x->data[i]);
}

/* The same contents in memory of its own. */
static void copy_operands(const struct operands *x, struct operands *copy)
{
    *copy = *x;
    for (size_t i = 0; i < MATRICES; i++) {
        if (x->data[i] == NULL)
            continue;
        copy->data[i] = malloc(x->bytes[i]);
        if (copy->data[i] == NULL)
            abort();
        memcpy(copy->data[i], x->data[i], x->bytes[i]);
    }
}

/* By the next library, all arguments by reference. */
#define LIST_OF(type)                                                                              \
    type, type, type, type, type, type, type, type, type, type, type, type, type, type, type,      \
        type, type, type, type, type
typedef void any_function(LIST_OF(const void *));

static void call_next(const struct clb_call *call)
{
    static const char letters[] = "NTC";
    const void *list[20] = {0};
    size_t count = 0;
    any_function *function;
    memcpy(&function, &call->target->function, sizeof function);
    for (const char *s = clb_routines[call->routine].signature; *s != '\0'; s++) {
        const void *const one[] = {*s == 's'   ? (call->right ? "R" : "L")
                                   : *s == 'u' ? (call->upper ? "U" : "L")
                                   : *s == 'd' ? (call->unit ? "U" : "N")
                                   : *s == 't' ? &letters[call->transa]
                                   : *s == 'T' ? &letters[call->transb]
                                   : *s == 'm' ? (const void *)&call->m
                                   : *s == 'n' ? &call->n
                                   : *s == 'k' ? &call->k
                                   : *s == 'r' ? &call->nrhs
                                   : *s == '*' ? call->alpha
                                   : *s == '+' ? call->beta
                                   : *s == 'A' ? call->a
                                   : *s == 'B' ? call->b
                                   : *s == 'C' ? call->c
                                   : *s == 'p' ? call->ipiv
                                   : *s == 'q' ? call->tau
                                   : *s == 'w' ? call->work
                                               : call->info};
        list[count++] = one[0];
        if (*s == 'A' || *s == 'B' || *s == 'C' || *s == 'w')
            list[count++] = *s == 'A'   ? &call->lda
                            : *s == 'B' ? &call->ldb
                            : *s == 'C' ? &call->ldc
                                        : &call->lwork;
    }
    function(list[0], list[1], list[2], list[3], list[4], list[5], list[6], list[7], list[8],
             list[9], list[10], list[11], list[12], list[13], list[14], list[15], list[16],
             list[17], list[18], list[19]);
}

/* The greatest deviation of what is written, relative to 1 + its magnitude; infinity where anything
 * else has changed. */
static double deviation(const struct clb_call *call, const struct operands *x,
                        const struct operands *expected, const struct operands *before)
{
    double worst = 0;
    for (size_t matrix = 0; matrix < MATRICES; matrix++) {
        const struct clb_shape *shape = &x->shape[matrix];
        for (size_t j = 0; x->data[matrix] != NULL && j < (size_t)shape->cols; j++) {
            for (size_t i = 0; i < x->ld[matrix]; i++) {
                const char *at = at_of(call, x, matrix, i, j);
                const bool written = shape->written && i < (size_t)shape->rows &&
                                     (!shape->triangle || (call->upper ? i <= j : i >= j));
                if (!written && memcmp(at, at_of(call, before, matrix, i, j),
                                       clb_precision_size(call->precision)) != 0)
                    return INFINITY;
                for (size_t part = 0; written && part < clb_precision_parts(call->precision);
                     part++) {
                    const double value = element_at(call, at, part);
                    const double wanted =
                        element_at(call, at_of(call, expected, matrix, i, j), part);
                    const double error = fabs(value - wanted) / (1 + fabs(wanted));
                    worst = error <= worst ? worst : error;
                }
            }
        }
    }
    return (int32_t)x->info == (int32_t)expected->info ? worst : INFINITY;
}

/* ---- one call -------------------------------------------------------------------------------- */

static const void *a_caller(void)
{
    return __builtin_return_address(0);
}

static bool open_call(struct clb_call *call, clb_routine routine, uint64_t *seed)
{
    struct clb_symbol *symbol = clb_symbol_at(routine, 0);
    const struct clb_routine_info *info = &clb_routines[routine];
    static const double one_d[2] = {1}, half_d[2] = {0.5};
    static const float one_s[2] = {1}, half_s[2] = {0.5F};
    const bool single = clb_precision_real_size(info->precision) == sizeof(float);
    *call = (struct clb_call){.routine = routine,
                              .precision = info->precision,
                              .symbol = symbol,
                              .caller = a_caller(),
                              .right = random_below(seed, 2),
                              .upper = random_below(seed, 2),
                              .m = M,
                              .n = N,
                              .k = K,
                              .nrhs = RIGHT,
                              .alpha = single ? (const void *)one_s : one_d,
                              .beta = single ? (const void *)half_s : half_d};
    if (strcmp(info->limits, "mn km") == 0) { /* rows of Q */
        call->m = N;
        call->n = M;
    }
    if (info->trans[0] != '\0') {
        call->transa = info->trans[random_below(seed, strlen(info->trans))] == 'N' ? CLB_OP_N
                       : strchr(info->trans, 'C') != NULL                          ? CLB_OP_C
                                                                                   : CLB_OP_T;
        call->transb = call->transa;
        if (call->transa == CLB_OP_C && strchr(info->flags, 'h') == NULL &&
            strchr(info->trans, 'T') != NULL)
            call->transb = CLB_OP_T;
    }
    call->target = clb_next_try(&symbol->next, call->caller);
    return call->target != NULL && !call->target->ilp64;
}

/* Returns the deviation. */
static double run_call(clb_routine routine, uint64_t *seed)
{
    struct clb_call call;
    struct operands x, expected, before;
    if (!open_call(&call, routine, seed))
        return -1;
    make_operands(&call, &x, seed);
    copy_operands(&x, &expected);
    copy_operands(&x, &before);
    connect(&call, &expected);
    call_next(&call);
    connect(&call, &x);
    if (!clb_route(&call, NULL))
        call_next(&call);
    const double worst = deviation(&call, &x, &expected, &before);
    free_operands(&x);
    free_operands(&expected);
    free_operands(&before);
    return worst;
}

/* ---- faults ---------------------------------------------------------------------------------- */

enum fault { FLIP, DROP, FAULTS };

/* Between the test and its children. */
static struct shared {
    clb_routine routine;
    const char *params, *kernel, *verify;
    bool discrete;
    uint64_t seed;
    long injected[FAULTS], noticed[FAULTS], wrong[FAULTS], harmless[FAULTS];
    long checked, absent; /* `absent`: processes whose routine the next library has not */
} * shared;

static struct {
    enum fault kind;
    long at; /* launch; 0: none */
    bool single, done;
    uint64_t seed;
    _Atomic long launches;
} fault;

static cl_int lose(const char *kernel, const cl_ulong *argument)
{
    (void)kernel;
    (void)argument;
    const bool hit = ++fault.launches == fault.at;
    fault.done = fault.done || (hit && fault.kind == DROP);
    return hit && fault.kind == DROP ? FAKE_LOST : CL_SUCCESS;
}

static void flip(cl_command_queue queue)
{
    if (fault.launches == fault.at && fault.kind == FLIP && !fault.done)
        fault.done = fake_cl_flip(queue, fault.single, &fault.seed);
}

static double tolerance(clb_routine routine)
{
    return clb_precision_real_size(clb_routines[routine].precision) == sizeof(float) ? 0.1 : 1e-7;
}

static void start(void)
{
    setenv("CLBLAS_SHIM_VERIFY", shared->verify, 1);
    setenv("CLBLAS_SHIM_KERNEL", shared->kernel, 1);
    routed_set_device(shared->discrete);
    routed_set_up("always", shared->params);
    fake_cl.launch = lose;
    fake_cl.launched = flip;
}

static bool is_quarantined(const char *name)
{
    return reported(name, "quarantined") > 0;
}

/* Until one of them is noticed, which ends the use of the device. */
static void inject(void *unused)
{
    enum { TRIALS = 8 };
    const char *name = clb_symbol_at(shared->routine, 0)->next.name;
    uint64_t seed = shared->seed;
    (void)unused;
    start();
    fault.single = tolerance(shared->routine) > 1e-3;
    for (int warm = 0; warm < 2; warm++) {
        fault.launches = 0;
        uint64_t same = shared->seed;
        const double worst = run_call(shared->routine, &same);
        expect(worst < tolerance(shared->routine), "%s: off by %g without a fault", name, worst);
        if (worst < 0) {
            shared->absent++;
            return;
        }
    }
    expect(reported(name, "device") == 2 && !is_quarantined(name), "%s: not computed there", name);
    shared->checked += clb_verify_counts.calls;
    const long launches = fault.launches;
    fault.seed = random_bits(&seed);
    for (int trial = 0; trial < TRIALS && !is_quarantined(name); trial++) {
        fault.kind = (enum fault)((trial + (int)(shared->seed % FAULTS)) % FAULTS);
        fault.launches = 0;
        fault.at = 1 + (long)random_below(&seed, (size_t)launches);
        fault.done = false;
        uint64_t same = shared->seed;
        const double recovered = reported(name, "recovered");
        const double worst = run_call(shared->routine, &same);
        const bool wrong = !(worst < tolerance(shared->routine));
        const bool noticed = is_quarantined(name) || reported(name, "recovered") > recovered;
        if (!fault.done)
            continue;
        shared->injected[fault.kind]++;
        shared->noticed[fault.kind] += noticed;
        shared->wrong[fault.kind] += wrong;
        shared->harmless[fault.kind] += !noticed && !wrong;
        if (strcmp(shared->verify, "1") == 0)
            expect(!wrong, "%s: kernel %ld %s: off by %g", name, fault.at,
                   fault.kind == DROP ? "is dropped" : "has a flipped bit", worst);
    }
}

static const struct {
    const char *name, *kernel, *params;
    bool discrete;
} settings[] = {{"in place", "cpu", PARAMS, false}, {"own memory", "portable", STREAMED, true}};

/* OpenBLAS 0.3.21's zlauu2 reads beyond the matrix, which AddressSanitizer may not survive. */
static bool reads_beyond(const char *name)
{
#ifdef __SANITIZE_ADDRESS__
    return strcmp(name, "zlauum") == 0 || strcmp(name, "zpotri") == 0;
#else
    (void)name;
    return false;
#endif
}

static void run_setting(size_t s, uint64_t *seed)
{
    static const char *const words[FAULTS] = {"flipped bits", "dropped kernels"};
    const int rounds = tap_full() ? 3 : 1;
    memset(shared, 0, sizeof *shared);
    shared->verify = "1";
    shared->kernel = settings[s].kernel;
    shared->params = settings[s].params;
    shared->discrete = settings[s].discrete;
    long failed = 0, children = 0;
    for (int round = 0; round < rounds; round++) {
        for (int r = 0; r < CLB_ROUTINES; r++) {
            const clb_precision precision = clb_routines[r].precision;
            shared->routine = (clb_routine)r;
            shared->seed = random_bits(seed);
            /* Sampled: one precision of each routine. */
            if (!tap_full() && (size_t)precision != (s == 0 ? CLB_D : CLB_Z))
                continue;
            if (reads_beyond(clb_routines[r].name))
                continue;
            children++;
            failed += run_child(60, inject, NULL, NULL, 0) != 0;
        }
    }
    for (int f = 0; f < FAULTS; f++) {
        tap_ok(shared->wrong[f] == 0 && shared->noticed[f] > children / 4,
               "%s: %s: %ld injected, %ld noticed, %ld without effect, %ld wrong", settings[s].name,
               words[f], shared->injected[f], shared->noticed[f], shared->harmless[f],
               shared->wrong[f]);
    }
    tap_ok(failed == 0 && shared->checked >= 2 * (children - shared->absent) &&
               shared->absent < children / 8,
           "%s: %ld processes, %ld failed, %ld calls verified before", settings[s].name, children,
           failed, shared->checked);
}

/* ---- which calls ----------------------------------------------------------------------------- */

static long checks_of(const char *verify, int calls)
{
    uint64_t seed = 1;
    if (verify != NULL)
        setenv("CLBLAS_SHIM_VERIFY", verify, 1);
    routed_set_device(false);
    routed_set_up("always", PARAMS);
    for (int i = 0; i < calls; i++) {
        uint64_t same = seed;
        expect(run_call(CLB_ROUTINE_dgemm, &same) < 1e-7, "a wrong result");
    }
    return clb_verify_counts.calls;
}

static void share_is_kept(void *unused)
{
    (void)unused;
    const long checks = checks_of("0.25", 20);
    expect(checks == 5, "%ld of 20 calls were verified", checks);
}

static void none_is_verified(void *unused)
{
    (void)unused;
    expect(checks_of("0", 3) == 0, "a call was verified");
}

static void first_use(void *expected)
{
    const long checks = checks_of(NULL, 3);
    expect(checks == *(const long *)expected, "%ld calls were verified", checks);
}

static void wrong_results_reach_the_caller(void *unused)
{
    (void)unused;
    inject(NULL);
    expect(shared->wrong[DROP] + shared->wrong[FLIP] > 0, "no fault had an effect");
}

/* In a cache of its own: compiled kernels and what is remembered of them. */
static void test_first_uses(void)
{
    static const long once = 1, never = 0;
    char folder[] = "/tmp/verify-XXXXXX", command[100];
    if (mkdtemp(folder) == NULL) {
        tap_ok(false, "a folder for a cache");
        return;
    }
    setenv("CLBLAS_SHIM_CACHE_DIR", folder, 1);
    tap_child("the first use is verified, once", 120, first_use, (void *)(uintptr_t)&once);
    tap_child("another process remembers", 60, first_use, (void *)(uintptr_t)&never);
    unsetenv("CLBLAS_SHIM_CACHE_DIR");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        tap_note("%s is left", folder);
}

int main(void)
{
    uint64_t seed = tap_seed();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (size_t s = 0; s < CLB_COUNT_OF(settings); s++)
        run_setting(s, &seed);
    tap_child("a quarter of the calls", 60, share_is_kept, NULL);
    tap_child("none of the calls", 60, none_is_verified, NULL);
    test_first_uses();
    shared->verify = "0";
    shared->routine = CLB_ROUTINE_dgemm;
    tap_child("without checks faults reach the caller", 60, wrong_results_reach_the_caller, NULL);
    return tap_done();
}
