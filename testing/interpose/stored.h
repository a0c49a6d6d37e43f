/* stored.h: matrices by rows or by columns, for programs that call LAPACK's C interface. */
#ifndef STORED_H
#define STORED_H

#include "matrices.h"

#ifndef HIGH /* what the functions are called */
#define HIGH(name) LAPACKE_##name
#define WORK(name) LAPACKE_##name##_work
#endif

enum { BY_ROWS = 101, BY_COLUMNS = 102 };

/* By rows it is kept as the transpose by columns. */
struct stored {
    int layout;
    struct matrix x;
};

static inline struct stored make_stored(const struct precision *p, int layout, size_t rows,
                                        size_t cols)
{
    return (struct stored){layout, layout == BY_ROWS ? make(p, cols, rows) : make(p, rows, cols)};
}

static inline struct stored copy_stored(const struct stored *from)
{
    return (struct stored){from->layout, copy(&from->x)};
}

static inline number at(const struct stored *s, size_t i, size_t j)
{
    return s->layout == BY_ROWS ? get(&s->x, j, i) : get(&s->x, i, j);
}

static inline void set(struct stored *s, size_t i, size_t j, number value)
{
    if (s->layout == BY_ROWS)
        put(&s->x, j, i, value);
    else
        put(&s->x, i, j, value);
}

static inline void fill(struct stored *s)
{
    for (size_t j = 0; j < s->x.cols; j++) {
        for (size_t i = 0; i < s->x.rows; i++)
            put(&s->x, i, j, random_number(s->x.p));
    }
}

static inline bool same(const struct stored *a, const struct stored *b)
{
    return memcmp(a->x.data, b->x.data, a->x.ld * (a->x.cols + 1) * a->x.p->parts * a->x.p->real) ==
           0;
}

static inline void fail(const char *what, const struct precision *p, int layout, size_t m, size_t n,
                        long double value)
{
    fprintf(stderr, "%c layout %d m=%zu n=%zu: %s %Lg\n", p->letter, layout, m, n, what, value);
    failures++;
}

static inline void check_solution(const struct stored *a, const struct stored *x,
                                  const struct stored *b, char trans, size_t n, size_t nrhs)
{
    long double worst = 0;
    for (size_t j = 0; j < nrhs; j++) {
        for (size_t i = 0; i < n; i++) {
            number e = at(b, i, j);
            long double size = cabsl(e);
            for (size_t k = 0; k < n; k++) {
                number t = trans == 'N' ? at(a, i, k) : at(a, k, i);
                number product = (trans == 'C' ? conjl(t) : t) * at(x, k, j);
                e -= product;
                size += cabsl(product);
            }
            long double error = cabsl(e) / ((long double)(n + 4) * a->x.p->unit * size);
            worst = error <= worst ? worst : error;
        }
    }
    if (!(worst < 30))
        fail("residual of the solution", a->x.p, a->layout, n, nrhs, worst);
}

#endif
