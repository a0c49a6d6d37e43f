/* Threads that call at the same time. SPDX-License-Identifier: BSD-3-Clause
 *
 * threads together   8 threads, different sizes
 * threads exit       exit from one thread while the others call
 * threads churn      1000 short threads; memory must not grow with their number
 * threads grow       long narrow calls while another thread's grow
 * threads many       more threads than anything has slots for: 64 at once */
#define CHECK_CBLAS
#include "check.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_size_t wrong, calls;
static pthread_barrier_t barrier;

static void *together(void *argument)
{
    size_t id = (size_t)argument;
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < 12; i++) {
        size_t n = 3 + 37 * ((id + i) % 8);
        atomic_fetch_add(&wrong, check_dgemm(i % 2 ? 'T' : 'N', 'N', n, n + 1, n + 2));
        atomic_fetch_add(&wrong, check_cblas_sgemm('N', i % 3 ? 'T' : 'N', n, n + 1, n + 2));
    }
    return NULL;
}

static int run_together(int count)
{
    pthread_t threads[64];
    pthread_barrier_init(&barrier, NULL, (unsigned)count);
    for (int i = 0; i < count; i++)
        REQUIRE(pthread_create(&threads[i], NULL, together, (void *)(size_t)i) == 0);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return atomic_load(&wrong) != 0;
}

static void *forever(void *argument)
{
    size_t n = 50 + 100 * (size_t)argument;
    for (;;) {
        if (check_dgemm('N', 'N', n, n, n) != 0)
            _exit(3);
        atomic_fetch_add(&calls, 1);
    }
    return NULL;
}

static void *end_process(void *unused)
{
    while (atomic_load(&calls) < 20)
        usleep(1000);
    exit(0);
    return unused;
}

static int run_exit(void)
{
    pthread_t thread;
    for (size_t i = 0; i < 4; i++)
        REQUIRE(pthread_create(&thread, NULL, forever, (void *)i) == 0);
    REQUIRE(pthread_create(&thread, NULL, end_process, NULL) == 0);
    forever((void *)1);
    return 1;
}

static atomic_bool done;

/* A narrow grid that takes long, on the device nearly all the time. */
static void *narrow_calls(void *unused)
{
    const blas_int m = 120, k = 1500;
    const double one = 1, zero = 0;
    double *a = calloc((size_t)(m * k), sizeof *a), *c = calloc((size_t)(m * m), sizeof *c);
    REQUIRE(a != NULL && c != NULL);
    while (!atomic_load(&done))
        dgemm_("N", "T", &m, &m, &k, &one, a, &m, a, &m, &zero, c, &m);
    free(a);
    free(c);
    return unused;
}

/* Seen with PoCL 3.1: it looked a kernel up once before and once after running it, and aborted the
 * process when a wider launch of the same kernel had been made in between. */
static int run_grow(void)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, narrow_calls, NULL) == 0);
    for (size_t n = 100; n <= 6000; n += 257) {
        atomic_fetch_add(&wrong, check_dgemm('N', 'N', n, 1, 2));
        usleep(500);
    }
    atomic_store(&done, true);
    pthread_join(thread, NULL);
    return atomic_load(&wrong) != 0;
}

static void *one_call(void *argument)
{
    size_t n = (size_t)argument;
    atomic_fetch_add(&wrong, check_dgemm('N', 'N', n, n, n));
    return NULL;
}

static void churn(int count)
{
    for (int i = 0; i < count; i += 4) {
        pthread_t threads[4];
        for (size_t t = 0; t < 4; t++)
            REQUIRE(pthread_create(&threads[t], NULL, one_call, (void *)(3 + t)) == 0);
        for (int t = 0; t < 4; t++)
            pthread_join(threads[t], NULL);
    }
}

static int run_churn(void)
{
    churn(100);
    struct mallinfo2 before = mallinfo2();
    churn(1000);
    struct mallinfo2 after = mallinfo2();
    if (after.uordblks > before.uordblks + 64 * 1024)
        printf("%zu bytes grew to %zu\n", before.uordblks, after.uordblks);
    return atomic_load(&wrong) != 0 || after.uordblks > before.uordblks + 64 * 1024;
}

int main(int argc, char **argv)
{
    REQUIRE(argc >= 2);
    if (strcmp(argv[1], "together") == 0)
        return run_together(8);
    if (strcmp(argv[1], "many") == 0)
        return run_together(64);
    if (strcmp(argv[1], "grow") == 0)
        return run_grow();
    if (strcmp(argv[1], "exit") == 0)
        return run_exit();
    if (strcmp(argv[1], "churn") == 0)
        return run_churn();
    return 2;
}
