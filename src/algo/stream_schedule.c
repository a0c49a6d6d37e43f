/* The order of loads and strips. */
#include "stream.h"

#include <stdlib.h>

struct builder {
    const struct clb_stream_plan *plan;
    const struct clb_gemm *problem;
    const struct clb_operand *a, *b;
    struct clb_schedule *schedule;
    struct clb_rect block;
    bool failed;
};

/* Room for one more in a table that grows. */
static void *extend(struct builder *builder, void *table, size_t count, size_t size)
{
    if ((count & (count - 1)) != 0) /* the capacity is the next power of two */
        return table;
    void *larger = realloc(table, (count == 0 ? 1 : 2 * count) * size);
    builder->failed = builder->failed || larger == NULL;
    return larger != NULL ? larger : table;
}

static struct clb_step *add_step(struct builder *builder, bool new_block)
{
    struct clb_schedule *schedule = builder->schedule;
    schedule->step = extend(builder, schedule->step, schedule->steps, sizeof *schedule->step);
    if (builder->failed)
        return NULL;
    struct clb_step *step = &schedule->step[schedule->steps++];
    *step = (struct clb_step){.new_block = new_block && schedule->steps > 1};
    return step;
}

/* Load one slab of the band that begins at element i0 of an operand. */
static void add_load(struct builder *builder, const struct clb_operand *operand, size_t i0,
                     size_t slab)
{
    struct clb_schedule *schedule = builder->schedule;
    const struct clb_stream_plan *plan = builder->plan;
    bool is_a = operand->role == CLB_OPERAND_A;
    size_t origin = is_a ? builder->block.row : builder->block.col;
    size_t end = origin + (is_a ? builder->block.rows : builder->block.cols);
    schedule->load = extend(builder, schedule->load, schedule->loads, sizeof *schedule->load);
    if (builder->failed)
        return;
    struct clb_load load = {.operand = operand,
                            .slab = slab,
                            .i0 = i0,
                            .w = clb_min(is_a ? plan->band_m : plan->band_n, end - i0),
                            .p0 = slab * plan->slab,
                            .origin = origin,
                            .first_piece = schedule->load_pieces};
    load.k = clb_min(plan->slab, builder->problem->k - load.p0);
    size_t rows = operand->depth_contiguous ? load.k : load.w;
    size_t cols = operand->depth_contiguous ? load.w : load.k;
    /* Until the first pieces are there the link rests. */
    size_t bytes = load.first_piece == 0 ? plan->piece_bytes / 2 : plan->piece_bytes;
    load.piece_cols = clb_min(clb_max(bytes / (rows * operand->element), 1), cols);
    load.pieces = clb_div_up(cols, load.piece_cols);
    load.upload = calloc(load.pieces, sizeof *load.upload);
    builder->failed = load.upload == NULL;
    schedule->load_pieces += load.pieces;
    schedule->load[schedule->loads++] = load;
    schedule->step[schedule->steps - 1].loads++;
}

static void add_loads(struct builder *builder, const struct clb_operand *operand, size_t i0)
{
    for (size_t slab = 0; slab < builder->plan->slabs && !builder->failed; slab++)
        add_load(builder, operand, i0, slab);
}

static void add_one_strip(struct builder *builder, struct clb_rect rect)
{
    struct clb_schedule *schedule = builder->schedule;
    size_t element = builder->a->element;
    schedule->strip = extend(builder, schedule->strip, schedule->strips, sizeof *schedule->strip);
    if (builder->failed)
        return;
    struct clb_strip strip = {.rect = rect,
                              .a_origin = builder->block.row,
                              .b_origin = builder->block.col,
                              .ldc = clb_stream_ld(rect.rows, element),
                              .offset = schedule->strip_elements,
                              .step = schedule->steps - 1,
                              .first_piece = schedule->strip_pieces};
    strip.piece_cols = clb_min(builder->plan->piece_bytes / (strip.ldc * element), rect.cols);
    strip.pieces = clb_div_up(rect.cols, strip.piece_cols);
    schedule->strip_pieces += strip.pieces;
    schedule->strip_elements += strip.ldc * rect.cols;
    schedule->strip[schedule->strips++] = strip;
    schedule->step[schedule->steps - 1].strips++;
}

/* The length of equal parts of `length`, of at most `most` units each where that is not 0. */
static size_t part_length(size_t length, size_t unit, size_t most)
{
    size_t units = clb_div_up(length, unit);
    return clb_div_up(units, clb_div_up(units, clb_max(most, 1))) * unit;
}

/* A rectangle as one strip, or cut across its longer side into strips of the plan's most tiles: a
 * strip is brought down when all of it is ready, and the last one when nothing else is left. */
