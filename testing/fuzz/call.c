/* Libraries, and calls by signature. SPDX-License-Identifier: BSD-3-Clause
 *
 * A Fortran function gets addresses only. For one of C whole numbers and addresses travel in one
 * sequence of registers and 8-byte stack slots and the few floating-point numbers in another, in
 * the ABIs of x86-64 and AArch64 on Linux: so one type of function for each of float and double
 * does for all routines, and arguments behind the last one are ignored. */
#include "fuzz.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- libraries ---- */

enum { FILES = 6 };

struct library {
    void *handles[FILES];
    size_t count;
    bool wide; /* the integers of plain names are 64-bit */
};

static void *open_file(const char *file, bool apart)
{
#ifndef __SANITIZE_ADDRESS__
    /* The second file of a list belongs to the first one's names. */
    static Lmid_t names;
    if (apart) {
        void *handle = dlmopen(names == 0 ? LM_ID_NEWLM : names, file, RTLD_NOW | RTLD_LOCAL);
        if (handle != NULL && names == 0)
            dlinfo(handle, RTLD_DI_LMID, &names);
        return handle;
    }
#endif
    return dlopen(file, RTLD_NOW | (apart ? RTLD_LOCAL : RTLD_GLOBAL));
}

/* Else it asks the environment at its first call, of which a C library of its own keeps an address
 * that is no longer valid once the program's own has moved it. */
static void ask_environment(const struct library *library)
{
    void (*set_nancheck)(int);
    void *found = find_symbol(library, "LAPACKE_set_nancheck");
    memcpy(&set_nancheck, &found, sizeof found);
    if (found != NULL)
        set_nancheck(1);
}

struct library *open_library(const char *files, bool apart)
{
    char copy[2000], *rest, *file;
    struct library *library = calloc(1, sizeof *library);
    if (library == NULL)
        abort();
    snprintf(copy, sizeof copy, "%s", files);
    for (file = strtok_r(copy, ":", &rest); file != NULL && library->count < FILES;
         file = strtok_r(NULL, ":", &rest)) {
        void *handle = open_file(file, apart);
        if (handle == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            free(library);
            return NULL;
        }
        library->handles[library->count++] = handle;
    }
    if (apart)
        ask_environment(library);
    return library;
}

void *find_symbol(const struct library *library, const char *name)
{
    void *found = NULL;
    for (size_t i = library->count; i > 0 && found == NULL; i--)
        found = dlsym(library->handles[i - 1], name);
    return found;
}

bool has_wide_integers(const struct library *library)
{
    int (*isamax)(const int64_t *, const float *, const int64_t *);
    const float x[3] = {1, 3, 2};
    const int64_t n = (int64_t)UINT64_C(0xffffffff00000003), step = 1; /* 3, or negative */
    void *found = library != NULL ? find_symbol(library, "isamax_") : NULL;
    memcpy(&isamax, &found, sizeof found);
    return found != NULL && isamax(&n, x, &step) != 2;
}

void set_wide_integers(struct library *library, bool wide)
{
    library->wide = wide;
}

/* ---- names ---- */

static const struct {
    const char *prefix, *fortran, *c, *work;
    bool wide;
} schemes[NAMES] = {
    {"", "_", "", "_work", false},
    {"", "_64_", "64_", "_work64_", true},
    {"", "_64", "_64", "_work_64", true},
    {"scipy_", "_", "", "_work", false},
    {"scipy_", "_64_", "64_", "_work64_", true},
};

void name_routine(const struct fuzz_case *c, const char *stem, char name[60])
{
    const long names = c->value[FIELD_NAMES], form = c->value[FIELD_FORM];
    const bool lapack = routines[c->value[FIELD_ROUTINE]].lapack;
    snprintf(name, 60, "%s%s%c%s%s", schemes[names].prefix,
             form == FORM_FORTRAN ? ""
             : lapack             ? "LAPACKE_"
                                  : "cblas_",
             precisions[c->value[FIELD_PRECISION]].letter, stem,
             form == FORM_FORTRAN ? schemes[names].fortran
             : form > FORM_ROWS   ? schemes[names].work
                                  : schemes[names].c);
}

static void *find_name(const struct library *library, const struct fuzz_case *c, const char *stem)
{
    char name[60];
    name_routine(c, stem, name);
    return find_symbol(library, name);
}

