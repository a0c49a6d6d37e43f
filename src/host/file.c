/* SPDX-License-Identifier: BSD-3-Clause
 * Files and streams of the shim in the program's process. They are opened on descriptors above the
 * standard ones, without waiting for a reader, and written without raising a signal. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Lower ones are the standard descriptors and those that scripts and daemons use by number. */
#define LOWEST_DESCRIPTOR 10

/* A file that is opened while the program has closed a standard descriptor would get its number,
 * and the program's output. So closed ones are held meanwhile by placeholders, on which reads and
 * writes fail as on a closed descriptor. */
static void hold_standard(bool held[3])
{
    memset(held, 0, 3 * sizeof *held);
    for (;;) {
        int fd = open("/", O_PATH | O_CLOEXEC);
        if (fd < 0)
            return;
        if (fd > STDERR_FILENO) {
            close(fd);
            return;
        }
        held[fd] = true;
    }
}

/* Close the placeholders, unless the program has replaced one by a file of its own meanwhile. */
static void release_standard(const bool held[3])
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        if (held[fd] && (fcntl(fd, F_GETFL) & O_PATH) != 0)
            close(fd);
    }
}

int clb_file_open(const char *path, int flags, unsigned mode)
{
    bool held[3];
    hold_standard(held);
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode);
    int error = errno;
    if (fd >= 0 && fd < LOWEST_DESCRIPTOR) {
        int high = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
        if (high >= 0 || fd <= STDERR_FILENO) {
            error = errno;
            close(fd);
            fd = high;
        }
    }
    release_standard(held);
    errno = error;
    return fd;
}

FILE *clb_file_read(const char *path)
{
    struct stat info;
    int fd = clb_file_open(path, O_RDONLY, 0);
    if (fd < 0)
        return NULL;
    FILE *file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? fdopen(fd, "r") : NULL;
    if (file == NULL)
        close(fd);
    return file;
}

bool clb_file_is_private(const struct stat *info)
{
    /* A group with the user's own number is the user. */
    const bool own_group = info->st_gid == getegid() && info->st_gid == info->st_uid;
    const mode_t others = own_group ? S_IWOTH : S_IWGRP | S_IWOTH;
    return (info->st_uid == geteuid() || info->st_uid == 0) && (info->st_mode & others) == 0;
}

int clb_file_temporary(char *name, size_t size, const char *path, unsigned mode)
{
    static _Atomic unsigned count;
    const char *slash = strrchr(path, '/');
    int folder = slash == NULL ? 0 : (int)(slash - path + 1);
    for (int attempt = 0; attempt < 100; attempt++) {
        /* Don't append to the file's name: the result might be too long. */
        uint64_t moment = (uint64_t)(1e9 * clb_now());
        int length =
            snprintf(name, size, "%.*s.clblas-shim-%ld-%llx-%u", folder, path, (long)getpid(),
                     (unsigned long long)moment, atomic_fetch_add(&count, 1));
        if (length < 0 || (size_t)length >= size) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = clb_file_open(name, O_WRONLY | O_CREAT | O_EXCL, mode);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* ---- writing ---- */

static bool wait_for_room(int fd, double until)
{
    struct pollfd wanted = {.fd = fd, .events = POLLOUT};
    for (;;) {
        double left = until - clb_now();
        if (left <= 0)
            return false;
        int ready = poll(&wanted, 1, (int)(1000 * left) + 1);
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return ready > 0;
    }
}

static int write_blocked(int fd, const char *data, size_t length, double patience)
{
    double until = clb_now() + patience;
    while (length > 0) {
        ssize_t written = write(fd, data, length);
        if (written > 0) {
            data += written;
            length -= (size_t)written;
            until = clb_now() + patience;
        } else if (written == 0) {
            return EIO;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for_room(fd, until))
                return EAGAIN;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/* A write may raise two signals, which are sent to the writing thread: it blocks them. */
int clb_file_write(int fd, const char *data, size_t length, double patience)
{
    sigset_t blocked, before, pending;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGPIPE);
    sigaddset(&blocked, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    sigpending(&pending);
    int error = write_blocked(fd, data, length, patience);
    if (error == EPIPE || error == EFBIG)
        clb_signals_remove_raised(&pending);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

const char *clb_file_error(int error)
{
    return error == ENXIO    ? "nobody reads it"
           : error == EAGAIN ? "its reader does not take it"
                             : strerror(error);
}
