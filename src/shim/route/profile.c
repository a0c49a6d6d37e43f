/* The record's text has a line for each time (side, family, precision with l for LQ and the
 * sizes that are thin, class, nanoseconds, number of calls) and one for the device's start. The
 * cache folder is locked while one is replaced. SPDX-License-Identifier: BSD-3-Clause */
#include "engine/ocl/helper.h"
#include "profile.h"
#include "engine/ocl/store.h"
#include "host/process.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- text ---- */

static const char *const side_names[CLB_SIDES] = {"device", "next"};
static const char *const family_names[CLB_KINDS] = {
#define CLB_KIND(kind) #kind,
    CLB_KIND_TABLE(CLB_KIND)
#undef CLB_KIND
};
static const char letters[] = "sdcz";
static const char *const shape_names[CLB_COST_SHAPES] = {
    "", "m", "n", "mn", "k", "mk", "nk", "l", "lm", "ln", "lmn", "lk", "lmk", "lnk"};

/* The name of the CPU, for those that share a home folder. */
static void read_cpu(char *name, size_t size)
{
    char line[256];
    FILE *file = clb_file_read("/proc/cpuinfo");
    snprintf(name, size, "unknown");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        snprintf(name, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (file != NULL)
        fclose(file);
}

char *clb_profile_key(const struct clb_cost_machine *owner)
{
    char cpu[128];
    struct clb_text key = {0};
    read_cpu(cpu, sizeof cpu);
    clb_text_addf(&key, "device: %s\n", owner->device->identity); /* doctor.c reads this */
    clb_text_addf(&key, "next: %s, %d threads\n", owner->next.name, owner->next.threads);
    clb_text_addf(&key, "cpu: %s, %ld\n", cpu, sysconf(_SC_NPROCESSORS_ONLN));
    clb_text_addf(&key, "math: %d\n", (int)clb_config_get()->math);
    if (key.failed)
        clb_text_free(&key);
    return key.data;
}

void clb_profile_format(struct clb_text *text, const struct clb_profile *profile)
{
    for (int s = 0; s < CLB_SIDES; s++) {
        for (int f = 0; f < CLB_KINDS; f++) {
            for (int i = 0; i < CLB_COST_SHAPES * CLB_PRECISIONS * CLB_COST_CLASSES; i++) {
                const int row = i / CLB_COST_CLASSES, class = i % CLB_COST_CLASSES;
                const int shape = row / CLB_PRECISIONS, p = row % CLB_PRECISIONS;
                const struct clb_time *time = &profile->side[s].of[f][shape][p][class];
                if (time->count > 0)
                    clb_text_addf(text, "%s %s %c%s %d %.0f %u\n", side_names[s], family_names[f],
                                  letters[p], shape_names[shape], class,
                                  1e9 * (double)time->seconds, time->count);
            }
        }
    }
    if (profile->start.count > 0)
        clb_text_addf(text, "start %.0f %u\n", 1e9 * (double)profile->start.seconds,
                      profile->start.count);
}

static bool parse_line(const char *line, struct clb_profile *profile)
{
    char side[8], family[8], kind[5];
    int class, s = 0, f = 0, shape = 0;
    unsigned long long nanos = 0;
    struct clb_time time = {0}, *at = &profile->start;
    if (sscanf(line, "start %llu %u\n", &nanos, &time.count) != 2) {
        if (sscanf(line, "%7s %7s %4s %d %llu %u", side, family, kind, &class, &nanos,
                   &time.count) != 6)
            return false;
        while (s < CLB_SIDES && strcmp(side, side_names[s]) != 0)
            s++;
        while (f < CLB_KINDS && strcmp(family, family_names[f]) != 0)
            f++;
        while (shape < CLB_COST_SHAPES && strcmp(kind + 1, shape_names[shape]) != 0)
            shape++;
        const char *found = strchr(letters, kind[0]);
        if (s == CLB_SIDES || f == CLB_KINDS || shape == CLB_COST_SHAPES || found == NULL ||
            class < 0 || class >= CLB_COST_CLASSES)
            return false;
        at = &profile->side[s].of[f][shape][found - letters][class];
    }
    time.seconds = 1e-9F * (float)nanos;
    *at = time;
    return nanos != 0 && time.count != 0;
}

bool clb_profile_parse(const char *text, struct clb_profile *profile)
{
    bool good = true;
    *profile = (struct clb_profile){0};
    for (; *text != '\0' && good; text += strcspn(text, "\n"), text += *text != '\0')
        good = parse_line(text, profile);
    if (!good)
        *profile = (struct clb_profile){0};
    return good;
}

/* Into an empty profile, which is large and stays untouched when there is none. */
static void read_profile(const char *key, struct clb_profile *profile)
{
    struct clb_record record;
    clb_record_load((struct clb_key){CLB_RECORD_PROFILE, key, NULL}, &record);
    if (record.text != NULL && clb_profile_parse(record.text, profile))
        clb_cost_smooth(profile);
    clb_record_free(&record);
}

/* ---- the profiles of this process ---- */

enum { MOST_OWNERS = 8 };

static struct known {
    struct clb_cost_machine owner;
    char *key;
    bool learnt;                 /* `own` has times */
    double opened;               /* when, by clb_now */
    struct clb_profile now, own; /* what counts; what this process has measured */
} * known[MOST_OWNERS];          /* under the lock, as what they point to */
static size_t known_count;
static struct clb_mutex lock = CLB_MUTEX_INITIALIZER;

/* Nobody has tuned the device: programs have left what their declined calls have taken. */
static bool is_sample(const struct clb_profile *profile)
{
    static const struct clb_times none;
    return memcmp(&profile->side[CLB_SIDE_DEVICE], &none, sizeof none) == 0;
}

static struct known *open_profile(const struct clb_cost_machine *owner)
{
    struct known *new = calloc(1, sizeof *new);
    if (new == NULL)
        return NULL;
    new->owner = *owner;
    new->key = clb_profile_key(owner);
    if (new->key != NULL)
        read_profile(new->key, &new->now);
    if (clb_config_get()->reproducible && is_sample(&new->now))
        memset(&new->now, 0, sizeof new->now);
    new->opened = clb_now();
    return new;
}

/* With the lock held. NULL when memory has run out, or for the ninth owner. */
static struct known *find(const struct clb_cost_machine *owner)
{
    for (size_t i = 0; i < known_count; i++) {
        const struct clb_cost_machine *o = &known[i]->owner;
        if (strcmp(o->next.name, owner->next.name) == 0 && o->next.threads == owner->next.threads &&
            o->next.optimised == owner->next.optimised &&
            strcmp(o->device->name, owner->device->name) == 0)
            return known[i];
    }
    struct known *new = known_count < MOST_OWNERS ? open_profile(owner) : NULL;
    if (new != NULL)
        known[known_count++] = new;
    return new;
}

/* Takes the lock. *machine is the owner with its profile. */
static struct known *take(const struct clb_cost_machine *owner, struct clb_cost_machine *machine)
{
    clb_lock(&lock);
    struct known *of = owner->device != NULL ? find(owner) : NULL;
    *machine = *owner;
    machine->profile = of != NULL ? &of->now : NULL;
    return of;
}

/* ---- rates ---- */

/* Seconds until a rate that the helper had not measured is looked up again. */
#define LOOKS 0.5

/* Of the device that is used or expected; 0: not measured yet. Under the lock. */
static struct {
    const struct clb_device *device;
    double rate[CLB_PRECISIONS], link, looked[CLB_PRECISIONS];
} rates;

/* The helper's, of a CPU device for each core. What is usual where there is no helper, and where
 * decisions must not change with rates. */
static double find_rate(const struct clb_device *device, clb_precision precision)
{
    const struct clb_config *config = clb_config_get();
    const double told = (double)clb_tuning_override(config, CLB_PARAM_RATE);
    const double cores = clb_device_is_cpu(device) ? device->units : 1;
    struct clb_choice choice = {0};
    if (told > 0)
        return 1e9 * told;
    if (!config->reproducible && !clb_choice_find(device, precision, 0, &choice) &&
        clb_helper_get_role() == CLB_HELPER_USED)
        return 0;
    rates.link = fmax(rates.link, choice.link);
    return 1e9 * cores * (choice.rate > 0 ? choice.rate : clb_tuning_usual_rate(device, precision));
}

/* With the lock held. */
static void add_rate(struct clb_cost_machine *machine, clb_precision precision)
{
    double *rate = &rates.rate[precision], *looked = &rates.looked[precision];
    if (machine->device == NULL)
        return;
    if (rates.device != machine->device)
        memset(&rates, 0, sizeof rates);
    rates.device = machine->device;
    if (*rate <= 0 && clb_now() - *looked > LOOKS) {
        *rate = find_rate(machine->device, precision);
        if (*rate > 0 && *looked > 0)
            clb_history_ask_anew();
        *looked = clb_now();
    }
    memcpy(machine->rate, rates.rate, sizeof rates.rate);
    machine->link = rates.link;
}

/* ---- what is asked ---- */

struct clb_prediction clb_profile_predict(const struct clb_cost_machine *owner,
                                          const struct clb_cost_call *call)
{
    struct clb_cost_machine machine;
    take(owner, &machine);
    add_rate(&machine, call->precision);
    const struct clb_prediction prediction = clb_cost_predict(&machine, call);
    clb_unlock(&lock);
    return prediction;
}

double clb_profile_start_cost(const struct clb_cost_machine *owner, clb_precision precision)
{
    struct clb_cost_machine machine;
    take(owner, &machine);
    add_rate(&machine, precision);
    const double seconds = clb_cost_of_start(&machine, precision);
    clb_unlock(&lock);
    return seconds;
}

void clb_profile_learn_start(const struct clb_cost_machine *owner, double seconds)
{
    struct clb_cost_machine machine;
    struct known *of = take(owner, &machine);
    if (of != NULL && clb_config_get()->learn)
        clb_cost_measure_start(&of->own, seconds);
    clb_unlock(&lock);
}

/* A profile is an array of times. */
static struct clb_time *first_of(struct clb_profile *profile)
{
    return &profile->side[0].of[0][0][0][0];
}

/* What this process has measured of a class counts at once. */
void clb_profile_learn(const struct clb_cost_machine *owner, clb_side side,
                       const struct clb_cost_call *call, double seconds)
{
    struct clb_cost_machine machine;
    struct known *of = take(owner, &machine);
    add_rate(&machine, call->precision);
    const struct clb_time *time =
        of != NULL ? clb_cost_measure(&of->own, side, &machine, call, seconds) : NULL;
    if (time != NULL) {
        of->learnt = true;
        first_of(&of->now)[time - first_of(&of->own)] = *time;
    }
    clb_unlock(&lock);
}

static void merge(struct clb_profile *into, struct clb_profile *own)
{
    struct clb_time *to = first_of(into);
    const struct clb_time *from = first_of(own);
    for (size_t i = 0; i < sizeof *own / sizeof *from; i++) {
        if (from[i].count > 0)
            to[i] = from[i];
    }
}

/* What a program leaves without having been asked to: at most so many bytes, once in so many
 * seconds, if it has run for so long. */
#define SAMPLE_BYTES   ((size_t)4096)
#define SAMPLE_SECONDS 3600
#define SAMPLE_RUN     10.0

static bool may_sample(const struct known *of, const char *cache)
{
    return clb_now() - of->opened >= SAMPLE_RUN && access(cache, W_OK) == 0 &&
           !clb_record_exists((struct clb_key){CLB_RECORD_PROFILE, of->key, NULL}, SAMPLE_SECONDS);
}

/* A sample is not added to what was tuned. */
static void write_merged(struct known *of, bool sample, struct clb_profile *merged)
{
    struct clb_text text = {0};
    read_profile(of->key, merged);
    if (sample && !is_sample(merged))
        return;
    merge(merged, &of->own);
    clb_profile_format(&text, merged);
    while (sample && !text.failed && text.length > SAMPLE_BYTES)
        for (text.data[--text.length] = '\0'; text.data[text.length - 1] != '\n';)
            text.data[--text.length] = '\0';
    if (!text.failed)
        clb_record_note((struct clb_key){CLB_RECORD_PROFILE, of->key, NULL}, CLB_PASSED, text.data);
    clb_text_free(&text);
}

static void write_one(struct known *of, bool sample)
{
    const char *cache = clb_cache_directory();
    if (!of->learnt || of->key == NULL || cache == NULL || (sample && !may_sample(of, cache)))
        return;
    const int folder = open(cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct clb_profile *merged = calloc(1, sizeof *merged);
    /* Until it is closed; a sample is not waited for. */
    if (merged != NULL &&
        (folder < 0 || flock(folder, LOCK_EX | (sample ? LOCK_NB : 0)) == 0 || !sample))
        write_merged(of, sample, merged);
    free(merged);
    if (folder >= 0)
        close(folder);
}

void clb_profile_write(bool sample)
{
    bool first;
    if (!clb_lock_try(&lock, &first))
        return;
    for (size_t i = 0; i < known_count; i++)
        write_one(known[i], sample);
    clb_unlock(&lock);
}
