/* Symmetric, Hermitian and triangular operands, and results of which only a triangle is
 * computed. */
#include "structure.h"

#include "engine/kernel/check.h"
#include "engine/kernel/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- operands -------------------------------------------------------------------------------- */

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

/* True when the stored triangle is that of the elements i >= p, else it is i <= p. Of triangular
 * operands the others are zero. */
static bool is_low(const struct clb_operand *x)
{
    return x->depth_contiguous == x->upper;
}

struct clb_span clb_operand_support(const struct clb_operand *x, size_t i0, size_t w, size_t p0,
                                    size_t k, size_t unit)
{
    struct clb_span span = {i0, i0 + w};
    if (x->shape == CLB_STRUCTURE_TRIANGULAR && is_low(x) && p0 > i0)
        span.first = clb_min(i0 + (p0 - i0) / unit * unit, span.end);
    else if (x->shape == CLB_STRUCTURE_TRIANGULAR && !is_low(x))
        span.end = clb_max(clb_min(span.end, p0 + k), i0);
    return span;
}

static void add_piece(struct clb_piece *piece, size_t *count, clb_piece_kind kind, size_t first,
                      size_t end)
{
    if (first < end)
        piece[(*count)++] = (struct clb_piece){kind, first, end - first};
}

size_t clb_operand_pieces(const struct clb_operand *x, size_t i0, struct clb_span span, size_t p0,
                          size_t k, size_t unit, struct clb_piece piece[3])
{
    size_t count = 0, first, end;
    clb_piece_kind below = is_low(x) ? CLB_PIECE_TRANSPOSED : CLB_PIECE_STORED;
    clb_piece_kind above = is_low(x) ? CLB_PIECE_STORED : CLB_PIECE_TRANSPOSED;
    if (x->scale != NULL || x->shape == CLB_STRUCTURE_GENERAL) {
        add_piece(piece, &count, x->scale != NULL ? CLB_PIECE_EXPANDED : CLB_PIECE_STORED,
                  span.first, span.end);
        return count;
    }
    first = p0 > i0 ? i0 + (p0 - i0) / unit * unit : i0;
    end = p0 + k > i0 ? i0 + clb_round_up(p0 + k - i0, unit) : i0;
    first = clb_max(clb_min(first, span.end), span.first);
    end = clb_max(clb_min(end, span.end), span.first);
    add_piece(piece, &count, below, span.first, first);
    add_piece(piece, &count, CLB_PIECE_EXPANDED, first, end);
    add_piece(piece, &count, above, end, span.end);
    return count;
}

bool clb_operand_packs_triangle(const struct clb_gemm_variant *variant, const struct clb_operand *x)
{
    return x->shape == CLB_STRUCTURE_TRIANGULAR && x->scale == NULL && variant->family->has_skip;
}

void clb_operand_set_triangle(const struct clb_operand *x, size_t i0, size_t p0,
                              struct clb_chunk *chunk)
{
    chunk->triangle =
        (is_low(x) ? CLB_TRIANGLE_LOW : CLB_TRIANGLE_HIGH) | (x->unit ? CLB_TRIANGLE_UNIT : 0);
    chunk->diagonal = (ptrdiff_t)i0 - (ptrdiff_t)p0;
}

struct clb_operand clb_operand_other_half(const struct clb_operand *x)
{
    struct clb_operand mirrored = *x;
    mirrored.depth_contiguous = !x->depth_contiguous;
    mirrored.conjugated = x->conjugated != (x->shape == CLB_STRUCTURE_HERMITIAN);
    return mirrored;
}

/* Copy one element; its size is a constant for the compiler. */
static inline void copy_element(char *to, const char *from, size_t real, size_t parts,
                                bool conjugate)
{
    memcpy(to, from, real * parts);
    if (parts == 2 && conjugate && real == sizeof(float))
        ((float *)(void *)to)[1] = -((float *)(void *)to)[1];
    else if (parts == 2 && conjugate)
        ((double *)(void *)to)[1] = -((double *)(void *)to)[1];
}

