/* sgemm_, dgemm_, cblas_sgemm and cblas_dgemm of the built library against sums in extended
 * precision, for every kernel family and way of bringing the data to the device. */
#include "matrix.h"
#include "report.h"
#include "tap.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void sgemm_(const char *, const char *, const int *, const int *, const int *, const float *,
            const float *, const int *, const float *, const int *, const float *, float *,
            const int *, size_t, size_t);
void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *,
            const double *, const int *, const double *, const int *, const double *, double *,
            const int *, size_t, size_t);
void cblas_sgemm(int, int, int, int, int, int, float, const float *, int, const float *, int, float,
                 float *, int);
void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int,
                 double, double *, int);

enum form { FORTRAN, C_COLUMNS, C_ROWS, FORMS };

/* Where the operands of a case are. */
struct place {
    void *a, *b, *c;
    size_t lda, ldb, ldc;
};

static char letter_of(clb_op op, uint64_t *seed)
{
    static const char letters[] = "NTCntc";
    return letters[(size_t)op + 3 * random_below(seed, 2)];
}

static void call_fortran(const struct gemm_case *g, const struct place *at, uint64_t *seed)
{
    const char transa = letter_of(g->transa, seed), transb = letter_of(g->transb, seed);
    const int m = (int)g->m, n = (int)g->n, k = (int)g->k;
    const int lda = (int)at->lda, ldb = (int)at->ldb, ldc = (int)at->ldc;
    const float alpha = (float)g->alpha, beta = (float)g->beta;
    if (g->precision == CLB_S)
        sgemm_(&transa, &transb, &m, &n, &k, &alpha, at->a, &lda, at->b, &ldb, &beta, at->c, &ldc,
               1, 1);
    else
        dgemm_(&transa, &transb, &m, &n, &k, &g->alpha, at->a, &lda, at->b, &ldb, &g->beta, at->c,
               &ldc, 1, 1);
}

/* The same product; in rows it is C^T = op(B)^T * op(A)^T over the same memory. */
static void call_c(const struct gemm_case *g, const struct place *at, bool rows)
{
    const int layout = rows ? 101 : 102;
    const int first = 111 + (int)(rows ? g->transb : g->transa);
    const int second = 111 + (int)(rows ? g->transa : g->transb);
    const int m = (int)(rows ? g->n : g->m), n = (int)(rows ? g->m : g->n), k = (int)g->k;
    const void *x = rows ? at->b : at->a, *y = rows ? at->a : at->b;
    const int ldx = (int)(rows ? at->ldb : at->lda), ldy = (int)(rows ? at->lda : at->ldb);
    if (g->precision == CLB_S)
        cblas_sgemm(layout, first, second, m, n, k, (float)g->alpha, x, ldx, y, ldy, (float)g->beta,
                    at->c, (int)at->ldc);
    else
        cblas_dgemm(layout, first, second, m, n, k, g->alpha, x, ldx, y, ldy, g->beta, at->c,
                    (int)at->ldc);
}

static void call(const struct gemm_case *g, const struct place *at, enum form form, uint64_t *seed)
{
    if (form == FORTRAN)
        call_fortran(g, at, seed);
    else
        call_c(g, at, form == C_ROWS);
}

static struct place place_of(const struct gemm_case *g)
{
    return (struct place){
        matrix_data(&g->a), matrix_data(&g->b), matrix_data(&g->c), g->a.ld, g->b.ld, g->c.ld};
}

static void describe(const struct gemm_case *g, enum form form, const char *kind, char *text,
                     size_t size)
{
    static const char *const names[] = {"fortran", "cblas columns", "cblas rows"};
    snprintf(text, size, "%s %s %s %c%c m=%zu n=%zu k=%zu alpha=%g beta=%g ld=%zu,%zu,%zu",
             g->precision == CLB_S ? "s" : "d", names[form], kind, "NTC"[g->transa],
             "NTC"[g->transb], g -> m, g -> n, g -> k, g -> alpha, g -> beta, g -> a.ld, g->b.ld,
             g->c.ld);
}

static void call_and_check(const struct gemm_case *g, enum form form, const char *kind,
                           uint64_t *seed)
{
    char what[200];
    struct place at = place_of(g);
    describe(g, form, kind, what, sizeof what);
    call(g, &at, form, seed);
    gemm_check(g, what);
}

/* ---- one configuration ----------------------------------------------------------------------- */

struct setting {
    const char *name, *kernel, *params, *next;
    const size_t *sizes; /* that m, n and k are taken from; ends with SIZE_MAX */
    int repeats;         /* of all transposes, precisions and forms */
    bool wide;           /* also operands of more than 2^31 elements */
    char only;           /* the family's one precision; 0 for both */
};

