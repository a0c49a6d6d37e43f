/* Calls of the next library by algorithms, see assist.h. */
#include "assist.h"

bool clb_assist_begin(struct clb_assist *assist, double work)
{
    assist->work += work;
    return clb_route_set_inside(assist->on_device);
}

void clb_assist_end(bool before)
{
    clb_route_set_inside(before);
}

void clb_assist_trsm(const struct clb_host_blas *host, const struct clb_trsm *problem)
{
    struct clb_assist *assist = (struct clb_assist *)(uintptr_t)host->context;
    double work = clb_work_trsm((double)problem->m, (double)problem->n,
                                (double)(problem->right ? problem->n : problem->m));
    bool before = clb_assist_begin(assist, work);
    assist->next->call_trsm(assist->next->trsm, problem);
    clb_assist_end(before);
}

void clb_assist_gemm(const struct clb_host_blas *host, const struct clb_gemm *problem)
{
    struct clb_assist *assist = (struct clb_assist *)(uintptr_t)host->context;
    double work = clb_work_gemm((double)problem->m, (double)problem->n, (double)problem->k);
    bool before = clb_assist_begin(assist, work);
    assist->next->call_gemm(assist->next->gemm, problem);
    clb_assist_end(before);
}

double clb_assist_share(const struct clb_assist *assist, double all)
{
    return assist->work < all ? 1 - assist->work / all : 0;
}
