/* Files that a process writes when it ends. */
#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The working directory of the first call: the program may change it before it ends. */
static char *directory;

void clb_output_note(const char *name)
{
    if (name != NULL && name[0] != '/' && strcmp(name, "-") != 0 && directory == NULL)
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

/* A regular file that exists is somebody else's: this process adds its id to the name. */
static int open_new(struct clb_text *path)
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

void clb_output_write(const char *variable, const char *name, const struct clb_text *text)
{
    struct clb_text path = {0};
    if (text->failed)
        return;
    if (strcmp(name, "-") == 0) {
        write_all(STDERR_FILENO, text->data, text->length);
        return;
    }
    format_name(&path, name);
    int fd = path.failed || path.data == NULL ? -1 : open_new(&path);
    if (fd < 0) {
        clb_complain("%s=%s can't be written (%s)", variable, name, strerror(errno));
    } else {
        write_all(fd, text->data, text->length);
        close(fd);
    }
    clb_text_free(&path);
}
