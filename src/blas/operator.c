/* Pieces of columns are converted to double, so that there is one kernel for real and one for
 * complex matrices; sums are taken by pieces and blocks of columns, so that their own errors are
 * far below those that are looked for. SPDX-License-Identifier: BSD-3-Clause */
#include "operator.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- vectors ---- */

/* Arrays of a sample. */
enum { ROOM = 2 * CLB_VECTORS + 1 };

clb_status clb_sample_make(struct clb_sample *sample, size_t n)
{
    *sample = (struct clb_sample){.n = n, .size = calloc(ROOM * n + 1, sizeof(double))};
    if (sample->size == NULL)
        return CLB_ERR_NOMEM;
    for (size_t a = 1; a < ROOM; a++)
        sample->of[a] = sample->size + a * n;
    return CLB_OK;
}

void clb_sample_free(struct clb_sample *sample)
{
    free(sample->size);
    *sample = (struct clb_sample){0};
}

void clb_sample_clear(struct clb_sample *sample, size_t n)
{
    sample->n = n;
    for (size_t a = 0; a < ROOM; a++)
        memset(sample->of[a], 0, n * sizeof(double));
}

void clb_sample_swap(struct clb_sample *sample, const void *ipiv, bool wide, size_t count)
{
    for (size_t a = 0; a < ROOM; a++) {
        double *const x = sample->of[a];
        for (size_t i = 0; i < count; i++) {
            const size_t other = (size_t)clb_integer_get(ipiv, i, wide) - 1;
            const double held = x[i];
            x[i] = x[other];
            x[other] = held;
        }
    }
}

void clb_sample_scale(struct clb_sample *y, double complex alpha)
{
    const double a = creal(alpha), b = cimag(alpha);
    for (size_t i = 0; i < y->n; i++) {
        y->size[i] *= fabs(a) + fabs(b);
        for (size_t r = 0; r < CLB_VECTORS; r++) {
            const double re = y->re[r][i];
            y->re[r][i] = a * re - b * y->im[r][i];
            y->im[r][i] = a * y->im[r][i] + b * re;
        }
    }
}

static void add_to(double *y, double factor, const double *x, size_t n)
{
    CLB_SIMD for (size_t i = 0; i < n; i++) y[i] += factor * x[i];
}

void clb_sample_add(struct clb_sample *y, double sign, const struct clb_sample *z, bool sized)
{
    for (size_t a = sized ? 0 : 1; a < ROOM; a++)
        add_to(y->of[a], a == 0 ? 1 : sign, z->of[a], y->n);
}

/* ---- pieces of columns ---- */

enum { PIECE = 512, BLOCK = 64 };

/* Rows [begin, end) of a stored column. */
struct piece {
    size_t begin, end;
    const double *re, *im; /* im: NULL in real precisions */
    double room[2][PIECE];
};

static bool is_complex(const struct clb_operator *m)
{
    return clb_precision_parts(m->precision) == 2;
}

static bool is_unit(const struct clb_operator *m)
{
    return m->part == 'u' || m->part == 'l';
}

/* `count` elements from number `at` on, in double. */
static void convert(clb_precision precision, const void *data, size_t at, size_t count, double *re,
                    double *im)
{
    const float *s = (const float *)data + at * clb_precision_parts(precision);
    const double *d = (const double *)data + at * clb_precision_parts(precision);
    switch (precision) {
    case CLB_S:
        CLB_SIMD for (size_t i = 0; i < count; i++) re[i] = (double)s[i];
        break;
    case CLB_D:
        memcpy(re, d, count * sizeof *re);
        break;
    case CLB_C:
        CLB_SIMD for (size_t i = 0; i < count; i++) re[i] = (double)s[2 * i];
        CLB_SIMD for (size_t i = 0; i < count; i++) im[i] = (double)s[2 * i + 1];
        break;
    default:
        CLB_SIMD for (size_t i = 0; i < count; i++) re[i] = d[2 * i];
        CLB_SIMD for (size_t i = 0; i < count; i++) im[i] = d[2 * i + 1];
    }
}

