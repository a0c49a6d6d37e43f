/* SPDX-License-Identifier: BSD-3-Clause
 * The tuning layer: rows for made-up devices, overrides, values that are refused. */
#include "tap.h"
#include "engine/ocl/helper.h"
#include "engine/ocl/store.h"
#include "engine/tuning/tuning.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A CPU; its vectors have so many bytes. */
#define CPU(its_name, its_identity, bytes)                                                \
    {                                                                                     \
        .name = its_name, .identity = its_identity, .vendor_name = "nobody",              \
        .type = CL_DEVICE_TYPE_CPU, .vector_bytes = bytes, .unified = true, .fp64 = true, \
        .max_group = 4096, .local_memory = 1 << 20, .units = 4                            \
    }
static const struct clb_device cpu_512 = CPU("made-up CPU", "made-up", 64);
static const struct clb_device cpu_small = CPU("another CPU", "another", 16);
static const struct clb_device gpu = {.name = "made-up GPU",
                                      .vendor_name = "nobody",
                                      .type = CL_DEVICE_TYPE_GPU,
                                      .vector_bytes = 4,
                                      .fp64 = true,
                                      .max_group = 256,
                                      .local_memory = 32768,
                                      .units = 20};

static void set(const char *kernel, const char *params)
{
    setenv("CLBLAS_SHIM_KERNEL", kernel, 1);
    setenv("CLBLAS_SHIM_PARAMS", params, 1);
}

static struct clb_gemm_tuning look_up(const struct clb_device *device, clb_precision precision)
{
    struct clb_gemm_tuning tuning = {0};
    expect(clb_tuning_gemm(device, precision, CLB_MATH_DEFAULT, 0, &tuning) == CLB_OK,
           "%s has no row", device->name);
    return tuning;
}

static void rows(void *unused)
{
    (void)unused;
    set("", "");
    for (int precision = CLB_S; precision <= CLB_D; precision++) {
        struct clb_gemm_tuning wide = look_up(&cpu_512, (clb_precision)precision);
        struct clb_gemm_tuning narrow = look_up(&cpu_small, (clb_precision)precision);
        struct clb_gemm_tuning other = look_up(&gpu, (clb_precision)precision);
        expect(wide.family == CLB_FAMILY_CPU && narrow.family == CLB_FAMILY_CPU &&
                   other.family == CLB_FAMILY_PORTABLE,
               "families");
        expect(wide.value[CLB_PARAM_MR] != narrow.value[CLB_PARAM_MR], "vector width is ignored");
        expect(wide.value[CLB_PARAM_SLAB] > 0 && other.value[CLB_PARAM_SLAB] > 0, "no slab");
    }
    struct clb_gemm_tuning tuning;
    /* Rows end. */
    clb_status status = CLB_OK;
    unsigned skip = 0;
    for (; status == CLB_OK && skip < 100; skip++)
        status = clb_tuning_gemm(&cpu_512, CLB_S, CLB_MATH_DEFAULT, skip, &tuning);
    expect(status == CLB_ERR_UNSUPPORTED && skip > 1, "the rows don't end");
}

/* Each level of CLBLAS_SHIM_MATH allows only families that keep its promise. */
static void math(void *unused)
{
    struct clb_device nvidia = gpu;
    (void)unused;
    set("", "");
    nvidia.vendor = CLB_VENDOR_NVIDIA;
    for (int level = CLB_MATH_STRICT; level <= CLB_MATH_FAST; level++) {
        for (int precision = CLB_S; precision <= CLB_D; precision++) {
            struct clb_gemm_tuning tuning;
            size_t skip = 0;
            while (clb_tuning_gemm(&nvidia, (clb_precision)precision, (clb_math)level, skip,
                                   &tuning) == CLB_OK) {
                expect((int)clb_families[tuning.family].math <= level, "%s for level %d",
                       clb_families[tuning.family].name, level);
                skip++;
            }
            expect(skip > 0, "no row for level %d", level);
        }
    }
}

/* What needs compute capability 9.0 comes before what needs 8.0, and that before what needs
 * neither. */
