/* Template: xTRSM under all its names, for one precision (see precisions.t.h).
 *
 *   op(A)*X = alpha*B (side L, A m x m) or X*op(A) = alpha*B (side R, A n x n); X overwrites B, m x
 * n
 *
 * Source: Reference BLAS xTRSM; CBLAS cblas_xtrsm (BLAS Technical Forum standard, 2.8). */

/* ---- Fortran --------------------------------------------------------------------------------- */

typedef void CLB_CAT(CLB_NAME, fortran)(const char *side, const char *uplo, const char *transa,
                                        const char *diag, const void *m, const void *n,
                                        const CLB_TYPE *alpha, const CLB_TYPE *a, const void *lda,
                                        CLB_TYPE *b, const void *ldb);
typedef void CLB_CAT(CLB_NAME,
                     fortran_lengths)(const char *side, const char *uplo, const char *transa,
                                      const char *diag, const void *m, const void *n,
                                      const CLB_TYPE *alpha, const CLB_TYPE *a, const void *lda,
                                      CLB_TYPE *b, const void *ldb, size_t length_side,
                                      size_t length_uplo, size_t length_transa, size_t length_diag);

/* A call that passed the gate, or that is observed. */
static CLB_NOINLINE void CLB_CAT(CLB_NAME, offer_fortran)(
    struct clb_symbol *symbol, const struct clb_target *target, const char *side, const char *uplo,
    const char *transa, const char *diag, const void *m, const void *n, const CLB_TYPE *alpha,
    const CLB_TYPE *a, const void *lda, CLB_TYPE *b, const void *ldb)
{
    const bool wide = target->ilp64;
    struct clb_trsm_call call = {
        .problem = {.precision = CLB_PRECISION,
                    .trans = clb_op_of_letter(*transa),
                    .alpha = alpha,
                    .a = a,
                    .b = b},
        .m = clb_int(m, wide),
        .n = clb_int(n, wide),
        .lda = clb_int(lda, wide),
        .ldb = clb_int(ldb, wide),
        .options_valid = true,
    };
    call.problem.right = clb_is_letter(*side, 'R', 'L', &call.options_valid);
    call.problem.upper = clb_is_letter(*uplo, 'U', 'L', &call.options_valid);
    call.problem.unit = clb_is_letter(*diag, 'U', 'N', &call.options_valid);
    call.options_valid = call.options_valid && call.problem.trans != CLB_OP_INVALID;
    if (clb_route_trsm(symbol, target, &call, clb_next_trsm_fortran))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((CLB_CAT(CLB_NAME, fortran_lengths) *)target->function)(side, uplo, transa, diag, m, n, alpha,
                                                             a, lda, b, ldb, 1, 1, 1, 1);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void CLB_CAT(CLB_NAME, enter_fortran)(struct clb_symbol *symbol, const void *caller,
                                                 const char *side, const char *uplo,
                                                 const char *transa, const char *diag,
                                                 const void *m, const void *n,
                                                 const CLB_TYPE *alpha, const CLB_TYPE *a,
                                                 const void *lda, CLB_TYPE *b, const void *ldb)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const bool wide = target->ilp64, right = (*side & 0xdf) == 'R';
    const double rows = (double)clb_int(m, wide), cols = (double)clb_int(n, wide);
    if (clb_gate_closed(symbol, CLB_CAT(clb_work, CLB_NAME)(rows, cols, right ? cols : rows)))
        ((CLB_CAT(CLB_NAME, fortran) *)target->function)(side, uplo, transa, diag, m, n, alpha, a,
                                                         lda, b, ldb);
    else
        CLB_CAT(CLB_NAME, offer_fortran)
    (symbol, target, side, uplo, transa, diag, m, n, alpha, a, lda, b, ldb);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    CLB_CAT(CLB_NAME, fortran) prefix##routine##suffix;                                            \
    CLB_PUBLIC void prefix##routine##suffix(                                                       \
        const char *side, const char *uplo, const char *transa, const char *diag, const void *m,   \
        const void *n, const CLB_TYPE *alpha, const CLB_TYPE *a, const void *lda, CLB_TYPE *b,     \
        const void *ldb)                                                                           \
    {                                                                                              \
        CLB_CAT(CLB_NAME, enter_fortran)                                                           \
        (&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0), side, uplo,     \
         transa, diag, m, n, alpha, a, lda, b, ldb);                                               \
    }
CLB_FORMS_FORTRAN(CLB_EXPORT, CLB_NAME)
#undef CLB_EXPORT

/* ---- C --------------------------------------------------------------------------------------- */

