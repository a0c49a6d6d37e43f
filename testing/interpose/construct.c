/* A driver without platforms whose constructor takes long and registers destructors meanwhile, as
 * LLVM's constructors do. It says when it begins, by a file "constructs", and how many of them have
 * run before it ends; see startup.test. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_bool constructs = true;
static atomic_int destroyed;

static void destroy(void)
{
    destroyed += constructs;
}

static void __attribute__((constructor)) construct(void)
{
    close(open("constructs", O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < 2000; i++) {
        atexit(destroy);
        usleep(100);
    }
    constructs = false;
    fprintf(stderr, "%d destroyed\n", destroyed);
}

void *clGetExtensionFunctionAddress(const char *name)
{
    (void)name;
    return NULL;
}
