/* The exported names and the routines behind them, expanded from routines.def. */
#include "route.h"

#include <math.h>
#include <string.h>

#define PROBE_FORTRAN(prefix, suffix) #prefix "isamax" #suffix
#define PROBE_C(prefix, suffix)       PROBE_FORTRAN(prefix, suffix)
/* Only names that don't tell the integer width are probed: those of reference LAPACK, by isamax_ of
 * its BLAS. */
#define PROBE_LAPACKE(prefix, suffix) "isamax_"

enum {
#define CLB_ROUTINE(name, precision, library, work) LIBRARY_OF_##name = CLB_LIBRARY_##library,
#include "routines.def"
#undef CLB_ROUTINE
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
#define CLB_ROUTINE(name, precision, library, work) CLB_FORMS_##library(CLB_SYMBOL_ROW, name)
#include "routines.def"
#undef CLB_ROUTINE
#undef CLB_SYMBOL_ROW
};

static const struct clb_routine_info routines[CLB_ROUTINES] = {
#define CLB_ROUTINE(name, precision, library, work)                                                \
    [CLB_ROUTINE_##name] = {#name, CLB_##precision, clb_work_##name, CLB_SYMBOL_##name##_plain},
#include "routines.def"
#undef CLB_ROUTINE
};

const struct clb_routine_info *clb_routine_get(clb_routine routine)
{
    return &routines[routine];
}

size_t clb_symbol_form(const struct clb_symbol *symbol)
{
    return (size_t)(symbol - &clb_symbols[routines[symbol->routine].symbol]);
}

struct clb_symbol *clb_symbol_same_abi(const struct clb_symbol *symbol, clb_routine routine)
{
    return &clb_symbols[routines[routine].symbol + clb_symbol_form(symbol)];
}

/* Found by the name without its precision; all others are products. */
clb_work clb_routine_work(clb_routine routine)
{
    static const struct {
        const char *name;
        clb_work work;
    } works[] = {
        {"trsm", CLB_WORK_SOLVE},     {"getrs", CLB_WORK_SOLVE},  {"potrs", CLB_WORK_SOLVE},
        {"getrf", CLB_WORK_FACTOR},   {"gesv", CLB_WORK_FACTOR},  {"potrf", CLB_WORK_FACTOR},
        {"posv", CLB_WORK_FACTOR},    {"getri", CLB_WORK_INVERT}, {"trtri", CLB_WORK_INVERT},
        {"potri", CLB_WORK_DEFINITE}, {"lauum", CLB_WORK_SQUARE},
    };
    for (size_t i = 0; i < CLB_COUNT_OF(works); i++) {
        if (strcmp(clb_routine_get(routine)->name + 1, works[i].name) == 0)
            return works[i].work;
    }
    return CLB_WORK_PRODUCT;
}

const char *clb_reason_name(clb_reason reason)
{
    static const char *const names[CLB_REASONS] = {
#define CLB_REASON(id, name) [CLB_REASON_##id] = name,
#include "reasons.def"
#undef CLB_REASON
    };
    return names[reason];
}
