/* SPDX-License-Identifier: BSD-3-Clause
 * Calls by threads with small stacks. The argument is their size in KiB. */
#include "check.h"

#include <limits.h>
#include <pthread.h>

static size_t wrong;

static void *call(void *unused)
{
    (void)unused;
    wrong += check_dgemm('N', 'T', 70, 60, 50);
    wrong += check_dgemm('T', 'N', 190, 170, 150);
    wrong += check_sgemm('N', 'N', 70, 60, 50);
    return NULL;
}

int main(int argc, char **argv)
{
    size_t size = (size_t)atoi(argc > 1 ? argv[1] : "64") * 1024;
    pthread_attr_t attributes;
    REQUIRE(size >= (size_t)PTHREAD_STACK_MIN);
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstacksize(&attributes, size) == 0);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, &attributes, call, NULL) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
    }
    REQUIRE(wrong == 0);
    return 0;
}
