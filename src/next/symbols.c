/* The exported names, expanded from routines.def and names.h. */
#include "next.h"

#include <math.h>

#define PROBE_FORTRAN(prefix, suffix) #prefix "isamax" #suffix
#define PROBE_C(prefix, suffix)       PROBE_FORTRAN(prefix, suffix)
/* Only names that don't tell the integer width are probed: those of reference LAPACK, by isamax_ of
 * its BLAS. */
#define PROBE_LAPACKE(prefix, suffix) "isamax_"

enum {
#define CLB_NAME(name, precision, library)          LIBRARY_OF_##name = CLB_LIBRARY_##library,
#define CLB_ROUTINE(stem, precisions, library, ...) CLB_NAMES_##precisions(CLB_NAME, stem, library)
#include "blas/routines.def"
#undef CLB_NAME
};

/* Until the configuration is read, every call takes the slow path, also an invalid one whose work
 * is negative; it stays so when calls are counted or logged. */
struct clb_symbol clb_symbols[CLB_SYMBOLS] = {
#define CLB_SYMBOL_ROW(routine_name, form_name, prefix, suffix, abi_name, ilp64)                   \
    [CLB_SYMBOL_##routine_name##_##                                                                \
        form_name] = {.next = {.name = #prefix #routine_name #suffix,                              \
                               .probe = PROBE_##abi_name(prefix, suffix),                          \
                               .abi = CLB_ABI_##abi_name,                                          \
                               .library = (clb_library)LIBRARY_OF_##routine_name,                  \
                               .always_ilp64 = ilp64},                                             \
                      .min_work = -INFINITY,                                                       \
                      .routine = CLB_ROUTINE_##routine_name,                                       \
                      .form = CLB_FORM_##form_name},
#define CLB_NAME(name, precision, library) CLB_FORMS_##library(CLB_SYMBOL_ROW, name)
#include "blas/routines.def"
#undef CLB_SYMBOL_ROW
#undef CLB_NAME
};

static const clb_symbol_id plain[CLB_ROUTINES] = {
#define CLB_NAME(name, precision, library) [CLB_ROUTINE_##name] = CLB_SYMBOL_##name##_plain,
#include "blas/routines.def"
};

size_t clb_symbol_form(const struct clb_symbol *symbol)
{
    return (size_t)(symbol - &clb_symbols[plain[symbol->routine]]);
}

struct clb_symbol *clb_symbol_at(clb_routine routine, size_t form)
{
    return &clb_symbols[plain[routine] + form];
}

struct clb_symbol *clb_symbol_same_abi(const struct clb_symbol *symbol, clb_routine routine)
{
    return clb_symbol_at(routine, clb_symbol_form(symbol));
}
