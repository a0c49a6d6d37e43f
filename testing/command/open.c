/* SPDX-License-Identifier: BSD-3-Clause
 * A program that opens libraries, as the first argument says:
 *   deep PLUGIN    PLUGIN with RTLD_DEEPBIND, and calls its plugin_run
 *   local PLUGIN   the same without RTLD_DEEPBIND
 *   dlsym LIBRARY  LIBRARY, and calls the dgemm_ that dlsym finds in it */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef size_t run(void);
typedef void dgemm(const char *, const char *, const int *, const int *, const int *,
                   const double *, const double *, const int *, const double *, const int *,
                   const double *, double *, const int *, size_t, size_t);

int main(int argc, char **argv)
{
    const int n = 2;
    const double one = 1, a[4] = {1, 2, 3, 4};
    double c[4] = {0};
    int deep = argc > 1 && strcmp(argv[1], "deep") == 0;
    int plugin = deep || (argc > 1 && strcmp(argv[1], "local") == 0);
    void *library =
        argc > 2 ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | (deep ? RTLD_DEEPBIND : 0)) : NULL;
    void *found = library != NULL ? dlsym(library, plugin ? "plugin_run" : "dgemm_") : NULL;
    run *go = NULL;
    dgemm *multiply = NULL;
    memcpy(plugin ? (void *)&go : (void *)&multiply, &found, sizeof found);
    if (found == NULL)
        return 1;
    if (plugin)
        return go() != 0;
    multiply("N", "N", &n, &n, &n, &one, a, &n, a, &n, &one, c, &n, 1, 1);
    return c[0] != 7;
}
