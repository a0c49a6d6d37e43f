/* The order of loads and strips of a streamed GEMM; stream.h explains it. */
#include "stream.h"

#include <stdlib.h>

struct builder {
    const struct clb_stream_plan *plan;
    const struct clb_gemm *problem;
    const struct clb_operand *a, *b;
    struct clb_schedule *schedule;
    struct clb_rect block;
    size_t slab, end_slab; /* the slabs that are being added */
    size_t first_strip;    /* the first strip of these slabs */
    bool failed;
};

/* Make room for one more element in a growing table. */
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

/* The largest upload piece; download pieces may be larger. */
#define LOAD_PIECE ((size_t)4 << 20)

/* Add the load of a piece of a band: its elements in one pass. */
static void add_load(struct builder *builder, const struct clb_operand *operand,
                     const struct clb_piece *piece, const struct clb_pass *pass,
                     const struct clb_pack_target *target, size_t targets)
{
    struct clb_schedule *schedule = builder->schedule;
    const struct clb_stream_plan *plan = builder->plan;
    bool mirrored = piece->kind == CLB_PIECE_TRANSPOSED;
    schedule->load = extend(builder, schedule->load, schedule->loads, sizeof *schedule->load);
    if (builder->failed)
        return;
    struct clb_load load = {.operand = operand,
                            .kind = piece->kind,
                            .depth_contiguous = operand->depth_contiguous != mirrored,
                            .slab = target[0].slab,
                            .i0 = piece->i0,
                            .w = piece->w,
                            .p0 = pass->p0,
                            .k = pass->k,
                            .targets = targets,
                            .origin = operand->role == CLB_OPERAND_A ? builder->block.row
                                                                     : builder->block.col,
                            .step = schedule->steps - 1,
                            .first_piece = schedule->load_pieces};
    for (size_t t = 0; t < targets; t++) {
        load.target[t] = target[t];
        load.target[t].conjugated ^= mirrored && operand->shape == CLB_STRUCTURE_HERMITIAN;
    }
    size_t rows = load.depth_contiguous ? load.k : load.w;
    size_t cols = load.depth_contiguous ? load.w : load.k;
    size_t bytes = clb_min(plan->piece_bytes, LOAD_PIECE);
    /* The link idles until the first pieces have been copied, so the first load's pieces are
     * smaller. */
    bytes = load.first_piece == 0 ? bytes / 2 : bytes;
    load.piece_cols = clb_min(clb_max(bytes / (rows * operand->element), 1), cols);
    load.pieces = clb_div_up(cols, load.piece_cols);
    load.upload = calloc(load.pieces, sizeof *load.upload);
    builder->failed = load.upload == NULL;
    if (builder->failed)
        return;
    schedule->load_pieces += load.pieces;
    schedule->load[schedule->loads++] = load;
    schedule->step[schedule->steps - 1].loads++;
}

/* Add the loads of one slab of the band that begins at element i0 of the operands, without its
 * zeros. */
static void add_slab(struct builder *builder, const struct clb_operand *operands, size_t i0,
                     size_t slab)
{
    const struct clb_stream_plan *plan = builder->plan;
    const struct clb_pass pass = clb_gemm_pass(builder->problem, plan->slab, slab);
    const struct clb_operand *operand = &operands[pass.term];
    bool is_a = operand->role == CLB_OPERAND_A;
    const struct clb_rect *block = &builder->block;
    size_t end = is_a ? block->row + block->rows : block->col + block->cols;
    size_t w = clb_min(is_a ? plan->band_m : plan->band_n, end - i0);
    size_t unit = is_a ? plan->unit_m : plan->unit_n, per_term = plan->slabs;
    struct clb_pack_target target[2] = {{operand->role, slab, operand->conjugated}};
    struct clb_piece piece[3];
    if (plan->shared) {
        size_t transposed_term = clb_gemm_transposed_term(builder->problem, pass.term);
        per_term /= clb_gemm_terms(builder->problem);
        target[1] =
            (struct clb_pack_target){CLB_OPERAND_B, slab % per_term + transposed_term * per_term,
                                     builder->b[transposed_term].conjugated};
    }
    size_t count =
        clb_operand_pieces(operand, i0, clb_operand_support(operand, i0, w, pass.p0, pass.k, unit),
                           pass.p0, pass.k, unit, piece);
    for (size_t p = 0; p < count && !builder->failed; p++)
        add_load(builder, operand, &piece[p], &pass, target, plan->shared ? 2 : 1);
}

static void add_loads(struct builder *builder, const struct clb_operand *operands, size_t i0)
{
    for (size_t slab = builder->slab; slab < builder->end_slab && !builder->failed; slab++)
        add_slab(builder, operands, i0, slab);
}

