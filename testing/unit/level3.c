/* The rest of Level 3 on the device: every routine, in all precisions and cases, in place and
 * streamed, by the families that the CPU device has, in little memory, and with every OpenCL call
 * failing in turn. */
#include "fakecl.h"
#include "level3_case.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct setting {
    const char *name, *kernel, *params;
    bool discrete;
    int rounds; /* of all routines and precisions */
    uint64_t seed;
    cl_ulong max_alloc; /* of the device, or 0 */
};

static struct clb_runtime *start(const struct setting *setting)
{
    clb_runtime_state state;
    setenv("CLBLAS_SHIM_KERNEL", setting->kernel, 1);
    setenv("CLBLAS_SHIM_PARAMS", setting->params, 1);
    setenv("CLBLAS_SHIM_DEVICE", setting->discrete ? "gpu" : "cpu", 1);
    setenv("CLBLAS_SHIM_LOG_FILE", "/dev/null", 1);
    fake_cl.discrete = setting->discrete;
    fake_cl.max_alloc = setting->max_alloc;
    fake_cl_install();
    struct clb_runtime *runtime = clb_runtime_get(&state);
    expect(runtime != NULL, "no device");
    return runtime;
}

static const struct clb_gemm_variant *variant_of(struct clb_runtime *runtime,
                                                 clb_precision precision)
{
    const struct clb_gemm_variant *variant = NULL;
    expect(clb_gemm_variant_get(runtime, precision, &variant) == CLB_OK, "no variant");
    return variant;
}

/* hemm and the like are complex only. */
static bool exists(level3_routine routine, clb_precision precision)
{
    bool hermitian = routine == LEVEL3_HEMM || routine == LEVEL3_HERK || routine == LEVEL3_HER2K;
    return !hermitian || clb_precision_parts(precision) > 1;
}

static bool run(struct clb_runtime *runtime, struct level3_case *x, const char *what)
{
    struct clb_gemm_progress progress;
    const struct clb_gemm_variant *variant = variant_of(runtime, x->problem.precision);
    const struct clb_rect all = {0, 0, x->problem.m, x->problem.n};
    if (variant == NULL)
        return false;
    clb_status status = clb_level3_run(runtime, variant, &x->problem, &progress);
    if (status == CLB_OK) {
        expect(progress.parts > 0, "%s: no parts", what);
        for (size_t i = 0; i < progress.parts; i++)
            expect(progress.written[i], "%s: part %zu was not written", what, i);
    }
    level3_check_part(x, &all, status == CLB_OK, what);
    level3_check_rest(x, &progress, what);
    clb_gemm_progress_free(&progress);
    return expect(status == CLB_OK || status == CLB_ERR_NOMEM, "%s: %s", what,
                  clb_status_name(status)) &&
           status == CLB_OK;
}

static void all_routines(void *argument)
{
    struct setting *setting = argument;
    struct clb_runtime *runtime = start(setting);
    for (int i = 0; i < setting->rounds * LEVEL3_ROUTINES * CLB_PRECISIONS; i++) {
        level3_routine routine = (level3_routine)(i % LEVEL3_ROUTINES);
        clb_precision precision = (clb_precision)(i / LEVEL3_ROUTINES % CLB_PRECISIONS);
        struct level3_case x;
        if (runtime == NULL || !exists(routine, precision))
            continue;
        size_t largest = setting->max_alloc != 0 ? 90 : random_below(&setting->seed, 3) ? 50 : 9;
        level3_make(&x, routine, precision, largest, &setting->seed);
        expect(run(runtime, &x, setting->name), "%s: not computed", x.name);
        level3_free(&x);
    }
}

