/* The operands of each kind of routine: how large they are, what of them is read, what is written.
 */
#include "fuzz.h"

static long size_of(const struct problem *p, enum field field)
{
    return p->c.value[field];
}

static struct operand general(long rows, long cols, bool output)
{
    return (struct operand){.rows = rows, .cols = cols, .output = output};
}

static struct operand triangle(const struct problem *p, long n, enum content content, bool output)
{
    return (struct operand){.rows = n,
                            .cols = n,
                            .part = size_of(p, FIELD_UPLO) ? PART_UPPER : PART_LOWER,
                            .content = content,
                            .output = output};
}

/* As it is stored: rows x cols is op of it. */
static struct operand transposable(const struct problem *p, enum field trans, long rows, long cols)
{
    const bool transposed = trans_letter(p, trans) != 'N';
    return general(transposed ? cols : rows, transposed ? rows : cols, false);
}

void shape_gemm(struct problem *p)
{
    const long m = size_of(p, FIELD_M), n = size_of(p, FIELD_N), k = size_of(p, FIELD_K);
    p->operands[0] = transposable(p, FIELD_TRANSA, m, k);
    p->operands[1] = transposable(p, FIELD_TRANSB, k, n);
    p->operands[2] = general(m, n, true);
}

void shape_gemmtr(struct problem *p)
{
    const long n = size_of(p, FIELD_N), k = size_of(p, FIELD_K);
    p->operands[0] = transposable(p, FIELD_TRANSA, n, k);
    p->operands[1] = transposable(p, FIELD_TRANSB, k, n);
    p->operands[2] = triangle(p, n, CONTENT_ANY, true);
}

void shape_symm(struct problem *p)
{
    const long m = size_of(p, FIELD_M), n = size_of(p, FIELD_N);
    p->operands[0] = triangle(p, size_of(p, FIELD_SIDE) ? n : m, CONTENT_ANY, false);
    p->operands[0].real_diagonal = is(p, HERMITIAN);
    p->operands[1] = general(m, n, false);
    p->operands[2] = general(m, n, true);
}

void shape_syrk(struct problem *p)
{
    const long n = size_of(p, FIELD_N), k = size_of(p, FIELD_K);
    p->operands[0] = transposable(p, FIELD_TRANSA, n, k);
    if (signature_has(p->routine, 'B'))
        p->operands[1] = p->operands[0];
    p->operands[2] = triangle(p, n, CONTENT_ANY, true);
    p->operands[2].real_diagonal = is(p, HERMITIAN);
}

void shape_triangle(struct problem *p)
{
    const long m = size_of(p, FIELD_M), n = size_of(p, FIELD_N);
    p->operands[0] = triangle(p, size_of(p, FIELD_SIDE) ? n : m, CONTENT_TRIANGLE, false);
    p->operands[0].unit = size_of(p, FIELD_DIAG);
    p->operands[1] = general(m, n, true);
}

void shape_getrf(struct problem *p)
{
    p->operands[0] = general(size_of(p, FIELD_M), size_of(p, FIELD_N), true);
}

void shape_gesv(struct problem *p)
{
    const long n = size_of(p, FIELD_N);
    p->operands[0] = general(n, n, true);
    p->operands[1] = general(n, size_of(p, FIELD_K), true);
}

void shape_getrs(struct problem *p)
{
    shape_gesv(p);
    p->operands[0].output = false;
    p->operands[0].content = CONTENT_FACTORS;
}

void shape_potrf(struct problem *p)
{
    p->operands[0] = triangle(p, size_of(p, FIELD_N), CONTENT_DEFINITE, true);
    p->operands[0].real_diagonal = p->p->complex;
}

void shape_posv(struct problem *p)
{
    shape_potrf(p);
    p->operands[1] = general(size_of(p, FIELD_N), size_of(p, FIELD_K), true);
}

/* The factor's diagonal is real, and is read as a complex number. */
void shape_potrs(struct problem *p)
{
    shape_posv(p);
    p->operands[0] = triangle(p, size_of(p, FIELD_N), CONTENT_CHOLESKY, false);
}

void shape_trtri(struct problem *p)
{
    p->operands[0] = triangle(p, size_of(p, FIELD_N), CONTENT_TRIANGLE, true);
    p->operands[0].unit = size_of(p, FIELD_DIAG);
}

void shape_lauum(struct problem *p)
{
    p->operands[0] = triangle(p, size_of(p, FIELD_N), CONTENT_CHOLESKY, true);
}

void shape_potri(struct problem *p)
{
    shape_lauum(p);
}

void shape_geqrf(struct problem *p)
{
    p->operands[0] = general(size_of(p, FIELD_M), size_of(p, FIELD_N), true);
    p->reflectors = smaller(p->operands[0].rows, p->operands[0].cols);
}

void shape_orgqr(struct problem *p)
{
    shape_geqrf(p);
    p->operands[0].content = CONTENT_REFLECTORS;
    p->reflectors = size_of(p, FIELD_K);
}

void shape_ormqr(struct problem *p)
{
    const long m = size_of(p, FIELD_M), n = size_of(p, FIELD_N);
    p->reflectors = size_of(p, FIELD_K);
    p->operands[0] = general(size_of(p, FIELD_SIDE) ? n : m, p->reflectors, false);
    p->operands[0].content = CONTENT_REFLECTORS;
    p->operands[2] = general(m, n, true);
}
