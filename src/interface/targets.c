/* Finds the functions of the next library that a call needs. */
#include "next.h"

/* Fallbacks for a routine that a library lacks: one with the same arguments and meaning, or xGEMM,
 * by which xGEMMTR can be computed (gemmtr.c). */
static const struct fallbacks {
    unsigned count;
    clb_routine routine[2];
} fallbacks[CLB_ROUTINES] = {
#define FALLBACKS(x)                                                                               \
    [CLB_ROUTINE_##x##gemmtr] = {2, {CLB_ROUTINE_##x##gemmt, CLB_ROUTINE_##x##gemm}},              \
    [CLB_ROUTINE_##x##gemmt] = {2, {CLB_ROUTINE_##x##gemmtr, CLB_ROUTINE_##x##gemm}}
    FALLBACKS(s),
    FALLBACKS(d),
    FALLBACKS(c),
    FALLBACKS(z),
#undef FALLBACKS
    [CLB_ROUTINE_cgemm3m] = {1, {CLB_ROUTINE_cgemm}},
    [CLB_ROUTINE_zgemm3m] = {1, {CLB_ROUTINE_zgemm}},
};

const struct clb_target *clb_target_find(struct clb_symbol *symbol, const void *caller)
{
    const struct fallbacks *list = &fallbacks[symbol->routine];
    struct clb_next_symbol *others[2];
    if (list->count == 0)
        return clb_next_find(&symbol->next, caller);
    for (unsigned i = 0; i < list->count; i++)
        others[i] = &clb_symbol_same_abi(symbol, list->routine[i])->next;
    return clb_next_find_or(&symbol->next, others, list->count, caller);
}

struct clb_next_blas3 clb_next_blas3_for(const struct clb_symbol *symbol,
                                         const struct clb_target *target, const void *caller,
                                         clb_next_own call_own)
{
    static const clb_routine gemm[CLB_PRECISIONS] = {[CLB_S] = CLB_ROUTINE_sgemm,
                                                     [CLB_D] = CLB_ROUTINE_dgemm,
                                                     [CLB_C] = CLB_ROUTINE_cgemm,
                                                     [CLB_Z] = CLB_ROUTINE_zgemm};
    clb_precision precision = clb_routine_get(symbol->routine)->precision;
    return (struct clb_next_blas3){
        .own = target,
        .gemm = clb_same_abi(&clb_symbol_same_abi(symbol, gemm[precision])->next, target, caller),
        .call_own = call_own,
        .call_gemm =
            symbol->next.abi == CLB_ABI_C ? clb_next_gemm_c(precision) : clb_next_gemm_fortran,
    };
}