/* The same rows of a later column are fetched meanwhile: hardware prefetchers stop at the ends of
 * pages, and a piece is no longer than one. */
static void load(const struct clb_operator *m, size_t col, struct piece *piece)
{
    enum { COLUMNS_AHEAD = 2 };
    const size_t count = piece->end - piece->begin, at = piece->begin + col * m->ld;
    const size_t element = clb_precision_size(m->precision);
    const char *const ahead = (const char *)m->data + (at + COLUMNS_AHEAD * m->ld) * element;
    double *re = piece->room[0], *im = piece->room[1];
    for (size_t i = 0; col + COLUMNS_AHEAD < m->cols && i < count * element; i += 64)
        __builtin_prefetch(ahead + i);
    piece->re = m->precision == CLB_D ? (const double *)m->data + at : re;
    piece->im = is_complex(m) ? im : NULL;
    if (m->precision != CLB_D)
        convert(m->precision, m->data, at, count, re, im);
    if (m->hermitian && piece->im != NULL && col >= piece->begin && col < piece->end)
        im[col - piece->begin] = 0;
}

/* Entries whose vector element is not to be read become zeros. */
static void cut_out(const struct clb_operator *m, const struct clb_sample *x, struct piece *piece)
{
    const size_t count = piece->end - piece->begin;
    if (m->precision == CLB_D)
        memcpy(piece->room[0], piece->re, count * sizeof(double));
    piece->re = piece->room[0];
    for (size_t i = 0; i < count; i++) {
        if (x->size[piece->begin + i] == 0)
            piece->room[0][i] = piece->room[1][i] = 0;
    }
}

/* ---- sums ---- */

/* As the arrays of a sample. */
struct partial_sums {
    double of[ROOM][PIECE];
};
enum { RE = 1, IM = 1 + CLB_VECTORS };

/* Squares are those of scaled elements, which neither overflow nor underflow where it matters. */
static inline double size_of(double x, double size, const bool squares)
{
    const double scaled = fabs(x) * size;
    return squares ? scaled * scaled : scaled;
}

/* sum += |m|*size, or the squares of that. */
static void add_sizes(double *sum, const double *m, double size, size_t count, bool squares)
{
    if (squares) {
        CLB_SIMD for (size_t i = 0; i < count; i++) sum[i] += size_of(m[i], size, true);
    } else {
        CLB_SIMD for (size_t i = 0; i < count; i++) sum[i] += size_of(m[i], size, false);
    }
}

/* sum(r) += x(r)*m, for all vectors at once: m is loaded once. */
static void add_each(double (*sum)[PIECE], size_t at, const double *m, const double x[CLB_VECTORS],
                     size_t count)
{
    double *a = sum[0] + at, *b = sum[1] + at, *c = sum[2] + at;
    CLB_SIMD for (size_t i = 0; i < count; i++)
    {
        a[i] += m[i] * x[0];
        b[i] += m[i] * x[1];
        c[i] += m[i] * x[2];
    }
}

/* sum(r)[at] += sign times the inner product of m and x(r). */
static void dot_each(double *const sum[CLB_VECTORS], size_t at, double sign, const double *m,
                     double *const x[CLB_VECTORS], size_t begin, size_t count)
{
    const double *u = x[0] + begin, *v = x[1] + begin, *w = x[2] + begin;
    double a = 0, b = 0, c = 0;
#pragma omp simd reduction(+ : a, b, c)
    for (size_t i = 0; i < count; i++) {
        a += m[i] * u[i];
        b += m[i] * v[i];
        c += m[i] * w[i];
    }
    sum[0][at] += sign * a;
    sum[1][at] += sign * b;
    sum[2][at] += sign * c;
}

/* The sum of x*y, or of sizes, as two sums, whose additions need not wait for one another. */
enum terms { PRODUCTS, SIZES, SQUARES };
static inline double term_of(double x, double y, const enum terms terms)
{
    return terms == PRODUCTS ? x * y : size_of(x, y, terms == SQUARES);
}

