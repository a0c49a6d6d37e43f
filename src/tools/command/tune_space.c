/* SPDX-License-Identifier: BSD-3-Clause
 * What the tuner tries: bounds as in the kernel files' checks and clb_gemm_family's fits(). */
#include "measure.h"

#include <ctype.h>
#include <stdio.h>

/* Local memory of a work-group on compute capability 9.0, for which large tiles are worth a try. */
#define LOCAL_MAX ((size_t)227 * 1024)

#define VALUES(...) ((const size_t[]){__VA_ARGS__})
#define AXIS(id, ...)                                                          \
    {                                                                          \
        CLB_PARAM_##id, CLB_COUNT_OF(VALUES(__VA_ARGS__)), VALUES(__VA_ARGS__) \
    }

static void round_up(size_t *value, clb_param param, clb_param unit)
{
    value[param] = clb_round_up(value[param], clb_max(value[unit], 1));
}

/* ---- cpu ---- */

static const struct clb_tune_axis cpu_axes[] = {
    AXIS(MR, 8, 16, 24, 32, 48, 64),     AXIS(NR, 2, 4, 6, 8, 10, 12, 14),
    AXIS(KC, 128, 192, 256, 384, 512),   AXIS(NC, 64, 128, 256, 384, 512, 1024),
    AXIS(MC, 32, 64, 96, 128, 192, 256), AXIS(KU, 1, 2, 4),
    AXIS(TN, 128, 256, 512, 1024),       AXIS(TM, 1024, 2048, 4096, 8192),
    AXIS(SLAB, 768, 1536, 2048, 4096),   AXIS(PACK_PANELS, 2, 4, 8, 16),
    AXIS(PACK_K, 64, 128, 256, 512),     AXIS(VP, 4, 8, 16),
};

static void cpu_repair(size_t *value)
{
    round_up(value, CLB_PARAM_MC, CLB_PARAM_MR);
    round_up(value, CLB_PARAM_NC, CLB_PARAM_NR);
    round_up(value, CLB_PARAM_KC, CLB_PARAM_KU);
    round_up(value, CLB_PARAM_PACK_K, CLB_PARAM_KU);
    round_up(value, CLB_PARAM_TN, CLB_PARAM_NC);
}

/* The micro-tile in at most 32 registers of 64 bytes, and not in a corner of them. */
static bool cpu_sensible(const size_t *value, size_t real)
{
    size_t bytes = value[CLB_PARAM_MR] * value[CLB_PARAM_NR] * real;
    return bytes <= 30 * 64 && bytes >= 8 * 32 && value[CLB_PARAM_SLAB] >= value[CLB_PARAM_KC];
}

/* ---- portable ---- */

static const struct clb_tune_axis portable_axes[] = {
    AXIS(MR, 32, 64, 96, 128, 192, 256),
    AXIS(NR, 32, 64, 96, 128, 192, 256),
    AXIS(WM, 2, 4, 6, 8, 12, 16),
    AXIS(WN, 2, 4, 6, 8, 12, 16),
    AXIS(KU, 8, 16, 32),
    AXIS(COPY, 0, 1),
    AXIS(STAGES, 2, 3, 4, 5, 6),
    AXIS(VW, 1, 2, 4),
    AXIS(LX, 2, 4, 8, 16),
    AXIS(LY, 1, 2, 4, 8),
    AXIS(UNROLL, 0, 4, 8),
    AXIS(GROUP, 1, 4, 8, 16, 32),
    AXIS(PACK_WG, 64, 128, 256, 512),
};

/* At most `wanted`; 0 stays the kernel's default. */
static size_t divisor(size_t wanted, size_t of)
{
    while (wanted > 1 && of % wanted != 0)
        wanted--;
    return wanted;
}

static void portable_repair(size_t *value)
{
    if (value[CLB_PARAM_WM] == 0 || value[CLB_PARAM_WN] == 0)
        return;
    value[CLB_PARAM_LX] = divisor(value[CLB_PARAM_LX], value[CLB_PARAM_MR] / value[CLB_PARAM_WM]);
    value[CLB_PARAM_LY] = divisor(value[CLB_PARAM_LY], value[CLB_PARAM_NR] / value[CLB_PARAM_WN]);
    if (value[CLB_PARAM_COPY] == 0)
        value[CLB_PARAM_STAGES] = clb_min(value[CLB_PARAM_STAGES], 2);
}

static bool portable_sensible(const size_t *value, size_t real)
{
    /* The family's own condition on any device. */
    static const struct clb_device device = {
        .vendor = CLB_VENDOR_NVIDIA, .max_group = 1024, .local_memory = LOCAL_MAX};
    const struct clb_gemm_family *family = clb_gemm_family_get(CLB_FAMILY_PORTABLE);
    const size_t unroll = value[CLB_PARAM_UNROLL];
    return family->fits(family, value, &device, real) && clb_gemm_group(family, value) >= 32 &&
           (unroll == 0 || value[CLB_PARAM_KU] % unroll == 0) && value[CLB_PARAM_VW] * real <= 16 &&
           value[CLB_PARAM_WM] * value[CLB_PARAM_WN] * real <= 640;
}

/* ---- nv-dmma ---- */

