/* exit, which the program's calls reach first: it stops the driver thread outside of the driver and
 * then calls the C library's. Destructors must not run while a driver's libraries are being loaded
 * (src/ocl/driver.c), and nothing that is registered with atexit is sure to come before the
 * destructors that those libraries register just then.
 *
 * This is reached where the shim is preloaded or linked. A return from main, err() and the like
 * call the C library's own, and a program that loads the shim by dlopen has bound its name before:
 * for these driver.c registers its own function with atexit. _exit and quick_exit run no
 * destructors. */
#include "abi.h"

#include <stdlib.h>

CLB_PUBLIC _Noreturn void exit(int status)
{
    clb_driver_exit(status);
}
