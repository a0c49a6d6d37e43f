/* Files that a process writes when it ends.
 *
 * A file that was written before the run began is replaced by an atomic rename, so that no process
 * reads half a report. A file written by a process of the same run is kept, and this process
 * appends its id to the name. The run begins when the process starts that reads the configuration;
 * children that it forks belong to the run. In doubt a file counts as new, so that no report is
 * lost.
 *
 * The kernel reports the start of a process in ticks of 10 ms, rounded down. A process that has
 * written a file therefore ends in a later tick: so a process that starts after its end never takes
 * the file for one of its own run. */
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define SECOND     INT64_C(1000000000)
#define PROC_MAGIC 0x9fa0

/* Seconds to wait for the reader of a pipe to accept the next piece. */
#define PATIENCE 10.0

#define MAX_LINKS 16
#define MAX_NAMES 100

/* The working directory at the first call: the program may change it before it ends. */
static char *directory;

/* The begin of the run in nanoseconds since the system's start, negative when not known; and the
 * time of day minus that clock at the time of reading it. */
static int64_t run_began = -1, run_offset;

/* ---- times ----------------------------------------------------------------------------------- */

static int64_t nanoseconds(const struct timespec *time)
{
    return time->tv_sec * SECOND + time->tv_nsec;
}

static int64_t read_clock(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return nanoseconds(&now);
}

static int64_t clock_offset(void)
{
    return read_clock(CLOCK_REALTIME) - read_clock(CLOCK_BOOTTIME);
}

/* A file's modification time may be too old by this much: the resolution of the coarse clock. */
static int64_t clock_grain(void)
{
    struct timespec grain = {0};
    clock_getres(CLOCK_REALTIME_COARSE, &grain);
    return nanoseconds(&grain);
}

/* The unit of a process's start time, in nanoseconds. */
static int64_t tick(void)
{
    long ticks = sysconf(_SC_CLK_TCK);
    return SECOND / (ticks > 0 ? ticks : 100);
}

/* The start time is field 22 of /proc/self/stat. Field 2 is the program's name, in parentheses; it
 * may contain any character, so fields are counted from the last parenthesis. */
static int64_t process_began(void)
{
    char line[1024];
    FILE *file = clb_file_read("/proc/self/stat");
    size_t length = file == NULL ? 0 : fread(line, 1, sizeof line - 1, file);
    if (file != NULL)
        fclose(file);
    line[length] = '\0';
    const char *field = strrchr(line, ')');
    for (int i = 2; i < 22 && field != NULL; i++)
        field = strchr(field + 1, ' ');
    char *end = NULL;
    long long ticks = field == NULL ? -1 : strtoll(field, &end, 10);
    return ticks > 0 && *end == ' ' ? ticks * tick() : -1;
}

void clb_output_note(const char *name)
{
    if (name == NULL || strcmp(name, "-") == 0)
        return;
    if (name[0] != '/' && directory == NULL)
        directory = getcwd(NULL, 0);
    if (run_began < 0) {
        run_began = process_began();
        run_offset = clock_offset();
    }
}

/* The time of writing a file: by the file system's clock, which may be another machine's, and the
 * latest possible time by CLOCK_BOOTTIME. */
struct stamp {
    int64_t file, latest;
};

/* Tries until one measurement took at most 1 ms, since an interrupted one is not exact. */
static bool take_stamp(int fd, struct stamp *stamp)
{
    int64_t best = INT64_MAX;
    for (int attempt = 0; attempt < 50 && best > SECOND / 1000; attempt++) {
        struct stat info;
        int64_t begin = read_clock(CLOCK_BOOTTIME);
        if (futimens(fd, NULL) != 0 || fstat(fd, &info) != 0)
            return false;
        int64_t end = read_clock(CLOCK_BOOTTIME);
        if (end - begin < best)
            *stamp = (struct stamp){nanoseconds(&info.st_mtim), end};
        best = end - begin < best ? end - begin : best;
    }
    return true;
}

/* Reports and traces begin with these characters; a file that does not is neither. */
static bool looks_like_ours(int fd)
{
    char start[2];
    return pread(fd, start, sizeof start, 0) == (ssize_t)sizeof start &&
           memcmp(start, "{\"", sizeof start) == 0;
}

/* True when a file was written before the run began. When the times are too close to tell, a file
 * that may be a report counts as not older, any other file as older. */
