/* What the checks of kernels share. SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which sizes ---- */

clb_status clb_check_sizes(struct clb_program_check *check, const struct clb_check_size *sizes,
                           size_t count,
                           clb_status (*try_size)(void *context, struct clb_check_size size),
                           void *context)
{
    check->known = clb_program_is_checked(check->program, check->name);
    clb_log(CLB_LOG_INFO, "check of %s: %s", check->name,
            check->known ? "a small size" : "all sizes");
    clb_status status = CLB_OK;
    for (size_t i = 0; i < (check->known ? 1 : count) && status == CLB_OK; i++)
        status = try_size(context, sizes[i]);
    if (!check->known && status == CLB_OK)
        clb_program_set_checked(check->runtime, check->program, check->name);
    return status;
}

clb_status clb_check_memory(struct clb_runtime *runtime, const size_t *bytes,
                            struct clb_buffer **buffer, size_t count)
{
    clb_status status = CLB_OK;
    for (size_t i = 0; i < count && status == CLB_OK; i++) {
        if (bytes[i] != 0)
            status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, bytes[i], &buffer[i]);
    }
    return status;
}

void clb_check_memory_end(struct clb_runtime *runtime, struct clb_buffer **buffer, size_t count,
                          bool idle)
{
    for (size_t i = 0; i < count; i++)
        clb_buffer_end(runtime, buffer[i], idle);
}

bool clb_check_end(struct clb_queue_set *queue_set)
{
    bool idle = queue_set == NULL || clb_queue_set_settle(queue_set);
    clb_queue_set_end(queue_set, idle);
    return idle;
}

/* ---- numbers ---- */

double clb_check_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 40) / (double)(1 << 24) - 0.5;
}

static bool is_single(clb_precision precision)
{
    return clb_precision_real_size(precision) == sizeof(float);
}

double clb_check_get(clb_precision precision, const void *x, size_t at)
{
    return is_single(precision) ? (double)((const float *)x)[at] : ((const double *)x)[at];
}

void clb_check_put(clb_precision precision, void *x, size_t at, double value)
{
    if (is_single(precision))
        ((float *)x)[at] = (float)value;
    else
        ((double *)x)[at] = value;
}

/* ---- calls that kernels compute ---- */

/* The exponent of a row of op(A) or of a column of op(B). */
static int scale_of(const struct clb_call *call, size_t index, size_t i, size_t j)
{
    static const int rows[] = {0, -70, 58}, columns[] = {0, 58};
    return index == 0   ? rows[(call->transa == CLB_OP_N ? i : j) % CLB_COUNT_OF(rows)]
           : index == 1 ? columns[(call->transb == CLB_OP_N ? j : i) % CLB_COUNT_OF(columns)]
                        : 0;
}

static void fill_trial(const struct clb_trial *trial, size_t index, void *data)
{
    const struct clb_trial_numbers *numbers = trial->numbers;
    const struct clb_call *call = &trial->call;
    const size_t parts = clb_precision_parts(call->precision);
    const bool hermitian = clb_routine_has_flag(call->routine, 'h');
    uint64_t state = numbers->seed + index;
    struct clb_shape matrix;
    (void)clb_call_shape(call, (char)('A' + index), &matrix);
    const bool unread = matrix.written && !clb_call_reads_c(call);
    for (size_t j = 0, e = 0; j < matrix.cols; j++) {
        size_t begin, end;
        clb_part_rows(matrix.part, matrix.rows, j, &begin, &end);
        for (size_t i = 0; i < matrix.ld; i++) {
            const bool spoiled = numbers->spoils && (unread || i < begin || i >= end);
            const double scale = index == 0 ? numbers->scale : 1,
                         power = numbers->extreme ? ldexp(1, scale_of(call, index, i, j)) : 1;
            for (size_t part = 0; part < parts; part++, e++) {
                double value = clb_check_random(&state) * power * scale;
                if (index == 0 && i == j)
                    value += part == 0 ? numbers->diagonal : 0;
                if (spoiled || (numbers->spoils && index == 0 && hermitian && i == j && part == 1))
                    value = NAN;
                clb_check_put(call->precision, data, e, value);
            }
        }
    }
}

