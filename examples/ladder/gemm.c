/* The rungs of the product: gemm.cl. */
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

/* The rungs in their order. `tile`: 0 where the kernel has none. */
static const struct gemm_rung {
    const char *name, *kernel, *adds;
    int share;
    size_t local[2];
    int operands, tile;
} rungs[] = {
    {"sum in global memory", "global_sum", "the text-book's loop", EACH, {0}, PLAIN, 0},
    {"sum in a register", "private_sum", "no store for each product", EACH, {0}, PLAIN, 0},
    {"B transposed", "transposed", "neighbours read neighbours", EACH, {0}, TRANSPOSED, 0},
    {"other dimension first", "coalesced", "no transposition", EACH, {0}, PLAIN, 0},
    {"work-groups of 8 x 8", "coalesced", "a size is chosen", EACH, {8, 8}, PLAIN, 0},
    {"work-groups of 32 x 8", "coalesced", "another size", EACH, {32, 8}, PLAIN, 0},
    {"constant memory", "constant_slab", "B from its cache", EACH, {0}, SLABS, 0},
    {"half operands", "half_operands", "half the bytes", EACH, {32, 8}, HALVES, 0},
    {"sub-groups", "sub_groups", "B from registers", EACH, {64, 1}, PLAIN, 0},
    {"one work-item a row", "row_each", "coarse work-items", ROWS, {0}, PLAIN, 0},
    {"row in private memory", "row_private", "A is read once", ROWS, {0}, PLAIN, 0},
    {"column in local memory", "row_local", "so is B by a group", ROWS, {64, 1}, PLAIN, 0},
    {"local tiles of 8 x 8", "local_tiles", "elements are used 8 times", EACH, {8, 8}, PLAIN, 8},
    {"local tiles of 16 x 16", "local_tiles", "and 16 times", EACH, {16, 16}, PLAIN, 16},
    {"tiles with padding", "padded", "no bank conflicts", EACH, {16, 16}, PLAIN, 16},
    {"register tiles", "register_tiles", "16 sums a work-item", PARTS, {16, 16}, PLAIN, 0},
    {"vectors", "vectors", "four rows at once", PARTS, {16, 16}, PLAIN, 0},
    {"prefetch to local memory", "prefetched", "reads beside products", PARTS, {16, 16}, PLAIN, 0},
};

struct climb {
    struct ladder *ladder;
    const struct gemm_rung *rung;
    struct clb_program *program;
    struct clb_buffer *a, *b, *c, *other[2]; /* `other`: operands in another form */
};

static clb_status launch(const struct climb *climb, const char *kernel,
                         const struct clb_argument *arguments, size_t count, size_t columns,
                         size_t rows, const size_t *local)
{
    return ladder_launch(climb->ladder, climb->program, kernel, arguments, count,
                         (const size_t[2]){columns, rows}, local, NULL, NULL);
}

/* The kernel of a rung, of operands in whatever form. */
static clb_status launch_product(const struct climb *climb, const struct clb_buffer *a,
                                 const struct clb_buffer *b)
{
    const struct gemm_rung *rung = climb->rung;
    const size_t *share = shares[rung->share];
    const cl_uint n = (cl_uint)climb->ladder->n;
    const struct clb_argument arguments[] = {CLB_ARG(n), CLB_ARG(a->mem), CLB_ARG(b->mem),
                                             CLB_ARG(climb->c->mem)};
    return launch(climb, rung->kernel, arguments, CLB_COUNT_OF(arguments), n / share[0],
                  share[1] > 0 ? n / share[1] : 1, rung->local[0] > 0 ? rung->local : NULL);
}

static clb_status launch_transposed(const struct climb *climb)
{
    const cl_uint n = (cl_uint)climb->ladder->n;
    const struct clb_argument arguments[] = {CLB_ARG(n), CLB_ARG(climb->b->mem),
                                             CLB_ARG(climb->other[1]->mem)};
    clb_status status = launch(climb, "transpose", arguments, CLB_COUNT_OF(arguments), n, n, NULL);
    return status == CLB_OK ? launch_product(climb, climb->a, climb->other[1]) : status;
}

static clb_status launch_halves(const struct climb *climb)
{
    const struct clb_buffer *const from[] = {climb->a, climb->b};
    clb_status status = CLB_OK;
    for (int i = 0; i < 2 && status == CLB_OK; i++) {
        const struct clb_argument arguments[] = {CLB_ARG(from[i]->mem),
                                                 CLB_ARG(climb->other[i]->mem)};
        status = launch(climb, "to_half", arguments, CLB_COUNT_OF(arguments),
                        climb->ladder->n * climb->ladder->n, 1, NULL);
    }
    return status == CLB_OK ? launch_product(climb, climb->other[0], climb->other[1]) : status;
}

static clb_status launch_slabs(const struct climb *climb)
{
    const cl_uint n = (cl_uint)climb->ladder->n;
    const size_t columns = clb_max(CONSTANT_BYTES / (n * climb->ladder->size), 1);
    clb_status status = CLB_OK;
    for (cl_uint first = 0; first < n && status == CLB_OK; first += (cl_uint)columns) {
        size_t width = clb_min(columns, n - first);
        const struct clb_argument copied[] = {CLB_ARG(n), CLB_ARG(first), CLB_ARG(climb->b->mem),
                                              CLB_ARG(climb->other[1]->mem)},
                                  product[] = {CLB_ARG(n), CLB_ARG(first), CLB_ARG(climb->a->mem),
                                               CLB_ARG(climb->other[1]->mem),
                                               CLB_ARG(climb->c->mem)};
        status = launch(climb, "copy_slab", copied, CLB_COUNT_OF(copied), n * width, 1, NULL);
        CLB_THEN(status, launch(climb, climb->rung->kernel, product, CLB_COUNT_OF(product), n,
                                width, NULL));
    }
    return status;
}