static bool is_batch(const struct fuzz_case *c)
{
    return strchr(routines[c->value[FIELD_ROUTINE]].flags, BATCH) != NULL;
}

/* In the place of gemm3m a library that has none does gemm, with the same arguments, and in the
 * place of a batch one product. */
void *find_routine(const struct library *library, const struct fuzz_case *c)
{
    const char *stem = routines[c->value[FIELD_ROUTINE]].name;
    void *found = find_name(library, c, stem);
    return found == NULL && (strcmp(stem, "gemm3m") == 0 || is_batch(c))
               ? find_name(library, c, "gemm")
               : found;
}

/* ---- arguments ---- */

enum { ARGUMENTS = 20, FLOATING = 2, MOST_PRODUCTS = 5 };

/* What the call gets; what Fortran takes by address is in `numbers` and in `letters`. */
struct arguments {
    bool wide; /* integers of 64 bits */
    void *list[ARGUMENTS];
    size_t count, characters;
    int64_t numbers[ARGUMENTS];
    char letters[ARGUMENTS];
    const char *floating[FLOATING]; /* of C, by value */
    size_t floating_count;
    struct batch *batch; /* NULL: one product, or it is none */
    int64_t *ipiv, info; /* in the caller's width */
    char *work;          /* and its size */
    int work_size;
};

char trans_letter(const struct problem *p, enum field field)
{
    const char letter = p->routine->trans[p->p->complex][p->c.value[field]];
    return letter == '\0' ? 'N' : letter;
}

static char letter_of(const struct problem *p, char argument)
{
    switch (argument) {
    case 's':
        return p->c.value[FIELD_SIDE] ? 'R' : 'L';
    case 'u':
        return p->c.value[FIELD_UPLO] ? 'U' : 'L';
    case 'd':
        return p->c.value[FIELD_DIAG] ? 'U' : 'N';
    case 't':
        return trans_letter(p, FIELD_TRANSA);
    default:
        return trans_letter(p, FIELD_TRANSB);
    }
}

/* What CBLAS has in the place of a letter. */
static int number_of(char argument, char letter)
{
    static const struct {
        const char *arguments, *letters;
        int first;
    } numbers[] = {{"s", "LR", 141}, {"u", "UL", 121}, {"d", "NU", 131}, {"tT", "NTC", 111}};
    size_t i = 0;
    while (strchr(numbers[i].arguments, argument) == NULL)
        i++;
    return numbers[i].first + (int)(strchr(numbers[i].letters, letter) - numbers[i].letters);
}

static void add_pointer(struct arguments *a, const void *pointer)
{
    a->list[a->count++] = (void *)(uintptr_t)pointer;
}

/* What is not read of a narrow integer is not its sign. */
static void add_number(const struct problem *p, struct arguments *a, int integer)
{
    const int64_t value =
        a->wide ? integer : (int64_t)(UINT64_C(0x5a5a5a5a00000000) | (uint32_t)integer);
    a->numbers[a->count] = value;
    if (p->c.value[FIELD_FORM] == FORM_FORTRAN)
        add_pointer(a, &a->numbers[a->count]);
    else
        add_pointer(a, (void *)(uintptr_t)value);
}

static void add_letter(const struct problem *p, struct arguments *a, char argument)
{
    const char lower = p->c.value[FIELD_LETTERS] ? 'a' - 'A' : 0;
    const char letter = (char)(letter_of(p, argument) + lower);
    a->letters[a->count] = letter;
    if (is_lapacke(p)) {
        add_pointer(a, (void *)(intptr_t)letter);
    } else if (p->c.value[FIELD_FORM] != FORM_FORTRAN) {
        add_number(p, a, number_of(argument, letter_of(p, argument)));
    } else {
        add_pointer(a, &a->letters[a->count]);
        a->characters++;
    }
}

static void add_scalar(const struct problem *p, struct arguments *a, char argument)
{
    const bool alpha = argument == '*';
    const char *scalar = alpha ? p->alpha : p->beta;
    const bool by_value = p->c.value[FIELD_FORM] != FORM_FORTRAN &&
                          (!p->p->complex || (alpha ? is(p, REAL_ALPHA) : is(p, REAL_BETA)));
    if (by_value)
        a->floating[a->floating_count++] = scalar;
    else
        add_pointer(a, scalar);
}

