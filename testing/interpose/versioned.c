/* A program linked to dgemm_@LIBBLAS_3. SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

int main(void)
{
    return check_dgemm('N', 'N', 50, 40, 30) + check_dgemm('T', 'N', 2, 3, 4) != 0;
}
