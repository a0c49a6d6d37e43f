/* Matrices applied to a vector. A column's pieces are converted to double, so that there is one
 * kernel for real and one for complex matrices; sums are taken by pieces and blocks of columns, so
 * that their own errors are far below those that are looked for. */
#include "operator.h"
#include "routines.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 512, BLOCK = 64 };

/* ---- vectors --------------------------------------------------------------------------------- */

clb_status clb_sample_make(struct clb_sample *sample, size_t n)
{
    *sample = (struct clb_sample){.n = n, .re = calloc(3 * n + 1, sizeof(double))};
    if (sample->re == NULL)
        return CLB_ERR_NOMEM;
    sample->im = sample->re + n;
    sample->size = sample->im + n;
    return CLB_OK;
}

void clb_sample_free(struct clb_sample *sample)
{
    free(sample->re);
    *sample = (struct clb_sample){0};
}

static void swap(double *x, size_t i, size_t j)
{
    const double held = x[i];
    x[i] = x[j];
    x[j] = held;
}

void clb_sample_swap(struct clb_sample *sample, const void *ipiv, bool wide, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const size_t other = (size_t)clb_integer_get(ipiv, i, wide) - 1;
        swap(sample->re, i, other);
        swap(sample->im, i, other);
        swap(sample->size, i, other);
    }
}

/* ---- pieces of columns ----------------------------------------------------------------------- */

/* Rows [begin, end) of a stored column. */
struct piece {
    size_t begin, end;
    const double *re, *im; /* im: NULL in real precisions */
    double room[2][PIECE];
};

static bool is_unit(const struct clb_operator *m)
{
    return m->part == 'u' || m->part == 'l';
}

/* The stored rows of a column, without the ones of unit triangles. */
static void rows_of(const struct clb_operator *m, size_t col, size_t *begin, size_t *end)
{
    *begin = 0;
    *end = m->rows;
    if (m->part == 'U' || m->part == 'u')
        *end = clb_min(m->rows, col + (m->part == 'U'));
    if (m->part == 'L' || m->part == 'l')
        *begin = clb_min(m->rows, col + (m->part == 'l'));
}

