/* fuzz: random calls of all routines, judged against sums in extended precision.
 * SPDX-License-Identifier: BSD-3-Clause
 *   case.c      a case: drawn, printed, read, made simpler
 *   routines.c  the library's table of routines (src/blas/routines.def) with judges
 *   shapes.c    the operands of a routine
 *   values.c    scalars and contents
 *   memory.c    operands in memory with guards
 *   call.c      libraries, and calls by signature
 *   model.c     sums and magnitudes in extended precision
 *   check.c     entries against sums
 *   products.c, solutions.c, factors.c, inverses.c, reflectors.c  judges
 *   run.c       one case
 *   fuzz.c      the program
 *
 * A routine is a row of that table; one that is computed as no other is has a judge_... here. */
#ifndef FUZZ_H
#define FUZZ_H

#include "number.h"
#include "tap.h"

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#undef complex /* a field of precisions */
typedef long double real;

/* ---- cases ---- */

enum field {
#define FIELD(id, name) FIELD_##id,
#include "fields.def"
#undef FIELD
    FIELDS
};

struct fuzz_case {
    long value[FIELDS];
};

/* Arguments by reference; or by value, matrices by columns or by rows: CBLAS, LAPACKE and its
 * functions that are given the workspace and look for no NaN. */
enum form { FORM_FORTRAN, FORM_COLS, FORM_ROWS, FORM_WORK_COLS, FORM_WORK_ROWS };

/* dgemm_; dgemm_64_, cblas_dgemm64_; MKL's dgemm_64, and the reference's cblas_dgemm_64;
 * scipy_dgemm_; scipy_dgemm_64_. */
enum { NAMES = 5, GROUPS = 3 };

/* Groups of forms: Fortran, by value, by value with a workspace. A bit of what may be drawn. */
static inline unsigned name_bit(long names, long group)
{
    return 1u << (names * GROUPS + group);
}

static inline long group_of(long form)
{
    return (form + 1) / 2;
}

struct limits {
    const unsigned short (*allowed)[4]; /* name_bit()s by routine and precision */
    long largest, often;                /* of the large calls, one in so many */
    long wide; /* one in so many has leading dimensions of gigabytes; 0: none */
};

struct fuzz_case draw_case(uint64_t seed, const struct limits *limits);
/* One line, without its end. */
void print_case(const struct fuzz_case *c, char *text, size_t size);
bool read_case(struct fuzz_case *c, const char *text);
/* The candidates that are simpler by one step, until there are no more: false. */
bool simpler_case(const struct fuzz_case *c, size_t candidate, struct fuzz_case *simpler);

/* ---- routines ---- */

struct problem;

struct precision {
    char letter;
    size_t real_size;
    bool complex;
    real unit, tiny, huge; /* roundoff, smallest normal and largest number */
};
extern const struct precision precisions[4];

/* Flags of routines.def: A (or the matrix that is made) is Hermitian rather than symmetric;
 * reflectors are in rows, conjugated; alpha or beta is real also in complex precisions; a batch,
 * and one with strides. */
enum {
    HERMITIAN = 'h',
    ADJOINT = 'l',
    REAL_ALPHA = '*',
    REAL_BETA = '+',
    BATCH = 'b',
    STRIDED = 's'
};

enum content {
    CONTENT_ANY,
    CONTENT_TRIANGLE,
    CONTENT_CHOLESKY, /* a triangle with a real diagonal */
    CONTENT_FACTORS,
    CONTENT_DEFINITE,
    CONTENT_REFLECTORS
};

/* What is right, by kinds of routines.def. */
struct judge {
    enum content content; /* of A */
    bool can_be_wrong;    /* A may be singular or not definite, and info says so */
    void (*run)(struct problem *);
};

enum { LIBRARY_BLAS, LIBRARY_LAPACKE };
struct routine {
    /* As in src/blas/routines.def. */
    const char *name, *precisions;
    int lapack;
    const char *signature, *shapes, *limits, *trans[2], *flags, *sizes, *others;
    const struct judge *judge;
};
extern const struct routine routines[];
extern const size_t routine_count;