static bool is_older(int fd, const struct stat *found, const struct stamp *now)
{
    int64_t grain = clock_grain(), step = clock_offset() - run_offset;
    int64_t written = nanoseconds(&found->st_mtim);
    if (found->st_mtim.tv_nsec == 0 && now->file % SECOND == 0)
        grain = 2 * SECOND; /* a file system whose times are in units of 1 or 2 seconds */
    if (step < -SECOND || step > SECOND)
        grain += step < 0 ? -step : step; /* the system's clock was set meanwhile */
    int64_t margin = looks_like_ours(fd) ? grain : -(grain + tick());
    return run_began >= 0 && now->latest - (now->file - written) + margin < run_began;
}

/* Wait until the tick has ended in which a file just written may seem to have been written. */
static void outlast_tick(void)
{
    int64_t seems = read_clock(CLOCK_BOOTTIME) + 2 * clock_grain() + SECOND / 500;
    int64_t until = (seems / tick() + 1) * tick();
    for (int attempt = 0; attempt < 100; attempt++) {
        int64_t left = until - read_clock(CLOCK_BOOTTIME);
        if (left <= 0 || left > SECOND)
            return;
        nanosleep(&(struct timespec){.tv_nsec = left}, NULL);
    }
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Format the absolute file name with %p replaced. True when the name contains the process id. */
static bool format_name(struct clb_text *path, const char *name)
{
    bool has_id = false;
    if (name[0] != '/' && directory != NULL)
        clb_text_addf(path, "%s/", directory);
    for (const char *c = name; *c != '\0'; c++) {
        if (c[0] == '%' && c[1] == 'p') {
            clb_text_addf(path, "%ld", (long)getpid());
            has_id = true;
            c++;
        } else {
            clb_text_addf(path, "%c", *c);
        }
    }
    return has_id;
}

/* True for links in /proc, to which the links in /dev point: they lead to open files, not names. */
static bool is_in_proc(const char *path)
{
    struct statfs info;
    int fd = clb_file_open(path, O_PATH | O_NOFOLLOW, 0);
    bool found = fd >= 0 && fstatfs(fd, &info) == 0 && info.f_type == PROC_MAGIC;
    if (fd >= 0)
        close(fd);
    return found;
}

/* Replace the name of a link by the name that the link points to. */
static bool follow_link(struct clb_text *path)
{
    char target[PATH_MAX];
    struct clb_text next = {0};
    ssize_t length = readlink(path->data, target, sizeof target - 1);
    if (length <= 0)
        return false;
    target[length] = '\0';
    const char *slash = strrchr(path->data, '/');
    if (target[0] != '/' && slash != NULL)
        clb_text_addf(&next, "%.*s", (int)(slash - path->data + 1), path->data);
    clb_text_add(&next, target);
    clb_text_free(path);
    *path = next;
    return !next.failed;
}

/* The kind of file that `path` leads to; find_place follows links and replaces `path` by the name
 * of the file itself. */
enum place { PLACE_FILE, PLACE_STREAM, PLACE_ERROR };

static enum place find_place(struct clb_text *path)
{
    struct stat info, named;
    for (int links = 0; links < MAX_LINKS; links++) {
        /* The kernel refuses to follow links of other users in shared folders: let it try first. */
        if (stat(path->data, &info) != 0 && errno != ENOENT)
            return PLACE_ERROR;
        if (lstat(path->data, &named) != 0)
            return errno == ENOENT ? PLACE_FILE : PLACE_ERROR;
        if (!S_ISLNK(named.st_mode))
            return S_ISREG(named.st_mode) ? PLACE_FILE : PLACE_STREAM;
        if (is_in_proc(path->data))
            return PLACE_STREAM;
        if (!follow_link(path))
            return PLACE_ERROR;
    }
    errno = ELOOP;
    return PLACE_ERROR;
}

/* The standard descriptor, 1 or 2, on which this regular file is open already; -1: none. */
static int find_standard(const char *path)
{
    struct stat info, open;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return -1;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fstat(fd, &open) == 0 && open.st_dev == info.st_dev && open.st_ino == info.st_ino)
            return fd;
    }
    return -1;
}

/* ---- writing; all return 0 or the error ------------------------------------------------------ */

