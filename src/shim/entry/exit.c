/* The ends of the program that come before destructors: exit, and a return from main. Both stop the
 * driver thread outside of the driver and then call the C library's exit. Destructors must not run
 * while a driver's libraries are being loaded (src/engine/ocl/driver.c), and nothing that is
 * registered with atexit is sure to come before the destructors that those libraries register just
 * then.
 *
 * These are reached where the shim is preloaded or linked. err() and the like call the C library's
 * own exit, and a program that loads the shim by dlopen has bound the names before: for these
 * driver.c registers its own function with atexit. _exit and quick_exit run no destructors. */
#include "abi.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

CLB_PUBLIC _Noreturn void exit(int status)
{
    clb_driver_exit(status);
}

typedef int main_function(int argc, char **argv, char **environment);
typedef int start_function(main_function *main, int argc, char **argv, void (*init)(void),
                           void (*fini)(void), void (*linker_fini)(void), void *stack_end);

static main_function *program_main;

static int main_and_exit(int argc, char **argv, char **environment)
{
    exit(program_main(argc, argv, environment));
}

/* What a program's first instructions call, with its main: the C library's runs main, and its own
 * exit with what main returns. */
start_function __libc_start_main;
CLB_PUBLIC int __libc_start_main(main_function *main, int argc, char **argv, void (*init)(void),
                                 void (*fini)(void), void (*linker_fini)(void), void *stack_end)
{
    start_function *next;
    const void *address = dlsym(RTLD_NEXT, "__libc_start_main");
    if (address == NULL)
        _Exit(127);
    memcpy(&next, &address, sizeof next);
    program_main = main;
    return next(main_and_exit, argc, argv, init, fini, linker_fini, stack_end);
}