static const size_t small_sizes[] = {0,  1,  2,  3,  4,  5,  7,  8,  9,  11, 13,      15,
                                     16, 17, 18, 23, 24, 25, 31, 32, 33, 40, SIZE_MAX};
static const size_t large_sizes[] = {1,   3,   16,  31,  32,  33,  63,  64,  65,  100,
                                     127, 128, 129, 191, 193, 255, 256, 257, 260, SIZE_MAX};

static const struct setting settings[] = {
    {"cpu, minimal tiles", "cpu", "gemm.tile=min", "libblas.so.3", small_sizes, 12, true, 0},
    {"portable, minimal tiles", "portable", "gemm.tile=min", "libblas.so.3", small_sizes, 12, true,
     0},
    {"cpu, minimal tiles, streamed", "cpu", "gemm.tile=min,gemm.stream=1,gemm.threads=2",
     "libblas.so.3", small_sizes, 6, false, 0},
    {"portable, minimal tiles, streamed by one thread", "portable", "gemm.tile=min,gemm.stream=1",
     "libblas.so.3", small_sizes, 6, true, 0},
    {"cpu, default tiles", "cpu", "", "libopenblas.so.0", large_sizes, 2, true, 0},
    {"portable, default tiles", "portable", "", "libblas.so.3", large_sizes, 1, false, 0},
    {"cpu, default tiles, streamed", "cpu", "gemm.stream=1,gemm.threads=3,gemm.gather=128M",
     "libblas.so.3", large_sizes, 1, false, 0},
    {"odd parameters", "cpu",
     "gemm.tile=min,gemm.mr=6,gemm.nr=3,gemm.mc=12,gemm.nc=9,gemm.ku=3,"
     "gemm.kc=6,gemm.pack_k=9,gemm.tm=7,gemm.tn=5,gemm.slab=5",
     "libblas.so.3", small_sizes, 2, false, 0},
    {"nv-dmma, minimal tiles, emulated", "nv-dmma", "gemm.tile=min,gemm.emulate=1", "libblas.so.3",
     small_sizes, 3, true, 'd'},
    {"nv-dmma, minimal tiles, emulated, streamed", "nv-dmma",
     "gemm.tile=min,gemm.emulate=1,gemm.stream=1,gemm.stages=2", "libblas.so.3", small_sizes, 3,
     false, 'd'},
    {"portable, depth in parts", "portable", "gemm.tile=min,gemm.slab=20,gemm.parts=3",
     "libblas.so.3", small_sizes, 6, true, 0},
    {"portable, depth in parts, streamed", "portable",
     "gemm.tile=min,gemm.slab=20,gemm.parts=3,gemm.stream=1,gemm.threads=2", "libblas.so.3",
     small_sizes, 6, false, 0},
    {"nv-dmma, depth in parts, emulated, streamed", "nv-dmma",
     "gemm.tile=min,gemm.emulate=1,gemm.slab=64,gemm.parts=4,gemm.stream=1", "libblas.so.3",
     large_sizes, 2, false, 'd'},
    {"nv-bf16-sync, depth in parts, emulated", "nv-bf16-sync",
     "gemm.tile=min,gemm.band_m=64,gemm.band_n=32,gemm.emulate=1,gemm.slab=128,gemm.parts=3",
     "libblas.so.3", large_sizes, 1, false, 's'},
    {"nv-bf16-sync, minimal tiles, emulated", "nv-bf16-sync",
     "gemm.tile=min,gemm.band_m=64,gemm.band_n=32,gemm.emulate=1", "libblas.so.3", small_sizes, 3,
     true, 's'},
    {"nv-bf16-sync, several bands, emulated", "nv-bf16-sync",
     "gemm.tile=min,gemm.band_m=64,gemm.band_n=32,gemm.emulate=1", "libblas.so.3", large_sizes, 2,
     false, 's'},
    {"nv-bf16x6, emulated", "nv-bf16x6",
     "gemm.tile=min,gemm.band_m=128,gemm.band_n=128,gemm.emulate=1", "libblas.so.3", large_sizes, 1,
     false, 's'},
    {"nv-fp16x3, emulated", "nv-fp16x3",
     "gemm.tile=min,gemm.band_m=128,gemm.band_n=128,gemm.min_k=16,gemm.emulate=1", "libblas.so.3",
     large_sizes, 1, false, 's'},
};

