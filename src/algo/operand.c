/* The caller's matrices as the device sees them.
 *
 * Where the device shares the host's memory an operand is one read-only buffer over the caller's
 * memory; overlapping operands (A*A^T) share one, since buffers over overlapping memory are not
 * defined. Otherwise, and where an operand is larger than a buffer may be, chunks are copied by
 * rectangular transfers into a buffer of the shim's. */
#include "algo.h"

struct clb_operand clb_operand_describe(const struct clb_gemm *problem, clb_operand_role role)
{
    bool is_a = role == CLB_OPERAND_A;
    clb_op op = is_a ? problem->transa : problem->transb;
    return (struct clb_operand){
        .role = role,
        .host = is_a ? problem->a : problem->b,
        .ld = is_a ? problem->lda : problem->ldb,
        .element = clb_precision_size(problem->precision),
        .depth_contiguous = is_a == (op != CLB_OP_N),
        .conjugated = op == CLB_OP_C,
    };
}

/* The bytes [begin, end) that an operand of w x k elements occupies. */
static clb_status find_range(const struct clb_operand *operand, size_t w, size_t k,
                             const char **end)
{
    size_t bytes;
    size_t rows = operand->depth_contiguous ? k : w, cols = operand->depth_contiguous ? w : k;
    clb_status status = clb_extent_bytes(rows, cols, operand->ld, operand->element, &bytes);
    *end = operand->host + bytes;
    return status;
}

static void wrap_one(struct clb_runtime *runtime, struct clb_operand *operand, const char *end,
                     cl_mem *wrapped)
{
    size_t bytes = (size_t)(end - operand->host);
    if (bytes <= runtime->device.max_alloc &&
        clb_buffer_wrap(runtime, operand->host, bytes, wrapped) == CLB_OK)
        operand->mem = *wrapped;
}

/* One buffer over both. Operands that are not a whole number of elements apart are copied. */
static void wrap_both(struct clb_runtime *runtime, struct clb_operands *operands, const char *a_end,
                      const char *b_end)
{
    struct clb_operand *a = &operands->a, *b = &operands->b;
    const char *begin = a->host < b->host ? a->host : b->host;
    const char *end = a_end > b_end ? a_end : b_end;
    size_t bytes = (size_t)(end - begin);
    if ((size_t)(a->host - begin) % a->element != 0 ||
        (size_t)(b->host - begin) % b->element != 0 || bytes > runtime->device.max_alloc ||
        clb_buffer_wrap(runtime, begin, bytes, &operands->wrapped[0]) != CLB_OK)
        return;
    a->mem = b->mem = operands->wrapped[0];
    a->offset = (size_t)(a->host - begin) / a->element;
    b->offset = (size_t)(b->host - begin) / b->element;
}

static clb_status wrap(struct clb_runtime *runtime, const struct clb_gemm *problem,
                       struct clb_operands *operands)
{
    struct clb_operand *a = &operands->a, *b = &operands->b;
    const char *a_end, *b_end;
    clb_status status = find_range(a, problem->m, problem->k, &a_end);
    if (status == CLB_OK)
        status = find_range(b, problem->n, problem->k, &b_end);
    if (status != CLB_OK || !runtime->device.unified)
        return status;
    if (a->host < b_end && b->host < a_end) {
        wrap_both(runtime, operands, a_end, b_end);
    } else {
        wrap_one(runtime, a, a_end, &operands->wrapped[0]);
        wrap_one(runtime, b, b_end, &operands->wrapped[1]);
    }
    return CLB_OK;
}

clb_status clb_operands_open(struct clb_runtime *runtime, const struct clb_gemm *problem,
                             const struct clb_gemm_plan *plan, struct clb_operands *operands)
{
    *operands = (struct clb_operands){0};
    operands->a = clb_operand_describe(problem, CLB_OPERAND_A);
    operands->b = clb_operand_describe(problem, CLB_OPERAND_B);
    clb_status status = wrap(runtime, problem, operands);
    if (status == CLB_OK && operands->a.mem == NULL)
        status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, plan->a_bytes, &operands->a.raw);
    if (status == CLB_OK && operands->b.mem == NULL)
        status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, plan->b_bytes, &operands->b.raw);
    if (status != CLB_OK)
        clb_operands_close(runtime, operands, true);
    return status;
}

void clb_operands_close(struct clb_runtime *runtime, struct clb_operands *operands, bool idle)
{
    for (size_t i = 0; idle && i < CLB_COUNT_OF(operands->wrapped); i++) {
        if (operands->wrapped[i] != NULL)
            clb_cl.ReleaseMemObject(operands->wrapped[i]);
    }
    if (idle) {
        clb_buffer_put(runtime, operands->a.raw);
        clb_buffer_put(runtime, operands->b.raw);
    }
    *operands = (struct clb_operands){0};
}

clb_status clb_operand_chunk(cl_command_queue queue, const struct clb_operand *operand, size_t i0,
                             size_t p0, size_t w, size_t k, struct clb_chunk *chunk)
{
    size_t row = operand->depth_contiguous ? p0 : i0, col = operand->depth_contiguous ? i0 : p0;
    size_t rows = operand->depth_contiguous ? k : w, cols = operand->depth_contiguous ? w : k;
    size_t first = row + col * operand->ld;
    if (operand->mem != NULL) {
        *chunk = (struct clb_chunk){operand->mem, operand->offset + first, operand->ld,
                                    operand->depth_contiguous, operand->conjugated};
        return CLB_OK;
    }
    const size_t origin[3] = {0, 0, 0};
    const size_t region[3] = {rows * operand->element, cols, 1};
    /* The pitch must not be below the region's width; with one column it is not used otherwise. */
    size_t pitch = clb_max(operand->ld * operand->element, region[0]);
    *chunk = (struct clb_chunk){operand->raw->mem, 0, rows, operand->depth_contiguous,
                                operand->conjugated};
    return clb_cl_check(clb_cl.EnqueueWriteBufferRect(
                            queue, operand->raw->mem, CL_FALSE, origin, origin, region, region[0],
                            0, pitch, 0, operand->host + first * operand->element, 0, NULL, NULL),
                        "clEnqueueWriteBufferRect");
}
