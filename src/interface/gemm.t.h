/* Template: xGEMM under all its names, for one precision (see precisions.t.h).
 *
 *   C = alpha*op(A)*op(B) + beta*C,  op(A) m x k, op(B) k x n, C m x n
 *
 * Source: Reference BLAS xGEMM; CBLAS cblas_xgemm (BLAS Technical Forum standard, 2.8). */

/* ---- Fortran --------------------------------------------------------------------------------- */

typedef void CLB_CAT(CLB_NAME, fortran)(const char *transa, const char *transb, const void *m,
                                        const void *n, const void *k, const CLB_TYPE *alpha,
                                        const CLB_TYPE *a, const void *lda, const CLB_TYPE *b,
                                        const void *ldb, const CLB_TYPE *beta, CLB_TYPE *c,
                                        const void *ldc);
typedef void CLB_CAT(CLB_NAME, fortran_lengths)(const char *transa, const char *transb,
                                                const void *m, const void *n, const void *k,
                                                const CLB_TYPE *alpha, const CLB_TYPE *a,
                                                const void *lda, const CLB_TYPE *b, const void *ldb,
                                                const CLB_TYPE *beta, CLB_TYPE *c, const void *ldc,
                                                size_t length_transa, size_t length_transb);

/* A call that passed the gate, or that is observed. */
static CLB_NOINLINE void CLB_CAT(CLB_NAME, offer_fortran)(
    struct clb_symbol *symbol, const struct clb_target *target, const char *transa,
    const char *transb, const void *m, const void *n, const void *k, const CLB_TYPE *alpha,
    const CLB_TYPE *a, const void *lda, const CLB_TYPE *b, const void *ldb, const CLB_TYPE *beta,
    CLB_TYPE *c, const void *ldc)
{
    const bool wide = target->ilp64;
    struct clb_gemm_call call = {
        .problem = {.precision = CLB_PRECISION,
                    .transa = clb_op_of_letter(*transa),
                    .transb = clb_op_of_letter(*transb),
                    .alpha = alpha,
                    .a = a,
                    .b = b,
                    .beta = beta,
                    .c = c},
        .m = clb_int(m, wide),
        .n = clb_int(n, wide),
        .k = clb_int(k, wide),
        .lda = clb_int(lda, wide),
        .ldb = clb_int(ldb, wide),
        .ldc = clb_int(ldc, wide),
        .layout_valid = true,
    };
    if (clb_route_gemm(symbol, target, &call, clb_next_gemm_fortran))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((CLB_CAT(CLB_NAME, fortran_lengths) *)target->function)(transa, transb, m, n, k, alpha, a, lda,
                                                             b, ldb, beta, c, ldc, 1, 1);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void CLB_CAT(CLB_NAME, enter_fortran)(struct clb_symbol *symbol, const void *caller,
                                                 const char *transa, const char *transb,
                                                 const void *m, const void *n, const void *k,
                                                 const CLB_TYPE *alpha, const CLB_TYPE *a,
                                                 const void *lda, const CLB_TYPE *b,
                                                 const void *ldb, const CLB_TYPE *beta, CLB_TYPE *c,
                                                 const void *ldc)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const bool wide = target->ilp64;
    const double work = CLB_CAT(clb_work, CLB_NAME)(
        (double)clb_int(m, wide), (double)clb_int(n, wide), (double)clb_int(k, wide));
    if (clb_gate_closed(symbol, work))
        ((CLB_CAT(CLB_NAME, fortran) *)target->function)(transa, transb, m, n, k, alpha, a, lda, b,
                                                         ldb, beta, c, ldc);
    else
        CLB_CAT(CLB_NAME, offer_fortran)
    (symbol, target, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    CLB_CAT(CLB_NAME, fortran) prefix##routine##suffix;                                            \
    CLB_PUBLIC void prefix##routine##suffix(                                                       \
        const char *transa, const char *transb, const void *m, const void *n, const void *k,       \
        const CLB_TYPE *alpha, const CLB_TYPE *a, const void *lda, const CLB_TYPE *b,              \
        const void *ldb, const CLB_TYPE *beta, CLB_TYPE *c, const void *ldc)                       \
    {                                                                                              \
        CLB_CAT(CLB_NAME, enter_fortran)                                                           \
        (&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0), transa, transb, \
         m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                            \
    }
CLB_FORMS_FORTRAN(CLB_EXPORT, CLB_NAME)
#undef CLB_EXPORT

/* ---- C --------------------------------------------------------------------------------------- */

typedef void CLB_CAT(CLB_NAME, c)(int layout, int transa, int transb, int64_t m, int64_t n,
                                  int64_t k, CLB_SCALAR alpha, const CLB_TYPE *a, int64_t lda,
                                  const CLB_TYPE *b, int64_t ldb, CLB_SCALAR beta, CLB_TYPE *c,
                                  int64_t ldc);

/* One problem by the next library, C's way. */
static void CLB_CAT(CLB_NAME, next_c)(const struct clb_target *target, const struct clb_gemm *p)
{
    ((CLB_CAT(CLB_NAME, c) *)target->function)(
        CLB_COL_MAJOR, clb_cblas_of_op(p->transa), clb_cblas_of_op(p->transb), (int64_t)p->m,
        (int64_t)p->n, (int64_t)p->k, CLB_SCALAR_AT(p->alpha), p->a, (int64_t)p->lda, p->b,
        (int64_t)p->ldb, CLB_SCALAR_AT(p->beta), p->c, (int64_t)p->ldc);
}

/* A row-major product is the column-major C^T = op(B)^T * op(A)^T over the same memory. */
static CLB_NOINLINE void CLB_CAT(CLB_NAME, offer_c)(struct clb_symbol *symbol,
                                                    const struct clb_target *target, int layout,
                                                    int transa, int transb, int64_t m, int64_t n,
                                                    int64_t k, CLB_SCALAR alpha, const CLB_TYPE *a,
                                                    int64_t lda, const CLB_TYPE *b, int64_t ldb,
                                                    CLB_SCALAR beta, CLB_TYPE *c, int64_t ldc)
{
    const bool wide = target->ilp64, row_major = layout == CLB_ROW_MAJOR;
    struct clb_gemm_call call = {
        .problem = {.precision = CLB_PRECISION,
                    .transa = clb_op_of_cblas(row_major ? transb : transa),
                    .transb = clb_op_of_cblas(row_major ? transa : transb),
                    .alpha = CLB_SCALAR_ADDRESS(alpha),
                    .a = row_major ? b : a,
                    .b = row_major ? a : b,
                    .beta = CLB_SCALAR_ADDRESS(beta),
                    .c = c},
        .m = clb_c_int(row_major ? n : m, wide),
        .n = clb_c_int(row_major ? m : n, wide),
        .k = clb_c_int(k, wide),
        .lda = clb_c_int(row_major ? ldb : lda, wide),
        .ldb = clb_c_int(row_major ? lda : ldb, wide),
        .ldc = clb_c_int(ldc, wide),
        .layout_valid = row_major || layout == CLB_COL_MAJOR,
    };
    if (clb_route_gemm(symbol, target, &call, CLB_CAT(CLB_NAME, next_c)))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((CLB_CAT(CLB_NAME, c) *)target->function)(layout, transa, transb, m, n, k, alpha, a, lda, b,
                                               ldb, beta, c, ldc);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void CLB_CAT(CLB_NAME, enter_c)(struct clb_symbol *symbol, const void *caller,
                                           int layout, int transa, int transb, int64_t m, int64_t n,
                                           int64_t k, CLB_SCALAR alpha, const CLB_TYPE *a,
                                           int64_t lda, const CLB_TYPE *b, int64_t ldb,
                                           CLB_SCALAR beta, CLB_TYPE *c, int64_t ldc)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const bool wide = target->ilp64;
    const double work = CLB_CAT(clb_work, CLB_NAME)(
        (double)clb_c_int(m, wide), (double)clb_c_int(n, wide), (double)clb_c_int(k, wide));
    if (clb_gate_closed(symbol, work))
        ((CLB_CAT(CLB_NAME, c) *)target->function)(layout, transa, transb, m, n, k, alpha, a, lda,
                                                   b, ldb, beta, c, ldc);
    else
        CLB_CAT(CLB_NAME, offer_c)
    (symbol, target, layout, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    CLB_CAT(CLB_NAME, c) prefix##routine##suffix;                                                  \
    CLB_PUBLIC void prefix##routine##suffix(                                                       \
        int layout, int transa, int transb, int64_t m, int64_t n, int64_t k, CLB_SCALAR alpha,     \
        const CLB_TYPE *a, int64_t lda, const CLB_TYPE *b, int64_t ldb, CLB_SCALAR beta,           \
        CLB_TYPE *c, int64_t ldc)                                                                  \
    {                                                                                              \
        CLB_CAT(CLB_NAME, enter_c)                                                                 \
        (&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0), layout, transa, \
         transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                    \
    }
CLB_FORMS_C(CLB_EXPORT, CLB_NAME)
#undef CLB_EXPORT