static void load(const struct clb_operator *m, size_t col, struct piece *piece)
{
    const size_t count = piece->end - piece->begin, at = piece->begin + col * m->ld;
    const float *s = (const float *)m->data;
    const double *d = (const double *)m->data;
    double *re = piece->room[0], *im = piece->room[1];
    piece->re = re;
    piece->im = clb_precision_parts(m->precision) == 2 ? im : NULL;
    switch (m->precision) {
    case CLB_S:
        CLB_SIMD for (size_t i = 0; i < count; i++) re[i] = s[at + i];
        break;
    case CLB_D:
        piece->re = d + at;
        break;
    case CLB_C:
        for (size_t i = 0; i < count; i++) {
            re[i] = s[2 * (at + i)];
            im[i] = s[2 * (at + i) + 1];
        }
        break;
    default:
        for (size_t i = 0; i < count; i++) {
            re[i] = d[2 * (at + i)];
            im[i] = d[2 * (at + i) + 1];
        }
    }
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

/* ---- sums ------------------------------------------------------------------------------------ */

struct partial_sums {
    double re[PIECE], im[PIECE], size[PIECE];
};

/* sums += piece * x(j), for the piece's rows from `at` on. Squares are those of scaled elements,
 * which neither overflow nor underflow where it matters. */
static inline void add_real(struct partial_sums *sums, size_t at, const struct piece *piece,
                            double x, double size, const bool squares)
{
    const double *re = piece->re;
    double *sum = sums->re + at, *total = sums->size + at;
    const size_t count = piece->end - piece->begin;
    CLB_SIMD
    for (size_t i = 0; i < count; i++) {
        const double scaled = fabs(re[i]) * size;
        sum[i] += re[i] * x;
        total[i] += squares ? scaled * scaled : scaled;
    }
}

static inline void add_complex(struct partial_sums *sums, size_t at, const struct piece *piece,
                               const double x[2], double sign, double size, const bool squares)
{
    const double *re = piece->re, *im = piece->im;
    double *sum = sums->re + at, *other = sums->im + at, *total = sums->size + at;
    const size_t count = piece->end - piece->begin;
    CLB_SIMD
    for (size_t i = 0; i < count; i++) {
        const double a = fabs(re[i]) * size, b = fabs(im[i]) * size;
        sum[i] += re[i] * x[0] - sign * im[i] * x[1];
        other[i] += re[i] * x[1] + sign * im[i] * x[0];
        total[i] += squares ? a * a + b * b : a + b;
    }
}

/* The piece's sum with x from row `begin` to `end`. */
static inline void dot(const struct piece *piece, size_t begin, size_t end,
                       const struct clb_sample *x, double sign, const bool squares, double sum[3])
{
    const double *re = piece->re - piece->begin;
    const double *im = piece->im != NULL ? piece->im - piece->begin : NULL;
    double a = 0, b = 0, s = 0;
    if (im == NULL) {
#pragma omp simd reduction(+ : a, b, s)
        for (size_t i = begin; i < end; i++) {
            const double scaled = fabs(re[i]) * x->size[i];
            a += re[i] * x->re[i];
            b += re[i] * x->im[i];
            s += squares ? scaled * scaled : scaled;
        }
    } else {
#pragma omp simd reduction(+ : a, b, s)
        for (size_t i = begin; i < end; i++) {
            const double c = fabs(re[i]) * x->size[i], d = fabs(im[i]) * x->size[i];
            a += re[i] * x->re[i] - sign * im[i] * x->im[i];
            b += re[i] * x->im[i] + sign * im[i] * x->re[i];
            s += squares ? c * c + d * d : c + d;
        }
    }
    sum[0] += a;
    sum[1] += b;
    sum[2] += s;
}

/* ---- products -------------------------------------------------------------------------------- */

struct application {
    const struct clb_operator *m;
    const struct clb_sample *x;
    struct clb_sample *y;
    bool first, holes; /* holes: some of x are not to be read */
};

static void add_column(const struct application *a, size_t col, size_t row,
                       struct partial_sums *sums, struct piece *piece)
{
    const struct clb_operator *m = a->m;
    const double x[2] = {a->x->re[col], a->x->im[col]};
    /* The stored triangle of a mirrored matrix that is transposed is the other one. */
    const bool conjugated = m->conjugated != (m->hermitian && m->transposed);
    const double sign = conjugated ? -1 : 1, size = a->x->size[col];
    if (a->first && size == 0)
        return;
    if (piece->im == NULL && a->first)
        add_real(sums, piece->begin - row, piece, x[0], size, true);
    else if (piece->im == NULL)
        add_real(sums, piece->begin - row, piece, x[0], size, false);
    else if (a->first)
        add_complex(sums, piece->begin - row, piece, x, sign, size, true);
    else
        add_complex(sums, piece->begin - row, piece, x, sign, size, false);
}

static void add_row(const struct application *a, size_t col, struct piece *piece)
{
    const struct clb_operator *m = a->m;
    const bool conjugated = m->conjugated != (m->hermitian && !m->transposed);
    const double sign = conjugated ? -1 : 1;
    double sum[3] = {0};
    size_t begin = piece->begin, end = piece->end;
    if (m->mirrored) { /* the diagonal is added with the column */
        begin += m->part == 'L' && begin == col;
        end -= m->part == 'U' && end == col + 1;
    }
    if (a->holes)
        cut_out(m, a->x, piece);
    if (a->first)
        dot(piece, begin, end, a->x, sign, true, sum);
    else
        dot(piece, begin, end, a->x, sign, false, sum);
    a->y->re[col] += sum[0];
    a->y->im[col] += sum[1];
    a->y->size[col] += sum[2];
}

static void add_sums(struct clb_sample *y, size_t row, size_t rows, struct partial_sums *sums)
{
    for (size_t i = 0; i < rows; i++) {
        y->re[row + i] += sums->re[i];
        y->im[row + i] += sums->im[i];
        y->size[row + i] += sums->size[i];
    }
    memset(sums, 0, sizeof *sums);
}

/* The stored rows of every `step`-th piece, from the given one on. */
static void add_pieces(const struct application *a, size_t first, size_t step)
{
    const struct clb_operator *m = a->m;
    const bool columns = !m->transposed || m->mirrored, rows = m->transposed || m->mirrored;
    struct partial_sums sums;
    struct piece piece;
    memset(&sums, 0, sizeof sums);
    for (size_t row = first * PIECE; row < m->rows; row += step * PIECE) {
        const size_t behind = clb_min(m->rows, row + PIECE);
        for (size_t col = 0; col < m->cols; col++) {
            rows_of(m, col, &piece.begin, &piece.end);
            piece.begin = clb_max(piece.begin, row);
            piece.end = clb_min(piece.end, behind);
            if (piece.begin < piece.end) {
                load(m, col, &piece);
                if (columns)
                    add_column(a, col, row, &sums, &piece);
                if (rows)
                    add_row(a, col, &piece);
            }
            if (columns && (col % BLOCK == BLOCK - 1 || col + 1 == m->cols))
                add_sums(a->y, row, behind - row, &sums);
        }
    }
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* Large matrices are shared out between the calling thread and worker threads that are free. */
enum { SHARES = 8 };
#define SHARE_BYTES ((size_t)8 << 20)

struct share {
    size_t index, count;
    struct application application;
    struct clb_sample sums; /* of all but the first */
    double *largest;
};

/* The number of shares; `team` has a thread for each but the first. */
static size_t lend_workers(struct clb_workers *team, const struct clb_operator *m, size_t most)
{
    const size_t bytes = m->rows * m->cols * clb_precision_size(m->precision);
    const size_t shares = clb_min(clb_min(bytes / SHARE_BYTES, most), SHARES);
    clb_workers_lend(team, shares > 1 ? shares - 1 : 0, false);
    return team->count + 1;
}

static void run_shares(struct clb_workers *team, void (*run)(void *), struct share *share,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        share[i].index = i;
        share[i].count = count;
        if (i > 0)
            clb_workers_start(team, i - 1, run, &share[i]);
    }
    run(&share[0]);
    clb_workers_return(team);
}

static void add_share(void *argument)
{
    const struct share *share = argument;
    add_pieces(&share->application, share->index, share->count);
}

/* The sums of each share are added in the order of shares. */
static void add_stored(const struct application *a)
{
    struct share share[SHARES];
    struct clb_workers team;
    struct clb_sample *y = a->y;
    size_t count = lend_workers(&team, a->m, clb_div_up(a->m->rows, PIECE));
    share[0].application = *a;
    for (size_t i = 1; i < count; i++) {
        share[i].application = *a;
        share[i].application.y = &share[i].sums;
        if (clb_sample_make(&share[i].sums, y->n) != CLB_OK)
            count = i;
    }
    run_shares(&team, add_share, share, count);
    for (size_t i = 1; i < count; i++) {
        const struct clb_sample *sums = &share[i].sums;
        for (size_t j = 0; j < y->n; j++) {
            y->re[j] += sums->re[j];
            y->im[j] += sums->im[j];
            y->size[j] += sums->size[j];
        }
        clb_sample_free(&share[i].sums);
    }
}

void clb_operator_apply(const struct clb_operator *m, const struct clb_sample *x,
                        struct clb_sample *y, bool first)
{
    struct application a = {.m = m, .x = x, .y = y, .first = first};
    double total = 0;
    memset(y->re, 0, y->n * sizeof(double));
    memset(y->im, 0, y->n * sizeof(double));
    memset(y->size, 0, y->n * sizeof(double));
    y->norm = x->norm;
    y->least = x->least;
    for (size_t i = 0; i < x->n; i++) {
        a.holes = a.holes || (first && x->size[i] == 0);
        total += x->size[i];
    }
    add_stored(&a);
    for (size_t i = 0; is_unit(m) && i < clb_min(m->rows, m->cols); i++) {
        y->re[i] += x->re[i];
        y->im[i] += x->im[i];
        y->size[i] += first ? x->size[i] * x->size[i] : x->size[i];
    }
    /* Squares may underflow. A product or an operand that is below the smallest normal number may
     * be taken for zero. */
    const double lost = (double)x->n * DBL_MIN;
    for (size_t i = 0; i < y->n; i++)
        y->size[i] = (first ? sqrt(y->size[i] + lost) : y->size[i] + y->least * total) +
                     y->least * (double)(first ? 1 : x->n) * y->norm;
}

/* |re| + |im| as bits, which are ordered as the numbers are, with infinity and NaN above all. */
static inline int64_t magnitude(const struct piece *piece, size_t i)
{
    const double size = fabs(piece->re[i]) + (piece->im != NULL ? fabs(piece->im[i]) : 0);
    int64_t bits;
    memcpy(&bits, &size, sizeof bits);
    return bits & INT64_MAX;
}

static double size_of(int64_t magnitude)
{
    double size;
    memcpy(&size, &magnitude, sizeof size);
    return size <= DBL_MAX ? size : INFINITY;
}

/* A share of the columns of the matrix as it is applied. */
static void find_largest(void *argument)
{
    const struct share *share = argument;
    const struct clb_operator *m = share->application.m;
    const size_t cols = clb_operator_cols(m), first = cols * share->index / share->count,
                 last = cols * (share->index + 1) / share->count;
    double *largest = share->largest;
    struct piece piece;
    for (size_t col = m->transposed ? 0 : first; col < (m->transposed ? m->cols : last); col++) {
        size_t begin, end;
        rows_of(m, col, &begin, &end);
        if (m->transposed) {
            begin = clb_max(begin, first);
            end = clb_min(end, last);
        }
        for (size_t row = begin; row < end; row += PIECE) {
            piece.begin = row;
            piece.end = clb_min(end, row + PIECE);
            load(m, col, &piece);
            if (m->transposed) {
                for (size_t i = 0; i < piece.end - row; i++)
                    largest[row + i] = fmax(largest[row + i], size_of(magnitude(&piece, i)));
                continue;
            }
            int64_t most = 0;
#pragma omp simd reduction(max : most)
            for (size_t i = 0; i < piece.end - row; i++) {
                const int64_t bits = magnitude(&piece, i);
                most = bits > most ? bits : most;
            }
            largest[col] = fmax(largest[col], size_of(most));
        }
    }
}

void clb_operator_columns(const struct clb_operator *m, double *largest)
{
    struct share share[SHARES];
    struct clb_workers team;
    const size_t count = lend_workers(&team, m, clb_operator_cols(m));
    for (size_t i = 0; i < clb_operator_cols(m); i++)
        largest[i] = is_unit(m) ? 1 : 0;
    for (size_t i = 0; i < count; i++)
        share[i] = (struct share){.application = {.m = m}, .largest = largest};
    run_shares(&team, find_largest, share, count);
}

/* ---- elements -------------------------------------------------------------------------------- */

void clb_operator_get(const struct clb_operator *m, size_t i, size_t j, double value[2])
{
    const size_t row = m->transposed ? j : i, col = m->transposed ? i : j;
    size_t begin, end;
    rows_of(m, col, &begin, &end);
    value[0] = is_unit(m) && row == col;
    value[1] = 0;
    if (row < begin || row >= end)
        return;
    const clb_scalar at = clb_scalar_get(
        m->precision, false,
        (const char *)m->data + (row + col * m->ld) * clb_precision_size(m->precision));
    const bool single = clb_precision_real_size(m->precision) == sizeof(float);
    value[0] = single ? (double)at.s[0] : at.d[0];
    value[1] = single ? (double)at.s[1] : at.d[1];
    if (m->conjugated)
        value[1] = -value[1];
}

static void divide(double *re, double *im, const double by[2])
{
    const double size = fabs(by[0]) + fabs(by[1]);
    const double a = by[0] / size, b = by[1] / size, both = a * a + b * b;
    const double x = *re / size, y = *im / size;
    *re = (x * a + y * b) / both;
    *im = (y * a - x * b) / both;
}

double clb_operator_solve(const struct clb_operator *m, double *re, double *im, double smallest)
{
    const size_t n = m->rows;
    const bool forward = (m->part == 'L' || m->part == 'l') != m->transposed;
    double most = 0;
    for (size_t step = 0; step < n; step++) {
        const size_t i = forward ? step : n - 1 - step;
        double t[2], size = fabs(re[i]) + fabs(im[i]);
        for (size_t j = forward ? 0 : i + 1; j < (forward ? i : n); j++) {
            clb_operator_get(m, i, j, t);
            re[i] -= t[0] * re[j] - t[1] * im[j];
            im[i] -= t[0] * im[j] + t[1] * re[j];
            size += (fabs(t[0]) + fabs(t[1])) * (fabs(re[j]) + fabs(im[j]));
        }
        clb_operator_get(m, i, i, t);
        if (!(fabs(t[0]) + fabs(t[1]) >= smallest))
            return INFINITY;
        divide(&re[i], &im[i], t);
        size = fmax(size, fabs(re[i]) + fabs(im[i]));
        if (!(size <= DBL_MAX) || isnan(re[i] + im[i]))
            return INFINITY;
        most = size > most ? size : most;
    }
    return most;
}

/* ---- reflectors ------------------------------------------------------------------------------ */

/* Elements [begin, end) of v(j). */
static void load_vector(const struct clb_reflector_list *list, size_t j, struct piece *piece)
{
    const struct clb_operator m = {.precision = list->precision,
                                   .data = list->data,
                                   .rows = list->adjoint ? list->count : list->order,
                                   .cols = list->adjoint ? list->order : list->count,
                                   .ld = list->ld,
                                   .transposed = list->adjoint,
                                   .conjugated = list->adjoint};
    if (!list->adjoint) {
        load(&m, j, piece);
        return;
    }
    piece->re = piece->room[0];
    piece->im = clb_precision_parts(list->precision) == 2 ? piece->room[1] : NULL;
    for (size_t i = piece->begin; i < piece->end; i++) {
        double value[2];
        clb_operator_get(&m, i, j, value);
        piece->room[0][i - piece->begin] = value[0];
        piece->room[1][i - piece->begin] = value[1];
    }
}

static void tau_of(const struct clb_reflector_list *list, size_t j, double tau[2])
{
    const struct clb_operator taus = {
        .precision = list->precision, .data = list->tau, .rows = list->count, .cols = 1};
    clb_operator_get(&taus, j, 0, tau);
}

static void reflect(const struct clb_reflector_list *list, size_t j, bool adjoint, double *re,
                    double *im)
{
    struct piece piece;
    double tau[2], w[2] = {re[j], im[j]};
    tau_of(list, j, tau);
    if (adjoint)
        tau[1] = -tau[1];
    for (piece.begin = j + 1; piece.begin < list->order; piece.begin = piece.end) {
        struct clb_sample y = {.re = re, .im = im, .size = re};
        double sum[3] = {0};
        piece.end = clb_min(list->order, piece.begin + PIECE);
        load_vector(list, j, &piece);
        dot(&piece, piece.begin, piece.end, &y, -1, false, sum);
        w[0] += sum[0];
        w[1] += sum[1];
    }
    const double x[2] = {-(tau[0] * w[0] - tau[1] * w[1]), -(tau[0] * w[1] + tau[1] * w[0])};
    re[j] += x[0];
    im[j] += x[1];
    for (piece.begin = j + 1; piece.begin < list->order; piece.begin = piece.end) {
        piece.end = clb_min(list->order, piece.begin + PIECE);
        load_vector(list, j, &piece);
        for (size_t i = 0; i < piece.end - piece.begin; i++) {
            const double a = piece.re[i], b = piece.im != NULL ? piece.im[i] : 0;
            re[piece.begin + i] += a * x[0] - b * x[1];
            im[piece.begin + i] += a * x[1] + b * x[0];
        }
    }
}

void clb_reflector_list_apply(const struct clb_reflector_list *list, bool adjoint, double *re,
                              double *im)
{
    for (size_t step = 0; step < list->count; step++)
        reflect(list, adjoint ? step : list->count - 1 - step, adjoint, re, im);
}

/* |tau|^2 |v|^2 = 2 Re(tau). */
bool clb_reflector_list_is_unitary(const struct clb_reflector_list *list)
{
    struct piece piece;
    for (size_t j = 0; j < list->count; j++) {
        double tau[2], norm = 1;
        tau_of(list, j, tau);
        for (piece.begin = j + 1; piece.begin < list->order; piece.begin = piece.end) {
            piece.end = clb_min(list->order, piece.begin + PIECE);
            load_vector(list, j, &piece);
            for (size_t i = 0; i < piece.end - piece.begin; i++)
                norm +=
                    piece.re[i] * piece.re[i] + (piece.im != NULL ? piece.im[i] * piece.im[i] : 0);
        }
        const double square = (tau[0] * tau[0] + tau[1] * tau[1]) * norm;
        if (!(norm <= DBL_MAX && fabs(square - 2 * tau[0]) <= 1e-3 * (square + fabs(tau[0]))))
            return false;
    }
    return true;
}