static void add_strip(struct builder *builder, struct clb_rect rect)
{
    const struct clb_stream_plan *plan = builder->plan;
    if (rect.rows == 0 || rect.cols == 0 || builder->failed)
        return;
    size_t tiles_m = clb_div_up(rect.rows, plan->unit_m);
    size_t tiles_n = clb_div_up(rect.cols, plan->unit_n);
    size_t rows = rect.rows, cols = rect.cols;
    if (plan->strip_tiles != 0 && tiles_m >= tiles_n)
        rows = part_length(rows, plan->unit_m, plan->strip_tiles / tiles_n);
    else if (plan->strip_tiles != 0)
        cols = part_length(cols, plan->unit_n, plan->strip_tiles / tiles_m);
    for (size_t i = 0; i < rect.rows && !builder->failed; i += rows) {
        for (size_t j = 0; j < rect.cols && !builder->failed; j += cols)
            add_one_strip(builder, (struct clb_rect){rect.row + i, rect.col + j,
                                                     clb_min(rows, rect.rows - i),
                                                     clb_min(cols, rect.cols - j)});
    }
}

/* Both operands are new: growing squares. The next band is of the operand of which less has been
 * loaded, and what it makes computable with the other's begins at once. */
static void add_square_steps(struct builder *builder)
{
    const struct clb_rect *block = &builder->block;
    size_t rows = 0, cols = 0; /* loaded */
    while ((rows < block->rows || cols < block->cols) && !builder->failed) {
        bool is_a = cols == block->cols || (rows < block->rows && rows <= cols);
        struct clb_rect strip;
        if (add_step(builder, rows + cols == 0) == NULL)
            return;
        if (is_a) {
            size_t more = clb_min(builder->plan->band_m, block->rows - rows);
            add_loads(builder, builder->a, block->row + rows);
            strip = (struct clb_rect){block->row + rows, block->col, more, cols};
            rows += more;
        } else {
            size_t more = clb_min(builder->plan->band_n, block->cols - cols);
            add_loads(builder, builder->b, block->col + cols);
            strip = (struct clb_rect){block->row, block->col + cols, rows, more};
            cols += more;
        }
        add_strip(builder, strip);
    }
}

/* Only A is new. */
static void add_row_steps(struct builder *builder)
{
    const struct clb_rect *block = &builder->block;
    for (size_t row = 0; row < block->rows && !builder->failed; row += builder->plan->band_m) {
        size_t rows = clb_min(builder->plan->band_m, block->rows - row);
        if (add_step(builder, row == 0) == NULL)
            return;
        add_loads(builder, builder->a, block->row + row);
        add_strip(builder, (struct clb_rect){block->row + row, block->col, rows, block->cols});
    }
}

/* Only B is new. */
static void add_column_steps(struct builder *builder)
{
    const struct clb_rect *block = &builder->block;
    for (size_t col = 0; col < block->cols && !builder->failed; col += builder->plan->band_n) {
        size_t cols = clb_min(builder->plan->band_n, block->cols - col);
        if (add_step(builder, col == 0) == NULL)
            return;
        add_loads(builder, builder->b, block->col + col);
        add_strip(builder, (struct clb_rect){block->row, block->col + col, block->rows, cols});
    }
}

static void add_block(struct builder *builder, size_t i, size_t j, bool first, bool row_changed)
{
    const struct clb_stream_plan *plan = builder->plan;
    size_t row = i * plan->block_m, col = j * plan->block_n;
    builder->block = (struct clb_rect){row, col, clb_min(plan->block_m, builder->problem->m - row),
                                       clb_min(plan->block_n, builder->problem->n - col)};
    if (first)
        add_square_steps(builder);
    else if (row_changed)
        add_row_steps(builder);
    else
        add_column_steps(builder);
}

clb_status clb_schedule_make(const struct clb_stream_plan *plan, const struct clb_gemm *problem,
                             const struct clb_operand *a, const struct clb_operand *b,
                             struct clb_schedule *schedule)
{
    struct builder builder = {
        .plan = plan, .problem = problem, .a = a, .b = b, .schedule = schedule};
    size_t block_rows = clb_div_up(problem->m, plan->block_m);
    size_t block_cols = clb_div_up(problem->n, plan->block_n);
    size_t outer_count = plan->down_first ? block_cols : block_rows;
    size_t inner_count = plan->down_first ? block_rows : block_cols;
    *schedule = (struct clb_schedule){0};
    for (size_t outer = 0; outer < outer_count; outer++) {
        for (size_t k = 0; k < inner_count && !builder.failed; k++) {
            size_t inner = outer % 2 == 0 ? k : inner_count - 1 - k;
            bool inner_changed = k > 0;
            add_block(&builder, plan->down_first ? inner : outer, plan->down_first ? outer : inner,
                      outer == 0 && k == 0, inner_changed == plan->down_first);
        }
    }
    return builder.failed ? CLB_ERR_NOMEM : CLB_OK;
}

void clb_schedule_free(struct clb_schedule *schedule)
{
    for (size_t i = 0; i < schedule->loads; i++)
        free(schedule->load[i].upload);
    free(schedule->load);
    free(schedule->strip);
    free(schedule->step);
    *schedule = (struct clb_schedule){0};
}