/* With less and less memory: the same bits, until there is too little. */
static void little_memory(void *argument)
{
    struct setting *setting = argument;
    struct clb_runtime *runtime = start(setting);
    for (int i = 0; i < 2 * LEVEL3_ROUTINES && runtime != NULL; i++) {
        struct level3_case x;
        int succeeded = 0;
        level3_routine routine = (level3_routine)(i % LEVEL3_ROUTINES);
        clb_precision precision = i < LEVEL3_ROUTINES ? CLB_C : CLB_D;
        if (!exists(routine, precision))
            continue;
        level3_make(&x, routine, precision, 90, &setting->seed);
        const struct matrix *c = x.problem.in_place ? &x.b.real : &x.c.real;
        unsigned char *first = malloc(c->bytes);
        for (runtime->memory_limit = (uint64_t)64 << 20;; runtime->memory_limit /= 2) {
            level3_restore(&x);
            if (!run(runtime, &x, "little memory"))
                break;
            if (succeeded++ == 0)
                memcpy(first, c->memory, c->bytes);
            expect(memcmp(first, c->memory, c->bytes) == 0, "%s: other bits with %llu bytes",
                   x.name, (unsigned long long)runtime->memory_limit);
        }
        expect(succeeded >= 3, "%s: only %d limits were enough", x.name, succeeded);
        free(first);
        level3_free(&x);
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

static const cl_int codes[] = {CL_OUT_OF_RESOURCES, CL_MEM_OBJECT_ALLOCATION_FAILURE,
                               CL_INVALID_VALUE, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
                               -9999 /* a vendor's own */};

static long fail_at(struct clb_runtime *runtime, struct level3_case *x, long at, long *partly)
{
    struct clb_gemm_progress progress;
    const struct clb_rect all = {0, 0, x->problem.m, x->problem.n};
    char what[60];
    size_t written = 0;
    snprintf(what, sizeof what, "call %ld fails", at);
    level3_restore(x);
    fake_cl.run_anyway = at % 3 == 0;
    fake_cl_arm(at, codes[(size_t)at % CLB_COUNT_OF(codes)], false);
    clb_status status =
        clb_level3_run(runtime, variant_of(runtime, x->problem.precision), &x->problem, &progress);
    long calls = fake_cl.calls;
    fake_cl_arm(0, 0, false);
    for (size_t i = 0; i < progress.parts; i++) {
        level3_check_part(x, &progress.part[i], progress.written[i], what);
        written += progress.written[i];
    }
    if (progress.parts == 0)
        level3_check_part(x, &all, false, what);
    level3_check_rest(x, &progress, what);
    expect(status != CLB_OK || (progress.parts > 0 && written == progress.parts),
           "%s: %zu of %zu parts", what, written, progress.parts);
    expect(at != 0 || status == CLB_OK, "%s", clb_status_name(status));
    *partly += written > 0 && written < progress.parts;
    clb_gemm_progress_free(&progress);
    return calls;
}

static void every_call(void *argument)
{
    static const level3_routine routines[] = {LEVEL3_HEMM, LEVEL3_HER2K, LEVEL3_TRMM, LEVEL3_SYRK};
    struct setting *setting = argument;
    struct clb_runtime *runtime = start(setting);
    for (size_t i = 0; i < CLB_COUNT_OF(routines) && runtime != NULL; i++) {
        struct level3_case x;
        long partly = 0, calls;
        do {
            level3_make(&x, routines[i], i == 3 ? CLB_D : CLB_C, 40, &setting->seed);
            if (x.problem.m > 20 && x.problem.n > 20 && x.problem.k > 12)
                break;
            level3_free(&x);
        } while (true);
        fail_at(runtime, &x, 0, &partly);
        fail_at(runtime, &x, 0, &partly);
        calls = fail_at(runtime, &x, 0, &partly);
        for (long at = 1; at <= calls; at++)
            fail_at(runtime, &x, at, &partly);
        fail_at(runtime, &x, 0, &partly);
        tap_note("%s %zux%zux%zu: %ld calls, %ld failures with a part written", x.name, x.problem.m,
                 x.problem.n, x.problem.k, calls, partly);
        expect(calls > 20 && partly > 0, "%s: %ld calls, nothing was written in part", x.name,
               calls);
        level3_free(&x);
    }
}

#define TINY   "gemm.tile=min"
#define LARGER "gemm.tile=min,gemm.tm=64,gemm.tn=32,gemm.ks=64"
#define SMALL  "gemm.tile=min,gemm.tm=16,gemm.tn=16,gemm.ks=32"

int main(void)
{
    uint64_t seed = tap_seed();
    static const struct setting settings[] = {
        {"cpu in place", "cpu", TINY, false, 6, 0, 0},
        {"cpu in place, larger tiles", "cpu", LARGER, false, 4, 0, 0},
        {"cpu in place, as tuned", "cpu", "", false, 1, 0, 0},
        {"portable in place", "portable", TINY, false, 3, 0, 0},
        {"operands larger than a buffer", "cpu", TINY, false, 2, 0, 75000},
        {"cpu streamed", "cpu", TINY ",gemm.stream=1,gemm.threads=3", false, 6, 0, 0},
        {"cpu streamed by one thread", "cpu", TINY ",gemm.stream=1,gemm.threads=1", false, 2, 0, 0},
        {"cpu streamed, larger slabs", "cpu", LARGER ",gemm.stream=1,gemm.threads=2", false, 3, 0,
         0},
        {"portable in own memory", "portable", TINY ",gemm.threads=3,gemm.strip=4", true, 4, 0, 0},
        {"portable in own memory, as tuned", "portable", "gemm.threads=3", true, 1, 0, 0},
    };
    static const struct setting memory[] = {
        {"in place in little memory", "cpu", LARGER, false, 0, 0, 0},
        {"own memory, and little", "portable", TINY, true, 0, 0, 0},
    };
    static const struct setting failures[] = {
        {"every call in place", "cpu", SMALL, false, 0, 0, 0},
        {"every call streamed", "cpu", SMALL ",gemm.stream=1,gemm.threads=3", false, 0, 0, 0},
    };
    struct setting setting;
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        setting = settings[i];
        setting.seed = random_bits(&seed);
        tap_child(setting.name, 300, all_routines, &setting);
    }
    for (size_t i = 0; i < CLB_COUNT_OF(memory); i++) {
        setting = memory[i];
        setting.seed = random_bits(&seed);
        tap_child(setting.name, 120, little_memory, &setting);
    }
    for (size_t i = 0; i < CLB_COUNT_OF(failures); i++) {
        setting = failures[i];
        setting.seed = random_bits(&seed);
        tap_child(setting.name, 200, every_call, &setting);
    }
    return tap_done();
}