/* A block of a matrix as it is stored: rows [row, row + rows) and columns [col, col + cols). */
struct structure_block {
    size_t row, col, rows, cols;
    char *to; /* rows elements from one column to the next */
};

/* Make rows [r, end) of the block's column j, outside the stored triangle: transposed elements, or
 * zeros for a triangular operand. */
static inline void mirror(const struct clb_operand *x, const struct structure_block *block,
                          size_t j, size_t r, size_t end, size_t real, size_t parts)
{
    size_t element = real * parts;
    char *to = block->to + j * block->rows * element;
    if (x->shape == CLB_STRUCTURE_TRIANGULAR) {
        memset(to + r * element, 0, (end - r) * element);
        return;
    }
    const char *from = x->host + (block->col + j) * element;
    for (; r < end; r++)
        copy_element(to + r * element, from + (block->row + r) * x->ld * element, real, parts,
                     x->shape == CLB_STRUCTURE_HERMITIAN);
}

static inline void make_diagonal(const struct clb_operand *x, size_t at, char *to, size_t real,
                                 size_t parts)
{
    if (x->unit && x->shape == CLB_STRUCTURE_TRIANGULAR) {
        const void *one = real == sizeof(float) ? clb_scalar_one(CLB_C) : clb_scalar_one(CLB_Z);
        memcpy(to, one, real * parts);
        return;
    }
    memcpy(to, x->host + (at + at * x->ld) * real * parts, real * parts);
    if (parts == 2 && x->shape == CLB_STRUCTURE_HERMITIAN)
        memset(to + real, 0, real);
}

/* Make rows [r, end) of a column: the elements above the diagonal, on it, below it. */
static inline void make_column(const struct clb_operand *x, const struct structure_block *block,
                               size_t j, size_t r, size_t end, size_t real, size_t parts)
{
    size_t element = real * parts, col = block->col + j;
    size_t above = col > block->row ? clb_max(clb_min(col - block->row, end), r) : r;
    size_t below = col >= block->row ? clb_max(clb_min(col - block->row + 1, end), r) : r;
    char *to = block->to + j * block->rows * element;
    const char *from = x->host + (block->row + col * x->ld) * element;
    if (x->upper && above > r)
        memcpy(to + r * element, from + r * element, (above - r) * element);
    else if (above > r)
        mirror(x, block, j, r, above, real, parts);
    if (below > above)
        make_diagonal(x, col, to + above * element, real, parts);
    if (!x->upper && end > below)
        memcpy(to + below * element, from + below * element, (end - below) * element);
    else if (end > below)
        mirror(x, block, j, below, end, real, parts);
}

/* Blocks are made in groups of so many rows: `mirror` then reads from as many columns, on few
 * pages, and each cache line that it reads serves several columns of the block. */
#define BLOCK_ROWS ((size_t)64)

static inline void make_block(const struct clb_operand *x, const struct structure_block *block,
                              size_t real, size_t parts)
{
    for (size_t r = 0; r < block->rows; r += BLOCK_ROWS) {
        for (size_t j = 0; j < block->cols; j++)
            make_column(x, block, j, r, clb_min(r + BLOCK_ROWS, block->rows), real, parts);
    }
}

void clb_operand_make(clb_precision precision, const struct clb_operand *x, size_t i0, size_t p0,
                      size_t w, size_t k, size_t first, size_t count, void *to)
{
    struct structure_block block = {x->depth_contiguous ? p0 : i0,
                                    (x->depth_contiguous ? i0 : p0) + first,
                                    x->depth_contiguous ? k : w, count, to};
    if (x->shape == CLB_STRUCTURE_GENERAL)
        clb_merge_tile(precision, block.rows, block.cols,
                       x->scale != NULL ? x->scale : clb_scalar_one(precision),
                       x->host + (block.row + block.col * x->ld) * x->element, x->ld,
                       clb_scalar_zero(precision), to, block.rows);
    else if (precision == CLB_S)
        make_block(x, &block, sizeof(float), 1);
    else if (precision == CLB_D)
        make_block(x, &block, sizeof(double), 1);
    else if (precision == CLB_C)
        make_block(x, &block, sizeof(float), 2);
    else
        make_block(x, &block, sizeof(double), 2);
}

