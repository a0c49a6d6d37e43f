/* Finishes on the CPU a Cholesky factorisation of which the first columns are written.
 *
 * With c columns written: for A = L*L^H all rows of these columns are final: A22 -= L21*L21^H, and
 * A22 is factored. For A = U^H*U the other columns are still as before the factorisation, their
 * first c rows too: so first U12 = U11^-H*A12, then A22 -= U12^H*U12. The triangle of A22 is
 * updated in block columns, and the diagonal block of each column by column, because the other
 * triangle must not be written. */
#include "lapack.h"

#define BLOCK ((size_t)64)

static void *potrf_resume_at(const struct clb_potrf *problem, size_t row, size_t col)
{
    return (char *)problem->a + (row + col * problem->lda) * clb_precision_size(problem->precision);
}

static void solve_right(const struct clb_potrf *problem, const struct clb_host_blas *next,
                        size_t written)
{
    const struct clb_trsm trsm = {.precision = problem->precision,
                                  .upper = true,
                                  .trans = CLB_OP_C,
                                  .m = written,
                                  .n = problem->n - written,
                                  .alpha = clb_scalar_one(problem->precision),
                                  .a = problem->a,
                                  .b = potrf_resume_at(problem, 0, written),
                                  .lda = problem->lda,
                                  .ldb = problem->lda};
    next->trsm(next, &trsm);
}

/* Subtract from A(row:row+rows, col:col+cols) the product of the first `depth` rows of U or columns
 * of L. */
static void potrf_resume_update(const struct clb_potrf *problem, const struct clb_host_blas *next,
                                size_t depth, size_t row, size_t rows, size_t col, size_t cols)
{
    static const float minus_one_s[2] = {-1};
    static const double minus_one_d[2] = {-1};
    bool single = clb_precision_real_size(problem->precision) == sizeof(float);
    bool upper = problem->upper;
    const struct clb_gemm gemm = {
        .precision = problem->precision,
        .transa = upper ? CLB_OP_C : CLB_OP_N,
        .transb = upper ? CLB_OP_N : CLB_OP_C,
        .m = rows,
        .n = cols,
        .k = depth,
        .alpha = single ? (const void *)minus_one_s : minus_one_d,
        .beta = clb_scalar_one(problem->precision),
        .a = upper ? potrf_resume_at(problem, 0, row) : potrf_resume_at(problem, row, 0),
        .b = upper ? potrf_resume_at(problem, 0, col) : potrf_resume_at(problem, col, 0),
        .c = potrf_resume_at(problem, row, col),
        .lda = problem->lda,
        .ldb = problem->lda,
        .ldc = problem->lda};
    if (rows > 0)
        next->gemm(next, &gemm);
}

/* Clear the imaginary part of a diagonal element, because a product with beta = 1 may read it. */
static void clear_imaginary(const struct clb_potrf *problem, size_t q)
{
    void *element = potrf_resume_at(problem, q, q);
    if (problem->precision == CLB_C)
        ((float *)element)[1] = 0;
    else if (problem->precision == CLB_Z)
        ((double *)element)[1] = 0;
}

static void update_triangle(const struct clb_potrf *problem, const struct clb_host_blas *next,
                            size_t written)
{
    for (size_t j = written; j < problem->n; j += BLOCK) {
        size_t end = clb_min(j + BLOCK, problem->n);
        for (size_t q = j; q < end; q++) {
            size_t first = problem->upper ? j : q, last = problem->upper ? q + 1 : end;
            clear_imaginary(problem, q);
            potrf_resume_update(problem, next, written, first, last - first, q, 1);
        }
        if (problem->upper)
            potrf_resume_update(problem, next, written, written, j - written, j, end - j);
        else
            potrf_resume_update(problem, next, written, end, problem->n - end, j, end - j);
    }
}

void clb_potrf_resume(const struct clb_potrf *problem, const struct clb_host_blas *next,
                      struct clb_potrf_result *result)
{
    size_t written = result->columns_written, n = problem->n;
    /* With info set no more columns are to be written than these. */
    if (written == n || (result->info != 0 && written == result->info - 1))
        return;
    if (problem->upper)
        solve_right(problem, next, written);
    update_triangle(problem, next, written);
    const struct clb_potrf rest = {problem->precision, problem->upper, n - written,
                                   potrf_resume_at(problem, written, written), problem->lda};
    size_t info = next->potrf(next, &rest);
    result->info = info != 0 ? written + info : 0;
    result->columns_written = n;
}