static void add_argument(struct problem *p, struct arguments *a, char argument, bool invalid)
{
    switch (argument) {
    case 's':
    case 'u':
    case 'd':
    case 't':
    case 'T':
        add_letter(p, a, argument);
        break;
    case 'm':
    case 'n':
    case 'k':
    case 'r':
        add_number(p, a, (int)size_of(&p->c, argument));
        break;
    case '*':
    case '+':
        add_scalar(p, a, argument);
        break;
    case 'A':
    case 'B':
    case 'C': {
        const struct operand *x = &p->operands[argument - 'A'];
        add_pointer(a, x->data);
        add_number(p, a, invalid ? (int)larger(line_length(x), 1) - 1 : (int)x->ld);
        break;
    }
    case 'p':
        add_pointer(a, a->ipiv);
        break;
    case 'q':
        add_pointer(a, p->tau);
        break;
    case 'w':
        if (looks_for_nan(p))
            break;
        add_pointer(a, a->work);
        add_number(p, a, a->work_size);
        break;
    default:
        if (!is_lapacke(p))
            add_pointer(a, &a->info);
        break;
    }
}

/* ---- batches ----
 *
 * The columns of C are divided into products. */

/* The arguments of a batch, as its name takes them. */
struct batch {
    long width[2], count[2], groups; /* columns of a group's products, and their number */
    int64_t integers[8][2];
    char letters[2][2], scalars[2][32];
    int numbers[2][2];
    void *pointers[OPERANDS][MOST_PRODUCTS];
};

/* Two groups where the columns are not divided evenly; with strides one. */
static void divide(const struct problem *p, struct batch *batch)
{
    const long n = p->c.value[FIELD_N];
    const bool far = larger(p->operands[1].ld, p->operands[2].ld) > INT_MAX / larger(n, 1);
    const long parts = far ? 1 : 1 + p->c.value[FIELD_SEED] % MOST_PRODUCTS;
    const long width = larger(1, (n + parts - 1) / parts), rest = n % width;
    batch->width[0] = batch->width[1] = width;
    batch->count[0] = n / width;
    if (is(p, STRIDED) || rest == 0) {
        batch->groups = 1;
        while (n % batch->width[0] != 0)
            batch->width[0]++;
        batch->count[0] = n == 0 ? 1 : n / batch->width[0];
        batch->width[0] = n == 0 ? 0 : batch->width[0];
        return;
    }
    batch->groups = 2;
    batch->width[1] = rest;
    batch->count[1] = 1;
}

/* Where the columns of a product begin in an operand. */
static char *columns_at(const struct problem *p, int operand, long col)
{
    const struct operand *x = &p->operands[operand];
    const bool by_rows = operand == 1 && trans_letter(p, FIELD_TRANSB) != 'N';
    return operand == 0 || x->rows == 0 || x->cols == 0 ? x->data
           : by_rows                                    ? element(p, x, col, 0)
                                                        : element(p, x, 0, col);
}

static void put_integer(const struct arguments *a, int64_t *array, long index, long value)
{
    const int narrow = (int)value;
    if (a->wide)
        array[index] = value;
    else
        memcpy((char *)array + (size_t)index * sizeof narrow, &narrow, sizeof narrow);
}

static void fill_batch(const struct problem *p, const struct arguments *a, struct batch *batch)
{
    const size_t size = element_size(p);
    const long *value = p->c.value;
    long at = 0, col = 0;
    for (long g = 0; g < batch->groups; g++) {
        const long integers[] = {value[FIELD_M],    batch->width[g],   value[FIELD_K],
                                 p->operands[0].ld, p->operands[1].ld, p->operands[2].ld,
                                 batch->count[g],   batch->groups};
        for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
            put_integer(a, batch->integers[i], g, integers[i]);
        for (int t = 0; t < 2; t++) {
            const char letter = letter_of(p, "tT"[t]);
            batch->letters[t][g] = (char)(letter + (value[FIELD_LETTERS] ? 'a' - 'A' : 0));
            batch->numbers[t][g] = number_of('t', letter);
            memcpy(batch->scalars[t] + (size_t)g * size, t == 0 ? p->alpha : p->beta, size);
        }
        for (long i = 0; i < batch->count[g]; i++, at++, col += batch->width[g]) {
            for (int x = 0; x < OPERANDS; x++)
                batch->pointers[x][at] = columns_at(p, x, col);
        }
    }
}

