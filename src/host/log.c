/* SPDX-License-Identifier: BSD-3-Clause
 * The log: one write(2) for each line, so that lines of several threads and processes don't mix. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Seconds that a line waits while a pipe is full. */
#define PATIENCE 1.0

_Atomic int clb_log_limit = CLB_LOG_ERROR;
static _Atomic int log_fd = STDERR_FILENO;

/* The log file, and whether it is the same as standard error. Set before log_fd. */
static dev_t log_device;
static ino_t log_inode;
static bool log_is_stderr;

/* Lines lost, because the pipe was full, since the last one written; while there are any, further
 * lines don't wait. For the log file and for standard error. */
static _Atomic unsigned lost[2];

/* The log's descriptor if it still is the log file. Some programs, such as daemons, close all
 * descriptors that they don't know; the number may now be a file of the program. */
static int current_fd(void)
{
    struct stat info;
    int fd = atomic_load_explicit(&log_fd, memory_order_acquire);
    if (fd == STDERR_FILENO ||
        (fstat(fd, &info) == 0 && info.st_dev == log_device && info.st_ino == log_inode))
        return fd;
    atomic_store(&log_fd, STDERR_FILENO);
    return STDERR_FILENO;
}

/* A short or failed write is not reported. A pipe accepts a line whole or not at all. */
static void write_line(int fd, const char *line, size_t length)
{
    _Atomic unsigned *count = &lost[fd == STDERR_FILENO];
    unsigned missing = atomic_load(count);
    int error = clb_file_write(fd, line, length, missing > 0 ? 0 : PATIENCE);
    if (error == EAGAIN) {
        atomic_fetch_add(count, 1);
    } else if (error == 0 && missing > 0 && atomic_compare_exchange_strong(count, &missing, 0)) {
        char note[80];
        int size =
            snprintf(note, sizeof note,
                     "clblas-shim: before this line %u were lost, the pipe was full\n", missing);
        clb_file_write(fd, note, (size_t)size, 0);
    }
}

/* A line longer than the buffer is truncated. */
static void write_formatted(bool complains, const char *format, va_list args)
{
    static const char prefix[] = "clblas-shim: ";
    char line[1024];
    const int saved_errno = errno;
    memcpy(line, prefix, sizeof prefix);
    size_t used = sizeof prefix - 1;
    const int length = vsnprintf(line + used, sizeof line - used - 1, format, args);
    if (length > 0)
        used += clb_min((size_t)length, sizeof line - used - 2);
    line[used++] = '\n';
    const int fd = current_fd();
    if (complains)
        write_line(STDERR_FILENO, line, used);
    if (!complains || (fd != STDERR_FILENO && !log_is_stderr))
        write_line(fd, line, used);
    errno = saved_errno;
}

void clb_log(clb_log_level level, const char *format, ...)
{
    va_list args;
    if (!clb_log_wanted(level))
        return;
    va_start(args, format);
    write_formatted(false, format, args);
    va_end(args);
}

void clb_complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_formatted(true, format, args);
    va_end(args);
}

void clb_log_open(clb_log_level level, const char *file)
{
    atomic_store(&clb_log_limit, (int)level);
    if (file == NULL)
        return;
    struct clb_text path = {0};
    struct stat info, standard;
    clb_text_add_file(&path, file);
    int fd = path.failed ? -1 : clb_file_open(path.data, O_WRONLY | O_CREAT | O_APPEND, 0666);
    const bool good = fd >= 0 && fstat(fd, &info) == 0;
    if (!good)
        clb_complain("CLBLAS_SHIM_LOG_FILE=%s can't be opened (%s), logging to stderr",
                     path.failed ? file : path.data, clb_file_error(errno));
    clb_text_free(&path);
    if (!good)
        return;
    log_device = info.st_dev;
    log_inode = info.st_ino;
    log_is_stderr = fstat(STDERR_FILENO, &standard) == 0 && standard.st_dev == info.st_dev &&
                    standard.st_ino == info.st_ino;
    atomic_store_explicit(&log_fd, fd, memory_order_release);
}