/* Load all bands of an operand's block. */
static void add_all_loads(struct builder *builder, const struct clb_operand *operands)
{
    bool is_a = operands->role == CLB_OPERAND_A;
    size_t origin = is_a ? builder->block.row : builder->block.col;
    size_t extent = is_a ? builder->block.rows : builder->block.cols;
    size_t band = is_a ? builder->plan->band_m : builder->plan->band_n;
    for (size_t i = 0; i < extent && !builder->failed; i += band)
        add_loads(builder, operands, origin + i);
}

static void add_one_strip(struct builder *builder, struct clb_rect rect)
{
    struct clb_schedule *schedule = builder->schedule;
    size_t element = builder->a->element;
    schedule->strip = extend(builder, schedule->strip, schedule->strips, sizeof *schedule->strip);
    if (builder->failed)
        return;
    size_t number = schedule->strips - builder->first_strip;
    struct clb_strip strip = {.rect = rect,
                              .a_origin = builder->block.row,
                              .b_origin = builder->block.col,
                              .ldc = clb_stream_ld(rect.rows, element),
                              .offset = schedule->strip_elements,
                              .step = schedule->steps - 1,
                              .slab = builder->slab,
                              .end_slab = builder->end_slab,
                              .queue = number % CLB_STRIP_QUEUES,
                              .first_piece = schedule->strip_pieces};
    strip.piece_cols = clb_min(builder->plan->piece_bytes / (strip.ldc * element), rect.cols);
    if (strip.end_slab == builder->plan->slabs)
        strip.pieces = clb_div_up(rect.cols, strip.piece_cols);
    schedule->strip_pieces += strip.pieces;
    /* The strips of the later slabs are the same rectangles as those of the first slabs, in the
     * same order; they add to the same memory. */
    if (strip.slab == 0)
        schedule->strip_elements += strip.ldc * rect.cols;
    else
        strip.offset = schedule->strip[number].offset;
    schedule->strip[schedule->strips++] = strip;
    schedule->step[schedule->steps - 1].strips++;
}

/* The length of equal parts of `length`: multiples of `unit`, at most `most` units if that is not
 * 0. */
static size_t part_length(size_t length, size_t unit, size_t most)
{
    size_t units = clb_div_up(length, unit);
    return clb_div_up(units, clb_div_up(units, clb_max(most, 1))) * unit;
}

/* Add a rectangle as one strip, or divided across its longer side into strips of at most the plan's
 * number of tiles. A strip is downloaded when all of it is ready, and during the last one's
 * download nothing else is left to do, so strips should not be large. Strips of whole columns or
 * rows are divided between columns or rows only. */