static clb_status run_rung(void *argument)
{
    const struct climb *climb = argument;
    clb_status status = climb->rung->operands == TRANSPOSED ? launch_transposed(climb)
                        : climb->rung->operands == SLABS    ? launch_slabs(climb)
                        : climb->rung->operands == HALVES
                            ? launch_halves(climb)
                            : launch_product(climb, climb->a, climb->b);
    /* What was enqueued before a failure must end, too. */
    clb_status ended = clb_queue_finish(climb->ladder->queue);
    return status == CLB_OK ? ended : status;
}

/* ---- the check ---- */

/* C against A*B. Replaces C in host memory. */
static clb_status find_error(const struct climb *climb, double *error)
{
    struct ladder *ladder = climb->ladder;
    const clb_status status =
        clb_queue_read_now(ladder->queue, climb->c->mem, 0, ladder->bytes, ladder->c);
    if (status == CLB_OK)
        *error = ladder_error(ladder, ladder->c, NULL, ladder->a, 'A', ladder->b, 'A');
    return status;
}

/* ---- all of them ---- */

/* Forget the result of the rung before. */
static clb_status clear_result(const struct climb *climb)
{
    struct ladder *ladder = climb->ladder;
    memset(ladder->c, 0xff, ladder->bytes);
    return clb_queue_write_now(ladder->queue, climb->c->mem, 0, ladder->bytes, ladder->c);
}

static clb_status climb_rung(struct climb *climb, const struct gemm_rung *rung)
{
    struct ladder *ladder = climb->ladder;
    struct rung result = {rung->name, rung->adds, NAN, NAN, 1};
    char options[96];
    if (rung->operands == HALVES)
        result.limit = HALF_ERROR * (ladder->measure.precision == CLB_S ? 1 : 0x1p29);
    climb->rung = rung;
    int length = snprintf(options, sizeof options, "-DCLB_DOUBLE=%d -DTILE=%d",
                          ladder->measure.precision == CLB_D, rung->tile > 0 ? rung->tile : 16);
    if (rung->share == ROWS)
        snprintf(options + length, sizeof options - (size_t)length, " -DORDER=%zu", ladder->n);
    clb_status status = clear_result(climb);
    if (status != CLB_OK)
        return status;
    /* What the device's compiler does not know is a rung that it has not. */
    if (clb_program_get(ladder->measure.runtime, &kernel_ladder_gemm, options, &climb->program) ==
        CLB_OK)
        result.seconds = clb_measure_seconds(run_rung, climb, false);
    if (isfinite(result.seconds))
        status = find_error(climb, &result.error);
    if (status == CLB_OK)
        ladder_add(ladder, &result);
    return status;
}

static clb_status climb_production(struct climb *climb)
{
    struct ladder *ladder = climb->ladder;
    struct clb_resident product = {.runtime = ladder->measure.runtime};
    const struct clb_gemm_variant *variant;
    struct rung result = {"the library's kernel", "", NAN, NAN, 1};
    clb_status status = clear_result(climb);
    CLB_THEN(status,
             clb_gemm_variant_get(ladder->measure.runtime, ladder->measure.precision, &variant));
    CLB_THEN(status, clb_resident_open(&product, ladder->measure.runtime, ladder->measure.queue_set,
                                       variant, ladder->n, ladder->n, ladder->n));
    product.a = climb->a->mem;
    product.b = climb->b->mem;
    product.c = climb->c->mem;
    if (status == CLB_OK) {
        result.adds = product.variant->name;
        result.seconds = clb_measure_seconds(clb_measure_product, &product, false);
        status = find_error(climb, &result.error);
    }
    clb_resident_close(&product);
    if (status == CLB_OK)
        ladder_add(ladder, &result);
    return status;
}

clb_status ladder_climb_gemm(struct ladder *ladder)
{
    struct climb climb = {.ladder = ladder};
    struct clb_measure *measure = &ladder->measure;
    struct clb_buffer **buffers[] = {&climb.a, &climb.b, &climb.c, &climb.other[0],
                                     &climb.other[1]};
    const size_t bytes = clb_max(ladder->bytes, CONSTANT_BYTES);
    clb_status status = CLB_OK;
    for (size_t i = 0; i < CLB_COUNT_OF(buffers) && status == CLB_OK; i++)
        status = clb_buffer_get(measure->runtime, CLB_MEMORY_DEVICE, bytes, buffers[i]);
    CLB_THEN(status, clb_queue_write_now(ladder->queue, climb.a->mem, 0, ladder->bytes, ladder->a));
    CLB_THEN(status, clb_queue_write_now(ladder->queue, climb.b->mem, 0, ladder->bytes, ladder->b));
    for (size_t i = 0; i < CLB_COUNT_OF(rungs) && status == CLB_OK; i++)
        status = climb_rung(&climb, &rungs[i]);
    CLB_THEN(status, climb_production(&climb));
    bool idle = clb_queue_set_settle(measure->queue_set);
    for (size_t i = 0; i < CLB_COUNT_OF(buffers); i++)
        clb_buffer_end(measure->runtime, *buffers[i], idle);
    return status;
}