static bool is_shaped(const struct clb_operand *x)
{
    return x->shape != CLB_STRUCTURE_GENERAL || x->scale != NULL;
}

bool clb_gemm_is_structured(const struct clb_gemm *problem)
{
    bool shaped = false;
    for (size_t t = 0; t < clb_gemm_terms(problem); t++) {
        const struct clb_operand a = clb_operand_of_term(problem, CLB_OPERAND_A, t);
        const struct clb_operand b = clb_operand_of_term(problem, CLB_OPERAND_B, t);
        shaped = shaped || is_shaped(&a) || is_shaped(&b);
    }
    return shaped;
}

bool clb_gemm_is_expanded(const struct clb_gemm_variant *variant, const struct clb_gemm *problem)
{
    bool mixed = false;
    for (size_t t = 0; t < clb_gemm_terms(problem); t++) {
        const struct clb_operand a = clb_operand_of_term(problem, CLB_OPERAND_A, t);
        const struct clb_operand b = clb_operand_of_term(problem, CLB_OPERAND_B, t);
        mixed = mixed || (is_shaped(&a) && !clb_operand_packs_triangle(variant, &a)) ||
                (is_shaped(&b) && !clb_operand_packs_triangle(variant, &b));
    }
    return mixed;
}

static bool are_twins(const struct clb_operand *a, const struct clb_operand *b)
{
    return a->host == b->host && a->ld == b->ld && a->depth_contiguous == b->depth_contiguous &&
           a->shape == CLB_STRUCTURE_GENERAL && b->shape == CLB_STRUCTURE_GENERAL &&
           a->scale == b->scale;
}

size_t clb_gemm_transposed_term(const struct clb_gemm *problem, size_t term)
{
    const struct clb_operand a = clb_operand_of_term(problem, CLB_OPERAND_A, term);
    size_t terms = clb_gemm_terms(problem), transposed_term = terms - 1 - term;
    const struct clb_operand b = clb_operand_of_term(problem, CLB_OPERAND_B, transposed_term);
    return are_twins(&a, &b) ? transposed_term : CLB_MAX_TERMS;
}

double clb_gemm_bytes(const struct clb_gemm *problem)
{
    double m = (double)problem->m, n = (double)problem->n, k = (double)problem->k;
    return (m * k + k * n + m * n) * (double)clb_precision_size(problem->precision);
}

/* ---- the depth ------------------------------------------------------------------------------- */

size_t clb_gemm_terms(const struct clb_gemm *problem)
{
    return problem->level3 != NULL ? problem->level3->terms : 1;
}

size_t clb_gemm_passes(const struct clb_gemm *problem, size_t slab)
{
    return clb_gemm_terms(problem) * clb_div_up(problem->k, slab);
}

/* True when passes must go from the last slab to the first: a slab of a triangle i <= p has only
 * the first elements of the width in its support, and only the last slab has all of them. */
static bool structure_is_reversed(const struct clb_gemm *problem)
{
    for (int role = CLB_OPERAND_A; problem->level3 != NULL && role <= CLB_OPERAND_B; role++) {
        const struct clb_operand x = clb_operand_describe(problem, (clb_operand_role)role);
        if (x.shape == CLB_STRUCTURE_TRIANGULAR && !is_low(&x))
            return true;
    }
    return false;
}

