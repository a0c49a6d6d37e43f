/* Libraries whose constructors wait for threads that call BLAS.
 *
 * constructor OPEN [PLUGIN]... : opens the plugins (CLB_TEST_HOST); a plugin makes a thread when it
 * is loaded, and waits for its products. */
#define CHECK_NO_FORTRAN
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>

#ifdef CLB_TEST_HOST
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *handle = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        int *calls = dlsym(handle, "plugin_calls");
        REQUIRE(calls != NULL && *calls == 40);
    }
#ifdef CLB_TEST_NEEDS_BLAS
    const blas_int none = 0, one = 1;
    double x = 0;
    if (argc > 100)
        dgemm_("N", "N", &none, &none, &none, &x, &x, &one, &x, &one, &x, &x, &one);
#endif
    return 0;
}
#else
int plugin_calls;

/* One call of each kind again and again: the first is what searches. */
static void *compute(void *unused)
{
    const blas_int two = 2;
    const double one = 1, zero = 0, a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
    (void)unused;
    for (int i = 0; i < 20; i++) {
        double c[4] = {0}, d[4] = {0};
        dgemm_("N", "N", &two, &two, &two, &one, a, &two, b, &two, &zero, c, &two);
        cblas_dgemm(102, 111, 111, 2, 2, 2, 1, a, 2, b, 2, 0, d, 2);
        plugin_calls += (c[0] == 23 && c[3] == 46) + (d[0] == 23 && d[3] == 46);
    }
    return NULL;
}

static __attribute__((constructor)) void begin(void)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, compute, NULL) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
}
#endif
