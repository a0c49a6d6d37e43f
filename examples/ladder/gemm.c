/* The rungs of the product: gemm.cl. SPDX-License-Identifier: BSD-3-Clause */
#include "ladder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONSTANT_BYTES ((size_t)65536) /* OpenCL's least; NVIDIA's most */
#define HALF_ERROR     0x1p13          /* a half's unit roundoff as a multiple of a float's */

enum { PLAIN, TRANSPOSED, SLABS, HALVES };

/* How many elements a work-item computes in each dimension; 0: all. */
enum { EACH, ROWS, PARTS };
static const size_t shares[][2] = {[EACH] = {1, 1}, [ROWS] = {1, 0}, [PARTS] = {4, 4}};

/* The rungs in their order. `tile`: its side and its padding; 0 where the kernel has none. */
static const struct gemm_rung {
    const char *name, *kernel, *adds;
    int share;
    size_t local[2];
    int operands;
    size_t tile[2];
} rungs[] = {
    {"sum in global memory", "global_sum", "the text-book's loop", EACH, {0}, PLAIN, {0}},
    {"sum in a register", "private_sum", "no store for each product", EACH, {0}, PLAIN, {0}},
    {"B transposed", "transposed", "neighbours read neighbours", EACH, {0}, TRANSPOSED, {0}},
    {"other dimension first", "coalesced", "no transposition", EACH, {0}, PLAIN, {0}},
    {"work-groups of 8 x 8", "coalesced", "a size is chosen", EACH, {8, 8}, PLAIN, {0}},
    {"work-groups of 32 x 8", "coalesced", "another size", EACH, {32, 8}, PLAIN, {0}},
    {"constant memory", "constant_slab", "B from its cache", EACH, {0}, SLABS, {0}},
    {"half operands", "half_operands", "half the bytes", EACH, {32, 8}, HALVES, {0}},
    {"sub-groups", "sub_groups", "B from registers", EACH, {64, 1}, PLAIN, {0}},
    {"one work-item a row", "row_each", "coarse work-items", ROWS, {0}, PLAIN, {0}},
    {"row in private memory", "row_private", "A is read once", ROWS, {0}, PLAIN, {0}},
    {"column in local memory", "row_local", "so is B by a group", ROWS, {64, 1}, PLAIN, {0}},
    {"local tiles of 8 x 8", "local_tiles", "elements are used 8 times", EACH, {8, 8}, PLAIN, {8}},
    {"local tiles of 16 x 16", "local_tiles", "and 16 times", EACH, {16, 16}, PLAIN, {16}},
    {"tiles with padding", "local_tiles", "no bank conflicts", EACH, {16, 16}, PLAIN, {16, 1}},
    {"register tiles", "register_tiles", "16 sums a work-item", PARTS, {16, 16}, PLAIN, {0}},
    {"vectors", "vectors", "four rows at once", PARTS, {16, 16}, PLAIN, {0}},
    {"prefetch to local memory", "prefetched", "reads beside products", PARTS, {16, 16}, 0, {0}},
};

/* The matrices on the device: operands, the result, and operands in another form. */
enum { A, B, C, OTHER_A, OTHER_B, MATRICES };

struct climb {
    struct ladder *ladder;
    const struct gemm_rung *rung;
    struct clb_program *program;
    struct clb_buffer *matrix[MATRICES];
};

static clb_status launch(const struct climb *climb, const char *kernel, size_t columns, size_t rows,
                         const size_t local[2], const struct clb_argument *arguments, size_t count)
{
    const struct clb_geometry geometry = {{columns, rows}, {local[0], local[1]}, 2};
    return clb_kernel_launch(climb->ladder->measure.queue_set, climb->program, kernel, &geometry,
                             (struct clb_order){0}, arguments, count);
}

static const size_t any_local[2];

/* The kernel of a rung, of operands in whatever form. */
static clb_status launch_product(const struct climb *climb, int a, int b)
{
    const struct gemm_rung *rung = climb->rung;
    const size_t *share = shares[rung->share];
    const cl_uint n = (cl_uint)climb->ladder->n;
    return launch(climb, rung->kernel, n / share[0], share[1] > 0 ? n / share[1] : 1, rung->local,
                  CLB_ARGUMENTS(CLB_ARG(n), CLB_ARG(climb->matrix[a]->mem),
                                CLB_ARG(climb->matrix[b]->mem), CLB_ARG(climb->matrix[C]->mem)));
}

static clb_status launch_transposed(const struct climb *climb)
{
    const cl_uint n = (cl_uint)climb->ladder->n;
    CLB_TRY(launch(climb, "transpose", n, n, any_local,
                   CLB_ARGUMENTS(CLB_ARG(n), CLB_ARG(climb->matrix[B]->mem),
                                 CLB_ARG(climb->matrix[OTHER_B]->mem))));
    return launch_product(climb, A, OTHER_B);
}

static clb_status launch_halves(const struct climb *climb)
{
    const size_t count = climb->ladder->n * climb->ladder->n;
    for (int i = 0; i < 2; i++)
        CLB_TRY(launch(climb, "to_half", count, 1, any_local,
                       CLB_ARGUMENTS(CLB_ARG(climb->matrix[A + i]->mem),
                                     CLB_ARG(climb->matrix[OTHER_A + i]->mem))));
    return launch_product(climb, OTHER_A, OTHER_B);
}

