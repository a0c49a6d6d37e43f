/* The report at exit: a plain write, no OpenCL call, no lock. */
#include "route.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The working directory of the first call: the program may change it before it ends. */
static char *directory;

void clb_report_configure(void)
{
    const char *name = clb_config_get()->stats;
    if (name != NULL && name[0] != '/' && strcmp(name, "-") != 0)
        directory = getcwd(NULL, 0);
}

/* The file's name with %p replaced, absolute. */
static void format_name(struct clb_text *path, const char *name)
{
    if (name[0] != '/' && directory != NULL)
        clb_text_addf(path, "%s/", directory);
    for (const char *c = name; *c != '\0'; c++) {
        if (c[0] == '%' && c[1] == 'p') {
            clb_text_addf(path, "%ld", (long)getpid());
            c++;
        } else {
            clb_text_addf(path, "%c", *c);
        }
    }
}

/* A regular file that exists is somebody else's report: this process adds its id to the name. */
static int open_report(struct clb_text *path)
{
    struct stat info;
    int fd = open(path->data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST)
        return fd;
    if (stat(path->data, &info) == 0 && !S_ISREG(info.st_mode))
        return open(path->data, O_WRONLY | O_APPEND | O_CLOEXEC);
    clb_text_addf(path, ".%ld", (long)getpid());
    return path->failed ? -1 : open(path->data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

static void write_all(int fd, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, data, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        data += written;
        length -= (size_t)written;
    }
}

static void write_file(const char *name, const struct clb_text *report)
{
    struct clb_text path = {0};
    format_name(&path, name);
    int fd = path.failed || path.data == NULL ? -1 : open_report(&path);
    if (fd < 0) {
        clb_complain("CLBLAS_SHIM_STATS=%s can't be written (%s)", name, strerror(errno));
    } else {
        write_all(fd, report->data, report->length);
        close(fd);
    }
    clb_text_free(&path);
}

__attribute__((destructor)) static void write_report_at_exit(void)
{
    if (!clb_stats_wanted() || !clb_stats_any())
        return;
    const char *name = clb_config_get()->stats;
    struct clb_text report = {0};
    bool table = strcmp(name, "-") == 0;
    if (table)
        clb_stats_format_table(&report);
    else
        clb_stats_format_json(&report);
    if (!report.failed && table)
        write_all(STDERR_FILENO, report.data, report.length);
    else if (!report.failed)
        write_file(name, &report);
    clb_text_free(&report);
}
