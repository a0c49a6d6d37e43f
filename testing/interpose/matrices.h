/* matrices.h: matrices of all four precisions with the guard in every gap, and random numbers. */
#ifndef MATRICES_H
#define MATRICES_H

#include "check.h"

#include <complex.h>

#ifndef CMPLXL /* glibc has it for gcc only */
#define CMPLXL(x, y) __builtin_complex((long double)(x), (long double)(y))
#endif

typedef long double complex number;

struct precision {
    char letter;
    size_t real, parts; /* bytes of a real number, how many make an element */
    long double unit;
};

static const struct precision precisions[] = {
    {'s', sizeof(float), 1, 0x1p-24L},
    {'d', sizeof(double), 1, 0x1p-53L},
    {'c', sizeof(float), 2, 0x1p-24L},
    {'z', sizeof(double), 2, 0x1p-53L},
};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

static uint64_t state;
static int failures;

static inline uint64_t bits(void)
{
    state += 0x9e3779b97f4a7c15u;
    uint64_t x = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline size_t below(size_t bound)
{
    return (size_t)(bits() >> 11) % bound;
}

static inline long double uniform(void)
{
    return (long double)(int64_t)bits() * 0x1p-63L;
}

/* ---- matrices: column-major, padded, with the guard in every gap ----------------------------- */

struct matrix {
    const struct precision *p;
    size_t rows, cols, ld;
    char *data;
};

static inline void put_real(const struct precision *p, char *at, long double value)
{
    const float single = (float)value;
    const double full = (double)value;
    memcpy(at, p->real == sizeof single ? (const void *)&single : &full, p->real);
}

static inline long double get_real(const struct precision *p, const char *at)
{
    float single;
    double full;
    memcpy(p->real == sizeof single ? (void *)&single : &full, at, p->real);
    return p->real == sizeof single ? (long double)single : (long double)full;
}

static inline char *element(const struct matrix *x, size_t i, size_t j)
{
    return x->data + (i + j * x->ld) * x->p->parts * x->p->real;
}

static inline void put(struct matrix *x, size_t i, size_t j, number value)
{
    put_real(x->p, element(x, i, j), creall(value));
    if (x->p->parts == 2)
        put_real(x->p, element(x, i, j) + x->p->real, cimagl(value));
}

static inline number get(const struct matrix *x, size_t i, size_t j)
{
    const char *at = element(x, i, j);
    long double re = get_real(x->p, at);
    return x->p->parts == 2 ? CMPLXL(re, get_real(x->p, at + x->p->real)) : CMPLXL(re, 0);
}

static inline bool is_gap(const struct matrix *x, size_t index)
{
    return index % x->ld >= x->rows || index / x->ld >= x->cols;
}

/* All of it holds the guard, one column behind the last one included. */
static inline struct matrix make(const struct precision *p, size_t rows, size_t cols)
{
    struct matrix x = {p, rows, cols, rows + below(GAP + 1), NULL};
    size_t reals = x.ld * (cols + 1) * p->parts;
    x.data = malloc(reals * p->real);
    for (size_t i = 0; i < reals; i++)
        put_real(p, x.data + i * p->real, guard);
    return x;
}

static inline struct matrix copy(const struct matrix *x)
{
    struct matrix y = *x;
    size_t bytes = x->ld * (x->cols + 1) * x->p->parts * x->p->real;
    y.data = malloc(bytes);
    memcpy(y.data, x->data, bytes);
    return y;
}

static inline bool gaps_hold(const struct matrix *x)
{
    for (size_t i = 0; i < x->ld * (x->cols + 1); i++) {
        for (size_t part = 0; is_gap(x, i) && part < x->p->parts; part++) {
            if (get_real(x->p, x->data + (i * x->p->parts + part) * x->p->real) != guard)
                return false;
        }
    }
    return true;
}

static inline number random_number(const struct precision *p)
{
    long double re = uniform();
    return p->parts == 2 ? CMPLXL(re, uniform()) : CMPLXL(re, 0);
}

static inline long double norm(const struct matrix *x)
{
    long double largest = 0;
    for (size_t j = 0; j < x->cols; j++) {
        long double sum = 0;
        for (size_t i = 0; i < x->rows; i++)
            sum += cabsl(get(x, i, j));
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

#endif