clb_status clb_trial_open(struct clb_trial *trial, struct clb_runtime *runtime,
                          struct clb_queue *queue, const struct clb_call *call,
                          const struct clb_trial_numbers *numbers)
{
    *trial =
        (struct clb_trial){.runtime = runtime, .queue = queue, .call = *call, .numbers = numbers};
    void **const data[] = {&trial->call.a, &trial->call.b, &trial->call.c};
    size_t *const ld[] = {&trial->call.lda, &trial->call.ldb, &trial->call.ldc};
    const size_t element = clb_precision_size(call->precision);
    struct clb_shape matrix;
    size_t all = 0;
    for (size_t i = 0; i < CLB_CALL_MATRICES; i++) {
        if (!clb_call_shape(call, (char)('A' + i), &matrix))
            continue;
        *ld[i] = *ld[i] != 0 ? *ld[i] : matrix.rows + 1;
        trial->begin[i] = numbers->begins_later && !matrix.written ? CLB_TRIAL_BEGIN * element : 0;
        trial->bytes[i] = trial->begin[i] + *ld[i] * matrix.cols * element;
        all += trial->bytes[i];
    }
    trial->host = calloc(2, all);
    clb_status status = trial->host != NULL ? CLB_OK : CLB_ERR_NOMEM;
    CLB_THEN(status, clb_check_memory(runtime, trial->bytes, trial->memory, CLB_CALL_MATRICES));
    for (size_t i = 0, at = 0; i < CLB_CALL_MATRICES && status == CLB_OK; i++) {
        if (trial->bytes[i] == 0)
            continue;
        char *const before = trial->host + at;
        trial->before[i] = (struct clb_before){before + trial->begin[i], *ld[i]};
        *data[i] = before + trial->begin[i] + all;
        fill_trial(trial, i, before + trial->begin[i]);
        status = clb_queue_write_now(queue, trial->memory[i]->mem, 0, trial->bytes[i], before);
        at += trial->bytes[i];
    }
    return status;
}

/* Whether a matrix is, outside of the call's part of it, what it was. */
static bool is_kept(const struct clb_trial *trial, size_t index, const struct clb_shape *matrix)
{
    const size_t element = clb_precision_size(trial->call.precision), column = matrix->ld * element;
    const char *before = trial->before[index].data, *now = matrix->data;
    for (size_t j = 0; j < matrix->cols; j++, before += column, now += column) {
        size_t begin = 0, end = 0;
        if (matrix->written)
            clb_part_rows(matrix->part, matrix->rows, j, &begin, &end);
        begin *= element;
        end *= element;
        if (memcmp(before, now, begin) != 0 || memcmp(before + end, now + end, column - end) != 0)
            return false;
    }
    return true;
}

clb_status clb_trial_judge(const struct clb_trial *trial)
{
    struct clb_before before[CLB_CALL_MATRICES];
    const struct clb_judged judged = {.call = &trial->call,
                                      .before = before,
                                      .entries = !trial->numbers->sampled,
                                      .rounded = trial->numbers->rounded};
    struct clb_shape matrix;
    struct clb_verdict verdict;
    for (size_t i = 0; i < CLB_CALL_MATRICES; i++) {
        before[i] = trial->before[i];
        if (!clb_call_shape(&trial->call, (char)('A' + i), &matrix))
            continue;
        clb_status status =
            clb_queue_read_now(trial->queue, trial->memory[i]->mem, 0, trial->bytes[i],
                               (char *)matrix.data - trial->begin[i]);
        if (status != CLB_OK)
            return status;
        if (matrix.written && !clb_call_reads_c(&trial->call))
            before[i].data = NULL;
        if (trial->numbers->extreme && !matrix.written)
            fill_trial(trial, i, matrix.data); /* as it was */
        else if (!is_kept(trial, i, &matrix))
            return CLB_ERR_BUILD;
    }
    clb_status status = clb_judge(&judged, &verdict);
    return status != CLB_OK                             ? status
           : verdict.failed != NULL || verdict.left > 0 ? CLB_ERR_BUILD
                                                        : CLB_OK;
}

void clb_trial_close(struct clb_trial *trial, bool idle)
{
    clb_check_memory_end(trial->runtime, trial->memory, CLB_CALL_MATRICES, idle);
    free(trial->host);
}