/* In elements, from one product to the next. */
static int stride_of(const struct problem *p, const struct batch *batch, int operand)
{
    const char *first = batch->pointers[operand][0];
    const char *second = batch->count[0] > 1 ? batch->pointers[operand][1] : first;
    return (int)((second - first) / (long)element_size(p));
}

static void add_strided(struct problem *p, struct arguments *a, const struct batch *batch)
{
    static const char letters[] = "tTmnk*AB+C";
    for (const char *argument = letters; *argument != '\0'; argument++) {
        if (*argument == 'n')
            add_number(p, a, (int)batch->width[0]);
        else
            add_argument(p, a, *argument, false);
        if (strchr("ABC", *argument) != NULL)
            add_number(p, a, stride_of(p, batch, *argument - 'A'));
    }
    add_number(p, a, (int)batch->count[0]);
}

static void add_groups(const struct problem *p, struct arguments *a, const struct batch *batch)
{
    const bool fortran = p->c.value[FIELD_FORM] == FORM_FORTRAN;
    for (int t = 0; t < 2; t++)
        add_pointer(a, fortran ? (const void *)batch->letters[t] : batch->numbers[t]);
    for (int i = 0; i < 3; i++)
        add_pointer(a, batch->integers[i]);
    add_pointer(a, batch->scalars[0]);
    for (int x = 0; x < OPERANDS; x++) {
        if (x == 2)
            add_pointer(a, batch->scalars[1]);
        add_pointer(a, batch->pointers[x]);
        add_pointer(a, batch->integers[3 + x]);
    }
    add_number(p, a, (int)batch->groups);
    add_pointer(a, batch->integers[6]);
    a->characters += fortran ? 2 : 0;
}

static void add_batch(struct problem *p, struct arguments *a, struct batch *batch)
{
    divide(p, batch);
    fill_batch(p, a, batch);
    if (is(p, STRIDED))
        add_strided(p, a, batch);
    else
        add_groups(p, a, batch);
}

/* ---- all arguments ---- */

static void make_arguments(struct problem *p, struct arguments *a)
{
    const long form = p->c.value[FIELD_FORM], invalid = p->c.value[FIELD_INVALID];
    a->count = a->characters = a->floating_count = 0;
    if (form != FORM_FORTRAN)
        add_number(p, a,
                   invalid == 1                                  ? 99
                   : form == FORM_ROWS || form == FORM_WORK_ROWS ? 101
                                                                 : 102);
    if (a->batch != NULL)
        add_batch(p, a, a->batch);
    for (const char *argument = p->routine->signature; *argument != '\0' && a->batch == NULL;
         argument++)
        add_argument(p, a, *argument, invalid == argument - p->routine->signature + 2);
    /* The lengths of letters, which Fortran passes at the end. */
    for (size_t i = 0; form == FORM_FORTRAN && i < a->characters; i++)
        add_pointer(a, (void *)1);
    while (a->count < ARGUMENTS)
        add_pointer(a, NULL);
}

/* ---- calls ---- */

typedef void *arg;
#define LIST_TYPE                                                                                  \
    arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, \
        arg
#define LIST(l)                                                                                    \
    l[0], l[1], l[2], l[3], l[4], l[5], l[6], l[7], l[8], l[9], l[10], l[11], l[12], l[13], l[14], \
        l[15], l[16], l[17], l[18], l[19]
typedef arg pointer_function(LIST_TYPE); /* Fortran's, or LAPACKE's, which returns info */
typedef void single_function(float, float, LIST_TYPE);
typedef void double_function(double, double, LIST_TYPE);

static void call(const struct problem *p, void *function, struct arguments *a)
{
    double values[FLOATING] = {0};
    pointer_function *plain;
    single_function *singles;
    double_function *doubles;
    for (size_t i = 0; i < a->floating_count; i++)
        values[i] = (double)get_real(p->p, a->floating[i]);
    memcpy(&plain, &function, sizeof function);
    memcpy(&singles, &function, sizeof function);
    memcpy(&doubles, &function, sizeof function);
    if (is_lapacke(p))
        a->info = (int64_t)(intptr_t)plain(LIST(a->list));
    else if (p->c.value[FIELD_FORM] == FORM_FORTRAN)
        (void)plain(LIST(a->list));
    else if (p->p->real_size == 4)
        singles((float)values[0], (float)values[1], LIST(a->list));
    else
        doubles(values[0], values[1], LIST(a->list));
}