struct clb_pass clb_gemm_pass(const struct clb_gemm *problem, size_t slab, size_t index)
{
    size_t slabs = clb_div_up(problem->k, slab), number = index % slabs;
    if (structure_is_reversed(problem))
        number = slabs - 1 - number;
    return (struct clb_pass){index / slabs, number * slab,
                             clb_min(slab, problem->k - number * slab)};
}

struct clb_rect clb_gemm_support(const struct clb_gemm_variant *variant,
                                 const struct clb_operand *a, const struct clb_operand *b,
                                 const struct clb_pass *pass, size_t a0, size_t b0,
                                 const struct clb_rect *rect)
{
    const struct clb_span rows =
        clb_operand_support(&a[pass->term], a0, rect->row + rect->rows - a0, pass->p0, pass->k,
                            clb_gemm_unit(variant, CLB_OPERAND_A));
    const struct clb_span cols =
        clb_operand_support(&b[pass->term], b0, rect->col + rect->cols - b0, pass->p0, pass->k,
                            clb_gemm_unit(variant, CLB_OPERAND_B));
    size_t row = clb_max(rect->row, rows.first), col = clb_max(rect->col, cols.first);
    return (struct clb_rect){row, col, row < rows.end ? rows.end - row : 0,
                             col < cols.end ? cols.end - col : 0};
}

/* The CLB_SKIP_ kind of a triangular operand, or 0, and the distance of the diagonal for elements
 * from `first` on. */
static unsigned cut_operand(const struct clb_gemm *problem, clb_operand_role role, size_t first,
                            const struct clb_pass *pass, ptrdiff_t *distance)
{
    const struct clb_operand x = clb_operand_of_term(problem, role, pass->term);
    *distance = (ptrdiff_t)first - (ptrdiff_t)pass->p0;
    if (x.shape != CLB_STRUCTURE_TRIANGULAR)
        return 0;
    if (role == CLB_OPERAND_A)
        return is_low(&x) ? CLB_SKIP_A_END : CLB_SKIP_A_BEGIN;
    return is_low(&x) ? CLB_SKIP_B_END : CLB_SKIP_B_BEGIN;
}

struct clb_skip clb_gemm_skip(const struct clb_gemm_variant *variant,
                              const struct clb_gemm *problem, const struct clb_pass *pass,
                              const struct clb_rect *rect)
{
    struct clb_skip cut = {0};
    clb_region region = clb_gemm_region(problem);
    if (problem->level3 == NULL || !variant->family->has_skip)
        return cut;
    cut.kind = cut_operand(problem, CLB_OPERAND_A, rect->row, pass, &cut.a) |
               cut_operand(problem, CLB_OPERAND_B, rect->col, pass, &cut.b);
    cut.c = (ptrdiff_t)rect->row - (ptrdiff_t)rect->col;
    if (region != CLB_REGION_FULL && rect->row < rect->col + rect->cols &&
        rect->col < rect->row + rect->rows)
        cut.kind |= region == CLB_REGION_LOWER ? CLB_SKIP_LOWER : CLB_SKIP_UPPER;
    return cut;
}

/* Slabs of a triangular operand, each of which is computed in full where it crosses the
 * diagonal. */
#define SHARES ((size_t)8)
/* The smallest depth of a slab that pays. For CPU kernels it is one pass, whose operands fit into
 * their caches (2 to 4 % faster than 256 at n = 1024, one thread; Xeon, PoCL 3.1, 2026-11). */
static size_t least_slab(const struct clb_gemm_variant *variant)
{
    size_t least = variant->tuning.value[CLB_PARAM_MIRROR_MIN];
    size_t pass = variant->tuning.value[CLB_PARAM_KC] / clb_precision_parts(variant->precision);
    return pass != 0 ? clb_min(pass, least) : least;
}

