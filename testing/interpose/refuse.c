/* SPDX-License-Identifier: BSD-3-Clause
 * A library that makes file systems refuse: locks, and renames of entries of the shim's cache, fail
 * with the error number in FLOCK and RENAME, as on those of servers. */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

static bool refuses(const char *variable)
{
    const char *number = getenv(variable);
    if (number != NULL)
        errno = atoi(number);
    return number != NULL;
}

int flock(int fd, int operation)
{
    int (*next)(int fd, int operation);
    *(void **)&next = dlsym(RTLD_NEXT, "flock");
    return refuses("FLOCK") ? -1 : next(fd, operation);
}

int rename(const char *from, const char *to)
{
    int (*next)(const char *from, const char *to);
    *(void **)&next = dlsym(RTLD_NEXT, "rename");
    return strstr(from, "/.clblas-shim-") != NULL && refuses("RENAME") ? -1 : next(from, to);
}