static size_t pick(const size_t *sizes, uint64_t *seed)
{
    size_t count = 0;
    while (sizes[count] != SIZE_MAX)
        count++;
    return sizes[random_below(seed, count)];
}

static double pick_scalar(clb_precision precision, uint64_t *seed)
{
    static const double special[] = {0, 1, -1};
    size_t choice = random_below(seed, 5);
    double value = choice < CLB_COUNT_OF(special) ? special[choice] : 2 * random_uniform(seed);
    return precision == CLB_S ? (double)(float)value : value;
}

static struct gemm_case pick_case(clb_precision precision, clb_op transa, clb_op transb,
                                  const size_t *sizes, uint64_t *seed)
{
    return (struct gemm_case){.precision = precision,
                              .transa = transa,
                              .transb = transb,
                              .m = pick(sizes, seed),
                              .n = pick(sizes, seed),
                              .k = pick(sizes, seed),
                              .alpha = pick_scalar(precision, seed),
                              .beta = pick_scalar(precision, seed)};
}

static void plain_case(struct gemm_case *g, enum form form, uint64_t *seed)
{
    gemm_make(g, seed, 9);
    call_and_check(g, form, "random", seed);
    gemm_free(g);
}

static void spoil(struct matrix *x, double value, uint64_t *seed)
{
    if (x->rows > 0 && x->cols > 0)
        matrix_set(x, random_below(seed, x->rows), random_below(seed, x->cols), value);
    matrix_remember(x);
}

/* NaN and infinity in one operand; C is all NaN where beta = 0 promises not to read it. */
static void special_case(struct gemm_case *g, enum form form, uint64_t *seed)
{
    gemm_make(g, seed, 5);
    struct matrix *const operands[] = {&g->a, &g->b, &g->c};
    size_t which = random_below(seed, CLB_COUNT_OF(operands));
    spoil(operands[which], random_below(seed, 2) ? NAN : INFINITY, seed);
    for (size_t j = 0; g->beta == 0 && j < g->n; j++) {
        for (size_t i = 0; i < g->m; i++)
            matrix_set(&g->c, i, j, NAN);
    }
    matrix_remember(&g->c);
    call_and_check(g, form, "special", seed);
    gemm_free(g);
}

/* A and B are the same memory, or overlapping parts of one matrix. */
static void overlapping_case(struct gemm_case *g, enum form form, uint64_t *seed)
{
    size_t rows_a = g->transa == CLB_OP_N ? g->m : g->k,
           cols_a = g->transa == CLB_OP_N ? g->k : g->m;
    size_t rows_b = g->transb == CLB_OP_N ? g->k : g->n,
           cols_b = g->transb == CLB_OP_N ? g->n : g->k;
    size_t row = random_below(seed, 3), col = random_below(seed, 3);
    struct gemm_case whole = *g;
    struct matrix both;
    gemm_make(&whole, seed, 3);
    matrix_make(&both, g->precision, clb_max(rows_a, rows_b) + 3, clb_max(cols_a, cols_b) + 3,
                clb_max(rows_a, rows_b) + 3 + random_below(seed, 4), random_below(seed, 4));
    matrix_fill(&both, seed);
    matrix_remember(&both);
    g->a = matrix_part(&both, 0, 0, rows_a, cols_a);
    g->b = matrix_part(&both, row, col, rows_b, cols_b);
    g->c = whole.c;
    call_and_check(g, form, "overlapping", seed);
    matrix_free(&both);
    gemm_free(&whole);
}

/* ---- operands of more than 2^31 elements ----------------------------------------------------- */

#define WIDE_LD (((size_t)1 << 30) + 3)