size_t clb_gemm_slab(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                     bool in_place)
{
    const size_t *value = variant->tuning.value;
    size_t wanted = clb_max(value[CLB_PARAM_SLAB], 1), k = problem->k;
    size_t parts = clb_precision_parts(problem->precision);
    if (problem->level3 == NULL && k * parts >= value[CLB_PARAM_DEEP_K])
        wanted = clb_min(wanted, value[CLB_PARAM_DEEP_SLAB] / parts);
    for (int role = CLB_OPERAND_A; problem->level3 != NULL && role <= CLB_OPERAND_B; role++) {
        const struct clb_operand x = clb_operand_describe(problem, (clb_operand_role)role);
        size_t unit = clb_gemm_unit(variant, x.role);
        if (x.shape == CLB_STRUCTURE_GENERAL ||
            (in_place && clb_operand_packs_triangle(variant, &x)))
            continue;
        if (x.shape == CLB_STRUCTURE_TRIANGULAR)
            wanted = clb_min(wanted, clb_round_up(clb_div_up(k, SHARES), unit));
        else
            wanted = clb_min(wanted, clb_min(clb_max(k / SHARES, least_slab(variant)),
                                             value[CLB_PARAM_MIRROR_MAX]));
    }
    return wanted;
}

/* ---- the region of C ------------------------------------------------------------------------- */

clb_region clb_gemm_region(const struct clb_gemm *problem)
{
    return problem->level3 != NULL ? problem->level3->region : CLB_REGION_FULL;
}

bool clb_gemm_has_whole_columns(const struct clb_gemm *problem)
{
    return problem->level3 != NULL && problem->level3->in_place && problem->c == problem->b;
}

bool clb_gemm_has_whole_rows(const struct clb_gemm *problem)
{
    return problem->level3 != NULL && problem->level3->in_place && problem->c == problem->a;
}

size_t clb_gemm_square_unit(const struct clb_gemm_variant *variant)
{
    size_t a = clb_gemm_unit(variant, CLB_OPERAND_A), b = clb_gemm_unit(variant, CLB_OPERAND_B);
    size_t unit = a;
    while (unit % b != 0)
        unit += a;
    return unit;
}

struct clb_rect clb_region_trim(clb_region region, struct clb_rect block)
{
    size_t end = block.row + block.rows, col_end = block.col + block.cols;
    if (region == CLB_REGION_LOWER) {
        block.row = clb_min(clb_max(block.row, block.col), end);
        block.rows = end - block.row;
    } else if (region == CLB_REGION_UPPER) {
        block.rows = clb_max(clb_min(end, col_end), block.row) - block.row;
    }
    return block;
}

size_t clb_region_parts(clb_region region, const struct clb_rect *rect, struct clb_rect part[2])
{
    size_t end = rect->row + rect->rows, col_end = rect->col + rect->cols;
    bool crosses = region != CLB_REGION_FULL && rect->row < col_end && rect->col < end;
    if (!crosses) {
        part[0] = *rect;
        return 1;
    }
    bool lower = region == CLB_REGION_LOWER;
    part[0] = (struct clb_rect){rect->col, rect->col, rect->cols, rect->cols};
    part[1] = (struct clb_rect){lower ? col_end : rect->row, rect->col,
                                lower ? end - col_end : rect->col - rect->row, rect->cols};
    return part[1].rows > 0 ? 2 : 1;
}

bool clb_gemm_adds_zeros(const struct clb_gemm *problem)
{
    const struct clb_level3 *level3 = problem->level3;
    return level3 != NULL && (level3->a[0].shape == CLB_STRUCTURE_TRIANGULAR ||
                              level3->b[0].shape == CLB_STRUCTURE_TRIANGULAR);
}

bool clb_part_is_exact(const struct clb_gemm *problem, const struct clb_rect *part, const void *p,
                       size_t ldp)
{
    return !clb_gemm_adds_zeros(problem) ||
           clb_tile_is_finite(problem->precision, part->rows, part->cols, p, ldp);
}