static void nvidia_order(void *unused)
{
    static const struct {
        clb_precision precision;
        clb_family family[3];
        size_t copy[3];
    } orders[] = {
        {CLB_S, {CLB_FAMILY_NV_BF16X6, CLB_FAMILY_NV_BF16_SYNC, CLB_FAMILY_PORTABLE}, {0, 0, 1}},
        {CLB_D, {CLB_FAMILY_NV_DMMA, CLB_FAMILY_NV_DMMA, CLB_FAMILY_PORTABLE}, {0, 2, 1}},
        {CLB_C, {CLB_FAMILY_NV_BF16X6, CLB_FAMILY_NV_BF16_SYNC, CLB_FAMILY_PORTABLE}, {0, 0, 1}},
        {CLB_Z, {CLB_FAMILY_NV_DMMA, CLB_FAMILY_NV_DMMA, CLB_FAMILY_PORTABLE}, {0, 2, 1}},
    };
    struct clb_device nvidia = gpu;
    (void)unused;
    set("", "");
    nvidia.vendor = CLB_VENDOR_NVIDIA;
    for (size_t i = 0; i < CLB_COUNT_OF(orders); i++) {
        for (size_t skip = 0; skip < CLB_COUNT_OF(orders[i].family); skip++) {
            struct clb_gemm_tuning tuning = {0};
            expect(clb_tuning_gemm(&nvidia, orders[i].precision, CLB_MATH_DEFAULT, skip, &tuning) ==
                           CLB_OK &&
                       tuning.family == orders[i].family[skip] &&
                       tuning.value[CLB_PARAM_COPY] == orders[i].copy[skip],
                   "precision %d, row %zu is %s with copy %zu", (int)orders[i].precision, skip,
                   clb_families[tuning.family].name, tuning.value[CLB_PARAM_COPY]);
        }
    }
}

/* GPUs of other makers have rows of their own, whose kernels are the portable ones. */
static void vendors(void *unused)
{
    static const clb_vendor makers[] = {CLB_VENDOR_AMD, CLB_VENDOR_INTEL};
    static const char *const names[] = {"AMD", "INTEL"};
    struct clb_device device = gpu;
    (void)unused;
    set("", "");
    for (size_t i = 0; i < CLB_COUNT_OF(makers); i++) {
        device.vendor = makers[i];
        expect(strcmp(clb_tuning_class(&device), names[i]) == 0, "class %s",
               clb_tuning_class(&device));
        for (int precision = CLB_S; precision <= CLB_Z; precision++)
            expect(look_up(&device, (clb_precision)precision).family == CLB_FAMILY_PORTABLE &&
                       look_up(&device, (clb_precision)precision).value[CLB_PARAM_WM] !=
                           (precision == CLB_S || precision == CLB_C ? 4 : 0),
                   "%s, precision %d", names[i], precision);
        device.type = CL_DEVICE_TYPE_CPU;
        expect(strcmp(clb_tuning_class(&device), "CPU_ANY") == 0, "a CPU of %s", names[i]);
        device.type = CL_DEVICE_TYPE_GPU;
    }
}

static void forced(void *unused)
{
    (void)unused;
    set("portable", "");
    expect(look_up(&cpu_512, CLB_S).family == CLB_FAMILY_PORTABLE, "portable on a CPU");
    expect(look_up(&gpu, CLB_D).family == CLB_FAMILY_PORTABLE, "portable on a GPU");
}

static void forced_cpu(void *unused)
{
    (void)unused;
    set("cpu", "");
    expect(look_up(&gpu, CLB_S).family == CLB_FAMILY_CPU, "cpu on a GPU");
}

static void overridden(void *unused)
{
    (void)unused;
    set("", "gemm.kc=64,gemm.tm=1K,gemm.mr=8");
    struct clb_gemm_tuning tuning = look_up(&cpu_512, CLB_D);
    expect(tuning.value[CLB_PARAM_KC] == 64 && tuning.value[CLB_PARAM_TM] == 1024 &&
               tuning.value[CLB_PARAM_MR] == 8,
           "overrides");
}

/* Later items win over earlier ones. */
static void smallest(void *unused)
{
    (void)unused;
    set("", "gemm.kc=64,gemm.tile=min,gemm.nc=12");
    for (int precision = CLB_S; precision <= CLB_D; precision++) {
        struct clb_gemm_tuning tuning = look_up(&cpu_512, (clb_precision)precision);
        expect(tuning.value[CLB_PARAM_TM] <= 16 && tuning.value[CLB_PARAM_SLAB] <= 16 &&
                   tuning.value[CLB_PARAM_KC] < 64 && tuning.value[CLB_PARAM_NC] == 12,
               "gemm.tile=min");
        tuning = look_up(&gpu, (clb_precision)precision);
        expect(tuning.value[CLB_PARAM_TN] <= 16, "gemm.tile=min on a GPU");
    }
}

static void every_key(void *unused)
{
    struct clb_config config = {.mode = CLB_MODE_AUTO};
    (void)unused;
    for (int i = 0; i < CLB_PARAMS; i++) {
        char key[CLB_PARAM_KEY_SIZE], list[CLB_PARAM_KEY_SIZE + 2];
        clb_param_key((clb_param)i, key);
        snprintf(list, sizeof list, "%s=3", key);
        config.params = list;
        clb_tuning_check_config(&config);
    }
}

static void bad_values(void *unused)
{
    (void)unused;
    set("quick", "gemm.xx=4,gemm.kc=0,gemm.kc=many,gemm.kc=5%,gemm.tile=max,gemm.k=1,gemm.kc=1e10");
    clb_tuning_check_config(clb_config_get());
    expect(look_up(&cpu_512, CLB_S).family == CLB_FAMILY_CPU, "an unknown family");
    unsetenv("CLBLAS_SHIM_PARAMS");
    expect(look_up(&cpu_512, CLB_S).value[CLB_PARAM_KC] >= 64, "a bad value is used");
}

