/* SPDX-License-Identifier: BSD-3-Clause
 * xGEMMTR, also called xGEMMT, and batches of xGEMM. Libraries have the former under one name,
 * under both or not at all, and few have the latter: then the shim computes them by xGEMM
 * (route/complete.c, batch.c), and reports wrong arguments as the routine would, to the error
 * handler of the program or of the next library.
 *
 * Source: Reference BLAS 3.12.1 xGEMMTR, cblas_xgemmtr; OpenBLAS and MKL xGEMMT, xGEMM_BATCH. */
#include "abi.h"
#include "host/process.h"

#include <ctype.h>
#include <string.h>

typedef void handler_fortran(const char *name, const void *position, size_t length_name);
typedef void handler_c(int64_t position, const char *name, const char *format, ...);

/* A program that is linked with -lclblas_shim alone and defines its own handlers must export them,
 * so that the next library calls them. The linker exports names that a shared library refers to; so
 * the shim has weak references to them, which need no definition. */
extern handler_fortran xerbla_ CLB_WEAK;
extern handler_c cblas_xerbla CLB_WEAK;

/* The next library's handlers, in the order of routines.def. */
static struct clb_next_symbol handlers[] = {
#define ROW(routine, form, prefix, suffix, abi_name, wide) \
    {.name = #prefix #routine #suffix,                     \
     .probe = #prefix "isamax" #suffix,                    \
     .abi = CLB_ABI_##abi_name,                            \
     .library = CLB_LIBRARY_BLAS,                          \
     .always_ilp64 = wide},
    CLB_FORMS_BLAS(ROW, xerbla)
#undef ROW
};

/* The handler of a name's naming scheme; NULL: there is none. */
static void (*find_handler(const struct clb_entry *entry))(void)
{
    struct clb_next_symbol *handler = &handlers[clb_symbol_form(entry->symbol)];
    if (strcmp(handler->name, "xerbla_") == 0 && xerbla_ != NULL)
        return (void (*)(void))xerbla_;
    if (strcmp(handler->name, "cblas_xerbla") == 0 && cblas_xerbla != NULL)
        return (void (*)(void))cblas_xerbla;
    const struct clb_target *target = clb_next_try(handler, entry->caller);
    return target != NULL ? target->function : NULL;
}

/* Report that argument number `position`, from 1, is wrong. */
static void report_argument(const struct clb_entry *entry, int position)
{
    void (*const handler)(void) = find_handler(entry);
    const char *routine = clb_routines[entry->symbol->routine].name;
    const int64_t info = position;
    char name[32] = "cblas_";
    if (handler == NULL) {
        clb_complain("%s: argument %d has an illegal value", entry->symbol->next.name, position);
    } else if (entry->symbol->next.abi == CLB_ABI_C) {
        ((handler_c *)handler)(info, strcat(name, routine), "");
    } else {
        for (size_t i = 0; i <= strlen(routine); i++)
            name[i] = (char)toupper(routine[i]);
        ((handler_fortran *)handler)(name, &info, strlen(name));
    }
}

/* The position of an argument in the list of the name that was called, from its position in the
 * decoded Fortran call of xGEMMTR or xGEMM_BATCH: rows exchange A and B, m and n. Strides are
 * behind the leading dimensions. */
static int position_in_list(const struct clb_entry *entry, int position)
{
    enum { LDA = 8, LDB = 10 };
    static const int exchanged[2][LDB + 1] = {
        {[2] = 3, [3] = 2, [LDA] = LDB, [LDB] = LDA},
        {[1] = 2, [2] = 1, [3] = 4, [4] = 3, [LDA] = LDB, [LDB] = LDA}};
    const bool rows = entry->layout == CLB_ROW_MAJOR;
    const int *other = exchanged[entry->batch != NULL];
    if (entry->layout != 0 && !rows && entry->layout != CLB_COL_MAJOR)
        return 1;
    if (rows && position <= LDB && other[position] != 0)
        position = other[position];
    if (entry->batch != NULL && entry->batch->count == NULL)
        position += (position > LDA) + (position > LDB);
    return position + (entry->layout != 0);
}

void clb_compose(struct clb_entry *entry)
{
    const double begin = entry->timed ? clb_now() : 0;
    const int wrong = entry->batch != NULL ? clb_route_compose_batch(entry, NULL)
                                           : clb_route_compose_gemmtr(entry, NULL);
    if (entry->timed)
        clb_next_end(entry, begin);
    if (wrong != 0)
        report_argument(entry, position_in_list(entry, wrong));
}
