/* The steps that the helper process does, and their records in the cache. */
#include "kernel.h"
#include "engine/ocl/ocl.h"

#include "kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const step_names[CLB_STEPS] = {
    [CLB_STEP_GEMM] = "gemm",       [CLB_STEP_DIRECT] = "direct",
    [CLB_STEP_SKIP] = "skip",       [CLB_STEP_STRUCTURE] = "structure",
    [CLB_STEP_SYSTEMS] = "systems", [CLB_STEP_PANELS] = "panels",
    [CLB_STEP_BLOCKS] = "blocks",
};

static const char precision_letters[CLB_PRECISIONS] = {'s', 'd', 'c', 'z'};

void clb_step_format(char *text, size_t size, clb_probe_step step, clb_precision precision)
{
    snprintf(text, size, "%s:%c", step_names[step], precision_letters[precision]);
}

bool clb_step_parse(const char *text, clb_probe_step *step, clb_precision *precision)
{
    char name[64];
    for (int s = 0; s < CLB_STEPS; s++) {
        for (int p = 0; p < CLB_PRECISIONS; p++) {
            clb_step_format(name, sizeof name, (clb_probe_step)s, (clb_precision)p);
            if (strcmp(text, name) != 0)
                continue;
            *step = (clb_probe_step)s;
            *precision = (clb_precision)p;
            return true;
        }
    }
    return false;
}

/* Another one when any kernel has changed. */
static uint64_t hash_kernels(void)
{
    static const struct clb_source *const sources[] = {&clb_kernel_gemm_portable,
                                                       &clb_kernel_gemm_cpu,
                                                       &clb_kernel_gemm_nv_dmma,
                                                       &clb_kernel_gemm_nv_bf16_sync,
                                                       &clb_kernel_gemm_nv_bf16x6,
                                                       &clb_kernel_gemm_nv_fp16x3,
                                                       &clb_kernel_getf2,
                                                       &clb_kernel_laswp,
                                                       &clb_kernel_potf2,
                                                       &clb_kernel_structure,
                                                       &clb_kernel_trsm};
    static uint64_t sum; /* of one value, whichever thread stores it */
    uint64_t now = __atomic_load_n(&sum, __ATOMIC_RELAXED);
    for (size_t i = 0; now == 0 && i < CLB_COUNT_OF(sources); i++)
        now += clb_cache_hash(sources[i]->text, sources[i]->length) * (i + 1);
    __atomic_store_n(&sum, now, __ATOMIC_RELAXED);
    return now;
}

/* All that decides which programs a step builds, and how they are checked. */
static char *step_key(const struct clb_runtime *runtime, const char *name)
{
    const struct clb_config *config = clb_config_get();
    const struct clb_device *device = &runtime->device;
    struct clb_text key = {0};
    clb_text_addf(&key, "step %s\n%s %016llx\n%s\n%s\n%s\n%s\n%s\n%d %s\n", name, CLB_VERSION,
                  (unsigned long long)hash_kernels(), device->name, device->vendor_name,
                  device->driver, device->platform_name, device->platform_version,
                  (int)config->math, config->kernel != NULL ? config->kernel : "");
    for (size_t i = 0; i < config->override_count; i++) {
        const struct clb_param_override *item = &config->overrides[i];
        clb_text_addf(&key, "%.*s=%.*s\n", (int)item->key_length, item->key,
                      (int)item->value_length, item->value);
    }
    const uint64_t kept = clb_tuning_kept_mark(device);
    if (kept != 0)
        clb_text_addf(&key, "kept row %016llx\n", (unsigned long long)kept);
    if (key.failed)
        clb_text_free(&key);
    return key.data;
}

struct need {
    const char *name, *key;
    double lasts;
};

static clb_status ask(void *argument)
{
    const struct need *need = argument;
    return clb_probe_need(need->name, need->key, need->lasts);
}

clb_status clb_step_need(const struct clb_runtime *runtime, clb_probe_step step,
                         clb_precision precision)
{
    char name[64];
    if (clb_probe_get_role() != CLB_PROBE_USER)
        return CLB_OK;
    clb_step_format(name, sizeof name, step, precision);
    char *key = step_key(runtime, name);
    /* The rate is measured again in time. */
    struct need need = {name, key, step == CLB_STEP_GEMM ? CLB_RATE_LASTS : INFINITY};
    clb_status status = key == NULL ? CLB_ERR_NOMEM : clb_driver_call(ask, &need);
    free(key);
    return status;
}

/* A lack of memory and the like say nothing of the next attempt. */
void clb_step_record(const struct clb_runtime *runtime, clb_probe_step step,
                     clb_precision precision, clb_status status)
{
    char name[64];
    struct clb_record record = {.word = status == CLB_OK ? CLB_WORD_PASSED : CLB_WORD_FAILED};
    if (status != CLB_OK && status != CLB_ERR_BUILD && status != CLB_ERR_LAUNCH &&
        status != CLB_ERR_UNSUPPORTED)
        return;
    clb_step_format(name, sizeof name, step, precision);
    snprintf(record.text, sizeof record.text, "%s", clb_status_name(status));
    char *key = step_key(runtime, name);
    if (key != NULL)
        clb_record_store(key, record);
    free(key);
}

bool clb_step_find(const struct clb_runtime *runtime, clb_probe_step step, clb_precision precision,
                   struct clb_record *record)
{
    char name[64];
    clb_step_format(name, sizeof name, step, precision);
    char *key = step_key(runtime, name);
    bool found = key != NULL && clb_record_load(key, record);
    free(key);
    return found;
}