static inline double sum_of(const double *x, const double *y, size_t count, const enum terms terms)
{
    const size_t half = count / 2;
    double a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
    for (size_t i = 0; i < half; i++) {
        a += term_of(x[i], y[i], terms);
        b += term_of(x[i + half], y[i + half], terms);
    }
    return a + b + (count > 2 * half ? term_of(x[count - 1], y[count - 1], terms) : 0);
}

static double dot(const double *x, const double *y, size_t count)
{
    return sum_of(x, y, count, PRODUCTS);
}

static double sizes_of(const double *x, const double *size, size_t count, bool squares)
{
    return squares ? sum_of(x, size, count, SQUARES) : sum_of(x, size, count, SIZES);
}

/* ---- passes ---- */

/* y = M*x, or the largest magnitudes of M's columns. Threads take tiles, with sums of their own. */
struct pass {
    const struct clb_operator *m;
    const struct clb_sample *x;       /* NULL: magnitudes, */
    const struct clb_sample *factor;  /* as in clb_operator_columns */
    bool first, holes;                /* holes: some of x are not to be read */
    size_t only;                      /* column that counts, of the matrix as it is applied */
    const struct clb_operator *outer; /* as in clb_operator_triangle */
    bool upper;
    size_t tiles_down;
    struct clb_sample *sums; /* of each thread; magnitudes: the sizes */
};

/* Rows of a tile. */
enum { TILE = 8 * PIECE };

/* Real and imaginary parts of M and of x, 0 and 1, are multiplied each with each: which sums a
 * product belongs to, and its sign; `sign` is of M's imaginary part. A first pass has real x. */
static size_t sums_of(int part, int part_of_x)
{
    return part == part_of_x ? RE : IM;
}

static double sign_of(int part, int part_of_x, double sign)
{
    return part == 0 ? 1 : part_of_x == 0 ? sign : -sign;
}

static void add_column(const struct pass *pass, size_t col, size_t row, struct partial_sums *sums,
                       const struct piece *piece)
{
    const struct clb_operator *m = pass->m;
    /* The stored triangle of a mirrored matrix that is transposed is the other one. */
    const double sign = m->conjugated != (m->hermitian && m->transposed) ? -1 : 1;
    const size_t at = piece->begin - row, count = piece->end - piece->begin;
    const int parts = piece->im != NULL ? 2 : 1;
    if (pass->first && pass->x->size[col] == 0)
        return;
    for (int part = 0; part < parts; part++) {
        const double *const values = part == 0 ? piece->re : piece->im;
        for (int of_x = 0; of_x < (pass->first ? 1 : parts); of_x++) {
            double x[CLB_VECTORS];
            for (size_t r = 0; r < CLB_VECTORS; r++)
                x[r] = sign_of(part, of_x, sign) * pass->x->of[sums_of(of_x, 0) + r][col];
            add_each(sums->of + sums_of(part, of_x), at, values, x, count);
        }
        add_sizes(sums->of[0] + at, values, pass->x->size[col], count, pass->first);
    }
}

static void add_row(const struct pass *pass, size_t col, struct clb_sample *y, struct piece *piece)
{
    const struct clb_operator *m = pass->m;
    const struct clb_sample *x = pass->x;
    const double sign = m->conjugated != (m->hermitian && !m->transposed) ? -1 : 1;
    const int parts = piece->im != NULL ? 2 : 1;
    size_t begin = piece->begin, end = piece->end;
    if (m->mirrored) { /* the diagonal is added with the column */
        begin += m->part == 'L' && begin == col;
        end -= m->part == 'U' && end == col + 1;
    }
    if (pass->holes)
        cut_out(m, x, piece);
    for (int part = 0; part < parts; part++) {
        const double *values = (part == 0 ? piece->re : piece->im) + (begin - piece->begin);
        for (int of_x = 0; of_x < (pass->first ? 1 : parts); of_x++)
            dot_each(y->of + sums_of(part, of_x), col, sign_of(part, of_x, sign), values,
                     x->of + sums_of(of_x, 0), begin, end - begin);
        y->size[col] += sizes_of(values, x->size + begin, end - begin, pass->first);
    }
}

