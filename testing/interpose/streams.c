/* A program whose descriptors are not as usual.
 *
 * streams closed: 0 to 2 are closed, and threads print all the same: every print must fail.
 * streams taken FILE: closes all descriptors from 3 on, as daemons do, opens FILE that often that
 * it has their numbers, and must find it empty. SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_bool stop;
static atomic_int printed;

static void *print(void *unused)
{
    (void)unused;
    while (!stop) {
        for (int fd = 0; fd <= 2; fd++) {
            if (write(fd, "stray\n", 6) >= 0 || errno != EBADF)
                printed++;
        }
    }
    return NULL;
}

static int closed(void)
{
    pthread_t thread;
    size_t wrong = 0;
    for (int fd = 0; fd <= 2; fd++)
        close(fd);
    if (pthread_create(&thread, NULL, print, NULL) != 0)
        return 3;
    for (int i = 0; i < 50; i++)
        wrong += check_dgemm('N', 'N', 5, 5, 5);
    usleep(100000);
    stop = true;
    pthread_join(thread, NULL);
    stop = false; /* and while the report is written */
    if (pthread_create(&thread, NULL, print, NULL) != 0)
        return 3;
    return wrong != 0 ? 1 : printed != 0 ? 2 : 0;
}

static int taken(const char *name)
{
    size_t wrong = check_dgemm('N', 'N', 5, 5, 5);
    closefrom(3);
    for (int i = 0; i < 60; i++) {
        if (open(name, O_WRONLY | O_CREAT | O_APPEND, 0666) < 0)
            return 3;
    }
    wrong += check_dgemm('N', 'N', 5, 5, 5);
    off_t size = lseek(3, 0, SEEK_END);
    return wrong != 0 ? 1 : size != 0 ? 2 : 0;
}

int main(int argc, char **argv)
{
    return argc > 2 && strcmp(argv[1], "taken") == 0 ? taken(argv[2]) : closed();
}