/* ---- memory ---- */

enum part { PART_ALL, PART_UPPER, PART_LOWER };
struct operand {
    long rows, cols, ld;
    bool by_rows; /* element (i, j) at i*ld + j */
    char *data;
    enum part part; /* what is read or written of it */
    enum content content;
    bool unit;          /* the diagonal is not read */
    bool real_diagonal; /* imaginary parts of the diagonal are not read */
    bool output;
};

/* The operands' memory, with guards wherever no operand is. */
struct span {
    char *at, *before;
    size_t bytes;
};
struct memory {
    char *base;
    size_t bytes;
    bool mapped;
    struct span *spans; /* what is guarded: all of it, or the columns when they are far apart */
    size_t count;
};

enum { OPERANDS = 3, MESSAGE = 400, PIVOT_GUARDS = 2, PIVOT_GUARD = -77 };

struct problem {
    struct fuzz_case c;
    const struct routine *routine;
    const struct precision *p;
    struct operand operands[OPERANDS]; /* A, B, C; without elements where the routine has none */
    struct memory memory;
    char alpha[16], beta[16];
    long reflectors; /* of QR: elements of tau */
    int *ipiv, info; /* 1-based; room for PIVOT_GUARDS behind them */
    long pivots;     /* with these */
    char *tau;
    struct model *old[OPERANDS]; /* operands before the call, op not applied */
    const struct library *witnesses[2];
    char message[MESSAGE]; /* of the first failure; empty: none */
};

static inline bool is(const struct problem *p, char flag)
{
    return strchr(p->routine->flags, flag) != NULL;
}

/* Called by a name of LAPACKE; one that looks for NaN. */
static inline bool is_lapacke(const struct problem *p)
{
    return p->routine->lapack && p->c.value[FIELD_FORM] != FORM_FORTRAN;
}

static inline bool looks_for_nan(const struct problem *p)
{
    return is_lapacke(p) && p->c.value[FIELD_FORM] <= FORM_ROWS;
}

/* Places the operands whose shapes are set; contents are guards. */
bool place_operands(struct problem *p);
void free_operands(struct problem *p);
/* After the contents were put in: what must stay. */
void remember_operands(struct problem *p);
void restore_operands(struct problem *p);
/* Everything but outputs is as remembered; the failure's text otherwise. */
bool outside_intact(struct problem *p);
bool all_intact(const struct problem *p);
/* Of a column, or of a row where it is by rows. */
long line_length(const struct operand *x);
/* Of an element in bytes, of both parts. */
size_t element_size(const struct problem *p);
char *element(const struct problem *p, const struct operand *x, long i, long j);
bool is_in_part(const struct operand *x, long i, long j);
bool is_guard(const struct precision *p, const char *at);
void put_guard(const struct precision *p, char *at);

/* ---- contents ---- */

void fill_operands(struct problem *p);
void put_real(const struct precision *p, char *at, real value);
real get_real(const struct precision *p, const char *at);
number get_number(const struct precision *p, const char *at); /* both parts */
enum { SCALARS = 11, FILLS = 10, SPECIALS = 4 };
bool is_zero(const struct problem *p, const char *scalar);
void put_scalar(const struct precision *p, long kind, bool is_real, uint64_t *state, char *at);

/* ---- calls ---- */

struct library;
/* A colon-separated list of files. With names of its own: they resolve to nothing of ours. */
struct library *open_library(const char *files, bool apart);
/* Tells whether the integers of its plain names are 64-bit, by its isamax_. */
bool has_wide_integers(const struct library *library);
void set_wide_integers(struct library *library, bool wide);
void *find_symbol(const struct library *library, const char *name);
/* The name that a case calls; NULL where the library has no such function. */
void name_routine(const struct fuzz_case *c, const char *stem, char name[60]);
void *find_routine(const struct library *library, const struct fuzz_case *c);
void call_routine(struct problem *p, const struct library *library);
/* By its plain name, whatever the case says: false where the library has none. */
bool call_plain(struct problem *p, const struct library *library);
bool signature_has(const struct routine *routine, char argument);
char trans_letter(const struct problem *p, enum field field);

