/* SPDX-License-Identifier: BSD-3-Clause
 * The next BLAS and how fast it is. A child process finds it as a call of the shim would. */
#include "measure.h"
#include "trial.h"
#include "shim/next/next.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ORDER 512

/* ---- in the child ---- */

/* What a function of OpenBLAS says of it, under the prefix and ending of its other names, in the
 * library that has the target or those that it needs; "": there is none. */
static const char *ask_openblas(const char *library, const char *name)
{
    static const char *const forms[] = {"%s", "%s64_", "scipy_%s", "scipy_%s64_"};
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD), *address = NULL;
    char *(*function)(void);
    for (size_t i = 0; i < CLB_COUNT_OF(forms) && handle != NULL && address == NULL; i++) {
        char full[64];
        snprintf(full, sizeof full, forms[i], name);
        address = dlsym(handle, full);
    }
    memcpy(&function, &address, sizeof function);
    return function != NULL ? function() : "";
}

/* The library's dgemm under the first name that it has: the search would go on to others. */
static const struct clb_target *find_target(const char *library)
{
    static const clb_symbol_id forms[] = {CLB_SYMBOL_dgemm_plain, CLB_SYMBOL_dgemm_ilp64,
                                          CLB_SYMBOL_dgemm_scipy, CLB_SYMBOL_dgemm_scipy_ilp64};
    const struct clb_target *target = NULL;
    for (size_t i = 0; i < CLB_COUNT_OF(forms) && target == NULL; i++) {
        struct clb_next_symbol *symbol = &clb_symbols[forms[i]].next;
        if (library == NULL ||
            json_object_get(clb_elf_read(library)->defines, symbol->name) != NULL)
            target = clb_next_try(symbol, __builtin_return_address(0));
    }
    return target;
}

struct clb_cost_machine clb_owner_of(const struct clb_target *next)
{
    const int threads = next->get_threads != NULL ? next->get_threads() : 0;
    return (struct clb_cost_machine){
        .device = clb_device_expected(),
        .next = {next->library, next->optimised,
                 threads > 0 ? threads : (int)sysconf(_SC_NPROCESSORS_ONLN)}};
}

static json_t *describe(const char *library)
{
    const struct clb_target *target = find_target(library);
    const void *function;
    cpu_set_t cpus;
    Dl_info info = {0};
    if (target == NULL)
        return json_pack("{s:s}", "library", "");
    memcpy(&function, &target->function, sizeof function);
    dladdr(function, &info);
    sched_getaffinity(0, sizeof cpus, &cpus);
    const char *config = ask_openblas(info.dli_fname, "openblas_get_config");
    char *resolved = info.dli_fname != NULL ? realpath(info.dli_fname, NULL) : NULL;
    json_t *result = json_pack(
        "{s:s,s:s,s:s,s:b,s:i,s:i}", "library", resolved != NULL ? resolved : "", "config", config,
        "core", ask_openblas(info.dli_fname, "openblas_get_corename"), "optimised",
        target->optimised || *config != '\0', "threads",
        target->get_threads != NULL ? target->get_threads() : 0, "cpus", CPU_COUNT(&cpus));
    /* The best of three DGEMMs, where they are quick. */
    struct clb_call call = clb_trial_make(CLB_ROUTINE_dgemm, ORDER, ORDER, ORDER, 0);
    const double seconds = clb_trial_run(&call, target, 0, 3, 0.1).best;
    json_object_set_new(result, "flops", json_real(2.0 * ORDER * ORDER * ORDER / seconds));
    const struct clb_cost_machine owner = clb_owner_of(target);
    json_object_set_new(result, "start", json_real(clb_profile_start_cost(&owner, CLB_D)));
    free(resolved);
    return result;
}

static json_t *answer_description(void *argument)
{
    const char *library = argument;
    if (library != NULL)
        setenv("CLBLAS_SHIM_NEXT", library, 1);
    setenv("CLBLAS_SHIM", "off", 1);
    unsetenv("CLBLAS_SHIM_STATS");
    return describe(library);
}

json_t *clb_next_describe(const char *library)
{
    return clb_ask_child(answer_description, (void *)(uintptr_t)library);
}
