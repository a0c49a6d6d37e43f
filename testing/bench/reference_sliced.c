/* reference_sliced: xGEMM and xTRSM of the reference BLAS, cut into blocks that threads compute by
 * the library's own routines. A module that is loaded before the reference LAPACK, which calls them
 * by name.
 *
 * The reference computes every element of a product, and every row or column that a triangular
 * system has for itself, by the same operations in the same order whatever else is computed with
 * it. So the results are the same bits, and next to them a factorisation can be judged at sizes
 * where one thread would take hours. Blocks have few rows, because the reference walks through all
 * of A for every column of C.
 *
 * Environment: REFERENCE_BLAS, the library; REFERENCE_THREADS, 1 unless it is set. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

enum { MOST_THREADS = 64, BLOCK_ROWS = 256, BLOCK_COLS = 128 };
/* Below so many multiplications threads are not worth starting. */
static const double small = 4e6;

typedef void gemm_function(const char *, const char *, const int *, const int *, const int *,
                           const void *, const void *, const int *, const void *, const int *,
                           const void *, void *, const int *, size_t, size_t);
typedef void trsm_function(const char *, const char *, const char *, const char *, const int *,
                           const int *, const void *, const void *, const int *, void *,
                           const int *, size_t, size_t, size_t, size_t);

/* ---- the library ----------------------------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *reference;
static int threads = 1;

static void open_reference(void)
{
    const char *path = getenv("REFERENCE_BLAS"), *count = getenv("REFERENCE_THREADS");
    reference = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (reference == NULL) {
        fprintf(stderr, "reference_sliced: REFERENCE_BLAS is no library\n");
        exit(2);
    }
    if (count != NULL && atoi(count) > 1)
        threads = atoi(count) < MOST_THREADS ? atoi(count) : MOST_THREADS;
}

static void find(const char *name, void *function)
{
    pthread_once(&once, open_reference);
    *(void **)function = dlsym(reference, name);
    if (*(void **)function == NULL) {
        fprintf(stderr, "reference_sliced: there is no %s\n", name);
        exit(2);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

struct block {
    int row, col, rows, cols;
};

/* m x n elements in blocks of at most rows x cols, of which each thread takes the next. */
struct blocks {
    void (*compute)(const void *call, const struct block *block);
    const void *call;
    int m, n, rows, cols;
    atomic_int next;
};

/* For its test: blocks computed so far. */
static atomic_int count_of_blocks;
EXPORT int reference_sliced_blocks(void);
int reference_sliced_blocks(void)
{
    return atomic_load(&count_of_blocks);
}

static int smaller(int x, int y)
{
    return x < y ? x : y;
}

static void *compute_blocks(void *argument)
{
    struct blocks *blocks = argument;
    const int down = (blocks->m + blocks->rows - 1) / blocks->rows;
    const int across = (blocks->n + blocks->cols - 1) / blocks->cols;
    for (int i; (i = atomic_fetch_add(&blocks->next, 1)) < down * across;) {
        struct block block = {.row = i % down * blocks->rows, .col = i / down * blocks->cols};
        block.rows = smaller(blocks->rows, blocks->m - block.row);
        block.cols = smaller(blocks->cols, blocks->n - block.col);
        blocks->compute(blocks->call, &block);
        atomic_fetch_add(&count_of_blocks, 1);
    }
    return NULL;
}

static void compute_all(struct blocks *blocks, double work)
{
    pthread_t thread[MOST_THREADS];
    int started = 0;
    if (work < small) { /* as one */
        blocks->rows = blocks->m;
        blocks->cols = blocks->n;
    } else {
        while (started + 1 < threads &&
               pthread_create(&thread[started], NULL, compute_blocks, blocks) == 0)
            started++;
    }
    compute_blocks(blocks);
    while (started > 0)
        pthread_join(thread[--started], NULL);
}

/* Element (i, j) of an operand, or of its transpose. */
static const char *at(const void *x, int ld, size_t element, bool transposed, int i, int j)
{
    const size_t row = (size_t)(transposed ? j : i), col = (size_t)(transposed ? i : j);
    return (const char *)x + (row + col * (size_t)ld) * element;
}

static bool is_none(const char *trans)
{
    return *trans == 'N' || *trans == 'n';
}

/* ---- C = alpha*op(A)*op(B) + beta*C ---------------------------------------------------------- */