static const struct clb_tune_axis dmma_axes[] = {
    AXIS(MR, 64, 96, 128, 192, 256),
    AXIS(NR, 64, 96, 128, 192, 256),
    AXIS(WARP_M, 16, 32, 64, 96),
    AXIS(WARP_N, 16, 32, 48, 64),
    AXIS(KU, 16, 32, 48, 64),
    AXIS(COPY, 1, 2),
    AXIS(STAGES, 2, 3, 4, 5, 6),
    AXIS(LAG, 1, 2, 3),
    AXIS(GROUP, 1, 4, 6, 8, 12, 16, 32),
    AXIS(PACK_WG, 64, 128, 256, 512, 1024),
};

/* The warps of a tile; 0: they don't divide it. */
static size_t count_warps(const size_t *value)
{
    const size_t wm = value[CLB_PARAM_WARP_M], wn = value[CLB_PARAM_WARP_N];
    return wm == 0 || wn == 0 || value[CLB_PARAM_MR] % wm != 0 || value[CLB_PARAM_NR] % wn != 0
               ? 0
               : value[CLB_PARAM_MR] / wm * (value[CLB_PARAM_NR] / wn);
}

static bool dmma_sensible(const size_t *value, size_t real)
{
    const size_t warps = count_warps(value);
    (void)real;
    return warps >= 2 && warps <= 16 &&
           value[CLB_PARAM_WARP_M] * value[CLB_PARAM_WARP_N] / 32 <= 96 &&
           (value[CLB_PARAM_COPY] == 2 || value[CLB_PARAM_LAG] < value[CLB_PARAM_STAGES]);
}

/* ---- nv-bf16x6, nv-fp16x3 ---- */

/* Accuracy depends on how many depths are added up in the tensor core and on which products are
 * taken, so KU and PRODUCTS are not for the tuner. */
static const struct clb_tune_axis split_axes[] = {
    AXIS(NR, 128, 192),
    AXIS(STAGES, 2, 3, 4, 5, 6, 8),
    AXIS(GROUP, 1, 2, 4, 6, 8, 12, 16, 32),
    AXIS(PACK_WG, 64, 128, 256, 512, 1024),
};

/* ---- nv-bf16-sync ---- */

static const struct clb_tune_axis bf16_sync_axes[] = {
    AXIS(MR, 64, 128, 192, 256),
    AXIS(NR, 64, 96, 128, 192, 256),
    AXIS(WARP_M, 32, 64),
    AXIS(WARP_N, 16, 32, 64),
    AXIS(STAGES, 2, 3, 4, 5),
    AXIS(GROUP, 1, 4, 6, 8, 12, 16, 32),
    AXIS(PACK_WG, 64, 128, 256, 512, 1024),
};

/* Two sums and the pieces of the operands in the registers of a work-item. */
static bool bf16_sync_sensible(const size_t *value, size_t real)
{
    const size_t wm = value[CLB_PARAM_WARP_M], wn = value[CLB_PARAM_WARP_N];
    const size_t warps = count_warps(value);
    (void)real;
    return warps >= 4 && warps <= 16 && wm * wn / 16 + wm / 2 + wn * 3 / 2 <= 216 &&
           warps * 32 * (wm * wn / 16) <= 48 * 1024;
}

const struct clb_tune_space *clb_tune_space_of(clb_family family)
{
    static const struct clb_tune_space spaces[CLB_FAMILIES] = {
        [CLB_FAMILY_CPU] = {cpu_axes, CLB_COUNT_OF(cpu_axes), cpu_repair, cpu_sensible},
        [CLB_FAMILY_PORTABLE] = {portable_axes, CLB_COUNT_OF(portable_axes), portable_repair,
                                 portable_sensible},
        [CLB_FAMILY_NV_DMMA] = {dmma_axes, CLB_COUNT_OF(dmma_axes), NULL, dmma_sensible},
        [CLB_FAMILY_NV_BF16X6] = {split_axes, CLB_COUNT_OF(split_axes), NULL, NULL},
        [CLB_FAMILY_NV_FP16X3] = {split_axes, CLB_COUNT_OF(split_axes), NULL, NULL},
        [CLB_FAMILY_NV_BF16_SYNC] = {bf16_sync_axes, CLB_COUNT_OF(bf16_sync_axes), NULL,
                                     bf16_sync_sensible},
    };
    return &spaces[family];
}

bool clb_tune_is_sensible(clb_family family, const size_t *value, size_t real)
{
    const struct clb_tune_space *space = clb_tune_space_of(family);
    const size_t pieces = clb_gemm_family_get(family)->pieces,
                 stage = (value[CLB_PARAM_MR] + value[CLB_PARAM_NR]) * value[CLB_PARAM_KU] *
                         (pieces != 0 ? pieces : real);
    return value[CLB_PARAM_STAGES] * stage <= LOCAL_MAX &&
           (space->sensible == NULL || space->sensible(value, real));
}

void clb_tune_print_row(const char *class, clb_precision precision,
                        const struct clb_gemm_tuning *tuning)
{
    const char letter = "SDCZ"[precision];
    char family[32], line[128];
    snprintf(family, sizeof family, "%s", clb_families[tuning->family].name);
    for (char *c = family; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    int column = printf("CLB_GEMM(%s, %c, %s,", class, letter, family);
    for (int i = 0; i < CLB_PARAMS; i++) {
        const size_t value = tuning->value[i];
        if (value == clb_params[i].standard[true] || value == clb_params[i].standard[false])
            continue;
        int length = snprintf(line, sizeof line, " V(%s, %zu)", clb_params[i].name, value);
        if (column + length > 98)
            column = printf("\n        ") - 1;
        column += printf("%s", line);
    }
    printf(")\n");
}