/* How much workspace a routine gets: ample, the least, or what a query says. */
static size_t choose_work(struct problem *p, void *function, struct arguments *a, char *answer)
{
    const long *value = p->c.value;
    const bool nothing = p->operands[0].rows == 0 || p->operands[0].cols == 0;
    const long least = larger(1, size_of(&p->c, p->routine->sizes[1]));
    if (value[FIELD_WORK] != 2)
        return (size_t)(value[FIELD_WORK] == 1 ? least : 70 * (least + value[FIELD_N]) + 5000);
    a->work = answer;
    a->work_size = -1;
    make_arguments(p, a);
    call(p, function, a);
    const real size = get_real(p->p, answer);
    if (!(size >= (real)(!nothing ? least : signature_has(p->routine, 'q')) && size < 1e6L)) {
        fail(p, "a query for workspace says %.9Lg", size);
        return (size_t)least;
    }
    return (size_t)larger(least, (long)size);
}

static void call_with_work(struct problem *p, void *function, struct arguments *a)
{
    char answer[16] = {0};
    const size_t count = choose_work(p, function, a, answer);
    const size_t size = element_size(p);
    a->work = malloc((count + 1) * size);
    if (a->work == NULL)
        abort();
    put_guard(p->p, a->work + count * size);
    a->work_size = (int)count;
    make_arguments(p, a);
    call(p, function, a);
    if (!is_guard(p->p, a->work + count * size))
        fail(p, "something was written behind the workspace");
    free(a->work);
}

/* Integers in the width of the function, with something else behind them. */
static void put_integers(const struct problem *p, struct arguments *a)
{
    a->info = 0x5a5a5a5a5a5a5a5a;
    a->ipiv = malloc((size_t)(p->pivots + 1) * sizeof *a->ipiv);
    if (a->ipiv == NULL)
        abort();
    for (long i = 0; i < p->pivots; i++) {
        if (a->wide)
            a->ipiv[i] = p->ipiv[i];
        else
            memcpy((char *)a->ipiv + (size_t)i * sizeof *p->ipiv, &p->ipiv[i], sizeof *p->ipiv);
    }
}

static int get_integer(struct problem *p, const struct arguments *a, const int64_t *from,
                       long index)
{
    int narrow;
    memcpy(&narrow, (const char *)from + (size_t)index * sizeof narrow, sizeof narrow);
    if (a->wide && from[index] != (int)from[index])
        fail(p, "%lld is no integer of a result", (long long)from[index]);
    return a->wide ? (int)from[index] : narrow;
}

static void get_integers(struct problem *p, struct arguments *a)
{
    for (long i = 0; i < p->pivots; i++)
        p->ipiv[i] = get_integer(p, a, a->ipiv, i);
    free(a->ipiv);
    p->info = 0;
    if (!signature_has(p->routine, 'i'))
        return;
    if (!a->wide && !is_lapacke(p) && a->info >> 32 != 0x5a5a5a5a)
        fail(p, "something was written behind info");
    p->info = get_integer(p, a, &a->info, 0);
}

void call_routine(struct problem *p, const struct library *library)
{
    struct arguments a = {.wide = schemes[p->c.value[FIELD_NAMES]].wide ||
                                  (library->wide && p->c.value[FIELD_NAMES] == 0)};
    void *function = find_routine(library, &p->c);
    struct batch batch;
    if (is_batch(&p->c) && function == find_name(library, &p->c, p->routine->name))
        a.batch = &batch;
    put_integers(p, &a);
    if (signature_has(p->routine, 'w') && !looks_for_nan(p)) {
        call_with_work(p, function, &a);
    } else {
        make_arguments(p, &a);
        call(p, function, &a);
    }
    get_integers(p, &a);
}

bool call_plain(struct problem *p, const struct library *library)
{
    const long names = p->c.value[FIELD_NAMES];
    p->c.value[FIELD_NAMES] = 0;
    const bool found = find_routine(library, &p->c) != NULL;
    if (found)
        call_routine(p, library);
    p->c.value[FIELD_NAMES] = names;
    return found;
}
