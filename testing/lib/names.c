/* A BLAS, LAPACK and LAPACKE under all names but the plain ones: those of builds with 64-bit
 * integers and of the libraries in Python's wheels. A call goes on to the plain name in one of two
 * lists of files with colons, CLB_TEST_WIDE or CLB_TEST_NARROW by the integers that the name means,
 * which are loaded where nothing else sees them. SPDX-License-Identifier: BSD-3-Clause
 *
 * Every function passes on as many arguments as any may have: see testing/fuzz/call.c. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *arg;
#define PARAMETERS                                                                            \
    double x, double y, arg a, arg b, arg c, arg d, arg e, arg f, arg g, arg h, arg i, arg j, \
        arg k, arg l, arg m, arg n, arg o, arg p, arg q, arg r, arg s, arg t
#define ARGUMENTS x, y, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t
typedef arg function(PARAMETERS);

enum { FILES = 4, FORTRAN, C, LAPACKE };

static void *handles[2][FILES]; /* of narrow and of wide integers */

static void open_list(const char *list, void *opened[FILES])
{
    char copy[2000], *rest, *file;
    Lmid_t names = LM_ID_NEWLM;
    size_t count = 0;
    snprintf(copy, sizeof copy, "%s", list != NULL ? list : "");
    for (file = strtok_r(copy, ":", &rest); file != NULL && count < FILES;
         file = strtok_r(NULL, ":", &rest)) {
        opened[count] = dlmopen(names, file, RTLD_NOW | RTLD_LOCAL);
        if (opened[count] == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            abort();
        }
        dlinfo(opened[count], RTLD_DI_LMID, &names);
        /* It is not to ask the environment later: a C library of its own does not learn where that
         * has moved. */
        void *symbol = dlsym(opened[count++], "LAPACKE_set_nancheck");
        void (*set_nancheck)(int);
        memcpy(&set_nancheck, &symbol, sizeof symbol);
        if (symbol != NULL)
            set_nancheck(1);
    }
}

static void open_lists(void)
{
    open_list(getenv("CLB_TEST_NARROW"), handles[0]);
    open_list(getenv("CLB_TEST_WIDE"), handles[1]);
}

/* The suffix tells whether a name of LAPACKE is a _work function's. */
static function *find(int abi, const char *routine, const char *suffix, bool wide)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const bool work = strncmp(suffix, "_work", 5) == 0;
    char name[60];
    function *found;
    void *symbol = NULL;
    pthread_once(&once, open_lists);
    snprintf(name, sizeof name, "%s%s%s",
             abi == FORTRAN ? ""
             : abi == C     ? "cblas_"
                            : "LAPACKE_",
             routine,
             abi == FORTRAN ? "_"
             : work         ? "_work"
                            : "");
    for (size_t file = 0; file < FILES && symbol == NULL; file++) {
        if (handles[wide][file] != NULL)
            symbol = dlsym(handles[wide][file], name);
    }
    if (symbol == NULL) {
        fprintf(stderr, "no %s of %s integers\n", name, wide ? "wide" : "narrow");
        abort();
    }
    memcpy(&found, &symbol, sizeof found);
    return found;
}

#define FORWARD(routine, prefix, suffix, abi, wide)                                 \
    __attribute__((visibility("default"))) arg prefix##routine##suffix(PARAMETERS); \
    arg prefix##routine##suffix(PARAMETERS)                                         \
    {                                                                               \
        static function *_Atomic real;                                              \
        if (real == NULL)                                                           \
            real = find(abi, #routine, #suffix, wide);                              \
        return real(ARGUMENTS);                                                     \
    }
#define NOTHING(routine, prefix, suffix, abi, wide)

/* CHOOSE(OMIT_x) is NOTHING where OMIT_x is defined here, and FORWARD otherwise. */
#define SECOND(first, second, ...) second
#define CHOOSE(...)                SECOND(__VA_ARGS__, FORWARD, )
#define OMIT_plain                 , NOTHING
#define OMIT_cblas                 , NOTHING
#define OMIT_lapacke               , NOTHING
#define OMIT_lapacke_work          , NOTHING

#define NAME(routine, form, prefix, suffix, abi, wide) \
    CHOOSE(OMIT_##form)(routine, prefix, suffix, abi, wide)
#define NAMES(routine, precision, library) CLB_FORMS_##library(NAME, routine)

/* What older references lack the shim makes of products under the same kind of name. */
#define LACK_gemm3m , NO_ROW
#define LACK_gemmtr , NO_ROW
#define LACK_gemmt  , NO_ROW
/* What no library of Debian 12 has. */
#define LACK_gemm_batch         , NO_ROW
#define LACK_gemm_batch_strided , NO_ROW

#define CHOOSE_ROW(...) SECOND(__VA_ARGS__, ROW, )
#define NO_ROW(stem, precisions, library)
#define ROW(stem, precisions, library) CLB_NAMES_##precisions(NAMES, stem, library)
#define CLB_ROUTINE(stem, precisions, library, ...) \
    CHOOSE_ROW(LACK_##stem)(stem, precisions, library)
#include "blas/routines.def"

/* By which the width of integers is asked. */
CLB_FORMS_BLAS(NAME, isamax)
