/* Template: C = alpha*P + beta*C for one real type (CLB_REAL, CLB_MERGE, CLB_FINITE) and for the
 * complex type over it (CLB_MERGE_COMPLEX). The common cases, bound by memory bandwidth, have loops
 * of their own, which the compiler vectorises. SPDX-License-Identifier: BSD-3-Clause */
static void CLB_MERGE(size_t m, size_t n, CLB_REAL alpha, const CLB_REAL *restrict p, size_t ldp,
                      CLB_REAL beta, CLB_REAL *restrict c, size_t ldc)
{
    const bool ahead = m * sizeof *c <= SHORT_COLUMN;
    for (size_t j = 0; j < n; j++, p += ldp, c += ldc) {
        if (ahead && j + COLUMNS_AHEAD < n)
            fetch_column(c + COLUMNS_AHEAD * ldc, m * sizeof *c);
        if (beta == 0 && alpha == 1) {
            memcpy(c, p, m * sizeof *c);
        } else if (beta == 0) {
            CLB_SIMD
            for (size_t i = 0; i < m; i++)
                c[i] = alpha * p[i];
        } else {
            CLB_SIMD
            for (size_t i = 0; i < m; i++)
                c[i] = alpha * p[i] + beta * c[i];
        }
    }
}

/* Zero times a finite number is zero, and zero times infinity or NaN is NaN. Several sums, because
 * one sum is bound by the latency of an addition. */
static bool CLB_FINITE(size_t m, size_t n, const CLB_REAL *p, size_t ldp)
{
    CLB_REAL sum[16] = {0}, all = 0;
    for (size_t j = 0; j < n; j++, p += ldp) {
        size_t i = 0;
        for (; i + CLB_COUNT_OF(sum) <= m; i += CLB_COUNT_OF(sum)) {
            CLB_SIMD
            for (size_t e = 0; e < CLB_COUNT_OF(sum); e++)
                sum[e] += 0 * p[i + e];
        }
        for (; i < m; i++)
            sum[0] += 0 * p[i];
    }
    for (size_t e = 0; e < CLB_COUNT_OF(sum); e++)
        all += sum[e];
    return all == 0;
}

/* Leading dimensions count pairs (re, im). Products have four multiplications each, as in Fortran;
 * only alpha = 1 and beta = 0 or 1 are treated without multiplication. */
static void CLB_MERGE_COMPLEX(size_t m, size_t n, const CLB_REAL *alpha, const CLB_REAL *restrict p,
                              size_t ldp, const CLB_REAL *beta, CLB_REAL *restrict c, size_t ldc)
{
    const CLB_REAL ar = alpha[0], ai = alpha[1], br = beta[0], bi = beta[1];
    const bool no_alpha = ar == 1 && ai == 0, no_beta = br == 1 && bi == 0;
    const bool no_c = br == 0 && bi == 0;
    for (size_t j = 0; j < n; j++, p += 2 * ldp, c += 2 * ldc) {
        if (no_c && no_alpha) {
            memcpy(c, p, 2 * m * sizeof *c);
        } else if (no_beta && no_alpha) {
            CLB_SIMD
            for (size_t i = 0; i < 2 * m; i++)
                c[i] += p[i];
        } else if (no_c) {
            CLB_SIMD
            for (size_t i = 0; i < m; i++) {
                const CLB_REAL re = p[2 * i], im = p[2 * i + 1];
                c[2 * i] = ar * re - ai * im;
                c[2 * i + 1] = ar * im + ai * re;
            }
        } else if (no_beta) {
            CLB_SIMD
            for (size_t i = 0; i < m; i++) {
                const CLB_REAL re = p[2 * i], im = p[2 * i + 1];
                c[2 * i] += ar * re - ai * im;
                c[2 * i + 1] += ar * im + ai * re;
            }
        } else {
            CLB_SIMD
            for (size_t i = 0; i < m; i++) {
                const CLB_REAL re = p[2 * i], im = p[2 * i + 1], x = c[2 * i], y = c[2 * i + 1];
                c[2 * i] = (ar * re - ai * im) + (br * x - bi * y);
                c[2 * i + 1] = (ar * im + ai * re) + (br * y + bi * x);
            }
        }
    }
}
#undef CLB_REAL
#undef CLB_MERGE
#undef CLB_FINITE
#undef CLB_MERGE_COMPLEX