/* Raise most[i] to |re| + |im|. */
static void raise_each(double *most, const double *re, const double *im, size_t count)
{
    CLB_SIMD for (size_t i = 0; i < count; i++)
    {
        const double size = clb_magnitude(re[i], im[i]);
        most[i] = size > most[i] ? size : most[i];
    }
}

static void note_magnitudes(const struct pass *pass, size_t col, double *largest,
                            struct piece *piece)
{
    static const double zeros[PIECE];
    const size_t count = piece->end - piece->begin;
    const double *const re = piece->re, *const im = piece->im != NULL ? piece->im : zeros;
    enum { LANES = 32 };
    double most[LANES] = {0};
    if (pass->m->transposed) {
        raise_each(largest + piece->begin, re, im, count);
        return;
    }
    if (pass->factor != NULL && piece->im != NULL) {
        const double a = pass->factor->re[0][col], b = pass->factor->im[0][col];
        CLB_SIMD for (size_t i = 0; i < count; i++)
        {
            const double x = piece->room[0][i], y = piece->room[1][i];
            piece->room[0][i] = x * a - y * b;
            piece->room[1][i] = x * b + y * a;
        }
    }
    for (size_t i = 0; i < count; i += LANES)
        raise_each(most, re + i, im + i, clb_min(LANES, count - i));
    for (size_t i = 0; i < LANES; i++)
        largest[col] = fmax(largest[col], most[i]);
}

static void visit_tile(const struct pass *pass, struct clb_sample *y, size_t tile)
{
    const struct clb_operator *m = pass->m;
    const bool columns = !m->transposed || m->mirrored, rows = m->transposed || m->mirrored;
    size_t first = tile / pass->tiles_down * BLOCK, top = tile % pass->tiles_down * TILE;
    size_t last = clb_min(m->cols, first + BLOCK), bottom = clb_min(m->rows, top + TILE);
    if (pass->only != CLB_EVERY) {
        size_t *const begin = m->transposed ? &top : &first;
        size_t *const end = m->transposed ? &bottom : &last;
        *begin = clb_max(*begin, pass->only);
        *end = clb_min(*end, pass->only + 1);
    }
    struct partial_sums sums;
    struct piece piece;
    const size_t arrays = pass->x == NULL || !columns ? 0 : is_complex(m) ? ROOM : IM;
    for (size_t row = top; row < bottom && first < last; row += PIECE) {
        const size_t behind = clb_min(bottom, row + PIECE);
        for (size_t a = 0; a < arrays; a++)
            memset(sums.of[a], 0, (behind - row) * sizeof(double));
        for (size_t col = first; col < last; col++) {
            clb_part_rows(m->part, m->rows, col, &piece.begin, &piece.end);
            piece.begin = clb_max(piece.begin, row);
            piece.end = clb_min(piece.end, behind);
            if (piece.begin >= piece.end)
                continue;
            load(m, col, &piece);
            if (pass->x == NULL)
                note_magnitudes(pass, col, y->size, &piece);
            if (arrays > 0)
                add_column(pass, col, row, &sums, &piece);
            if (pass->x != NULL && rows)
                add_row(pass, col, y, &piece);
        }
        for (size_t a = 0; a < arrays; a++)
            add_to(y->of[a] + row, 1, sums.of[a], behind - row);
    }
}

/* `count` elements of a row or column of a general matrix as it is applied. */
static void load_line(const struct clb_operator *m, bool row, size_t line, size_t begin,
                      size_t count, double *re, double *im)
{
    const bool contiguous = row == m->transposed;
    const size_t at = contiguous ? begin + line * m->ld : line + begin * m->ld;
    if (contiguous)
        convert(m->precision, m->data, at, count, re, im);
    for (size_t i = 0; i < count && !contiguous; i++)
        convert(m->precision, m->data, at + i * m->ld, 1, re + i, im + i);
    for (size_t i = 0; i < count && m->conjugated && is_complex(m); i++)
        im[i] = -im[i];
}

/* Lines across the storage stay in the cache for the next ones. */
enum { DEPTHS = PIECE / 2 };