/* Merge an entry of the diagonal that is real by definition. */
static void merge_real(const struct clb_gemm *problem, const char *p, char *c)
{
    size_t real = clb_precision_real_size(problem->precision);
    clb_merge_tile(real == sizeof(float) ? CLB_S : CLB_D, 1, 1, problem->alpha, p, 1, problem->beta,
                   c, 1);
    if (clb_precision_parts(problem->precision) > 1)
        memset(c + real, 0, real);
}

static void merge_triangle(const struct clb_gemm *problem, const struct clb_rect *part,
                           const char *p, size_t ldp, char *c)
{
    size_t element = clb_precision_size(problem->precision), n = part->cols;
    bool lower = problem->level3->region == CLB_REGION_LOWER;
    size_t apart = problem->level3->real_diagonal; /* the diagonal for itself */
    for (size_t j = 0; j < n; j++, p += ldp * element, c += problem->ldc * element) {
        size_t first = lower ? j + apart : 0, end = lower ? n : j + 1 - apart;
        clb_merge_tile(problem->precision, end - first, 1, problem->alpha, p + first * element, ldp,
                       problem->beta, c + first * element, problem->ldc);
        if (apart != 0)
            merge_real(problem, p + j * element, c + j * element);
    }
}

void clb_merge_part(const struct clb_gemm *problem, const struct clb_rect *part, const void *p,
                    size_t ldp)
{
    size_t element = clb_precision_size(problem->precision);
    char *c = (char *)problem->c + (part->row + part->col * problem->ldc) * element;
    if (clb_gemm_region(problem) != CLB_REGION_FULL && part->row == part->col)
        merge_triangle(problem, part, p, ldp, c);
    else
        clb_merge_tile(problem->precision, part->rows, part->cols, problem->alpha, p, ldp,
                       problem->beta, c, problem->ldc);
}

/* ---- expansion by a kernel, on a device that shares the host's memory -------------------------
 */

/* As in kernels/structure.cl. */
#define KIND_UPPER      1u
#define KIND_HERMITIAN  2u
#define KIND_TRIANGULAR 4u
#define KIND_UNIT       8u
#define KIND_SCALED     16u
#define GROUP           ((size_t)64)

static cl_uint kind_of(const struct clb_operand *x)
{
    if (x->shape == CLB_STRUCTURE_GENERAL)
        return KIND_SCALED;
    return (x->upper ? KIND_UPPER : 0) |
           (x->shape == CLB_STRUCTURE_HERMITIAN ? KIND_HERMITIAN : 0) |
           (x->shape == CLB_STRUCTURE_TRIANGULAR ? KIND_TRIANGULAR | (x->unit ? KIND_UNIT : 0) : 0);
}

static size_t group_of(const struct clb_device *device)
{
    return clb_min(GROUP, device->max_group);
}

clb_status clb_structure_make(struct clb_queue_set *queue_set, struct clb_program *program,
                              const struct clb_gemm_variant *variant, const struct clb_operand *x,
                              size_t i0, size_t p0, size_t w, size_t k, cl_mem to,
                              struct clb_queue *queue)
{
    clb_precision precision = variant->precision;
    bool single = clb_precision_real_size(precision) == sizeof(float);
    const void *scale = x->scale != NULL ? x->scale : clb_scalar_one(precision);
    clb_scalar factor = {{0}};
    memcpy(&factor, scale, clb_precision_size(precision));
    const cl_ulong offset = x->offset, ld = x->ld;
    const cl_ulong row = x->depth_contiguous ? p0 : i0, col = x->depth_contiguous ? i0 : p0;
    const cl_uint rows = (cl_uint)(x->depth_contiguous ? k : w);
    const cl_uint cols = (cl_uint)(x->depth_contiguous ? w : k), kind = kind_of(x);
    const struct clb_argument arguments[] = {CLB_ARG(x->mem),
                                             CLB_ARG(offset),
                                             CLB_ARG(ld),
                                             CLB_ARG(row),
                                             CLB_ARG(col),
                                             CLB_ARG(rows),
                                             CLB_ARG(cols),
                                             CLB_ARG(kind),
                                             single ? CLB_ARG(factor.s[0]) : CLB_ARG(factor.d[0]),
                                             single ? CLB_ARG(factor.s[1]) : CLB_ARG(factor.d[1]),
                                             CLB_ARG(to)};
    /* The number of groups is always the same; see prelaunch.c for the reason. */
    const size_t local =
        variant->tuning.family == CLB_FAMILY_CPU ? 1 : group_of(&queue_set->runtime->device);
    const size_t global = local * clb_max(64, 8 * (size_t)queue_set->runtime->device.units);
    cl_kernel kernel;
    clb_status status = clb_queue_set_kernel(queue_set, program, "clb_structure", &kernel);
    if (status != CLB_OK)
        return status;
    return clb_queue_launch(queue, kernel, "clb_structure", arguments, CLB_COUNT_OF(arguments), 1,
                            &global, &local, 0, NULL, NULL);
}

