/* Libraries, and calls by signature.
 *
 * A Fortran function gets addresses only. For one of C whole numbers and addresses travel in one
 * sequence of registers and 8-byte stack slots and the few floating-point numbers in another, in
 * the ABIs of x86-64 and AArch64 on Linux: so one type of function for each of float and double
 * does for all routines, and arguments behind the last one are ignored. */
#include "fuzz.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- libraries ------------------------------------------------------------------------------- */

enum { FILES = 4 };

struct library {
    void *handles[FILES];
    size_t count;
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
    return library;
}

void *find_symbol(const struct library *library, const char *name)
{
    void *found = NULL;
    for (size_t i = library->count; i > 0 && found == NULL; i--)
        found = dlsym(library->handles[i - 1], name);
    return found;
}

static void *find_name(const struct library *library, const struct fuzz_case *c, const char *stem)
{
    const bool c_name = c->value[FIELD_FORM] != 0;
    char name[40];
    snprintf(name, sizeof name, "%s%c%s%s", c_name ? "cblas_" : "",
             precisions[c->value[FIELD_PRECISION]].letter, stem, c_name ? "" : "_");
    return find_symbol(library, name);
}

/* In the place of gemm3m a library that has none does gemm, with the same arguments. */
void *find_routine(const struct library *library, const struct fuzz_case *c)
{
    const char *stem = routines[c->value[FIELD_ROUTINE]].name;
    void *found = find_name(library, c, stem);
    return found == NULL && strcmp(stem, "gemm3m") == 0 ? find_name(library, c, "gemm") : found;
}

/* ---- arguments ------------------------------------------------------------------------------- */

enum { ARGUMENTS = 20, FLOATING = 2 };

/* What the call gets; numbers that Fortran takes by address are in `numbers`, letters in `letters`.
 */
struct arguments {
    void *list[ARGUMENTS];
    size_t count, characters;
    int numbers[ARGUMENTS];
    char letters[ARGUMENTS];
    const char *floating[FLOATING]; /* of C, by value */
    size_t floating_count;
    char *work; /* and its size */
    int work_size;
};

char trans_letter(const struct problem *p, enum field field)
{
    return p->routine->trans[p->p->complex][p->c.value[field]];
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

static int number_of(const struct problem *p, char argument)
{
    switch (argument) {
    case 's':
        return p->c.value[FIELD_SIDE] ? 142 : 141;
    case 'u':
        return p->c.value[FIELD_UPLO] ? 121 : 122;
    case 'd':
        return p->c.value[FIELD_DIAG] ? 132 : 131;
    case 'm':
        return (int)p->c.value[FIELD_M];
    case 'n':
        return (int)p->c.value[FIELD_N];
    case 'k':
        return (int)p->c.value[FIELD_K];
    default: {
        const char letter = letter_of(p, argument);
        return letter == 'N' ? 111 : letter == 'T' ? 112 : 113;
    }
    }
}

static void add_pointer(struct arguments *a, const void *pointer)
{
    a->list[a->count++] = (void *)(uintptr_t)pointer;
}

static void add_number(const struct problem *p, struct arguments *a, int number)
{
    a->numbers[a->count] = number;
    if (p->c.value[FIELD_FORM] == 0)
        add_pointer(a, &a->numbers[a->count]);
    else
        add_pointer(a, (void *)(intptr_t)number);
}

static void add_letter(const struct problem *p, struct arguments *a, char argument)
{
    if (p->c.value[FIELD_FORM] != 0) {
        add_number(p, a, number_of(p, argument));
        return;
    }
    const char lower = p->c.value[FIELD_LETTERS] ? 'a' - 'A' : 0;
    a->letters[a->count] = (char)(letter_of(p, argument) + lower);
    add_pointer(a, &a->letters[a->count]);
    a->characters++;
}

static void add_scalar(const struct problem *p, struct arguments *a, char argument)
{
    const bool alpha = argument == '*';
    const char *scalar = alpha ? p->alpha : p->beta;
    const bool by_value = p->c.value[FIELD_FORM] != 0 &&
                          (!p->p->complex || (alpha ? is(p, REAL_ALPHA) : is(p, REAL_BETA)));
    if (by_value)
        a->floating[a->floating_count++] = scalar;
    else
        add_pointer(a, scalar);
}

static void add_argument(struct problem *p, struct arguments *a, char argument)
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
        add_number(p, a, number_of(p, argument));
        break;
    case '*':
    case '+':
        add_scalar(p, a, argument);
        break;
    case 'A':
    case 'B':
    case 'C':
        add_pointer(a, p->operands[argument - 'A'].data);
        add_number(p, a, (int)p->operands[argument - 'A'].ld);
        break;
    case 'p':
        add_pointer(a, p->ipiv);
        break;
    case 'q':
        add_pointer(a, p->tau);
        break;
    case 'w':
        add_pointer(a, a->work);
        add_number(p, a, a->work_size);
        break;
    default:
        add_pointer(a, &p->info);
        break;
    }
}