/* Of some depths of the product: x times the columns of `inner` is summed from the triangle's tip
 * on, and each row of `outer` is multiplied with the sum so far. */
static void visit_depths(const struct pass *pass, struct clb_sample *y, size_t tile)
{
    const struct clb_sample *x = pass->x;
    const size_t n = x->n, k = clb_operator_rows(pass->m), begin = tile * DEPTHS;
    const size_t count = clb_min(DEPTHS, k - begin);
    const int parts = is_complex(pass->m) ? 2 : 1;
    double sum[ROOM][PIECE] = {{0}}, line[2][DEPTHS], norms[DEPTHS], *of[ROOM];
    for (size_t a = 0; a < ROOM; a++)
        of[a] = sum[a];
    for (size_t step = 0; step < n; step++) {
        const size_t i = pass->upper ? n - 1 - step : step;
        const double signs[CLB_VECTORS] = {x->re[0][i], x->re[1][i], x->re[2][i]};
        if (x->size[i] != 0)
            load_line(pass->m, false, i, begin, count, line[0], line[1]);
        for (int part = 0; part < parts && x->size[i] != 0; part++) {
            add_each(sum + sums_of(part, 0), 0, line[part], signs, count);
            add_sizes(sum[0], line[part], x->size[i], count, true);
        }
        double all = 0;
        for (size_t p = 0; p < count; p++) {
            norms[p] = sqrt(sum[0][p] + (double)n * DBL_MIN) + x->least * x->norm;
            all += norms[p] + x->norm;
        }
        load_line(pass->outer, true, i, begin, count, line[0], line[1]);
        for (int part = 0; part < parts; part++) {
            for (int of_x = 0; of_x < parts; of_x++)
                dot_each(y->of + sums_of(part, of_x), i, sign_of(part, of_x, 1), line[part],
                         of + sums_of(of_x, 0), 0, count);
            y->size[i] += sizes_of(line[part], norms, count, false);
        }
        y->size[i] += x->least * all;
    }
}

static void visit_tiles(void *context, size_t thread, size_t begin, size_t end)
{
    const struct pass *pass = context;
    for (size_t tile = begin; tile < end; tile++) {
        if (pass->outer != NULL)
            visit_depths(pass, &pass->sums[thread], tile);
        else
            visit_tile(pass, &pass->sums[thread], tile);
    }
}

/* A share has at least so many bytes of the matrix, and four times as many as its own sums. */
#define LEAST_SHARE ((size_t)2 << 20)

/* Add the pass's sums to y, or find larger magnitudes than those in y's sizes. */
static void run_pass(struct pass *pass, struct clb_sample *y)
{
    struct clb_sample sums[CLB_MAX_WORKERS + 1] = {*y};
    size_t count = 1;
    pass->sums = sums;
    pass->tiles_down = clb_max(clb_div_up(pass->m->rows, TILE), 1);
    const size_t tiles = pass->outer != NULL ? clb_div_up(clb_operator_rows(pass->m), DEPTHS)
                                             : pass->tiles_down * clb_div_up(pass->m->cols, BLOCK);
    const size_t bytes = pass->m->rows * pass->m->cols * clb_precision_size(pass->m->precision);
    const size_t share = clb_max(LEAST_SHARE, 4 * ROOM * y->n * sizeof(double));
    const size_t most = clb_min(clb_min(clb_max(bytes / share, 1), tiles), CLB_MAX_WORKERS + 1);
    while (count < most && clb_sample_make(&sums[count], y->n) == CLB_OK)
        count++;
    clb_workers_share(tiles, 1, count, visit_tiles, pass);
    for (size_t i = 1; i < count; i++) {
        if (pass->x != NULL)
            clb_sample_add(y, 1, &sums[i], true);
        for (size_t j = 0; pass->x == NULL && j < y->n; j++)
            y->size[j] = fmax(y->size[j], sums[i].size[j]);
        clb_sample_free(&sums[i]);
    }
}