static int write_stream(const char *path, const struct clb_text *text)
{
    int fd = clb_file_open(path, O_WRONLY | O_APPEND, 0);
    if (fd < 0)
        return errno;
    int error = clb_file_write(fd, text->data, text->length, PATIENCE);
    close(fd);
    return error;
}

/* Rename a complete file to `path` unless that exists. Where renameat2 can't do so, an empty file
 * is created under that name first. */
static int output_publish(const char *temporary, const char *path)
{
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    int fd = clb_file_open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0)
        return errno;
    int error = flock(fd, LOCK_EX | LOCK_NB) != 0 || rename(temporary, path) != 0 ? errno : 0;
    close(fd);
    return error == EWOULDBLOCK ? EEXIST : error;
}

/* Lock the file, trying for a second: another process holds the lock only for an instant unless it
 * is stopped. */
static bool lock_soon(int fd)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = SECOND / 100}, NULL);
    }
    return false;
}

/* Replace a file that is older than the run, while holding the old file's lock and after checking
 * that it still has its name: so only one of several processes that find the same old file replaces
 * it. */
static bool replace(const char *temporary, const char *path, const struct stamp *now)
{
    struct stat old, named;
    int fd = clb_file_open(path, O_RDWR, 0);
    if (fd < 0)
        return false;
    bool good = fstat(fd, &old) == 0 && S_ISREG(old.st_mode) && is_older(fd, &old, now) &&
                lock_soon(fd) && fstat(fd, &old) == 0 && stat(path, &named) == 0 &&
                old.st_dev == named.st_dev && old.st_ino == named.st_ino && is_older(fd, &old, now);
    if (good && old.st_uid != geteuid())
        good = chown(temporary, old.st_uid, old.st_gid) == 0 || errno == EPERM;
    good = good && chmod(temporary, old.st_mode & 0777) == 0 && rename(temporary, path) == 0;
    close(fd);
    return good;
}

/* Try the name itself, then with the process id, then also with numbers, because processes on other
 * machines may have the same id. */
static int output_place(const char *temporary, const char *path, const struct stamp *now,
                        bool *plain)
{
    for (int i = 0; i < MAX_NAMES; i++) {
        struct clb_text name = {0};
        clb_text_add(&name, path);
        if (i > 0)
            clb_text_addf(&name, ".%ld", (long)getpid());
        if (i > 1)
            clb_text_addf(&name, ".%d", i - 1);
        int error = name.failed ? ENOMEM : output_publish(temporary, name.data);
        if (error == EEXIST && replace(temporary, name.data, now))
            error = 0;
        clb_text_free(&name);
        *plain = i == 0;
        if (error != EEXIST)
            return error;
    }
    return EEXIST;
}

static int write_file(const char *path, const struct clb_text *text, bool has_id)
{
    char temporary[PATH_MAX];
    struct stamp stamp;
    bool plain = false;
    int fd = clb_file_temporary(temporary, sizeof temporary, path, 0666);
    if (fd < 0)
        return errno;
    int error = clb_file_write(fd, text->data, text->length, PATIENCE);
    if (error == 0 && !take_stamp(fd, &stamp))
        error = errno;
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0)
        error = output_place(temporary, path, &stamp, &plain);
    if (error != 0)
        unlink(temporary);
    else if (plain && !has_id)
        outlast_tick();
    return error;
}

static int write_anywhere(const char *name, const struct clb_text *text)
{
    struct clb_text path = {0};
    int error = ENOMEM, standard;
    bool has_id = format_name(&path, name);
    if (!path.failed && path.data != NULL) {
        enum place place = find_place(&path);
        if (place == PLACE_ERROR)
            error = errno;
        else if ((standard = find_standard(path.data)) >= 0)
            error = clb_file_write(standard, text->data, text->length, PATIENCE);
        else if (place == PLACE_STREAM)
            error = write_stream(path.data, text);
        else
            error = write_file(path.data, text, has_id);
    }
    clb_text_free(&path);
    return error;
}

void clb_output_write(const char *variable, const char *name, const struct clb_text *text)
{
    if (text->failed)
        return;
    if (strcmp(name, "-") == 0) {
        clb_file_write(STDERR_FILENO, text->data, text->length, PATIENCE);
        return;
    }
    int error = write_anywhere(name, text);
    if (error != 0)
        clb_complain("%s=%s can't be written (%s)", variable, name, clb_file_error(error));
}
