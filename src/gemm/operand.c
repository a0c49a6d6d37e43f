/* The caller's matrices as the device sees them.
 *
 * Where the device shares the host's memory an operand is one read-only buffer over the caller's
 * memory; overlapping operands (A*A^T) share one, since buffers over overlapping memory are not
 * defined. Otherwise, and where an operand is larger than a buffer may be, chunks are copied by
 * rectangular transfers into a buffer of the shim's. */
#include "structure.h"

/* Where her2k's two factors differ, one matrix is scaled instead: the one that is taken without op
 * in the first term and conjugate transposed in the second. */
static const void *scale_of(const struct clb_level3 *level3, clb_operand_role role, size_t term)
{
    clb_operand_role scaled = level3->a[0].op == CLB_OP_N ? CLB_OPERAND_A : CLB_OPERAND_B;
    bool differ = level3->terms > 1 &&
                  !clb_scalar_equal(level3->precision, &level3->alpha[0], &level3->alpha[1]);
    return differ && (role == scaled) == (term == 0) ? &level3->alpha[0] : NULL;
}

struct clb_operand clb_operand_of_term(const struct clb_gemm *problem, clb_operand_role role,
                                       size_t term)
{
    bool is_a = role == CLB_OPERAND_A;
    const struct clb_level3 *level3 = problem->level3;
    const struct clb_level3_operand x = level3 != NULL
                                            ? (is_a ? level3->a : level3->b)[term]
                                            : (struct clb_level3_operand){
                                                  .data = is_a ? problem->a : problem->b,
                                                  .ld = is_a ? problem->lda : problem->ldb,
                                                  .op = is_a ? problem->transa : problem->transb,
                                              };
    return (struct clb_operand){
        .role = role,
        .host = x.data,
        .ld = x.ld,
        .element = clb_precision_size(problem->precision),
        .depth_contiguous = is_a == (x.op != CLB_OP_N),
        .conjugated = x.op == CLB_OP_C,
        .shape = x.shape,
        .upper = x.upper,
        .unit = x.unit,
        .scale = level3 != NULL ? scale_of(level3, role, term) : NULL,
    };
}

struct clb_operand clb_operand_describe(const struct clb_gemm *problem, clb_operand_role role)
{
    return clb_operand_of_term(problem, role, 0);
}

/* A range of the caller's memory that contains one or more operands. */
struct range {
    const char *begin, *end;
    cl_mem mem;
};

/* Set *range to the memory of an operand of w x k elements. */
static clb_status find_range(const struct clb_operand *operand, size_t w, size_t k,
                             struct range *range)
{
    size_t bytes;
    size_t rows = operand->depth_contiguous ? k : w, cols = operand->depth_contiguous ? w : k;
    clb_status status = clb_extent_bytes(rows, cols, operand->ld, operand->element, &bytes);
    *range = (struct range){operand->host, operand->host + bytes, NULL};
    return status;
}

/* Unite overlapping ranges until none overlap; returns their number. */
static size_t unite(struct range *range, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count;) {
            if (range[i].begin >= range[j].end || range[j].begin >= range[i].end) {
                j++;
                continue;
            }
            range[i].begin = range[i].begin < range[j].begin ? range[i].begin : range[j].begin;
            range[i].end = range[i].end > range[j].end ? range[i].end : range[j].end;
            range[j] = range[--count];
            j = i + 1;
        }
    }
    return count;
}

/* Place an operand in its range's buffer, if that exists. An operand that is not a whole number of
 * elements behind the begin of its range is copied. */
static void operand_place(struct clb_operand *operand, const struct range *range, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t distance = (size_t)(operand->host - range[i].begin);
        if (operand->host < range[i].begin || operand->host >= range[i].end ||
            range[i].mem == NULL || distance % operand->element != 0)
            continue;
        operand->mem = range[i].mem;
        operand->offset = distance / operand->element;
    }
}

