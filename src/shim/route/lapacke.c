/* C names of LAPACK: row-major matrices are copied to column-major order; a call with a NaN in its
 * input is declined, and the next library's function reports where it is.
 *
 * A triangle is not copied: the memory of a Hermitian matrix by rows is that of its conjugate by
 * columns, with the other triangle, A^T = conj(A). So conj(A) = L*L^H is factored in place where
 * A = U^H*U is asked for, L = U^T, and systems are conj(A)*conj(X) = conj(B): only B is copied.
 * L^-1 is the transpose of U^-1, and L^H*L that of U*U^H. SPDX-License-Identifier: BSD-3-Clause
 *
 * Source: LAPACKE (LAPACK Users' Guide; lapacke.h of Reference LAPACK). */
#include "engine/device_blas/device_blas.h"
#include "route.h"

#include <stdlib.h>

struct clb_lapacke {
    struct clb_lapacke_matrix {
        void **at;     /* the pointer in the call */
        size_t *ld_at; /* and its leading dimension there: that of the copy */
        void *callers; /* the caller's matrix while *at points to the copy */
        size_t ld;     /* and its leading dimension */
        struct clb_shape shape;
    } matrix[3];
    size_t count;
    void *work; /* owned; where the caller passes none */
};

bool clb_route_lapacke(struct clb_entry *entry, struct clb_host_blas *host)
{
    struct clb_lapacke lapacke = {.count = 0};
    entry->lapacke = &lapacke;
    return clb_route(entry, host);
}

/* Columns of a workspace that the shim allocates: enough for the next library's block size. */
#define OWN_COLUMNS 32

/* True for the names without _work of routines that have a workspace. */
static bool owns_work(const struct clb_run *run)
{
    return clb_signature_has(run->call, 'w') && run->entry->symbol->form < CLB_FORM_lapacke_work;
}

static bool is_by_rows(const struct clb_run *run)
{
    return run->entry->layout == CLB_ROW_MAJOR;
}

/* Note a matrix, and set its leading dimension to that of the Fortran call; to 0, which is never
 * valid, when the layout or the caller's leading dimension is invalid. */
static void add_matrix(struct clb_run *run, char name, void **at, size_t *ld_at)
{
    const bool by_rows = is_by_rows(run);
    struct clb_lapacke *lapacke = run->entry->lapacke;
    struct clb_shape shape;
    if (!clb_call_shape(run->call, name, &shape))
        return;
    if ((!by_rows && run->entry->layout != CLB_COL_MAJOR) || (int64_t)shape.rows < 0 ||
        (int64_t)*ld_at < (int64_t)(by_rows ? shape.cols : shape.rows)) {
        *ld_at = 0;
        return;
    }
    lapacke->matrix[lapacke->count++] =
        (struct clb_lapacke_matrix){.at = at, .ld_at = ld_at, .ld = *ld_at, .shape = shape};
    if (by_rows && !shape.triangle)
        *ld_at = clb_dmat_ld(clb_max(shape.rows, 1), clb_precision_size(run->call->precision));
}

void clb_lapacke_decode(struct clb_run *run)
{
    struct clb_call *call = run->call;
    const int64_t least = clb_call_size(call, clb_routines[call->routine].sizes[1]);
    add_matrix(run, 'A', &call->a, &call->lda);
    add_matrix(run, 'B', &call->b, &call->ldb);
    add_matrix(run, 'C', &call->c, &call->ldc);
    if (is_by_rows(run))
        call->upper = !call->upper;
    if (owns_work(run))
        call->lwork = (least > 1 ? least : 1) * OWN_COLUMNS;
}

/* The memory of a row-major matrix is that of its transpose in column-major order, where U and L
 * change places, as they have in the call. */
static bool has_nan(const struct clb_run *run, const struct clb_lapacke_matrix *matrix)
{
    const struct clb_call *call = run->call;
    const struct clb_shape *shape = &matrix->shape;
    const bool by_rows = is_by_rows(run);
    char part = 0;
    if (shape->triangle)
        part = (char)((call->upper ? 'U' : 'L') | (call->unit ? 0x20 : 0));
    return clb_has_nan(call->precision, by_rows ? shape->cols : shape->rows,
                       by_rows ? shape->rows : shape->cols, *matrix->at, matrix->ld, part);
}

/* Tau is input where the number of reflectors is. */
static bool any_nan(const struct clb_run *run)
{
    const struct clb_call *call = run->call;
    for (size_t i = 0; i < run->entry->lapacke->count; i++) {
        if (has_nan(run, &run->entry->lapacke->matrix[i]))
            return true;
    }
    return clb_signature_has(call, 'q') && clb_signature_has(call, 'k') &&
           clb_has_nan(run->call->precision, call->k, 1, call->tau, call->k, 0);
}

/* Unless it is by columns, or a triangle. */
static clb_status copy_by_columns(const struct clb_run *run, struct clb_lapacke_matrix *matrix)
{
    const clb_precision precision = run->call->precision;
    const struct clb_shape *shape = &matrix->shape;
    const size_t ld = *matrix->ld_at;
    size_t bytes;
    if (!is_by_rows(run) || shape->triangle)
        return CLB_OK;
    clb_status status =
        clb_extent_bytes(ld, shape->cols, ld, clb_precision_size(precision), &bytes);
    if (status != CLB_OK || bytes == 0)
        return status;
    void *copy = malloc(bytes);
    if (copy == NULL)
        return CLB_ERR_NOMEM;
    clb_pages_want_huge(copy, bytes);
    clb_transpose(precision, shape->rows, shape->cols, *matrix->at, matrix->ld, copy, ld,
                  clb_routine_has_flag(run->call->routine, 'h'), false);
    matrix->callers = *matrix->at;
    *matrix->at = copy;
    return CLB_OK;
}

clb_reason clb_lapacke_open(struct clb_run *run)
{
    struct clb_lapacke *lapacke = run->entry->lapacke;
    struct clb_call *call = run->call;
    bool enough = true;
    if (run->entry->checks && any_nan(run))
        return CLB_REASON_INVALID;
    for (size_t i = 0; i < lapacke->count && enough; i++)
        enough = copy_by_columns(run, &lapacke->matrix[i]) == CLB_OK;
    if (enough && owns_work(run)) {
        lapacke->work = calloc((size_t)call->lwork, clb_precision_size(run->call->precision));
        run->host->work = lapacke->work;
        run->host->lwork = call->lwork;
        enough = lapacke->work != NULL;
    }
    if (enough)
        return CLB_REASONS;
    clb_lapacke_close(run, false);
    return CLB_REASON_NOMEMORY;
}

void clb_lapacke_close(struct clb_run *run, bool computed)
{
    for (size_t i = 0; i < run->entry->lapacke->count; i++) {
        struct clb_lapacke_matrix *matrix = &run->entry->lapacke->matrix[i];
        if (matrix->callers == NULL)
            continue;
        if (computed && matrix->shape.written)
            clb_transpose(run->call->precision, matrix->shape.cols, matrix->shape.rows, *matrix->at,
                          *matrix->ld_at, matrix->callers, matrix->ld,
                          clb_routine_has_flag(run->call->routine, 'h'), false);
        free(*matrix->at);
        *matrix->at = matrix->callers;
        matrix->callers = NULL;
    }
    free(run->entry->lapacke->work);
    run->entry->lapacke->work = NULL;
}