struct gemm {
    gemm_function *function;
    size_t element;
    const char *transa, *transb;
    int k, lda, ldb, ldc;
    const void *alpha, *a, *b, *beta;
    void *c;
};

static void gemm_block(const void *call, const struct block *block)
{
    const struct gemm *g = call;
    const char *a = at(g->a, g->lda, g->element, !is_none(g->transa), block->row, 0);
    const char *b = at(g->b, g->ldb, g->element, !is_none(g->transb), 0, block->col);
    const char *c = at(g->c, g->ldc, g->element, false, block->row, block->col);
    g->function(g->transa, g->transb, &block->rows, &block->cols, &g->k, g->alpha, a, &g->lda, b,
                &g->ldb, g->beta, (char *)c, &g->ldc, 1, 1);
}

static void gemm(const char *name, const struct gemm *call, int m, int n)
{
    struct gemm g = *call;
    find(name, &g.function);
    struct blocks blocks = {gemm_block, &g, m, n, BLOCK_ROWS, BLOCK_COLS, 0};
    if (m <= 0 || n <= 0) /* or an error, that is the library's to report */
        g.function(g.transa, g.transb, &m, &n, &g.k, g.alpha, g.a, &g.lda, g.b, &g.ldb, g.beta, g.c,
                   &g.ldc, 1, 1);
    else
        compute_all(&blocks, (double)m * n * g.k);
}

/* ---- op(A)*X = alpha*B or X*op(A) = alpha*B -------------------------------------------------- */

struct trsm {
    trsm_function *function;
    size_t element;
    const char *side, *uplo, *trans, *diag;
    int lda, ldb;
    const void *alpha, *a;
    void *b;
};

static void trsm_block(const void *call, const struct block *block)
{
    const struct trsm *t = call;
    const char *b = at(t->b, t->ldb, t->element, false, block->row, block->col);
    t->function(t->side, t->uplo, t->trans, t->diag, &block->rows, &block->cols, t->alpha, t->a,
                &t->lda, (char *)b, &t->ldb, 1, 1, 1, 1);
}

/* Whole columns of B with A on the left, whole rows with A on the right. */
static void trsm(const char *name, const struct trsm *call, int m, int n)
{
    struct trsm t = *call;
    find(name, &t.function);
    const bool left = *t.side == 'L' || *t.side == 'l';
    struct blocks blocks = {trsm_block, &t, m, n, left ? m : BLOCK_ROWS, left ? BLOCK_COLS / 8 : n,
                            0};
    if (m <= 0 || n <= 0)
        t.function(t.side, t.uplo, t.trans, t.diag, &m, &n, t.alpha, t.a, &t.lda, t.b, &t.ldb, 1, 1,
                   1, 1);
    else
        compute_all(&blocks, (double)m * n * (left ? m : n));
}

/* ---- names ----------------------------------------------------------------------------------- */

#define GEMM(name, element)                                                                        \
    EXPORT gemm_function name;                                                                     \
    void name(const char *transa, const char *transb, const int *m, const int *n, const int *k,    \
              const void *alpha, const void *a, const int *lda, const void *b, const int *ldb,     \
              const void *beta, void *c, const int *ldc, size_t x, size_t y)                       \
    {                                                                                              \
        (void)x, (void)y;                                                                          \
        const struct gemm call = {NULL, element, transa, transb, *k,   *lda, *ldb,                 \
                                  *ldc, alpha,   a,      b,      beta, c};                         \
        gemm(#name, &call, *m, *n);                                                                \
    }
GEMM(sgemm_, 4)
GEMM(dgemm_, 8)
GEMM(cgemm_, 8)
GEMM(zgemm_, 16)

#define TRSM(name, element)                                                                        \
    EXPORT trsm_function name;                                                                     \
    void name(const char *side, const char *uplo, const char *trans, const char *diag,             \
              const int *m, const int *n, const void *alpha, const void *a, const int *lda,        \
              void *b, const int *ldb, size_t w, size_t x, size_t y, size_t z)                     \
    {                                                                                              \
        (void)w, (void)x, (void)y, (void)z;                                                        \
        const struct trsm call = {                                                                 \
            NULL, element, side, uplo, trans, diag, *lda, *ldb, alpha, a, b};                      \
        trsm(#name, &call, *m, *n);                                                                \
    }
TRSM(strsm_, 4)
TRSM(dtrsm_, 8)
TRSM(ctrsm_, 8)
TRSM(ztrsm_, 16)
