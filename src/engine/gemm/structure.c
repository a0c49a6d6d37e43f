/* SPDX-License-Identifier: BSD-3-Clause
 * The operands of a product, of which a triangle may be stored, its passes and its part of C. */
#include "structure.h"

#include <stdlib.h>
#include <string.h>

/* ---- operands ---- */

static bool factors_differ(const struct clb_gemm *problem)
{
    return problem->terms > 1 &&
           !clb_scalar_equal(problem->precision, &problem->alpha[0], &problem->alpha[1]);
}

const void *clb_gemm_factor(const struct clb_gemm *problem)
{
    return factors_differ(problem) ? clb_scalar_of(problem->precision, 1) : &problem->alpha[0];
}

/* Where her2k's two factors differ, one matrix is scaled instead: that which is taken without op in
 * the first term and conjugate transposed in the second. */
static const void *scale_of(const struct clb_gemm *problem, clb_operand_role role, size_t term)
{
    clb_operand_role scaled = problem->a[0].op == CLB_OP_N ? CLB_OPERAND_A : CLB_OPERAND_B;
    return factors_differ(problem) && (role == scaled) == (term == 0) ? &problem->alpha[0] : NULL;
}

struct clb_operand clb_operand_of_term(const struct clb_gemm *problem, clb_operand_role role,
                                       size_t term)
{
    bool is_a = role == CLB_OPERAND_A;
    const struct clb_gemm_operand x = (is_a ? problem->a : problem->b)[term];
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
        .scale = scale_of(problem, role, term),
    };
}

/* True when elements i >= p are stored; of triangular operands the others are 0. */
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