void clb_operator_columns(const struct clb_operator *m, size_t only,
                          const struct clb_sample *factor, double *largest)
{
    struct clb_sample y = {.n = clb_operator_cols(m), .size = largest};
    struct pass pass = {.m = m, .factor = factor, .only = only};
    for (size_t i = 0; i < y.n; i++)
        largest[i] = is_unit(m) ? 1 : 0;
    run_pass(&pass, &y);
}

void clb_operator_apply(const struct clb_operator *m, const struct clb_sample *x,
                        struct clb_sample *y, bool first)
{
    struct pass pass = {.m = m, .x = x, .first = first, .only = CLB_EVERY};
    double total = 0;
    clb_sample_clear(y, clb_operator_rows(m));
    y->norm = x->norm;
    y->least = x->least;
    size_t read = 0, last = 0;
    for (size_t i = 0; i < x->n; i++) {
        last = x->size[i] != 0 ? i : last;
        read += x->size[i] != 0;
        total += x->size[i];
    }
    pass.holes = first && read < x->n;
    if (first && read == 1 && !m->mirrored)
        pass.only = last;
    run_pass(&pass, y);
    const size_t ones = is_unit(m) ? clb_min(m->rows, m->cols) : 0;
    for (size_t r = 0; r < CLB_VECTORS; r++) {
        add_to(y->re[r], 1, x->re[r], ones);
        add_to(y->im[r], 1, x->im[r], ones);
    }
    for (size_t i = 0; i < ones; i++)
        y->size[i] += first ? x->size[i] * x->size[i] : x->size[i];
    /* Squares may underflow. Subnormal products and operands may be taken for zero. */
    const double lost = (double)x->n * DBL_MIN;
    for (size_t i = 0; i < y->n; i++)
        y->size[i] = (first ? sqrt(y->size[i] + lost) : y->size[i] + y->least * total) +
                     y->least * (double)(first ? 1 : x->n) * y->norm;
}

void clb_operator_triangle(const struct clb_operator *outer, const struct clb_operator *inner,
                           bool upper, const struct clb_sample *x, struct clb_sample *y)
{
    struct pass pass = {
        .m = inner, .x = x, .first = true, .only = CLB_EVERY, .outer = outer, .upper = upper};
    clb_sample_clear(y, x->n);
    y->norm = x->norm;
    y->least = x->least;
    run_pass(&pass, y);
}

/* ---- elements ---- */

double complex clb_operator_get(const struct clb_operator *m, size_t i, size_t j)
{
    const size_t row = m->transposed ? j : i, col = m->transposed ? i : j;
    size_t begin, end;
    double re = is_unit(m) && row == col, im = 0;
    clb_part_rows(m->part, m->rows, col, &begin, &end);
    if (row >= begin && row < end)
        convert(m->precision, m->data, row + col * m->ld, 1, &re, &im);
    return __builtin_complex(re, m->conjugated ? -im : im);
}

double clb_operator_solve(const struct clb_operator *m, double *re, double *im, double smallest)
{
    const size_t n = m->rows;
    const bool forward = (m->part == 'L' || m->part == 'l') != m->transposed;
    double most = 0;
    for (size_t step = 0; step < n; step++) {
        const size_t i = forward ? step : n - 1 - step;
        const double complex pivot = clb_operator_get(m, i, i);
        const double pivot_size = clb_magnitude(creal(pivot), cimag(pivot));
        double complex x = __builtin_complex(re[i], im[i]);
        double size = clb_magnitude(re[i], im[i]);
        for (size_t j = forward ? 0 : i + 1; j < (forward ? i : n); j++) {
            const double complex t = clb_operator_get(m, i, j);
            x -= t * __builtin_complex(re[j], im[j]);
            size += clb_magnitude(creal(t), cimag(t)) * clb_magnitude(re[j], im[j]);
        }
        if (!(pivot_size >= smallest && pivot_size <= DBL_MAX))
            return INFINITY;
        x /= pivot;
        re[i] = creal(x);
        im[i] = cimag(x);
        size = fmax(size, clb_magnitude(re[i], im[i]));
        if (!(size <= DBL_MAX))
            return INFINITY;
        most = fmax(most, size);
    }
    return most;
}