static int count_lines(const char *text)
{
    int count = 0;
    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count;
}

/* Rows that tune --kernels has kept: for this device and precision alone, of a family that is
 * allowed; overrides come first; a value that is none makes a row worthless. */
static void kept(void *unused)
{
    static const clb_param params[] = {CLB_PARAM_MR, CLB_PARAM_NR, CLB_PARAM_UNROLL};
    char folder[] = "/tmp/clblas-shim-test-XXXXXX", command[64];
    (void)unused;
    expect(mkdtemp(folder) != NULL, "no folder");
    setenv("CLBLAS_SHIM_CACHE_DIR", folder, 1);
    set("", "gemm.nr=6");
    struct clb_gemm_tuning row = look_up(&cpu_512, CLB_D), found;
    const size_t kc = row.value[CLB_PARAM_KC];
    row.value[CLB_PARAM_MR] = 24;
    row.value[CLB_PARAM_NR] = 4;
    row.value[CLB_PARAM_KC] = 1; /* not among those that are kept */
    expect(clb_tuning_kept(&cpu_512, CLB_D, CLB_MATH_DEFAULT, &found) != CLB_OK,
           "a row was kept before");
    char *none = clb_step_describe(&cpu_512, CLB_STEP_GEMM, CLB_D);
    expect(clb_tuning_keep(&cpu_512, CLB_D, &row, params, CLB_COUNT_OF(params)), "it is not kept");
    expect(clb_tuning_kept(&cpu_512, CLB_D, CLB_MATH_STRICT, &found) == CLB_OK &&
               found.family == CLB_FAMILY_CPU && found.value[CLB_PARAM_MR] == 24 &&
               found.value[CLB_PARAM_NR] == 6 && found.value[CLB_PARAM_KC] == kc,
           "it is another one");
    expect(clb_tuning_kept(&cpu_512, CLB_S, CLB_MATH_DEFAULT, &found) != CLB_OK &&
               clb_tuning_kept(&cpu_small, CLB_D, CLB_MATH_DEFAULT, &found) != CLB_OK,
           "it is also another precision's or device's");
    char *kept = clb_step_describe(&cpu_512, CLB_STEP_GEMM, CLB_D);
    row.value[CLB_PARAM_MR] = 2000000000;
    expect(clb_tuning_keep(&cpu_512, CLB_D, &row, params, CLB_COUNT_OF(params)) &&
               clb_tuning_kept(&cpu_512, CLB_D, CLB_MATH_DEFAULT, &found) != CLB_OK,
           "a bad value is taken");
    char *other = clb_step_describe(&cpu_512, CLB_STEP_GEMM, CLB_D);
    expect(strcmp(none, kept) != 0 && strcmp(kept, other) != 0,
           "steps don't tell rows from each other");
    free(none);
    free(kept);
    free(other);
    row.family = CLB_FAMILY_NV_DMMA;
    expect(clb_tuning_keep(&cpu_512, CLB_D, &row, params, 0) &&
               clb_tuning_kept(&cpu_512, CLB_D, CLB_MATH_DEFAULT, &found) != CLB_OK,
           "a family that the device has no row of is taken");
    snprintf(command, sizeof command, "rm -r %s", folder);
    expect(system(command) == 0, "the folder stays");
}

static void kept_without_cache(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_CACHE_DIR", "none", 1);
    set("", "");
    const struct clb_gemm_tuning row = look_up(&cpu_512, CLB_D);
    expect(!clb_tuning_keep(&cpu_512, CLB_D, &row, NULL, 0), "it is kept nowhere");
}

int main(void)
{
    char text[4096];
    tap_child("rows", 30, rows, NULL);
    tap_child("levels of accuracy", 30, math, NULL);
    tap_child("rows for NVIDIA by what they need", 30, nvidia_order, NULL);
    tap_child("rows for GPUs of other makers", 30, vendors, NULL);
    tap_child("a forced family", 30, forced, NULL);
    tap_child("a family forced on a device without a row of it", 30, forced_cpu, NULL);
    tap_child("overrides", 30, overridden, NULL);
    tap_child("gemm.tile=min", 30, smallest, NULL);
    tap_child("a row that was kept", 30, kept, NULL);
    tap_child("none without a cache", 30, kept_without_cache, NULL);
    tap_ok(run_child(30, every_key, NULL, text, sizeof text) == 0 && count_lines(text) == 0,
           "every key is known");
    int status = run_child(30, bad_values, NULL, text, sizeof text);
    tap_ok(status == 0 && count_lines(text) == 8, "a line for each bad value: %d",
           count_lines(text));
    return tap_done();
}