typedef void CLB_CAT(CLB_NAME, c)(int layout, int side, int uplo, int transa, int diag, int64_t m,
                                  int64_t n, CLB_SCALAR alpha, const CLB_TYPE *a, int64_t lda,
                                  CLB_TYPE *b, int64_t ldb);

/* One problem by the next library, C's way. */
static void CLB_CAT(CLB_NAME, next_c)(const struct clb_target *target, const struct clb_trsm *p)
{
    ((CLB_CAT(CLB_NAME, c) *)target->function)(
        CLB_COL_MAJOR, p->right ? CLB_RIGHT : CLB_LEFT, p->upper ? CLB_UPPER : CLB_LOWER,
        clb_cblas_of_op(p->trans), p->unit ? CLB_UNIT : CLB_NON_UNIT, (int64_t)p->m, (int64_t)p->n,
        CLB_SCALAR_AT(p->alpha), p->a, (int64_t)p->lda, p->b, (int64_t)p->ldb);
}

/* In rows the same memory is B^T and A^T, whose other triangle is stored: the other side's solve
 * with the same op. */
static CLB_NOINLINE void CLB_CAT(CLB_NAME, offer_c)(struct clb_symbol *symbol,
                                                    const struct clb_target *target, int layout,
                                                    int side, int uplo, int transa, int diag,
                                                    int64_t m, int64_t n, CLB_SCALAR alpha,
                                                    const CLB_TYPE *a, int64_t lda, CLB_TYPE *b,
                                                    int64_t ldb)
{
    const bool wide = target->ilp64, row_major = layout == CLB_ROW_MAJOR;
    struct clb_trsm_call call = {
        .problem = {.precision = CLB_PRECISION,
                    .trans = clb_op_of_cblas(transa),
                    .alpha = CLB_SCALAR_ADDRESS(alpha),
                    .a = a,
                    .b = b},
        .m = clb_c_int(row_major ? n : m, wide),
        .n = clb_c_int(row_major ? m : n, wide),
        .lda = clb_c_int(lda, wide),
        .ldb = clb_c_int(ldb, wide),
        .options_valid = row_major || layout == CLB_COL_MAJOR,
    };
    call.problem.right = clb_is_option(side, CLB_RIGHT, CLB_LEFT, &call.options_valid) != row_major;
    call.problem.upper =
        clb_is_option(uplo, CLB_UPPER, CLB_LOWER, &call.options_valid) != row_major;
    call.problem.unit = clb_is_option(diag, CLB_UNIT, CLB_NON_UNIT, &call.options_valid);
    call.options_valid = call.options_valid && call.problem.trans != CLB_OP_INVALID;
    if (clb_route_trsm(symbol, target, &call, CLB_CAT(CLB_NAME, next_c)))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((CLB_CAT(CLB_NAME, c) *)target->function)(layout, side, uplo, transa, diag, m, n, alpha, a,
                                               lda, b, ldb);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void CLB_CAT(CLB_NAME, enter_c)(struct clb_symbol *symbol, const void *caller,
                                           int layout, int side, int uplo, int transa, int diag,
                                           int64_t m, int64_t n, CLB_SCALAR alpha,
                                           const CLB_TYPE *a, int64_t lda, CLB_TYPE *b, int64_t ldb)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const bool wide = target->ilp64;
    const double rows = (double)clb_c_int(m, wide), cols = (double)clb_c_int(n, wide);
    if (clb_gate_closed(symbol,
                        CLB_CAT(clb_work, CLB_NAME)(rows, cols, side == CLB_RIGHT ? cols : rows)))
        ((CLB_CAT(CLB_NAME, c) *)target->function)(layout, side, uplo, transa, diag, m, n, alpha, a,
                                                   lda, b, ldb);
    else
        CLB_CAT(CLB_NAME, offer_c)
    (symbol, target, layout, side, uplo, transa, diag, m, n, alpha, a, lda, b, ldb);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    CLB_CAT(CLB_NAME, c) prefix##routine##suffix;                                                  \
    CLB_PUBLIC void prefix##routine##suffix(                                                       \
        int layout, int side, int uplo, int transa, int diag, int64_t m, int64_t n,                \
        CLB_SCALAR alpha, const CLB_TYPE *a, int64_t lda, CLB_TYPE *b, int64_t ldb)                \
    {                                                                                              \
        CLB_CAT(CLB_NAME, enter_c)                                                                 \
        (&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0), layout, side,   \
         uplo, transa, diag, m, n, alpha, a, lda, b, ldb);                                         \
    }
CLB_FORMS_C(CLB_EXPORT, CLB_NAME)
#undef CLB_EXPORT
