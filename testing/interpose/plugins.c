/* A program without a BLAS whose plugins bring one each, under RTLD_LOCAL.
 * SPDX-License-Identifier: BSD-3-Clause
 * plugins ROUNDS PLUGIN... : each round opens, runs and closes every plugin. */
#define CHECK_NO_FORTRAN
#include "check.h"

#include <dlfcn.h>
#include <errno.h>

int main(int argc, char **argv)
{
    REQUIRE(argc > 2);
    int rounds = atoi(argv[1]);
    size_t wrong = 0;
    for (int round = 0; round < rounds; round++) {
        void *handle[16] = {NULL};
        for (int i = 2; i < argc; i++) {
            handle[i] = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
            if (handle[i] == NULL) {
                fprintf(stderr, "%s\n", dlerror());
                return 2;
            }
        }
        for (int pass = 0; pass < 2; pass++) {
            for (int i = 2; i < argc; i++) {
                size_t (*run)(void), (*invalid)(void);
                *(void **)&run = dlsym(handle[i], "plugin_run");
                *(void **)&invalid = dlsym(handle[i], "plugin_invalid");
                REQUIRE(run != NULL && invalid != NULL);
                size_t here = run() + invalid();
                if (here != 0)
                    printf("%s: %zu wrong entries\n", argv[i], here);
                wrong += here;
            }
        }
        for (int i = 2; i < argc; i++)
            dlclose(handle[i]);
    }
    return wrong != 0;
}
