/* Template: BLAS routines under their Fortran names, for routines with the same arguments. These
 * are references, so one function serves all precisions. The routines' file defines:
 *
 *   FORTRAN_PARAMETERS, FORTRAN_ARGUMENTS   declarations and names, without hidden lengths
 *   FORTRAN_LENGTH_TYPES, FORTRAN_LENGTHS   types of the hidden lengths, and their values
 *   FORTRAN_WORK(wide)                      the formula of routines.def with these arguments
 *   FORTRAN_ROUTINES(X)                     CLB_FORMS_FORTRAN(X, routine) for each
 *   route_fortran()                         decodes a call and passes it to the route layer
 *   IS_COMPOSED(target)                     optional; true: route_fortran computes every call,
 *                                           because the target is another routine */
#ifndef IS_COMPOSED
#define IS_COMPOSED(target) false
#endif

typedef void fortran(FORTRAN_PARAMETERS);
typedef void fortran_lengths(FORTRAN_PARAMETERS, FORTRAN_LENGTH_TYPES);

/* Slow path: enough work (min_work), or calls are counted or logged. */
static CLB_NOINLINE void dispatch_fortran(struct clb_symbol *symbol,
                                          const struct clb_target *target, const void *caller,
                                          FORTRAN_PARAMETERS)
{
    if (route_fortran(symbol, target, caller, FORTRAN_ARGUMENTS))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((fortran_lengths *)target->function)(FORTRAN_ARGUMENTS, FORTRAN_LENGTHS);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void enter_fortran(struct clb_symbol *symbol, const void *caller, FORTRAN_PARAMETERS)
{
    const struct clb_target *target = clb_target_get(symbol, caller);
    if (!IS_COMPOSED(target) && clb_work_is_small(symbol, FORTRAN_WORK(target->ilp64)))
        ((fortran *)target->function)(FORTRAN_ARGUMENTS);
    else
        dispatch_fortran(symbol, target, caller, FORTRAN_ARGUMENTS);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    fortran prefix##routine##suffix;                                                               \
    CLB_PUBLIC void prefix##routine##suffix(FORTRAN_PARAMETERS)                                    \
    {                                                                                              \
        enter_fortran(&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0),    \
                      FORTRAN_ARGUMENTS);                                                          \
    }
FORTRAN_ROUTINES(CLB_EXPORT)
#undef CLB_EXPORT
