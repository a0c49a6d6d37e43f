/* Template: T from S = V^H*V for one real type (CLB_REAL, CLB_FORM) and for the complex type over
 * it (CLB_FORM_COMPLEX): T(0:j-1, j) = -tau(j) * T(0:j-1, 0:j-1) * S(0:j-1, j), T(j, j) = tau(j).
 * Column by column in place, by multiples of T's columns. */
static void CLB_FORM(size_t n, const CLB_REAL *tau, CLB_REAL *t, size_t ld)
{
    for (size_t j = 0; j < n; j++) {
        CLB_REAL *y = t + j * ld;
        for (size_t p = 0; p < j; p++) {
            const CLB_REAL *restrict column = t + p * ld;
            const CLB_REAL factor = -tau[j] * y[p];
            CLB_SIMD
            for (size_t i = 0; i < p; i++)
                y[i] += factor * column[i];
            y[p] = factor * column[p];
        }
        y[j] = tau[j];
        memset(y + j + 1, 0, (n - j - 1) * sizeof *y);
    }
}

/* Pairs (re, im); ld counts pairs. */
static void CLB_FORM_COMPLEX(size_t n, const CLB_REAL *tau, CLB_REAL *t, size_t ld)
{
    for (size_t j = 0; j < n; j++) {
        CLB_REAL *y = t + 2 * j * ld;
        const CLB_REAL tr = tau[2 * j], ti = tau[2 * j + 1];
        for (size_t p = 0; p < j; p++) {
            const CLB_REAL *restrict column = t + 2 * p * ld;
            const CLB_REAL re = ti * y[2 * p + 1] - tr * y[2 * p];
            const CLB_REAL im = -(tr * y[2 * p + 1] + ti * y[2 * p]);
            CLB_SIMD
            for (size_t i = 0; i < p; i++) {
                y[2 * i] += re * column[2 * i] - im * column[2 * i + 1];
                y[2 * i + 1] += re * column[2 * i + 1] + im * column[2 * i];
            }
            y[2 * p] = re * column[2 * p] - im * column[2 * p + 1];
            y[2 * p + 1] = re * column[2 * p + 1] + im * column[2 * p];
        }
        y[2 * j] = tr;
        y[2 * j + 1] = ti;
        memset(y + 2 * (j + 1), 0, 2 * (n - j - 1) * sizeof *y);
    }
}