static clb_status operand_wrap(struct clb_runtime *runtime, const struct clb_gemm *problem,
                               struct clb_operands *operands)
{
    struct range range[2 * CLB_MAX_TERMS];
    size_t count = 0;
    clb_status status = CLB_OK;
    for (size_t t = 0; t < operands->terms && status == CLB_OK; t++) {
        status = find_range(&operands->a[t], problem->m, problem->k, &range[count++]);
        if (status == CLB_OK)
            status = find_range(&operands->b[t], problem->n, problem->k, &range[count++]);
    }
    if (status != CLB_OK || !runtime->device.unified)
        return status;
    count = unite(range, count);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = (size_t)(range[i].end - range[i].begin);
        if (bytes <= runtime->device.max_alloc &&
            clb_buffer_wrap(runtime, range[i].begin, bytes, &operands->wrapped[i]) == CLB_OK)
            range[i].mem = operands->wrapped[i];
    }
    for (size_t t = 0; t < operands->terms; t++) {
        operand_place(&operands->a[t], range, count);
        operand_place(&operands->b[t], range, count);
    }
    return CLB_OK;
}

/* Get the buffer for copies of an operand that is not in place, one for all terms. */
static clb_status get_raw(struct clb_runtime *runtime, struct clb_operand *operand, size_t terms,
                          size_t bytes, struct clb_buffer **raw)
{
    clb_status status = CLB_OK;
    for (size_t t = 0; t < terms && status == CLB_OK; t++) {
        if (operand[t].mem == NULL && *raw == NULL)
            status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, bytes, raw);
        operand[t].raw = *raw;
    }
    return status;
}

clb_status clb_operands_open(struct clb_runtime *runtime, const struct clb_gemm *problem,
                             const struct clb_gemm_plan *plan, struct clb_operands *operands)
{
    *operands = (struct clb_operands){.terms = clb_gemm_terms(problem)};
    for (size_t t = 0; t < operands->terms; t++) {
        operands->a[t] = clb_operand_of_term(problem, CLB_OPERAND_A, t);
        operands->b[t] = clb_operand_of_term(problem, CLB_OPERAND_B, t);
    }
    clb_status status = operand_wrap(runtime, problem, operands);
    if (status == CLB_OK)
        status = get_raw(runtime, operands->a, operands->terms, plan->a_bytes, &operands->raw[0]);
    if (status == CLB_OK)
        status = get_raw(runtime, operands->b, operands->terms, plan->b_bytes, &operands->raw[1]);
    if (status != CLB_OK)
        clb_operands_close(runtime, operands, true);
    return status;
}

bool clb_operands_in_place(const struct clb_operands *operands)
{
    return operands->raw[0] == NULL && operands->raw[1] == NULL;
}

void clb_operands_close(struct clb_runtime *runtime, struct clb_operands *operands, bool idle)
{
    for (size_t i = 0; idle && i < CLB_COUNT_OF(operands->wrapped); i++) {
        if (operands->wrapped[i] != NULL)
            clb_mem_release(operands->wrapped[i]);
    }
    if (idle) {
        clb_buffer_put(runtime, operands->raw[0]);
        clb_buffer_put(runtime, operands->raw[1]);
    }
    *operands = (struct clb_operands){0};
}

clb_status clb_operand_chunk(struct clb_queue *queue, const struct clb_operand *operand, size_t i0,
                             size_t p0, size_t w, size_t k, struct clb_chunk *chunk)
{
    size_t row = operand->depth_contiguous ? p0 : i0, col = operand->depth_contiguous ? i0 : p0;
    size_t rows = operand->depth_contiguous ? k : w, cols = operand->depth_contiguous ? w : k;
    size_t first = row + col * operand->ld;
    if (operand->mem != NULL) {
        *chunk = (struct clb_chunk){.mem = operand->mem,
                                    .offset = operand->offset + first,
                                    .ld = operand->ld,
                                    .depth_contiguous = operand->depth_contiguous,
                                    .conjugated = operand->conjugated};
        return CLB_OK;
    }
    /* The pitch must not be smaller than the region's width, even with one column, where it has no
     * other use. */
    const struct clb_box box = {.size = {rows * operand->element, cols, 1},
                                .pitch = rows * operand->element,
                                .host_pitch = clb_max(operand->ld, rows) * operand->element};
    *chunk = (struct clb_chunk){.mem = operand->raw->mem,
                                .ld = rows,
                                .depth_contiguous = operand->depth_contiguous,
                                .conjugated = operand->conjugated};
    return clb_queue_write_rect(queue, operand->raw->mem, &box,
                                operand->host + first * operand->element, NULL);
}