/* ---- reflectors ---- */

/* Reflectors are applied one after the other, so threads take a vector each, and one looks whether
 * they are unitary. */
struct reflection {
    const struct clb_stored_q *q;
    bool adjoint;
    struct clb_sample *y;
    atomic_bool not_unitary, no_memory;
};

/* y = H*y with the elements behind the first of v and of y. */
static void reflect(const double *v_re, const double *v_im, size_t count, const double tau[2],
                    double *re, double *im)
{
    double w[2] = {re[0] + dot(v_re, re + 1, count), im[0]};
    if (v_im != NULL) {
        w[0] += dot(v_im, im + 1, count);
        w[1] += dot(v_re, im + 1, count) - dot(v_im, re + 1, count);
    }
    const double x[2] = {-(tau[0] * w[0] - tau[1] * w[1]), -(tau[0] * w[1] + tau[1] * w[0])};
    re[0] += x[0];
    im[0] += x[1];
    add_to(re + 1, x[0], v_re, count);
    if (v_im != NULL) {
        add_to(re + 1, -x[1], v_im, count);
        add_to(im + 1, x[1], v_re, count);
        add_to(im + 1, x[0], v_im, count);
    }
}

/* |tau|^2 |v|^2 = 2 Re(tau). */
static bool is_unitary(const double tau[2], const double *v_re, const double *v_im, size_t count)
{
    const double norm = 1 + dot(v_re, v_re, count) + (v_im != NULL ? dot(v_im, v_im, count) : 0);
    const double square = (tau[0] * tau[0] + tau[1] * tau[1]) * norm;
    return norm <= DBL_MAX && fabs(square - 2 * tau[0]) <= 1e-3 * (square + fabs(tau[0]));
}

static bool reflect_all(const struct reflection *reflection, size_t r, double *room)
{
    const struct clb_sample *y = reflection->y;
    const struct clb_stored_q *q = reflection->q;
    const struct clb_operator *m = &q->m;
    const size_t order = clb_operator_rows(m);
    double *const v_im = is_complex(m) ? room + order : NULL;
    const bool in_place = !m->transposed && m->precision == CLB_D;
    bool unitary = true;
    for (size_t step = 0; step < q->count; step++) {
        const size_t j = reflection->adjoint ? step : q->count - 1 - step, count = order - j - 1;
        const double *v = in_place ? (const double *)m->data + j + 1 + j * m->ld : room;
        double tau[2] = {0};
        convert(m->precision, q->tau, j, 1, &tau[0], &tau[1]);
        tau[1] = reflection->adjoint ? -tau[1] : tau[1];
        if (!in_place)
            load_line(m, false, j, j + 1, count, room, v_im);
        if (r < CLB_VECTORS)
            reflect(v, v_im, count, tau, y->re[r] + j, y->im[r] + j);
        else
            unitary = unitary && is_unitary(tau, v, v_im, count);
    }
    return unitary;
}

static void reflect_vector(void *context, size_t thread, size_t r, size_t end)
{
    struct reflection *reflection = context;
    const struct clb_operator *m = &reflection->q->m;
    double *room = malloc((2 * clb_operator_rows(m) + 1) * sizeof *room);
    (void)thread;
    (void)end;
    if (room == NULL)
        atomic_store(&reflection->no_memory, true);
    else if (!reflect_all(reflection, r, room))
        atomic_store(&reflection->not_unitary, true);
    free(room);
}

clb_status clb_stored_q_apply(const struct clb_stored_q *q, bool adjoint, struct clb_sample *y,
                              bool *unitary)
{
    struct reflection reflection = {.q = q, .adjoint = adjoint, .y = y};
    const size_t bytes = y->n * q->count * clb_precision_size(q->m.precision);
    clb_workers_share(CLB_VECTORS + 1, 1, bytes < LEAST_SHARE ? 1 : CLB_VECTORS + 1, reflect_vector,
                      &reflection);
    *unitary = !atomic_load(&reflection.not_unitary);
    return atomic_load(&reflection.no_memory) ? CLB_ERR_NOMEM : CLB_OK;
}
