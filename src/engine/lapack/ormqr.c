/* SPDX-License-Identifier: BSD-3-Clause
 * LAPACK xORMQR and xUNMQR in the caller's memory: first T of all blocks of reflectors is computed,
 * then the blocks are applied to one part of C after the other (rhs_blocks.h). */
#include "engine/device_blas/larfb.h"
#include "rhs_blocks.h"

struct reflector_product {
    const struct clb_call *call;
    struct clb_reflectors reflectors;
    size_t nb, extent; /* reflectors of a block; columns or rows of a part */
};

static struct clb_workspace_limits ormqr_limits_of(const struct clb_solve *solve)
{
    struct reflector_product *product = solve->context;
    product->extent = clb_solve_part(solve);
    return clb_reflectors_limits(clb_solve_order(solve), product->nb, solve->call.right,
                                 product->extent);
}

static clb_status ormqr_prepare(struct clb_solve *solve, struct clb_workspace *workspace,
                                const struct clb_dmat *a)
{
    struct reflector_product *product = solve->context;
    product->reflectors = (struct clb_reflectors){
        .nb = product->nb, .right = solve->call.right, .a = *a, .tau = product->call->tau};
    clb_status status = clb_reflectors_open(&product->reflectors, workspace, product->extent);
    return status == CLB_OK ? clb_reflectors_form(&product->reflectors, 0, a->cols) : status;
}

/* Q = H1*...*Hb: Q^H*C and C*Q begin with H1, Q*C and C*Q^H with Hb. The Q of LQ is Q^H. */
static clb_status ormqr_apply(struct clb_solve *solve, struct clb_workspace *workspace,
                              const struct clb_dmat *part)
{
    struct reflector_product *product = solve->context;
    const bool plain = (product->call->transa == CLB_OP_N) != clb_call_is_adjoint(product->call);
    clb_op op = plain ? CLB_OP_N : CLB_OP_C;
    bool right = solve->call.right, forward = right == (op == CLB_OP_N);
    size_t nb = product->nb, blocks = clb_div_up(solve->cols_a, nb);
    clb_status status = CLB_OK;
    (void)workspace;
    for (size_t i = 0; i < blocks && status == CLB_OK; i++) {
        size_t k = (forward ? i : blocks - 1 - i) * nb;
        const struct clb_dmat c = right ? clb_dmat_part(part, 0, k, part->rows, part->cols - k)
                                        : clb_dmat_part(part, k, 0, part->rows - k, part->cols);
        status = clb_reflectors_apply(&product->reflectors, k, op, &c);
    }
    return status;
}

static void ormqr_end(struct clb_solve *solve, bool idle)
{
    clb_reflectors_close(&((struct reflector_product *)solve->context)->reflectors, idle);
}

clb_status clb_ormqr_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, struct clb_gemm_progress *progress)
{
    static const struct clb_solve_work work = {ormqr_limits_of, ormqr_prepare, ormqr_apply,
                                               ormqr_end};
    struct reflector_product product = {
        .call = call, .nb = clb_min(variant->tuning.value[CLB_PARAM_GEQRF_NB], call->k)};
    struct clb_solve solve = clb_solve_of(call, &product, progress);
    solve.work = &work;
    solve.cols_a = call->k;
    solve.adjoint_a = clb_call_is_adjoint(call);
    return clb_solve_run(runtime, variant, &solve);
}
