/* Every function that the shim uses, handed on to the real loader; weak, so that what limits.c
 * defines comes first. SPDX-License-Identifier: BSD-3-Clause */
#include "limits.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct clb_cl table;
static void *library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void (*real_function(const char *name))(void)
{
    real_cl();
    void *address = dlsym(library, name);
    void (*function)(void);
    memcpy(&function, &address, sizeof function);
    if (address == NULL) {
        fprintf(stderr, "limits: the system's libOpenCL.so.1 has no %s\n", name);
        abort();
    }
    return function;
}

static void open_real(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } functions[] = {
#define CLB_CL_STATUS(name, parameters, arguments) {"cl" #name, offsetof(struct clb_cl, name)},
#define CLB_CL_HANDLE(type, name, parameters, arguments) \
    {"cl" #name, offsetof(struct clb_cl, name)},
#include "../lib/functions.def"
#undef CLB_CL_STATUS
#undef CLB_CL_HANDLE
    };
    /* By its path: under its plain name the dynamic linker would find this library again. */
    const char *path = getenv("LIMITS_OPENCL");
    glob_t found = {.gl_pathc = 0};
    if (path == NULL && glob("/usr/lib/*-linux-gnu*/libOpenCL.so.1", 0, NULL, &found) == 0)
        path = found.gl_pathv[0];
    library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    globfree(&found);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = library != NULL ? dlsym(library, functions[i].name) : NULL;
        if (function == NULL) {
            fprintf(stderr, "limits: no %s of the system's libOpenCL.so.1\n", functions[i].name);
            abort();
        }
        memcpy((char *)&table + functions[i].offset, &function, sizeof function);
    }
}

const struct clb_cl *real_cl(void)
{
    pthread_once(&once, open_real);
    return &table;
}

#define CLB_CL_STATUS(name, parameters, arguments)               \
    __attribute__((weak)) cl_int CL_API_CALL cl##name parameters \
    {                                                            \
        return real_cl()->name arguments;                        \
    }
#define CLB_CL_HANDLE(type, name, parameters, arguments)       \
    __attribute__((weak)) type CL_API_CALL cl##name parameters \
    {                                                          \
        return real_cl()->name arguments;                      \
    }
#include "../lib/functions.def"