static clb_status launch_slabs(const struct climb *climb)
{
    const cl_uint n = (cl_uint)climb->ladder->n;
    const size_t columns = clb_max(CONSTANT_BYTES / (n * climb->ladder->size), 1);
    const cl_mem slab = climb->matrix[OTHER_B]->mem;
    for (cl_uint first = 0; first < n; first += (cl_uint)columns) {
        const size_t width = clb_min(columns, n - first);
        CLB_TRY(launch(climb, "copy_slab", n * width, 1, any_local,
                       CLB_ARGUMENTS(CLB_ARG(n), CLB_ARG(first), CLB_ARG(climb->matrix[B]->mem),
                                     CLB_ARG(slab))));
        CLB_TRY(launch(climb, climb->rung->kernel, n, width, any_local,
                       CLB_ARGUMENTS(CLB_ARG(n), CLB_ARG(first), CLB_ARG(climb->matrix[A]->mem),
                                     CLB_ARG(slab), CLB_ARG(climb->matrix[C]->mem))));
    }
    return CLB_OK;
}

static clb_status run_rung(void *argument)
{
    const struct climb *climb = argument;
    clb_status status = climb->rung->operands == TRANSPOSED ? launch_transposed(climb)
                        : climb->rung->operands == SLABS    ? launch_slabs(climb)
                        : climb->rung->operands == HALVES   ? launch_halves(climb)
                                                            : launch_product(climb, A, B);
    /* What was enqueued before a failure must end, too. */
    clb_status ended = clb_queue_finish(climb->ladder->queue);
    return status == CLB_OK ? ended : status;
}

/* ---- the check ---- */

/* C against A*B. Replaces C in host memory. */
static clb_status find_error(const struct climb *climb, double *error)
{
    struct ladder *ladder = climb->ladder;
    CLB_TRY(clb_queue_read_now(ladder->queue, climb->matrix[C]->mem, 0, ladder->bytes, ladder->c));
    *error = ladder_error(ladder, ladder->c, NULL, ladder->a, 'A', ladder->b, 'A');
    return CLB_OK;
}

/* ---- all of them ---- */

/* Forget the result of the rung before. */
static clb_status clear_result(const struct climb *climb)
{
    struct ladder *ladder = climb->ladder;
    memset(ladder->c, 0xff, ladder->bytes);
    return clb_queue_write_now(ladder->queue, climb->matrix[C]->mem, 0, ladder->bytes, ladder->c);
}

static clb_status climb_rung(struct climb *climb, const struct gemm_rung *rung)
{
    struct ladder *ladder = climb->ladder;
    struct rung result = {rung->name, rung->adds, NAN, NAN, 1};
    char options[96];
    if (rung->operands == HALVES)
        result.limit = HALF_ERROR * (ladder->measure.precision == CLB_S ? 1 : 0x1p29);
    climb->rung = rung;
    int length = snprintf(options, sizeof options, "-DCLB_DOUBLE=%d -DTILE=%zu -DPADDING=%zu",
                          ladder->measure.precision == CLB_D,
                          rung->tile[0] > 0 ? rung->tile[0] : 16, rung->tile[1]);
    if (rung->share == ROWS)
        snprintf(options + length, sizeof options - (size_t)length, " -DORDER=%zu", ladder->n);
    CLB_TRY(clear_result(climb));
    /* What the device's compiler does not know is a rung that it has not. */
    if (clb_program_get(ladder->measure.runtime, &kernel_ladder_gemm, options, &climb->program) ==
        CLB_OK)
        result.seconds = clb_measure_seconds(run_rung, climb, false);
    if (isfinite(result.seconds))
        CLB_TRY(find_error(climb, &result.error));
    ladder_add(ladder, &result);
    return CLB_OK;
}

static clb_status climb_production(const struct climb *climb)
{
    struct ladder *ladder = climb->ladder;
    const struct clb_gemm_variant *variant;
    struct rung result = {"the library's kernel", "", NAN, NAN, 1};
    CLB_TRY(clear_result(climb));
    CLB_TRY(clb_gemm_variant_get(ladder->measure.runtime, ladder->measure.precision, &variant));
    result.adds = variant->name;
    CLB_TRY(clb_measure_product(&ladder->measure, variant, ladder->n, climb->matrix, false,
                                &result.seconds));
    CLB_TRY(find_error(climb, &result.error));
    ladder_add(ladder, &result);
    return CLB_OK;
}

clb_status ladder_climb_gemm(struct ladder *ladder)
{
    struct climb climb = {.ladder = ladder};
    struct clb_measure *measure = &ladder->measure;
    const size_t size = clb_max(ladder->bytes, CONSTANT_BYTES),
                 bytes[MATRICES] = {size, size, size, size, size};
    clb_status status = clb_check_memory(measure->runtime, bytes, climb.matrix, MATRICES);
    CLB_THEN(status,
             clb_queue_write_now(ladder->queue, climb.matrix[A]->mem, 0, ladder->bytes, ladder->a));
    CLB_THEN(status,
             clb_queue_write_now(ladder->queue, climb.matrix[B]->mem, 0, ladder->bytes, ladder->b));
    for (size_t i = 0; i < CLB_COUNT_OF(rungs); i++)
        CLB_THEN(status, climb_rung(&climb, &rungs[i]));
    CLB_THEN(status, climb_production(&climb));
    clb_check_memory_end(measure->runtime, climb.matrix, MATRICES,
                         clb_queue_set_settle(measure->queue_set));
    return status;
}
