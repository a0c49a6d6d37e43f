/* Inverses of triangles and products of a triangle with its adjoint for bench-lu, of lower and
 * upper triangles with a large, real diagonal. The results are compared as those of Level 3 are. */
#include "lu.h"

#include <stdio.h>

typedef void trtri_function(const char *, const char *, const int *, void *, const int *, int *,
                            size_t, size_t);
typedef void lauum_function(const char *, const int *, void *, const int *, int *, size_t);

double inverse_work(const struct problem *p)
{
    double n = (double)p->n, cube = n * n * n;
    return (p->routine == POTRI ? 2.0 : 1.0) / 3 * cube;
}

void inverse_make(struct problem *p)
{
    size_t parts = (size_t)bench_parts((int)p->precision), step = (p->n + 1) * parts;
    bool single = bench_real_size((int)p->precision) == sizeof(float);
    for (size_t i = 0; i < p->n; i++) {
        for (size_t part = 0; part < parts; part++) {
            double value = part == 0 ? (double)p->n : 0;
            if (single)
                ((float *)p->a)[i * step + part] = (float)value;
            else
                ((double *)p->a)[i * step + part] = value;
        }
    }
}

clb_status inverse_shim(const struct problem *p, struct clb_runtime *runtime,
                        const struct clb_gemm_variant *variant, void *x)
{
    const char *kernel;
    const struct clb_inverse problem = {.precision = p->precision,
                                        .inverts = p->routine != LAUUM,
                                        .multiplies = p->routine != TRTRI,
                                        .upper = p->form[0] == 'U',
                                        .n = p->n,
                                        .a = x,
                                        .lda = p->n};
    return clb_inverse_run(runtime, variant, &problem, &kernel);
}

void inverse_openblas(const struct problem *p, const char *name, void *x)
{
    void (*function)(void) = function_of(p->precision, name);
    const int n = (int)p->n;
    int info;
    if (p->routine == TRTRI)
        ((trtri_function *)function)(p->form, "N", &n, x, &n, &info, 1, 1);
    else
        ((lauum_function *)function)(p->form, &n, x, &n, &info, 1);
}