/* ---- the check: parts across the diagonal must be what the CPU makes of them ----------------- */

/* Parts begin at (I0, P0) of a matrix of this order. */
#define I0    ((size_t)3)
#define P0    ((size_t)11)
#define ORDER ((size_t)45)

struct structure_check {
    struct clb_queue_set *queue_set;
    struct clb_program *program;
    const struct clb_gemm_variant *variant;
    struct clb_buffer *memory[2]; /* the source, the result */
    unsigned char *host;          /* the source, the device's result, the CPU's result */
    size_t bytes;                 /* of each of these three */
};

/* Small integers, which a factor of small integers does not round. */
static void structure_fill(const struct structure_check *check)
{
    clb_precision precision = check->variant->precision;
    size_t count = check->bytes / clb_precision_real_size(precision);
    uint64_t state = 20261121;
    for (size_t i = 0; i < count; i++)
        clb_check_put(precision, check->host, i, floor(4096 * clb_check_random(&state)));
}

static clb_status check_one(const struct structure_check *check, struct clb_operand *x,
                            struct clb_check_size part)
{
    clb_precision precision = check->variant->precision;
    unsigned char *device = check->host + check->bytes, *cpu = device + check->bytes;
    size_t w = part.m, k = part.n, used = w * k * x->element;
    x->host = (const char *)check->host;
    x->mem = check->memory[0]->mem;
    clb_status status =
        clb_structure_make(check->queue_set, check->program, check->variant, x, I0, P0, w, k,
                           check->memory[1]->mem, check->queue_set->queue);
    if (status == CLB_OK)
        status =
            clb_queue_read_now(check->queue_set->queue, check->memory[1]->mem, 0, used, device);
    if (status != CLB_OK)
        return status;
    clb_operand_make(precision, x, I0, P0, w, k, 0, x->depth_contiguous ? w : k, cpu);
    return memcmp(device, cpu, used) == 0 ? CLB_OK : CLB_ERR_BUILD;
}

static clb_status check_part(void *context, struct clb_check_size part)
{
    const struct structure_check *check = context;
    static const float factor_s[2] = {2, -3};
    static const double factor_d[2] = {2, -3};
    bool single = clb_precision_real_size(check->variant->precision) == sizeof(float);
    clb_status status = CLB_OK;
    for (int i = 0; i < 16 && status == CLB_OK; i++) {
        struct clb_operand x = {.ld = ORDER,
                                .element = clb_precision_size(check->variant->precision),
                                .depth_contiguous = i % 2 != 0,
                                .upper = i / 2 % 2 != 0,
                                .unit = i % 2 != 0,
                                .shape = (clb_structure)(i / 4)};
        if (x.shape == CLB_STRUCTURE_GENERAL)
            x.scale = single ? (const void *)factor_s : factor_d;
        status = check_one(check, &x, part);
    }
    return status;
}

