/* The log: one write(2) for every line, so that lines of threads and processes stay whole. */
#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Atomic int log_level = CLB_LOG_ERROR;
static _Atomic int log_fd = STDERR_FILENO;

bool clb_log_wanted(clb_log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

/* A line longer than the buffer is cut; a short or failed write is not worth disturbing anybody. */
static void write_line(int fd, const char *format, va_list args)
{
    static const char prefix[] = "clblas-shim: ";
    char line[1024];
    int saved_errno = errno;
    memcpy(line, prefix, sizeof prefix);
    size_t used = sizeof prefix - 1;
    int length = vsnprintf(line + used, sizeof line - used - 1, format, args);
    if (length > 0)
        used += clb_min((size_t)length, sizeof line - used - 2);
    line[used++] = '\n';
    ssize_t written = write(fd, line, used);
    (void)written;
    errno = saved_errno;
}

void clb_log(clb_log_level level, const char *format, ...)
{
    if (!clb_log_wanted(level))
        return;
    va_list args;
    va_start(args, format);
    write_line(atomic_load_explicit(&log_fd, memory_order_relaxed), format, args);
    va_end(args);
}

void clb_complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(STDERR_FILENO, format, args);
    va_end(args);
}

void clb_log_open(clb_log_level level, const char *file)
{
    atomic_store(&log_level, (int)level);
    if (file == NULL)
        return;
    char path[4096];
    size_t used = 0;
    for (const char *c = file; *c != '\0' && used + 24 < sizeof path; c++) {
        if (c[0] == '%' && c[1] == 'p') {
            used += (size_t)snprintf(path + used, sizeof path - used, "%ld", (long)getpid());
            c++;
        } else {
            path[used++] = *c;
        }
    }
    path[used] = '\0';
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        clb_complain("CLBLAS_SHIM_LOG_FILE=%s can't be opened (%s), logging to stderr", path,
                     strerror(errno));
    else
        atomic_store(&log_fd, fd);
}
