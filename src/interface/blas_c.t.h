/* Template: BLAS routines under their C names, for routines whose arguments are of the same types.
 * C passes real scalars by value and complex ones by reference; the template is expanded for each
 * CLB_KIND: float, double or complex (see CLB_TYPE_float etc. in abi.h). Where alpha and beta
 * differ in kind, the including file also defines CLB_ALPHA and CLB_BETA. The template undefines
 * the three. It uses IS_COMPOSED as blas_fortran.t.h does, which is included before, and these
 * names, which the routines' file defines:
 *
 *   C_PARAMETERS(ALPHA, BETA)               declarations, with these types for the scalars
 *   C_ARGUMENTS(alpha, beta)                names, with these for the scalars
 *   C_WORK(wide)                            the formula of routines.def with these arguments
 *   C_PROBLEM, C_NEXT_ARGUMENTS(alpha, beta) a problem's type, and the arguments for one at `p`
 *   C_ROUTINES_float(X) etc.                CLB_FORMS_C(X, routine) for each of that kind
 *   route_c()                               decodes a call and passes it to the route layer;
 *                                           scalars by reference */
#ifndef CLB_ALPHA
#define CLB_ALPHA CLB_KIND
#endif
#ifndef CLB_BETA
#define CLB_BETA CLB_KIND
#endif

typedef void CLB_CAT(c, CLB_KIND)(C_PARAMETERS(CLB_CAT(CLB_TYPE, CLB_ALPHA),
                                               CLB_CAT(CLB_TYPE, CLB_BETA)));

/* Computes one column-major problem with the next library. */
static void CLB_CAT(next_c, CLB_KIND)(const struct clb_target *target, const C_PROBLEM *p)
{
    ((CLB_CAT(c, CLB_KIND) *)target->function)(
        C_NEXT_ARGUMENTS(CLB_CAT(CLB_AT, CLB_ALPHA)(p->alpha), CLB_CAT(CLB_AT, CLB_BETA)(p->beta)));
}

/* Slow path: enough work (min_work), or calls are counted or logged. */
static CLB_NOINLINE void
CLB_CAT(dispatch_c,
        CLB_KIND)(struct clb_symbol *symbol, const struct clb_target *target, const void *caller,
                  C_PARAMETERS(CLB_CAT(CLB_TYPE, CLB_ALPHA), CLB_CAT(CLB_TYPE, CLB_BETA)))
{
    if (route_c(symbol, target, caller, CLB_CAT(next_c, CLB_KIND),
                C_ARGUMENTS(CLB_CAT(CLB_ADDRESS, CLB_ALPHA)(alpha),
                            CLB_CAT(CLB_ADDRESS, CLB_BETA)(beta))))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((CLB_CAT(c, CLB_KIND) *)target->function)(C_ARGUMENTS(alpha, beta));
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void CLB_CAT(enter_c, CLB_KIND)(struct clb_symbol *symbol, const void *caller,
                                           C_PARAMETERS(CLB_CAT(CLB_TYPE, CLB_ALPHA),
                                                        CLB_CAT(CLB_TYPE, CLB_BETA)))
{
    const struct clb_target *target = clb_target_get(symbol, caller);
    if (!IS_COMPOSED(target) && clb_work_is_small(symbol, C_WORK(target->ilp64)))
        ((CLB_CAT(c, CLB_KIND) *)target->function)(C_ARGUMENTS(alpha, beta));
    else
        CLB_CAT(dispatch_c, CLB_KIND)(symbol, target, caller, C_ARGUMENTS(alpha, beta));
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    CLB_CAT(c, CLB_KIND) prefix##routine##suffix;                                                  \
    CLB_PUBLIC void prefix##routine##suffix(                                                       \
        C_PARAMETERS(CLB_CAT(CLB_TYPE, CLB_ALPHA), CLB_CAT(CLB_TYPE, CLB_BETA)))                   \
    {                                                                                              \
        CLB_CAT(enter_c, CLB_KIND)                                                                 \
        (&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0),                 \
         C_ARGUMENTS(alpha, beta));                                                                \
    }
CLB_CAT(C_ROUTINES, CLB_KIND)(CLB_EXPORT)
#undef CLB_EXPORT
#undef CLB_KIND
#undef CLB_ALPHA
#undef CLB_BETA
