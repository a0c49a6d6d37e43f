/* A program that knows nothing of the shim: products of several sizes by all four GEMM names, with
 * checked results. Prints nothing when all is right.
 *
 * client [N | MxNxK ...]: sizes of products, nearly square ones for N; default 1 5 40 100. With
 * an = in front of MxNxK, A and B transposed alike. SPDX-License-Identifier: BSD-3-Clause */
#define CHECK_CBLAS
#include "check.h"

int main(int argc, char **argv)
{
    static const char ops[] = "NTC";
    size_t wrong = 0;
    static char *sizes[] = {"1", "5", "40", "100"};
    char **list = argc > 1 ? argv + 1 : sizes;
    for (int i = 0; i < (argc > 1 ? argc - 1 : 4); i++) {
        size_t m, n, k;
        bool alike = list[i][0] == '=';
        if (sscanf(list[i] + alike, "%zux%zux%zu", &m, &n, &k) != 3) {
            m = (size_t)atoi(list[i]);
            n = m + 1;
            k = m + 2;
        }
        for (int op = 0; op < 9; op++) {
            if ((alike || m > 200) && op % 4 != 0)
                continue;
            wrong += check_sgemm(ops[op / 3], ops[op % 3], m, n, k);
            wrong += check_dgemm(ops[op / 3], ops[op % 3], m, n, k);
            wrong += check_cblas_sgemm(ops[op / 3], ops[op % 3], m, n, k);
            wrong += check_cblas_dgemm(ops[op / 3], ops[op % 3], m, n, k);
        }
    }
    if (wrong != 0)
        printf("%zu wrong entries\n", wrong);
    return wrong != 0;
}