static void make_arguments(struct problem *p, struct arguments *a)
{
    a->count = a->characters = a->floating_count = 0;
    if (p->c.value[FIELD_FORM] != 0)
        add_number(p, a, p->c.value[FIELD_FORM] == 2 ? 101 : 102);
    for (const char *argument = p->routine->signature; *argument != '\0'; argument++)
        add_argument(p, a, *argument);
    /* The lengths of letters, which Fortran passes at the end. */
    for (size_t i = 0; p->c.value[FIELD_FORM] == 0 && i < a->characters; i++)
        add_pointer(a, (void *)1);
    while (a->count < ARGUMENTS)
        add_pointer(a, NULL);
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef void *arg;
#define LIST_TYPE                                                                                  \
    arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, \
        arg
#define LIST(l)                                                                                    \
    l[0], l[1], l[2], l[3], l[4], l[5], l[6], l[7], l[8], l[9], l[10], l[11], l[12], l[13], l[14], \
        l[15], l[16], l[17], l[18], l[19]
typedef void fortran_function(LIST_TYPE);
typedef void single_function(float, float, LIST_TYPE);
typedef void double_function(double, double, LIST_TYPE);

static void call(const struct problem *p, void *function, const struct arguments *a)
{
    double values[FLOATING] = {0};
    fortran_function *fortran;
    single_function *singles;
    double_function *doubles;
    for (size_t i = 0; i < a->floating_count; i++)
        values[i] = (double)get_real(p->p, a->floating[i]);
    memcpy(&fortran, &function, sizeof function);
    memcpy(&singles, &function, sizeof function);
    memcpy(&doubles, &function, sizeof function);
    if (p->c.value[FIELD_FORM] == 0)
        fortran(LIST(a->list));
    else if (p->p->real_size == 4)
        singles((float)values[0], (float)values[1], LIST(a->list));
    else
        doubles(values[0], values[1], LIST(a->list));
}

/* How much workspace a QR routine gets: ample, the least, or what a query says. */
static size_t choose_work(struct problem *p, void *function, struct arguments *a, char *answer)
{
    const long *value = p->c.value;
    const bool other_side = signature_has(p->routine, 's') && value[FIELD_SIDE];
    const bool nothing = p->operands[0].rows == 0 || p->operands[0].cols == 0;
    const long least = larger(1, value[other_side ? FIELD_M : FIELD_N]);
    if (value[FIELD_WORK] != 2)
        return (size_t)(value[FIELD_WORK] == 1 ? least : 70 * (least + value[FIELD_N]) + 5000);
    a->work = answer;
    a->work_size = -1;
    make_arguments(p, a);
    call(p, function, a);
    const real size = get_real(p->p, answer);
    if (!(size >= (real)(nothing ? 1 : least) && size < 1e6L)) {
        fail(p, "a query for workspace says %.9Lg", size);
        return (size_t)least;
    }
    return (size_t)larger(least, (long)size);
}

static void call_with_work(struct problem *p, void *function, struct arguments *a)
{
    char answer[16] = {0};
    const size_t count = choose_work(p, function, a, answer);
    const size_t size = p->p->real_size * (p->p->complex ? 2 : 1);
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

void call_routine(struct problem *p, const struct library *library)
{
    struct arguments a = {.count = 0};
    void *function = find_routine(library, &p->c);
    p->info = PIVOT_GUARD;
    if (signature_has(p->routine, 'w')) {
        call_with_work(p, function, &a);
        return;
    }
    make_arguments(p, &a);
    call(p, function, &a);
}
