/* Reads the switch of LAPACKE's check for NaN. */
#include "lapacke.h"

/* The names of the function that returns the switch, by integer width and prefix of the form. Newer
 * releases of reference LAPACKE have it in a function of another name, old ones lack it. */
#define NANCHECK(symbol_name)                                                                      \
    {                                                                                              \
        .name = symbol_name, .probe = "isamax_", .abi = CLB_ABI_LAPACKE                            \
    }

static struct clb_next_symbol plain[] = {NANCHECK("LAPACKE_get_nancheck"),
                                         NANCHECK("LAPACKE_get_nancheck_flag")};
static struct clb_next_symbol ilp64[] = {NANCHECK("LAPACKE_get_nancheck64_"),
                                         NANCHECK("LAPACKE_get_nancheck")};
static struct clb_next_symbol ilp64_ref[] = {NANCHECK("LAPACKE_get_nancheck_64"),
                                             NANCHECK("LAPACKE_get_nancheck")};
static struct clb_next_symbol scipy[] = {NANCHECK("scipy_LAPACKE_get_nancheck")};
static struct clb_next_symbol scipy_ilp64[] = {NANCHECK("scipy_LAPACKE_get_nancheck64_")};

static bool lapacke_ask(struct clb_next_symbol *names, size_t count, const void *caller)
{
    for (size_t i = 0; i < count; i++) {
        const struct clb_target *target = clb_next_try(&names[i], caller);
        if (target != NULL)
            return ((int (*)(void))target->function)() != 0;
    }
    return true;
}

bool clb_lapacke_checks_nan(const struct clb_symbol *symbol, const void *caller)
{
    switch (symbol->form) {
    case CLB_FORM_lapacke_ilp64:
        return lapacke_ask(ilp64, CLB_COUNT_OF(ilp64), caller);
    case CLB_FORM_lapacke_ilp64_ref:
        return lapacke_ask(ilp64_ref, CLB_COUNT_OF(ilp64_ref), caller);
    case CLB_FORM_scipy_lapacke:
        return lapacke_ask(scipy, CLB_COUNT_OF(scipy), caller);
    case CLB_FORM_scipy_lapacke_ilp64:
        return lapacke_ask(scipy_ilp64, CLB_COUNT_OF(scipy_ilp64), caller);
    default:
        return lapacke_ask(plain, CLB_COUNT_OF(plain), caller);
    }
}