static void *map_wide(size_t cols, size_t size)
{
    void *memory = mmap(NULL, (cols * WIDE_LD + 64) * size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Between a dense matrix and one of a wide leading dimension. */
static void copy_columns(const struct matrix *x, void *wide, bool out)
{
    size_t size = x->precision == CLB_S ? sizeof(float) : sizeof(double);
    for (size_t j = 0; j < x->cols; j++) {
        char *inner = (char *)matrix_data(x) + j * x->ld * size;
        char *outer = (char *)wide + j * WIDE_LD * size;
        memcpy(out ? outer : inner, out ? inner : outer, x->rows * size);
    }
}

static void wide_case(clb_precision precision, clb_op transa, clb_op transb, enum form form,
                      uint64_t *seed)
{
    size_t size = precision == CLB_S ? sizeof(float) : sizeof(double);
    struct gemm_case g = {.precision = precision,
                          .transa = transa,
                          .transb = transb,
                          .m = transa == CLB_OP_N ? 37 : 4,
                          .n = 4,
                          .k = transa == CLB_OP_N ? 4 : 21,
                          .alpha = 1,
                          .beta = -1};
    gemm_make(&g, seed, 0);
    struct place at = {map_wide(g.a.cols, size),
                       map_wide(g.b.cols, size),
                       map_wide(g.c.cols, size),
                       WIDE_LD,
                       WIDE_LD,
                       WIDE_LD};
    if (at.a == NULL || at.b == NULL || at.c == NULL) {
        tap_note("no address space for wide operands");
    } else {
        char what[200];
        describe(&g, form, "wide", what, sizeof what);
        copy_columns(&g.a, at.a, true);
        copy_columns(&g.b, at.b, true);
        copy_columns(&g.c, at.c, true);
        call(&g, &at, form, seed);
        copy_columns(&g.c, at.c, false);
        gemm_check(&g, what);
    }
    const struct matrix *const matrices[] = {&g.a, &g.b, &g.c};
    void *const mapped[] = {at.a, at.b, at.c};
    for (size_t i = 0; i < CLB_COUNT_OF(mapped); i++) {
        if (mapped[i] != NULL)
            munmap(mapped[i], (matrices[i]->cols * WIDE_LD + 64) * size);
    }
    gemm_free(&g);
}

/* ---- the body -------------------------------------------------------------------------------- */

struct run {
    const struct setting *setting;
    uint64_t seed;
};

static void one_of_each(const struct setting *setting, int round, uint64_t *seed)
{
    for (int choice = 0; choice < 9 * 2 * FORMS; choice++) {
        clb_op transa = (clb_op)(choice % 3), transb = (clb_op)(choice / 3 % 3);
        clb_precision precision = (clb_precision)(choice / 9 % 2);
        enum form form = (enum form)(choice / 18);
        if (setting->only != 0 && setting->only != "sd"[precision])
            continue;
        struct gemm_case g = pick_case(precision, transa, transb, setting->sizes, seed);
        switch (round % 3) {
        case 0:
            plain_case(&g, form, seed);
            break;
        case 1:
            special_case(&g, form, seed);
            break;
        default:
            overlapping_case(&g, form, seed);
        }
        if (setting->wide && round == 0 && choice % 5 == 0)
            wide_case(precision, transa, transb, form, seed);
    }
}

static void run_setting(void *argument)
{
    static const char *const symbols[] = {"sgemm_", "cblas_sgemm", "dgemm_", "cblas_dgemm"};
    struct run *run = argument;
    const struct setting *setting = run->setting;
    setenv("CLBLAS_SHIM", "always", 1);
    setenv("CLBLAS_SHIM_KERNEL", setting->kernel, 1);
    setenv("CLBLAS_SHIM_PARAMS", setting->params, 1);
    setenv("CLBLAS_SHIM_NEXT", setting->next, 1);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    setenv("OPENBLAS_CORETYPE", "Haswell", 1);
    for (int round = 0; round < tap_rounds(setting->repeats); round++)
        one_of_each(setting, round, &run->seed);
    /* One precision has two of them. */
    size_t skip = setting->only == 'd' ? 2 : 0;
    expect_on_device(symbols + skip, setting->only == 0 ? CLB_COUNT_OF(symbols) : 2);
}

/* dlopen's own idea: the library may be absent. */
static void probe_library(void *name)
{
    expect(dlopen(name, RTLD_NOW | RTLD_LOCAL) != NULL, "absent");
}

/* usage: public [FAMILY [s|d|both [PARAMS]]]: as complex.c has it. */
int main(int count, char **arguments)
{
    uint64_t seed = tap_seed();
    if (count > 1) {
        const struct setting own = {arguments[1],
                                    arguments[1],
                                    count > 3 ? arguments[3] : "",
                                    "libblas.so.3",
                                    large_sizes,
                                    6,
                                    false,
                                    count > 2 && *arguments[2] != 'b' ? *arguments[2] : '\0'};
        struct run run = {&own, random_bits(&seed)};
        tap_child(own.name, 240, run_setting, &run);
        return tap_done();
    }
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        struct run run = {&settings[i], random_bits(&seed)};
        struct setting own = settings[i];
        if (run_child(60, probe_library, (void *)(uintptr_t)own.next, NULL, 0) != 0) {
            tap_note("%s is not installed, libblas.so.3 stands for it", own.next);
            own.next = "libblas.so.3";
            run.setting = &own;
        }
        tap_child(own.name, 240, run_setting, &run);
    }
    return tap_done();
}
