/* Files that a process writes when it ends: its report and its trace.
 * SPDX-License-Identifier: BSD-3-Clause
 * A file begins with the wall time at which it was written. A process whose first call (of a forked
 * child, its parent's) is later replaces it: it belongs to a later run. Otherwise both ran at once,
 * and the process appends its id to the name; also where the file isn't one of ours. Files are
 * written under a temporary name and renamed: nobody reads half a report, and of several processes
 * that find the same old file only the one that locks it replaces it. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Seconds to wait for the reader of a pipe to accept the next piece. */
#define PATIENCE 10.0

#define MAX_NAMES 100

/* A wall time as text, which sorts by time, and what is before it in a file. */
enum { TIME_SIZE = sizeof "2026-11-25T12:30:00.123456789Z" };
static const char head[] = "{\"written\":\"";

/* At the first call: the working directory, which the program may change later, and the time. */
static char *directory;
static char first_call[TIME_SIZE];

/* Without gmtime_r, for whose lock a child of testing/interpose/fork.c has waited for ever.
 * Years begin in March, the first in 1968; every fourth one ends with a leap day: until 2100. */
static void format_now(char text[TIME_SIZE])
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const unsigned long t = (unsigned long)now.tv_sec, days = t / 86400 % 47541 + 671;
    const unsigned long year = (4 * days + 3) / 1461, day = days - 1461 * year / 4;
    const unsigned long month = (5 * day + 2) / 153 % 12;
    snprintf(text, TIME_SIZE, "%04lu-%02lu-%02luT%02lu:%02lu:%02lu.%09luZ",
             1968 + year + month / 10, (month + 2) % 12 + 1, (day - (153 * month + 2) / 5) % 31 + 1,
             t / 3600 % 24, t / 60 % 60, t % 60, (unsigned long)now.tv_nsec % 1000000000);
}

void clb_report_file_note(const char *name)
{
    if (name == NULL || strcmp(name, "-") == 0)
        return;
    if (name[0] != '/' && directory == NULL)
        directory = getcwd(NULL, 0);
    if (first_call[0] == '\0')
        format_now(first_call);
}

/* ---- names ---- */

/* The standard descriptor, 1 or 2, on which this file is open already; -1: none. */
static int find_standard(const struct stat *file)
{
    struct stat open;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO && S_ISREG(file->st_mode); fd++) {
        if (fstat(fd, &open) == 0 && open.st_dev == file->st_dev && open.st_ino == file->st_ino)
            return fd;
    }
    return -1;
}

/* The file that links lead to; the caller frees it. A link to nothing gets an empty file. */
static char *follow_links(const char *path)
{
    struct stat named;
    if (lstat(path, &named) != 0)
        return errno == ENOENT ? strdup(path) : NULL;
    char *file = realpath(path, NULL);
    if (file != NULL || errno != ENOENT)
        return file;
    const int fd = clb_file_open(path, O_WRONLY | O_CREAT, 0666);
    if (fd < 0)
        return NULL;
    close(fd);
    return realpath(path, NULL);
}

/* ---- writing; all return 0 or the error ---- */

/* Whether a file may be replaced: it is of an earlier run, or empty, as mktemp leaves it. */
static bool is_old(int fd)
{
    char start[sizeof head - 1 + TIME_SIZE] = "";
    const ssize_t length = pread(fd, start, sizeof start - 1, 0);
    return length == 0 || (strncmp(start, head, sizeof head - 1) == 0 &&
                           strcmp(start + sizeof head - 1, first_call) < 0);
}

/* Rename a complete file to `path` unless that exists. */
static int publish(const char *temporary, const char *path)
{
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    if (link(temporary, path) != 0)
        return errno;
    unlink(temporary);
    return 0;
}

/* Replace an old file, if nobody else is about to, or has. Its mode and owner stay. */
static bool replace(const char *temporary, const char *path)
{
    struct stat old, named;
    const int fd = clb_file_open(path, O_RDWR, 0);
    if (fd < 0)
        return false;
    bool good = fstat(fd, &old) == 0 && S_ISREG(old.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                stat(path, &named) == 0 && old.st_dev == named.st_dev &&
                old.st_ino == named.st_ino && is_old(fd);
    if (good && old.st_uid != geteuid())
        good = chown(temporary, old.st_uid, old.st_gid) == 0 || errno == EPERM;
    good = good && chmod(temporary, old.st_mode & 0777) == 0 && rename(temporary, path) == 0;
    close(fd);
    return good;
}

/* Try the name, then with the process id, then with numbers: other machines have the same ids. */
static int place(const char *temporary, const char *path)
{
    for (int i = 0; i < MAX_NAMES; i++) {
        struct clb_text name = {0};
        clb_text_add(&name, path);
        if (i > 0)
            clb_text_addf(&name, ".%ld", (long)getpid());
        if (i > 1)
            clb_text_addf(&name, ".%d", i - 1);
        int error = name.failed ? ENOMEM : publish(temporary, name.data);
        if (error == EEXIST && replace(temporary, name.data))
            error = 0;
        clb_text_free(&name);
        if (error != EEXIST)
            return error;
    }
    return EEXIST;
}

static int write_file(const char *path, const struct clb_text *text)
{
    char temporary[PATH_MAX];
    const int fd = clb_file_temporary(temporary, sizeof temporary, path, 0666);
    if (fd < 0)
        return errno;
    int error = clb_file_write(fd, text->data, text->length, PATIENCE);
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0)
        error = place(temporary, path);
    if (error != 0)
        unlink(temporary);
    return error;
}

static int write_anywhere(const char *path, const struct clb_text *text)
{
    struct stat info;
    /* The kernel refuses to follow links of other users in shared folders: let it try first. */
    const bool exists = stat(path, &info) == 0;
    if (!exists && errno != ENOENT)
        return errno;
    const int standard = exists ? find_standard(&info) : -1;
    if (standard >= 0)
        return clb_file_write(standard, text->data, text->length, PATIENCE);
    /* What the names of open descriptors lead to is written to, never renamed. */
    if (exists && (!S_ISREG(info.st_mode) || strncmp(path, "/proc/", 6) == 0 ||
                   strncmp(path, "/dev/fd/", 8) == 0)) {
        const int fd = clb_file_open(path, O_WRONLY | O_APPEND, 0);
        const int error = fd < 0 ? errno : clb_file_write(fd, text->data, text->length, PATIENCE);
        if (fd >= 0)
            close(fd);
        return error;
    }
    char *file = follow_links(path);
    const int error = file != NULL ? write_file(file, text) : errno;
    free(file);
    return error;
}

void clb_report_file_write(const char *variable, const char *name, const struct clb_text *text)
{
    char now[TIME_SIZE];
    struct clb_text path = {0}, dated = {0};
    if (strcmp(name, "-") == 0 && !text->failed)
        clb_file_write(STDERR_FILENO, text->data, text->length, PATIENCE);
    if (strcmp(name, "-") == 0 || text->failed)
        return;
    format_now(now);
    clb_text_addf(&dated, "%s%s\",", head, now);
    clb_text_add(&dated, text->data + 1); /* after the first brace */
    if (name[0] != '/' && directory != NULL)
        clb_text_addf(&path, "%s/", directory);
    clb_text_add_file(&path, name);
    const int error = path.failed || dated.failed ? ENOMEM : write_anywhere(path.data, &dated);
    if (error != 0)
        clb_complain("%s=%s can't be written (%s)", variable, name, clb_file_error(error));
    clb_text_free(&path);
    clb_text_free(&dated);
}