static void add_rectangle(struct builder *builder, struct clb_rect rect)
{
    const struct clb_stream_plan *plan = builder->plan;
    if (rect.rows == 0 || rect.cols == 0 || builder->failed)
        return;
    size_t tiles_m = clb_div_up(rect.rows, plan->unit_m);
    size_t tiles_n = clb_div_up(rect.cols, plan->unit_n);
    size_t rows = rect.rows, cols = rect.cols;
    if (plan->strip_m != 0) {
        rows = clb_min(plan->strip_m, rows);
        cols = clb_min(plan->strip_n, cols);
    } else if (plan->strip_tiles != 0 && tiles_m >= tiles_n)
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

/* Add the part of a triangular region in a square on its diagonal: smaller squares, each of one
 * piece, and the rectangles beside them. */
static void add_diagonal(struct builder *builder, size_t first, size_t size)
{
    bool lower = clb_gemm_region(builder->problem) == CLB_REGION_LOWER;
    size_t square = builder->plan->square;
    for (size_t j = 0; j < size && !builder->failed; j += square) {
        size_t cols = clb_min(square, size - j), end = j + cols;
        add_one_strip(builder, (struct clb_rect){first + j, first + j, cols, cols});
        add_rectangle(builder, lower ? (struct clb_rect){first + end, first + j, size - end, cols}
                                     : (struct clb_rect){first, first + j, j, cols});
    }
}

/* Add the part of C's region in a rectangle that is one band high or one band wide. In a triangular
 * region bands of rows and of columns are the same. */
static void add_strip(struct builder *builder, struct clb_rect rect)
{
    clb_region region = clb_gemm_region(builder->problem);
    size_t band = builder->plan->band_m, end = rect.row + rect.rows, col_end = rect.col + rect.cols;
    if (region == CLB_REGION_FULL || rect.rows == 0 || rect.cols == 0) {
        add_rectangle(builder, rect);
        return;
    }
    bool by_rows = rect.rows <= band;
    size_t at = by_rows ? rect.row : rect.col; /* where the band crosses the diagonal */
    if (by_rows ? at >= rect.col && at < col_end : at >= rect.row && at < end)
        add_diagonal(builder, at, by_rows ? rect.rows : rect.cols);
    /* The parts before and behind the crossing; one of them is in the region. */
    size_t begin = by_rows ? rect.col : rect.row, stop = by_rows ? col_end : end;
    size_t before = clb_max(clb_min(at, stop), begin);
    size_t behind = clb_min(clb_max(at + band, begin), stop);
    bool takes_before = by_rows == (region == CLB_REGION_LOWER);
    size_t from = takes_before ? begin : behind, count = (takes_before ? before : stop) - from;
    add_rectangle(builder, by_rows ? (struct clb_rect){rect.row, from, rect.rows, count}
                                   : (struct clb_rect){from, rect.col, count, rect.cols});
}

/* Load the next band of both operands, which are the same memory. */
static void add_shared_band(struct builder *builder, size_t at, size_t count)
{
    const struct clb_rect *block = &builder->block;
    add_loads(builder, builder->a, block->row + at);
    add_strip(builder, (struct clb_rect){block->row + at, block->col, count, at + count});
    add_strip(builder, (struct clb_rect){block->row, block->col + at, at, count});
}

/* Both operands have to be loaded: growing squares over the slabs [slab, end_slab). The next band
 * is of the operand of which less has been loaded; its product with all that has been loaded of the
 * other operand follows at once. */
static void add_squares(struct builder *builder)
{
    const struct clb_rect *block = &builder->block;
    size_t rows = 0, cols = 0; /* loaded */
    while ((rows < block->rows || cols < block->cols) && !builder->failed) {
        bool is_a = cols == block->cols || (rows < block->rows && rows <= cols);
        struct clb_rect strip;
        if (add_step(builder, rows + cols + builder->slab == 0) == NULL)
            return;
        if (builder->plan->shared) {
            size_t more = clb_min(builder->plan->band_m, block->rows - rows);
            add_shared_band(builder, rows, more);
            rows = cols = rows + more;
            continue;
        }
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

static void add_square_steps(struct builder *builder)
{
    size_t first_slabs = builder->plan->first_slabs;
    if (first_slabs > 0) {
        builder->end_slab = first_slabs;
        add_squares(builder);
        builder->slab = first_slabs;
        builder->end_slab = builder->plan->slabs;
        builder->first_strip = builder->schedule->strips;
    }
    add_squares(builder);
}

/* Only A has to be loaded for this block. */
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

/* Only B has to be loaded for this block. */
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

/* Strips are whole columns (rows): all of A (B) is loaded first, then the other operand band by
 * band. */
static void add_whole_steps(struct builder *builder)
{
    const struct clb_rect *block = &builder->block;
    bool columns = clb_gemm_has_whole_columns(builder->problem);
    size_t extent = columns ? block->cols : block->rows;
    size_t band = columns ? builder->plan->band_n : builder->plan->band_m;
    for (size_t i = 0; i < extent && !builder->failed; i += band) {
        size_t count = clb_min(band, extent - i);
        if (add_step(builder, i == 0) == NULL)
            return;
        if (i == 0)
            add_all_loads(builder, columns ? builder->a : builder->b);
        add_loads(builder, columns ? builder->b : builder->a,
                  (columns ? block->col : block->row) + i);
        add_rectangle(builder,
                      columns ? (struct clb_rect){block->row, block->col + i, block->rows, count}
                              : (struct clb_rect){block->row + i, block->col, count, block->cols});
    }
}

static void stream_schedule_add_block(struct builder *builder, size_t i, size_t j, bool first,
                                      bool row_changed)
{
    const struct clb_stream_plan *plan = builder->plan;
    size_t row = i * plan->block_m, col = j * plan->block_n;
    builder->block = (struct clb_rect){row, col, clb_min(plan->block_m, builder->problem->m - row),
                                       clb_min(plan->block_n, builder->problem->n - col)};
    if (first && plan->strip_m != 0)
        add_whole_steps(builder);
    else if (first)
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
    struct builder builder = {.plan = plan,
                              .problem = problem,
                              .a = a,
                              .b = b,
                              .schedule = schedule,
                              .end_slab = plan->slabs};
    size_t block_rows = clb_div_up(problem->m, plan->block_m);
    size_t block_cols = clb_div_up(problem->n, plan->block_n);
    size_t outer_count = plan->down_first ? block_cols : block_rows;
    size_t inner_count = plan->down_first ? block_rows : block_cols;
    *schedule = (struct clb_schedule){0};
    for (size_t outer = 0; outer < outer_count; outer++) {
        for (size_t k = 0; k < inner_count && !builder.failed; k++) {
            size_t inner = outer % 2 == 0 ? k : inner_count - 1 - k;
            bool inner_changed = k > 0;
            stream_schedule_add_block(&builder, plan->down_first ? inner : outer,
                                      plan->down_first ? outer : inner, outer == 0 && k == 0,
                                      inner_changed == plan->down_first);
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