size_t clb_operand_pieces(const struct clb_operand *x, bool triangle, size_t i0, size_t w,
                          size_t p0, size_t k, size_t unit, struct clb_piece piece[3])
{
    const struct clb_span span = clb_operand_support(x, i0, w, p0, k, unit);
    size_t count = 0, first, end;
    clb_piece_kind below = is_low(x) ? CLB_PIECE_TRANSPOSED : CLB_PIECE_STORED;
    clb_piece_kind above = is_low(x) ? CLB_PIECE_STORED : CLB_PIECE_TRANSPOSED;
    if (triangle || x->scale != NULL || x->shape == CLB_STRUCTURE_GENERAL) {
        add_piece(piece, &count,
                  triangle           ? CLB_PIECE_TRIANGLE
                  : x->scale != NULL ? CLB_PIECE_EXPANDED
                                     : CLB_PIECE_STORED,
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

struct clb_piece clb_operand_expanded(const struct clb_operand *x, size_t w, size_t p0, size_t k,
                                      size_t unit)
{
    struct clb_piece piece[3];
    size_t count = clb_operand_pieces(x, false, 0, w, p0, k, unit, piece);
    for (size_t p = 0; p < count; p++) {
        if (piece[p].kind == CLB_PIECE_EXPANDED)
            return piece[p];
    }
    return (struct clb_piece){0};
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

bool clb_gemm_is_plain(const struct clb_gemm *problem)
{
    return problem->terms == 1 && problem->region == CLB_REGION_FULL &&
           problem->a[0].shape == CLB_STRUCTURE_GENERAL &&
           problem->b[0].shape == CLB_STRUCTURE_GENERAL;
}

size_t clb_gemm_expanded_bytes(const struct clb_gemm_variant *variant,
                               const struct clb_gemm *problem, size_t depth)
{
    size_t bytes = 0;
    for (int role = CLB_OPERAND_A; role <= CLB_OPERAND_B; role++) {
        const struct clb_operand x = clb_operand_of_term(problem, (clb_operand_role)role, 0);
        const size_t all = x.role == CLB_OPERAND_A ? problem->m : problem->n;
        /* What crosses the diagonal may begin and end within panels. */
        const size_t crossing = clb_min(depth + 2 * clb_gemm_unit(variant, x.role), all);
        if (x.scale != NULL ||
            (x.shape != CLB_STRUCTURE_GENERAL && !clb_operand_packs_triangle(variant, &x)))
            bytes = (x.scale != NULL ? all : crossing) * depth * x.element;
    }
    return bytes;
}

size_t clb_gemm_transposed_term(const struct clb_gemm *problem, size_t term)
{
    size_t transposed_term = problem->terms - 1 - term;
    const struct clb_operand a = clb_operand_of_term(problem, CLB_OPERAND_A, term);
    const struct clb_operand b = clb_operand_of_term(problem, CLB_OPERAND_B, transposed_term);
    bool same = a.host == b.host && a.ld == b.ld && a.depth_contiguous == b.depth_contiguous &&
                a.shape == CLB_STRUCTURE_GENERAL && b.shape == CLB_STRUCTURE_GENERAL &&
                a.scale == b.scale;
    return same ? transposed_term : CLB_MAX_TERMS;
}

double clb_gemm_bytes(const struct clb_gemm *problem)
{
    double m = (double)problem->m, n = (double)problem->n, k = (double)problem->k;
    return (m * k + k * n + m * n) * (double)clb_precision_size(problem->precision) *
           (double)clb_max(problem->count, 1);
}

/* ---- the depth ---- */

size_t clb_gemm_passes(const struct clb_gemm *problem, size_t slab)
{
    return problem->terms * clb_div_up(problem->k, slab);
}

/* True when passes must go from the last slab to the first: of a triangle i <= p only the last slab
 * has the whole width in its support. */
static bool structure_is_reversed(const struct clb_gemm *problem)
{
    for (int role = CLB_OPERAND_A; role <= CLB_OPERAND_B; role++) {
        const struct clb_operand x = clb_operand_of_term(problem, (clb_operand_role)role, 0);
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
                                 struct clb_operand (*operand)[CLB_MAX_TERMS],
                                 const struct clb_pass *pass, const size_t origin[2],
                                 const struct clb_rect *rect)
{
    struct clb_span part[2];
    for (int r = CLB_OPERAND_A; r <= CLB_OPERAND_B; r++) {
        const clb_operand_role role = (clb_operand_role)r;
        const struct clb_span all = clb_rect_span(rect, role);
        part[r] = clb_operand_support(&operand[r][pass->term], origin[r], all.end - origin[r],
                                      pass->p0, pass->k, clb_gemm_unit(variant, role));
        part[r].first = clb_max(part[r].first, all.first);
        part[r].end = clb_max(part[r].first, part[r].end);
    }
    return (struct clb_rect){part[0].first, part[1].first, part[0].end - part[0].first,
                             part[1].end - part[1].first};
}

/* The CLB_SKIP_ kind of a triangular operand, or 0. */
static unsigned skip_of(const struct clb_gemm *problem, clb_operand_role role, size_t term)
{
    static const unsigned kinds[2][2] = {{CLB_SKIP_A_BEGIN, CLB_SKIP_A_END},
                                         {CLB_SKIP_B_BEGIN, CLB_SKIP_B_END}};
    const struct clb_operand x = clb_operand_of_term(problem, role, term);
    return x.shape == CLB_STRUCTURE_TRIANGULAR ? kinds[role][is_low(&x)] : 0;
}

struct clb_skip clb_gemm_skip(const struct clb_gemm_variant *variant,
                              const struct clb_gemm *problem, const struct clb_pass *pass,
                              const struct clb_rect *rect)
{
    const ptrdiff_t row = (ptrdiff_t)rect->row, col = (ptrdiff_t)rect->col;
    const ptrdiff_t depth = (ptrdiff_t)pass->p0;
    if (!variant->family->has_skip)
        return (struct clb_skip){0};
    struct clb_skip cut = {skip_of(problem, CLB_OPERAND_A, pass->term) |
                               skip_of(problem, CLB_OPERAND_B, pass->term),
                           row - depth, col - depth, row - col};
    if (problem->region != CLB_REGION_FULL && rect->row < rect->col + rect->cols &&
        rect->col < rect->row + rect->rows)
        cut.kind |= problem->region == CLB_REGION_LOWER ? CLB_SKIP_LOWER : CLB_SKIP_UPPER;
    return cut;
}

/* Slabs of a triangular operand, each computed in full where it crosses the diagonal. */
#define SHARES ((size_t)8)
/* The least depth of a slab that pays. For CPU kernels its operands fit into the caches. */
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
    if (clb_gemm_is_plain(problem) && k * parts >= value[CLB_PARAM_DEEP_K])
        wanted = clb_min(wanted, value[CLB_PARAM_DEEP_SLAB] / parts);
    for (int role = CLB_OPERAND_A; role <= CLB_OPERAND_B; role++) {
        const struct clb_operand x = clb_operand_of_term(problem, (clb_operand_role)role, 0);
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

/* ---- the region of C ---- */

bool clb_gemm_has_whole_columns(const struct clb_gemm *problem)
{
    return problem->in_place && problem->c == problem->b[0].data;
}

bool clb_gemm_has_whole_rows(const struct clb_gemm *problem)
{
    return problem->in_place && problem->c == problem->a[0].data;
}

size_t clb_gemm_square_unit(const struct clb_gemm_variant *variant)
{
    size_t a = clb_gemm_unit(variant, CLB_OPERAND_A), b = clb_gemm_unit(variant, CLB_OPERAND_B);
    size_t unit = a;
    while (unit % b != 0)
        unit += a;
    return unit;
}

bool clb_gemm_adds_zeros(const struct clb_gemm *problem)
{
    return problem->a[0].shape == CLB_STRUCTURE_TRIANGULAR ||
           problem->b[0].shape == CLB_STRUCTURE_TRIANGULAR;
}

bool clb_part_is_exact(const struct clb_gemm *problem, const struct clb_rect *part, const void *p,
                       size_t ldp)
{
    return !clb_gemm_adds_zeros(problem) ||
           clb_tile_is_finite(problem->precision, part->rows, part->cols, p, ldp);
}

struct clb_prefault clb_gemm_prefault(const struct clb_gemm *problem, size_t mode)
{
    size_t element = clb_precision_size(problem->precision);
    return clb_prefault_begin(problem->c, problem->m * element, problem->ldc * element, problem->n,
                              mode);
}

/* Merge an entry of the diagonal that is real by definition. */
static void merge_real(const struct clb_gemm *problem, const char *p, char *c)
{
    size_t real = clb_precision_real_size(problem->precision);
    clb_merge_tile(real == sizeof(float) ? CLB_S : CLB_D, 1, 1, clb_gemm_factor(problem), p, 1,
                   &problem->beta, c, 1);
    if (clb_precision_parts(problem->precision) > 1)
        memset(c + real, 0, real);
}

static void merge_triangle(const struct clb_gemm *problem, const struct clb_rect *part,
                           const char *p, size_t ldp, char *c)
{
    size_t element = clb_precision_size(problem->precision), n = part->cols;
    bool lower = problem->region == CLB_REGION_LOWER;
    size_t apart = problem->real_diagonal; /* the diagonal for itself */
    for (size_t j = 0; j < n; j++, p += ldp * element, c += problem->ldc * element) {
        size_t first = lower ? j + apart : 0, end = lower ? n : j + 1 - apart;
        clb_merge_tile(problem->precision, end - first, 1, clb_gemm_factor(problem),
                       p + first * element, ldp, &problem->beta, c + first * element, problem->ldc);
        if (apart != 0)
            merge_real(problem, p + j * element, c + j * element);
    }
}

void clb_merge_part(const struct clb_gemm *problem, const struct clb_rect *part, const void *p,
                    size_t ldp)
{
    size_t element = clb_precision_size(problem->precision);
    char *c = (char *)problem->c + (part->row + part->col * problem->ldc) * element;
    if (problem->region != CLB_REGION_FULL && part->row == part->col)
        merge_triangle(problem, part, p, ldp, c);
    else
        clb_merge_tile(problem->precision, part->rows, part->cols, clb_gemm_factor(problem), p, ldp,
                       &problem->beta, c, problem->ldc);
}

/* ---- buffers ---- */

/* Kept buffers are taken before any is made, because making one may free kept ones. */
clb_status clb_needs_get(struct clb_runtime *runtime, struct clb_need *need, size_t needs)
{
    size_t count = 0;
    uint64_t missing = 0;
    clb_status status = CLB_OK;
    for (size_t n = 0; n < needs; n++)
        count += need[n].count;
    struct clb_buffer **buffer = need[0].buffer = calloc(clb_max(count, 1), sizeof *buffer);
    if (buffer == NULL)
        return CLB_ERR_NOMEM;
    for (size_t n = 0; n < needs; n++) {
        need[n].buffer = buffer;
        for (size_t i = 0; i < need[n].count; i++, buffer++) {
            *buffer = clb_buffer_find(runtime, need[n].kind, need[n].bytes);
            missing += *buffer == NULL ? clb_buffer_rounded(need[n].bytes) : 0;
        }
    }
    if (missing > 0)
        clb_pool_make_room(runtime, missing);
    for (size_t n = 0; n < needs; n++) {
        for (size_t i = 0; i < need[n].count && status == CLB_OK; i++) {
            if (need[n].buffer[i] == NULL)
                status = clb_buffer_get(runtime, need[n].kind, need[n].bytes, &need[n].buffer[i]);
        }
    }
    return status;
}

void clb_needs_end(struct clb_runtime *runtime, struct clb_need *need, size_t needs, bool idle)
{
    for (size_t n = 0; n < needs; n++) {
        for (size_t i = 0; need[n].buffer != NULL && i < need[n].count; i++)
            clb_buffer_end(runtime, need[n].buffer[i], idle);
    }
    free(need[0].buffer);
}
