/* How fast devices and their kernels multiply, in GFLOP/s.
 *
 * The helper process measures a kernel when it has passed its self-check, and stores the rate
 * beside the verdict. Rates of a week ago are measured again, but count until then; what is damaged
 * or missing is a rate that is not known, and then the order of the tables and of the drivers
 * decides. A process that builds its kernels itself knows none. */
#include "ocl.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

bool clb_rates_decide(void)
{
    const struct clb_config *config = clb_config_get();
    return config->mode != CLB_MODE_ALWAYS && config->kernel == NULL && !config->reproducible &&
           config->override_count == 0;
}

struct clb_rate clb_rate_load(const char *key)
{
    struct clb_record record;
    if (clb_probe_get_role() == CLB_PROBE_HERE || !clb_record_load(key, &record))
        return (struct clb_rate){0};
    return (struct clb_rate){.gflops = isfinite(record.rate) && record.rate > 0 ? record.rate : 0,
                             .useless = record.word == CLB_WORD_FAILED,
                             .fresh = !clb_record_is_older(&record, CLB_RATE_LASTS)};
}

/* ---- of devices ------------------------------------------------------------------------------ */

/* All that its rate may depend on; a driver's other devices of the same name have the same key. */
char *clb_device_rate_key(const struct clb_device *device)
{
    const struct clb_config *config = clb_config_get();
    struct clb_text key = {0};
    clb_text_addf(&key, "rate of device\n%s\n%s\n%s\n%s\n%s\n%s\n%d %s", CLB_VERSION, device->name,
                  device->vendor_name, device->driver, device->platform_name,
                  device->platform_version, (int)config->math,
                  config->kernel != NULL ? config->kernel : "");
    if (key.failed)
        clb_text_free(&key);
    return key.data;
}

/* ---- what rates have decided ----------------------------------------------------------------- */

static struct clb_mutex lock = CLB_MUTEX_INITIALIZER;
static struct clb_rate_decision decisions[CLB_RATE_DECISIONS];
static size_t count;

void clb_rate_note(const struct clb_rate_decision *decision)
{
    clb_log(CLB_LOG_INFO, "%s: %.3g GFLOP/s, %s: %.3g GFLOP/s: the latter is used",
            decision->dropped, decision->dropped_rate, decision->used, decision->used_rate);
    clb_lock(&lock);
    if (count < CLB_COUNT_OF(decisions))
        decisions[count++] = *decision;
    clb_unlock(&lock);
}

size_t clb_rate_decisions(const struct clb_rate_decision **list)
{
    *list = decisions;
    clb_lock(&lock);
    size_t now = count;
    clb_unlock(&lock);
    return now;
}

/* ---- devices that are too slow --------------------------------------------------------------- */

char *clb_rate_slow_key(const struct clb_device *device, clb_precision precision)
{
    struct clb_text key = {0};
    char *rate_key = clb_device_rate_key(device);
    clb_text_addf(&key, "too slow in %c\n%s", "sdcz"[precision], rate_key != NULL ? rate_key : "");
    key.failed = key.failed || rate_key == NULL;
    free(rate_key);
    if (key.failed)
        clb_text_free(&key);
    return key.data;
}

void clb_rate_remember_slow(const struct clb_device *device, clb_precision precision,
                            const struct clb_rate_decision *decision)
{
    struct clb_record record = {.word = CLB_WORD_FAILED, .rate = decision->dropped_rate};
    char *key = clb_rate_slow_key(device, precision);
    snprintf(record.text, sizeof record.text, "%s", decision->dropped);
    if (key != NULL)
        clb_record_store(key, record);
    free(key);
}

/* False: the record is missing, damaged or old. */
static bool recall_slow(const struct clb_device *device, clb_precision precision,
                        struct clb_rate_decision *decision)
{
    struct clb_record record;
    char *key = clb_rate_slow_key(device, precision);
    const bool slow = key != NULL && clb_record_load(key, &record) &&
                      record.rate < CLB_LEAST_RATE && !clb_record_is_older(&record, CLB_RATE_LASTS);
    free(key);
    if (slow) {
        *decision = (struct clb_rate_decision){
            .dropped_rate = record.rate, .used = CLB_LEAST_NAME, .used_rate = CLB_LEAST_RATE};
        snprintf(decision->dropped, sizeof decision->dropped, "%.*s",
                 (int)sizeof decision->dropped - 1, record.text);
    }
    return slow;
}

bool clb_rate_was_slow(const struct clb_device *device, clb_precision precision)
{
    enum { UNKNOWN, NO, YES };
    static _Atomic int known[CLB_PRECISIONS];
    struct clb_rate_decision decision;
    int now = atomic_load(&known[precision]);
    if (!clb_rates_decide())
        return false;
    if (now == UNKNOWN) {
        now = recall_slow(device, precision, &decision) ? YES : NO;
        if (atomic_exchange(&known[precision], now) == UNKNOWN && now == YES)
            clb_rate_note(&decision);
    }
    return now == YES;
}