/* Sizes around the squares of order 16 that work-items make. */
static clb_status check_parts(struct structure_check *check)
{
    static const struct clb_check_size parts[] = {
        {5, 3, 0},   {1, 1, 0},   {1, 21, 0},  {17, 1, 0},  {33, 2, 0}, {15, 16, 0},
        {16, 15, 0}, {16, 17, 0}, {17, 16, 0}, {32, 33, 0}, {40, 21, 0}};
    const struct clb_check_programs programs = {
        "operands 1", check->queue_set->runtime, {check->program}};
    clb_status status = clb_queue_write_now(check->queue_set->queue, check->memory[0]->mem, 0,
                                            check->bytes, check->host);
    return status == CLB_OK
               ? clb_check_sizes(&programs, parts, CLB_COUNT_OF(parts), check_part, check)
               : status;
}

static clb_status run_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                            struct clb_program *program)
{
    struct structure_check check = {.program = program,
                                    .variant = variant,
                                    .bytes = ORDER * (ORDER + 1) *
                                             clb_precision_size(variant->precision)};
    check.host = calloc(3, check.bytes);
    if (check.host == NULL)
        return CLB_ERR_NOMEM;
    structure_fill(&check);
    clb_status status = clb_queue_set_acquire(runtime, &check.queue_set);
    const size_t bytes[] = {check.bytes, check.bytes};
    if (status == CLB_OK)
        status = clb_check_memory(runtime, bytes, check.memory, CLB_COUNT_OF(bytes));
    if (status == CLB_OK)
        status = check_parts(&check);
    clb_check_memory_end(runtime, check.memory, CLB_COUNT_OF(bytes),
                         clb_check_end(check.queue_set));
    free(check.host);
    return status;
}

/* ---- once for each precision ----------------------------------------------------------------- */

/* The check guards the program. */
static struct {
    struct clb_check check;
    struct clb_program *program;
} expanders[CLB_PRECISIONS];

struct structure_task {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    struct clb_program **program;
};

static clb_status build_and_check(void *argument)
{
    const struct structure_task *task = argument;
    clb_status needed = clb_step_need(task->runtime, CLB_STEP_STRUCTURE, task->variant->precision);
    if (needed != CLB_OK)
        return needed;
    const struct clb_gemm_variant *variant = task->variant;
    clb_precision precision = variant->precision;
    char options[80];
    snprintf(options, sizeof options, "-DCLB_DOUBLE=%d -DCLB_COMPLEX=%d -DCLB_CPU=%d -DCLB_WG=%zu",
             clb_precision_real_size(precision) == sizeof(double),
             clb_precision_parts(precision) > 1, variant->tuning.family == CLB_FAMILY_CPU,
             group_of(&task->runtime->device));
    clb_status status =
        clb_program_get(task->runtime, &clb_kernel_structure, options, task->program);
    return status == CLB_OK ? run_check(task->runtime, variant, *task->program) : status;
}

static bool has_triangle(const struct clb_gemm *problem)
{
    const struct clb_level3 *level3 = problem->level3;
    return level3->region != CLB_REGION_FULL || level3->a[0].shape == CLB_STRUCTURE_TRIANGULAR ||
           level3->b[0].shape == CLB_STRUCTURE_TRIANGULAR;
}

clb_status clb_structure_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    struct structure_task task = {runtime, variant, &expanders[variant->precision].program};
    return clb_check_once(&expanders[variant->precision].check,
                          "symmetric operands are not made on the device", build_and_check, &task,
                          sizeof task);
}

clb_status clb_structure_prepare(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant,
                                 const struct clb_gemm *problem, bool on_device,
                                 struct clb_program **program)
{
    clb_status status = CLB_OK;
    *program = NULL;
    if (problem->level3 == NULL)
        return CLB_OK;
    if (has_triangle(problem))
        status = clb_skip_prepare(runtime, variant);
    if (status == CLB_OK && on_device && clb_gemm_is_expanded(variant, problem)) {
        status = clb_structure_check(runtime, variant);
        *program = expanders[variant->precision].program;
    }
    return status;
}