/* ---- models ---- */

/* A dense matrix in extended precision. */
struct model {
    long rows, cols;
    bool complex;
    number *at; /* by columns */
};
/* Models, sums and other memory of a judge, zeros, live until its thread calls free_models(). */
void *make_memory(size_t bytes);
struct model *make_model(long rows, long cols, bool complex);
void free_models(void);

static inline number *model_at(const struct model *x, long i, long j)
{
    return &x->at[i + j * x->rows];
}
/* All of an operand; what is not part of it is zero, or the other triangle's mirror. */
struct model *model_of(const struct problem *p, const struct operand *x);
/* The same with its structure: unit diagonals, mirrored triangles, op applied. New models. */
struct model *model_triangle(const struct model *x, bool upper, bool unit);
struct model *model_mirror(const struct model *x, bool upper, bool conjugate);
struct model *model_op(const struct model *x, char op);
struct model *model_product(const struct model *x, const struct model *y);
/* Interchanges rows i and ipiv(i) in order. */
void swap_rows(struct model *x, long row, long other);
void permute_rows(struct model *x, const int *ipiv, long count);
/* Magnitudes |re| + |im|, as a real model; the smallest normal number is added, which makes room
 * for the roundoff of what is below it. */
struct model *model_abs(const struct problem *p, const struct model *x);

/* Sums with the magnitudes that bound their errors. `overflow`: an intermediate may be too large.
 */
struct sums {
    long rows, cols;
    number *at;
    real *size;
    bool *overflow;
    real slack; /* underflow */
};
struct sums make_sums(long rows, long cols);
/* S += alpha*X*Y with sizes |alpha||X||Y|. */
void add_product(const struct problem *p, struct sums *s, const char *alpha, const struct model *x,
                 const struct model *y);
/* S += scale*X with sizes |scale||X|. */
void add_model(const struct problem *p, struct sums *s, const char *scale, const struct model *x);
/* S's sizes += |X||Y|, for products of products. */
void add_size(struct sums *s, const struct model *x, const struct model *y);
extern const char *const one, *const minus_one; /* scalars for any precision: see model.c */

/* Entries of x (zeros when NULL) are the sums within terms*unit*size; where a size is not finite,
 * what a witness gives. */
void check_sums(struct problem *p, const struct sums *s, const struct operand *x, real terms);
/* The diagonal of a finite result has no imaginary parts. */
void check_real_diagonal(struct problem *p, const struct operand *x);
/* What another library returns; `none` where it has no such function. */
int info_elsewhere(struct problem *p, const struct library *library, int none);
void fail(struct problem *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- shapes and judges ---- */

long size_of(const struct fuzz_case *c, char letter);
void shape_operands(struct problem *p);
bool is_symm(const struct routine *routine);
bool is_syrk(const struct routine *routine);
bool is_gemmtr(const struct routine *routine);

/* With the factors as they are after the call. */
void check_lu_solution(struct problem *p, const struct model *lu, char op);
void check_cholesky_solution(struct problem *p, const struct model *factor);

extern const struct judge judge_gemm, judge_gemmtr, judge_syrk, judge_syr2k, judge_symm, judge_trmm,
    judge_trsm;
extern const struct judge judge_getrf, judge_getrs, judge_gesv, judge_getri;
extern const struct judge judge_potrf, judge_potrs, judge_posv;
extern const struct judge judge_trtri, judge_lauum, judge_potri;
extern const struct judge judge_geqrf, judge_orgqr, judge_ormqr;

/* ---- a run ---- */

/* What is called is an OpenBLAS or rests on one: its known weaknesses are no failures. */
extern bool lenient;
/* What is called may take numbers below the smallest normal one for zero. */
extern bool flushing;
/* True when all is well; the message is in `message`. */
bool run_case(const struct fuzz_case *c, const struct library *library,
              const struct library *const witnesses[2], char message[MESSAGE]);

static inline long smaller(long x, long y)
{
    return x < y ? x : y;
}

static inline long larger(long x, long y)
{
    return x < y ? y : x;
}

#endif
