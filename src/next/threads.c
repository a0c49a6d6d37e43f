/* The next library's own threads.
 *
 * OpenBLAS's idle threads spin for 2^26 cycles after a call, and its threads wait for each other in
 * a loop. Where the device is the CPU both take CPUs from the device: panels of LU that it computes
 * with two threads on two CPUs make a factorisation up to twice as slow. The number of threads is
 * the library's, for the whole process, so it is one only as long as a call of the shim needs that
 * and what it was before as soon as none does; other threads' calls may run with one thread
 * meanwhile, and get the same results. */
#include "next.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t holders;
static int before;
static void (*set_threads)(int);

/* A function of the library that an address belongs to. */
static void *find_beside(const void *address, const char *name)
{
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL)
        return NULL;
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL)
        return NULL;
    void *found = dlsym(library, name);
    dlclose(library);
    return found;
}

bool clb_next_single(const void *function)
{
    void *get = find_beside(function, "openblas_get_num_threads");
    void *set = find_beside(function, "openblas_set_num_threads");
    int (*get_threads)(void);
    if (get == NULL || set == NULL)
        return false;
    memcpy(&get_threads, &get, sizeof get_threads);
    pthread_mutex_lock(&lock);
    bool first = holders == 0;
    if (first) {
        memcpy(&set_threads, &set, sizeof set_threads);
        before = get_threads();
    }
    bool held = before > 1;
    if (held) {
        holders++;
        if (first)
            set_threads(1);
    }
    pthread_mutex_unlock(&lock);
    return held;
}

void clb_next_single_end(bool held)
{
    if (!held)
        return;
    pthread_mutex_lock(&lock);
    if (--holders == 0)
        set_threads(before);
    pthread_mutex_unlock(&lock);
}
