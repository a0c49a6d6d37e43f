/* Reports of wrong arguments by the error handlers of the program.
 *
 * Where the next library has the routine, it gets wrong arguments unchanged and reports them
 * itself. But a program that is linked with -lclblas_shim alone and defines its own xerbla_ must
 * export it, so that the next library calls it. The linker exports names that a shared library
 * refers to; so the shim has weak references to them, which need no definition. */
#include "abi.h"

#include <ctype.h>
#include <string.h>

typedef void handler_fortran(const char *name, const void *position, size_t length_name);
typedef void handler_c(int64_t position, const char *name, const char *format, ...);

extern handler_fortran xerbla_ CLB_WEAK;
extern handler_c cblas_xerbla CLB_WEAK;

/* The next library's handlers, in the order of routines.def. */
static struct clb_next_symbol handlers[] = {
#define ROW(routine, form, prefix, suffix, abi_name, wide)                                         \
    {.name = #prefix #routine #suffix,                                                             \
     .probe = #prefix "isamax" #suffix,                                                            \
     .abi = CLB_ABI_##abi_name,                                                                    \
     .library = CLB_LIBRARY_BLAS,                                                                  \
     .always_ilp64 = wide},
    CLB_FORMS_BLAS(ROW, xerbla)
#undef ROW
};

static handler_fortran *find_fortran(struct clb_next_symbol *handler, const void *caller)
{
    if (strcmp(handler->name, "xerbla_") == 0 && xerbla_ != NULL)
        return xerbla_;
    const struct clb_target *target = clb_next_try(handler, caller);
    return target != NULL ? (handler_fortran *)target->function : NULL;
}

static handler_c *find_c(struct clb_next_symbol *handler, const void *caller)
{
    if (strcmp(handler->name, "cblas_xerbla") == 0 && cblas_xerbla != NULL)
        return cblas_xerbla;
    const struct clb_target *target = clb_next_try(handler, caller);
    return target != NULL ? (handler_c *)target->function : NULL;
}

void clb_report_argument(const struct clb_symbol *symbol, const void *caller, int position)
{
    struct clb_next_symbol *handler = &handlers[clb_symbol_form(symbol)];
    const char *routine = clb_routines[symbol->routine].name;
    const int64_t info = position;
    char name[32] = "cblas_";
    handler_fortran *report_fortran = NULL;
    handler_c *report_c = NULL;
    if (handler->abi == CLB_ABI_C) {
        strcat(name, routine);
        report_c = find_c(handler, caller);
    } else {
        for (size_t i = 0; i <= strlen(routine); i++)
            name[i] = (char)toupper(routine[i]);
        report_fortran = find_fortran(handler, caller);
    }
    if (report_c != NULL)
        report_c(info, name, "");
    else if (report_fortran != NULL)
        report_fortran(name, &info, strlen(name));
    else
        clb_complain("%s: argument %d has an illegal value", symbol->next.name, position);
}
