/* Selects kernel families and values from the tables. SPDX-License-Identifier: BSD-3-Clause */
#include "tuning.h"
#include "engine/ocl/store.h"
#include "host/process.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- device classes ---- */

/* A device has the first class that it fits; later ones that it fits where that has no row. */
typedef enum device_class {
#define CLB_CLASS(name, kind, vendor, bytes, rate) CLASS_##name,
#include "classes.def"
#undef CLB_CLASS
    CLASSES
} device_class;

static const struct {
    const char *name;
    cl_device_type kind;
    clb_vendor vendor; /* OTHER: any */
    cl_uint vector_bytes;
    double rate;
} classes[CLASSES] = {
#define KIND_CPU       CL_DEVICE_TYPE_CPU
#define KIND_GPU       CL_DEVICE_TYPE_GPU
#define KIND_ANY       CL_DEVICE_TYPE_ALL
#define CLB_VENDOR_ANY CLB_VENDOR_OTHER
#define CLB_CLASS(name, kind, vendor, bytes, rate) \
    {#name, KIND_##kind, CLB_VENDOR_##vendor, bytes, rate},
#include "classes.def"
#undef CLB_CLASS
};

static bool has_class(const struct clb_device *device, device_class class)
{
    return (classes[class].kind == KIND_ANY || (device->type & classes[class].kind) != 0) &&
           (classes[class].vendor == CLB_VENDOR_ANY || device->vendor == classes[class].vendor) &&
           device->vector_bytes >= classes[class].vector_bytes;
}

struct row {
    device_class class;
    unsigned precisions; /* ROW_... */
    struct clb_gemm_tuning tuning;
};

/* Bits by precision. */
enum { ROW_S = 1, ROW_D = 2, ROW_C = 4, ROW_Z = 8 };
enum { ROW_SD = 3, ROW_CZ = 12, ROW_SC = 5, ROW_DZ = 10 };

#define V(id, number) [CLB_PARAM_##id] = (number),
#define CLB_GEMM(class, precisions, family, values) \
    {CLASS_##class, ROW_##precisions, {CLB_FAMILY_##family, {values}}},

static const struct row rows[] = {
#include "gemm.def"
};

static const struct row smallest_rows[] = {
#include "gemm_min.def"
};

#undef CLB_GEMM
#undef V

const struct clb_family_info clb_families[CLB_FAMILIES] = {
    [CLB_FAMILY_PORTABLE] = {"portable", CLB_MATH_STRICT},
    [CLB_FAMILY_CPU] = {"cpu", CLB_MATH_STRICT},
    [CLB_FAMILY_NV_DMMA] = {"nv-dmma", CLB_MATH_DEFAULT},
    [CLB_FAMILY_NV_BF16X6] = {"nv-bf16x6", CLB_MATH_DEFAULT},
    [CLB_FAMILY_NV_FP16X3] = {"nv-fp16x3", CLB_MATH_FAST},
    [CLB_FAMILY_NV_BF16_SYNC] = {"nv-bf16-sync", CLB_MATH_DEFAULT},
};

/* ---- overrides ---- */

const struct clb_param_info clb_params[CLB_PARAMS] = {
#define CLB_KERNEL_PARAM(section, name, help)       {#name, true, {0, 0}},
#define CLB_PARAM(section, name, shared, own, help) {#name, false, {own, shared}},
#include "parameters.def"
#undef CLB_KERNEL_PARAM
#undef CLB_PARAM
};

/* Keys of routines begin with their name and a dot; those without are products'. */
void clb_param_key(clb_param param, char key[CLB_PARAM_KEY_SIZE])
{
    static const char *const routines[] = {"TRSM_", "POTRF_", "GEQRF_", "GETRF_"};
    const char *name = clb_params[param].name;
    const char *routine = "GEMM_";
    for (size_t i = 0; i < CLB_COUNT_OF(routines); i++) {
        if (strncmp(name, routines[i], strlen(routines[i])) == 0) {
            routine = routines[i];
            name += strlen(routine);
        }
    }
    snprintf(key, CLB_PARAM_KEY_SIZE, "%.*s.%s", (int)strlen(routine) - 1, routine, name);
    for (char *c = key; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
}

static bool same_text(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

static bool is_tile_min(const struct clb_param_override *override)
{
    return same_text(override->key, override->key_length, "gemm.tile") &&
           same_text(override->value, override->value_length, "min");
}

/* CLB_PARAMS: it is invalid. */
static clb_param parse_override(const struct clb_param_override *override, size_t *value)
{
    double number;
    bool percent;
    for (int i = 0; i < CLB_PARAMS; i++) {
        char key[CLB_PARAM_KEY_SIZE];
        clb_param_key((clb_param)i, key);
        if (!same_text(override->key, override->key_length, key))
            continue;
        if (!clb_parse_bytes(override->value, override->value_length, &number, &percent) ||
            percent || number < 1 || number > 1e9)
            break;
        *value = (size_t)number;
        return (clb_param)i;
    }
    return CLB_PARAMS;
}

/* CLB_FAMILIES: none has this name. */
static clb_family find_family(const char *name)
{
    int i = 0;
    while (i < CLB_FAMILIES && strcmp(name, clb_families[i].name) != 0)
        i++;
    return (clb_family)i;
}

size_t clb_tuning_override(const struct clb_config *config, clb_param param)
{
    size_t last = 0, value;
    struct clb_param_override override;
    for (const char *list = config->params; clb_param_next(&list, &override);) {
        if (parse_override(&override, &value) == param)
            last = value;
    }
    return last;
}

void clb_tuning_check_config(const struct clb_config *config)
{
    struct clb_param_override override;
    size_t value;
    if (config->kernel != NULL && find_family(config->kernel) == CLB_FAMILIES)
        clb_complain(
            "CLBLAS_SHIM_KERNEL=%s is not a kernel family (docs/variables.md has the list), the "
            "device's own is used",
            config->kernel);
    for (const char *list = config->params; clb_param_next(&list, &override);) {
        if (!is_tile_min(&override) && parse_override(&override, &value) == CLB_PARAMS)
            clb_complain("CLBLAS_SHIM_PARAMS: %.*s=%.*s is not valid, the default is used",
                         (int) override.key_length, override.key, (int) override.value_length,
                         override.value);
    }
}

/* Rows that stand beside one of the same class and family. */
static bool is_second(const struct row *row)
{
    return row->tuning.value[CLB_PARAM_SECOND] != 0;
}

static bool is_for(const struct row *row, clb_precision precision)
{
    return (row->precisions >> precision & 1) != 0;
}

/* A complex number takes two depths of the kernel. */
static struct clb_gemm_tuning tuning_of(const struct row *row, clb_precision precision)
{
    struct clb_gemm_tuning tuning = row->tuning;
    if (clb_precision_parts(precision) > 1 && (row->precisions & ROW_SD) != 0) {
        tuning.value[CLB_PARAM_SLAB] /= 2;
        tuning.value[CLB_PARAM_MIN_K] /= 2;
    }
    return tuning;
}

/* gemm.tile=min: the values of the row of gemm_min.def. */
static void set_smallest(clb_precision precision, struct clb_gemm_tuning *tuning)
{
    const bool second = tuning->value[CLB_PARAM_SECOND] != 0;
    for (size_t r = 0; r < CLB_COUNT_OF(smallest_rows); r++) {
        const struct row *row = &smallest_rows[r];
        if (is_for(row, precision) && row->tuning.family == tuning->family &&
            is_second(row) == second &&
            row->tuning.value[CLB_PARAM_RAW] == tuning->value[CLB_PARAM_RAW]) {
            const struct clb_gemm_tuning smallest = tuning_of(row, precision);
            memcpy(tuning->value, smallest.value, sizeof tuning->value);
        }
    }
}

/* Overrides first, then the defaults of what has no value yet. */
static void complete(const struct clb_device *device, clb_precision precision,
                     struct clb_gemm_tuning *tuning)
{
    struct clb_param_override override;
    size_t value;
    for (const char *list = clb_config_get()->params; clb_param_next(&list, &override);) {
        const clb_param param = parse_override(&override, &value);
        if (param != CLB_PARAMS)
            tuning->value[param] = value;
        else if (is_tile_min(&override))
            set_smallest(precision, tuning);
    }
    for (int i = 0; i < CLB_PARAMS; i++) {
        if (tuning->value[i] == 0)
            tuning->value[i] = clb_params[i].standard[device->unified];
    }
}

/* ---- lookup ---- */

clb_status clb_tuning_gemm(const struct clb_device *device, clb_precision precision, clb_math math,
                           size_t skip, struct clb_gemm_tuning *tuning)
{
    const char *kernel = clb_config_get()->kernel;
    clb_family forced = kernel != NULL ? find_family(kernel) : CLB_FAMILIES;
    if (math == CLB_MATH_STRICT && forced != CLB_FAMILIES &&
        clb_families[forced].math != CLB_MATH_STRICT)
        forced = CLB_FAMILIES;
    if (math != CLB_MATH_STRICT && forced != CLB_FAMILIES)
        math = CLB_MATH_FAST;
    /* A forced family may have no row for this device: then any of its rows is used. */
    for (int pass = 0; pass < (forced != CLB_FAMILIES ? 2 : 1); pass++) {
        for (size_t i = 0; i < CLB_COUNT_OF(rows); i++) {
            const struct row *row = &rows[i];
            if (!is_for(row, precision) || is_second(row) ||
                clb_families[row->tuning.family].math > math ||
                (forced != CLB_FAMILIES && row->tuning.family != forced) ||
                has_class(device, row->class) != (pass == 0) || skip-- > 0)
                continue;
            *tuning = tuning_of(row, precision);
            complete(device, precision, tuning);
            return CLB_OK;
        }
    }
    return CLB_ERR_UNSUPPORTED;
}

clb_status clb_tuning_second(const struct clb_device *device, clb_precision precision,
                             const struct clb_gemm_tuning *first, int raw,
                             struct clb_gemm_tuning *tuning)
{
    for (size_t i = 0; i < CLB_COUNT_OF(rows); i++) {
        if (!is_for(&rows[i], precision) || !is_second(&rows[i]) ||
            (rows[i].tuning.value[CLB_PARAM_RAW] != 0) != (raw > 0) ||
            rows[i].tuning.family != first->family || raw-- > 1)
            continue;
        *tuning = tuning_of(&rows[i], precision);
        complete(device, precision, tuning);
        if (tuning->value[CLB_PARAM_COPY] == first->value[CLB_PARAM_COPY])
            return CLB_OK;
    }
    return CLB_ERR_UNSUPPORTED;
}

/* ---- rows of this machine ---- */

/* "family NAME=VALUE NAME=VALUE...", to be freed; NULL: none. */
static char *load_kept(const struct clb_device *device, clb_precision precision)
{
    struct clb_record record;
    clb_record_load(clb_row_key(device->identity, precision), &record);
    return record.text;
}

/* False: a name that this version does not know, or no value. */
static bool read_kept(const char *item, struct clb_gemm_tuning *tuning)
{
    const size_t length = strcspn(item, "=");
    for (int i = 0; i < CLB_PARAMS; i++) {
        if (!same_text(item, length, clb_params[i].name))
            continue;
        const unsigned long value = item[length] == '=' ? strtoul(item + length + 1, NULL, 10) : 0;
        tuning->value[i] = value;
        return value >= 1 && value <= 1000000000;
    }
    return false;
}

clb_status clb_tuning_kept(const struct clb_device *device, clb_precision precision, clb_math math,
                           struct clb_gemm_tuning *tuning)
{
    clb_status status = CLB_ERR_UNSUPPORTED;
    char *rest = NULL, *text = load_kept(device, precision),
         *item = text != NULL ? strtok_r(text, " ", &rest) : NULL;
    const clb_family family = item != NULL ? find_family(item) : CLB_FAMILIES;
    for (size_t skip = 0; family != CLB_FAMILIES && status != CLB_OK; skip++) {
        if (clb_tuning_gemm(device, precision, math, skip, tuning) != CLB_OK)
            break;
        status = tuning->family == family ? CLB_OK : CLB_ERR_UNSUPPORTED;
    }
    while (status == CLB_OK && (item = strtok_r(NULL, " ", &rest)) != NULL) {
        if (!read_kept(item, tuning))
            status = CLB_ERR_UNSUPPORTED;
    }
    free(text);
    if (status == CLB_OK)
        complete(device, precision, tuning);
    return status;
}

bool clb_tuning_keep(const struct clb_device *device, clb_precision precision,
                     const struct clb_gemm_tuning *tuning, const clb_param *kept, size_t count)
{
    struct clb_text text = {0};
    char *stored = NULL;
    clb_text_add(&text, clb_families[tuning->family].name);
    for (size_t i = 0; i < count; i++) {
        if (tuning->value[kept[i]] > 0)
            clb_text_addf(&text, " %s=%zu", clb_params[kept[i]].name, tuning->value[kept[i]]);
    }
    if (!text.failed && clb_cache_directory() != NULL) {
        clb_record_note(clb_row_key(device->identity, precision), CLB_PASSED, text.data);
        stored = load_kept(device, precision);
    }
    const bool good = stored != NULL && strcmp(stored, text.data) == 0;
    free(stored);
    clb_text_free(&text);
    return good;
}

/* The last class fits any device. */
static device_class first_class(const struct clb_device *device)
{
    device_class class = 0;
    while (!has_class(device, class))
        class ++;
    return class;
}

const char *clb_tuning_class(const struct clb_device *device)
{
    return classes[first_class(device)].name;
}

/* GFLOP/s of so many compute units of such a device. */
static double rate_of(const struct clb_device *device, clb_precision precision, double units)
{
    const bool single = clb_precision_real_size(precision) == sizeof(float);
    return classes[first_class(device)].rate * units * (single ? 2 : 1);
}

double clb_tuning_usual_rate(const struct clb_device *device, clb_precision precision)
{
    const bool is_cpu = (device->type & CL_DEVICE_TYPE_CPU) != 0;
    return rate_of(device, precision, is_cpu ? 1 : (double)device->units);
}

double clb_tuning_seconds(const struct clb_device *device, clb_precision precision, double flops)
{
    return 1e-9 * flops / rate_of(device, precision, (double)device->units);
}
