/* GEMM from the caller's memory to the caller's memory: chooses between the pipelines in inplace.c
 * and stream.c. */
#include "level3.h"
#include "structure.h"

#include <stdlib.h>
#include <string.h>

clb_status clb_gemm_distrust(const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    const void *zero = clb_scalar_zero(problem->precision);
    bool in_place = problem->level3 != NULL && problem->level3->in_place;
    bool reads_c = memcmp(problem->beta, zero, clb_precision_size(problem->precision)) != 0;
    for (size_t i = 0; i < progress->parts && !in_place && !reads_c; i++)
        progress->written[i] = false;
    if (in_place || reads_c)
        clb_log(CLB_LOG_WARN, "a command has failed, perhaps of a part that is written already");
    return CLB_ERR_OPENCL;
}

/* True when structured operands can be expanded on the device: each of them fits into one
 * buffer. */
static bool can_be_in_place(const struct clb_runtime *runtime, const struct clb_gemm *problem)
{
    bool shaped = clb_gemm_is_structured(problem), fits = true;
    for (size_t t = 0; shaped && t < clb_gemm_terms(problem); t++) {
        const struct clb_operand a = clb_operand_of_term(problem, CLB_OPERAND_A, t);
        const struct clb_operand b = clb_operand_of_term(problem, CLB_OPERAND_B, t);
        size_t columns_a = a.depth_contiguous ? problem->m : problem->k;
        size_t columns_b = b.depth_contiguous ? problem->n : problem->k;
        uint64_t most = runtime->device.max_alloc / a.element;
        fits = fits && columns_a <= most / clb_max(a.ld, 1) && columns_b <= most / clb_max(b.ld, 1);
    }
    return fits;
}

static clb_status run_one(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                          const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    bool stream = !runtime->device.unified || variant->tuning.value[CLB_PARAM_STREAM] != 0 ||
                  clb_gemm_is_split(variant) || !can_be_in_place(runtime, problem);
    struct clb_program *shapes; /* nothing is prepared for kernels that are known to be bad */
    clb_status status = clb_structure_prepare(runtime, variant, problem, !stream, &shapes);
    if (status != CLB_OK)
        return status;
    return stream ? clb_gemm_run_stream(runtime, variant, problem, progress)
                  : clb_gemm_run_inplace(runtime, variant, problem, progress);
}

static bool is_begun(const struct clb_gemm_progress *progress)
{
    bool begun = false;
    for (size_t i = 0; i < progress->parts; i++)
        begun = begun || progress->written[i];
    return begun;
}

/* While a split variant packs operands, they may turn out to be outside its range. What it has
 * written by then came from operands inside the range. The plain variant continues with the rest,
 * streamed too, because the parts must be the same. */
clb_status clb_gemm_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    *progress = (struct clb_gemm_progress){0};
    if (clb_gemm_is_split(variant) && problem->k < variant->tuning.value[CLB_PARAM_MIN_K])
        variant = variant->plain;
    clb_status status = run_one(runtime, variant, problem, progress);
    if (status != CLB_ERR_RANGE || variant->plain == NULL)
        return status;
    clb_log(CLB_LOG_INFO, "%s: operands outside its range, %s takes over", variant->name,
            variant->plain->name);
    if (is_begun(progress))
        return clb_gemm_run_stream(runtime, variant->plain, problem, progress);
    clb_gemm_progress_free(progress);
    return run_one(runtime, variant->plain, problem, progress);
}
