/* PoCL: its quirks, and workarounds. SPDX-License-Identifier: BSD-3-Clause
 *
 * PoCL ends the process when it can't read the machine's memory size, and when a file in its cache
 * of compiled kernels is damaged; it runs any code that it finds there. So its cache directory must
 * belong to the user alone, and damaged programs are removed before PoCL starts. */
#include "start.h"
#include "store.h"
#include "host/process.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MINUTE 60 /* seconds */
#define DAY    86400

static bool is_pocl(const char *platform_name)
{
    return strcmp(platform_name, "Portable Computing Language") == 0;
}

void clb_pocl_describe(struct clb_device *device)
{
    if (!is_pocl(device->platform_name))
        return;
    device->quirks |= CLB_QUIRK_WIDEST_LAUNCH_FIRST;
    if (getenv("POCL_AFFINITY") != NULL)
        device->quirks |= CLB_QUIRK_PINS_WORKERS;
    const char *keeps = getenv("POCL_KERNEL_CACHE");
    if (keeps == NULL || strcmp(keeps, "0") != 0)
        device->quirks |= CLB_QUIRK_KEEPS_PROGRAMS;
}

/* ---- the directory of its cache ---- */

static bool belongs_to_us(const struct stat *info)
{
    return info->st_uid == geteuid() && clb_file_is_private(info);
}

/* True when the folder belongs to the user alone, and each folder above it belongs to the user or
 * root and is sticky, as /tmp is, if others may write to it. */
static bool is_private(const char *path)
{
    char real[PATH_MAX];
    struct stat info;
    if (realpath(path, real) == NULL || stat(real, &info) != 0 || !belongs_to_us(&info))
        return false;
    for (char *slash = strrchr(real, '/'); slash != NULL; slash = strrchr(real, '/')) {
        *slash = '\0';
        if (stat(slash == real ? "/" : real, &info) != 0 ||
            (info.st_uid != geteuid() && info.st_uid != 0) ||
            ((info.st_mode & S_ISVTX) == 0 && !clb_file_is_private(&info)))
            return false;
        if (slash == real)
            return true;
    }
    return false;
}

static bool pocl_find_directory(char *path, size_t size)
{
    const char *wanted = getenv("POCL_CACHE_DIR");
    int length = 0;
    if (wanted == NULL)
        return clb_cache_user_path(path, size, "pocl/kcache");
    length = snprintf(path, size, "%s", wanted);
    return length > 0 && (size_t)length < size;
}

/* ---- damage ---- */

static bool read_at(int fd, void *data, size_t size, off_t where)
{
    return pread(fd, data, size, where) == (ssize_t)size;
}

/* The section headers of a shared object are at its end: a truncated one lacks them. */
static bool is_whole_object(int fd, off_t size)
{
    Elf64_Ehdr header;
    if (!read_at(fd, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return false;
    if (header.e_ident[EI_CLASS] != ELFCLASS64)
        return true;
    uint64_t sections = (uint64_t)header.e_shnum * header.e_shentsize;
    return header.e_shoff <= (uint64_t)size && sections <= (uint64_t)size - header.e_shoff;
}

/* LLVM bitcode is a magic number and blocks. The first word of a block is not checked, the second
 * is its length in words (LLVM Bitcode File Format, "Blocks"). */
static bool is_whole_bitcode(int fd, off_t size)
{
    uint32_t word[2];
    off_t at = 4;
    if (!read_at(fd, word, 4, 0) || memcmp(word, "BC\xc0\xde", 4) != 0)
        return false;
    while (at + 8 <= size && read_at(fd, word, sizeof word, at))
        at += 8 + 4 * (off_t)word[1];
    return at == size;
}

/* Whoever has checked kernels stores the files' checksums: it found them good when it started. */
struct visit {
    bool store;
    struct clb_record known; /* its text is a line for each file: the path's hash, the checksum */
    const char *last;        /* the line that was found last: visits have one order */
    struct clb_text now;     /* what is to be known */
    size_t begin;            /* of the lines of the program that is visited */
    bool damaged;            /* that program */
    bool any_damaged;
};

/* 0 where the file can't be read. */
static uint64_t sum_of(int fd, const struct stat *info)
{
    const size_t size = (size_t)info->st_size;
    void *data = malloc(size + 1);
    const uint64_t sum =
        data != NULL && read_at(fd, data, size, 0) ? clb_cache_hash(data, size) : 0;
    free(data);
    return sum;
}

/* 0 where it is not known. */
static uint64_t known_sum(struct visit *visit, const char *name)
{
    const char *line = visit->last != NULL ? strstr(visit->last, name) : NULL;
    if (line == NULL && visit->known.text != NULL)
        line = strstr(visit->known.text, name);
    visit->last = line != NULL ? line : visit->last;
    return line != NULL ? strtoull(line + strlen(name), NULL, 16) : 0;
}

/* Looks only at names that PoCL reads, and only into files that have changed since their checksums
 * were stored: reading all of a large cache would take each process a tenth of a second. */
static bool is_damaged(const FTSENT *file, struct visit *visit)
{
    char name[20];
    struct stat info;
    const char *ending = strrchr(file->fts_name, '.');
    const bool object = ending != NULL && strcmp(ending, ".so") == 0;
    if (!object && (ending == NULL || strcmp(ending, ".bc") != 0))
        return false;
    snprintf(name, sizeof name, "%016llx ",
             (unsigned long long)clb_cache_hash(file->fts_path, file->fts_pathlen));
    const uint64_t known = known_sum(visit, name);
    uint64_t sum = known;
    bool whole = true;
    if (known == 0 || file->fts_statp->st_ctim.tv_sec + 2 > visit->known.time / 1000000000) {
        const int fd = open(file->fts_accpath, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            return errno != ENOENT;
        whole = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && clb_file_is_private(&info) &&
                (object ? is_whole_object(fd, info.st_size) : is_whole_bitcode(fd, info.st_size));
        if (whole && (visit->store || known != 0))
            sum = sum_of(fd, &info);
        whole = whole && (visit->store || sum == known);
        close(fd);
    }
    if (sum != 0)
        clb_text_addf(&visit->now, "%s%016llx\n", name, (unsigned long long)sum);
    return !whole;
}

/* When a program was last removed. */
static const struct clb_key damage_key = {CLB_RECORD_POCL, "damage", NULL};

/* PoCL compiles what was removed again when it is needed. False: it can't be removed. */
static bool throw_away(const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    clb_log(CLB_LOG_WARN, "%s in PoCL's cache is damaged, it is removed and made again", name);
    clb_record_note(damage_key, CLB_FAILED, name);
    FTS *tree = fts_open((char *[]){(char *)(uintptr_t)path, NULL},
                         FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    bool removed = tree != NULL;
    for (FTSENT *entry; tree != NULL && (entry = fts_read(tree)) != NULL;)
        removed = (entry->fts_info == FTS_D || remove(entry->fts_path) == 0) && removed;
    if (tree != NULL)
        fts_close(tree);
    return removed || access(path, F_OK) != 0; /* another process was faster */
}

/* All of a program has been seen. False: it is damaged, and can't be removed. */
static bool end_program(const char *path, struct visit *visit)
{
    if (!visit->damaged)
        return true;
    visit->any_damaged = true;
    if (visit->now.data != NULL) /* no checksums of what is made again */
        visit->now.data[visit->now.length = visit->begin] = '\0';
    return visit->store || throw_away(path);
}

/* Levels below the cache's folder: two letters, a program, its files and the folders of kernels. */
enum { CACHE, LETTERS, PROGRAM };

/* Each process of PoCL leaves a temporary file that is empty and has no ending; it only needs the
 * name. Those with an ending hold what is being compiled. */
static bool is_left_over(const FTSENT *file)
{
    const time_t age = time(NULL) - file->fts_statp->st_mtime;
    return strncmp(file->fts_name, "tempfile_", 9) == 0 &&
           age > (strchr(file->fts_name, '.') == NULL && file->fts_statp->st_size == 0 ? MINUTE
                                                                                       : DAY);
}

/* Whoever may write to a folder may have this program run his code. */
static bool look_at(FTS *tree, FTSENT *entry, struct visit *visit)
{
    const bool begins = entry->fts_info == FTS_D;
    const bool unread = entry->fts_info == FTS_DNR && entry->fts_errno != ENOENT;
    const bool open = begins && !clb_file_is_private(entry->fts_statp);
    const char *name = entry->fts_name;
    if (entry->fts_level == LETTERS && begins && (name[0] == '.' || open)) {
        fts_set(tree, entry, FTS_SKIP);
        return name[0] == '.' || visit->store || throw_away(entry->fts_path);
    }
    if (entry->fts_level == LETTERS && unread)
        return false;
    if (entry->fts_level == LETTERS && entry->fts_info == FTS_F && !visit->store &&
        is_left_over(entry))
        unlink(entry->fts_accpath);
    if (entry->fts_level < PROGRAM)
        return true;
    if (entry->fts_level == PROGRAM && begins) {
        visit->begin = visit->now.length;
        visit->damaged = open;
    } else if (entry->fts_level == PROGRAM && (unread || entry->fts_info == FTS_DP)) {
        visit->damaged = visit->damaged || unread;
        return end_program(entry->fts_path, visit);
    } else if (entry->fts_level > PROGRAM && entry->fts_info != FTS_DP) {
        visit->damaged = visit->damaged || open || unread || (!begins && is_damaged(entry, visit));
    }
    return true;
}

/* Remove each program that has a damaged file, or that others may have put there; false where that
 * can't be done. With `store`, store checksums instead. */
static bool visit_cache(const char *path, bool store)
{
    const struct clb_key key = {CLB_RECORD_POCL, "sums", path};
    struct visit visit = {.store = store};
    bool clean = true;
    clb_record_load(key, &visit.known);
    FTS *tree =
        fts_open((char *[]){(char *)(uintptr_t)path, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *entry; tree != NULL && (entry = fts_read(tree)) != NULL;)
        clean = look_at(tree, entry, &visit) && clean;
    if (tree != NULL)
        fts_close(tree);
    if ((store || visit.any_damaged) && !visit.now.failed)
        clb_record_note(key, CLB_PASSED, visit.now.data != NULL ? visit.now.data : "");
    clb_record_free(&visit.known);
    clb_text_free(&visit.now);
    return clean;
}

void clb_pocl_store_sums(const struct clb_device *device)
{
    char path[PATH_MAX];
    if (clb_device_has(device, CLB_QUIRK_KEEPS_PROGRAMS) && clb_cache_directory() != NULL &&
        pocl_find_directory(path, sizeof path))
        (void)visit_cache(path, true);
}

void clb_pocl_identify_cache(char *text, size_t size)
{
    char path[PATH_MAX];
    struct stat info;
    struct clb_record damage;
    if (!pocl_find_directory(path, sizeof path) || stat(path, &info) != 0)
        info.st_ino = 0;
    clb_record_load(damage_key, &damage);
    clb_record_free(&damage);
    snprintf(text, size, "PoCL's cache %llu %lld", (unsigned long long)info.st_ino,
             (long long)damage.time);
}

/* ---- before PoCL is asked for its devices ---- */

const char *clb_pocl_refusal(const char *platform_name)
{
    char path[PATH_MAX];
    if (!is_pocl(platform_name))
        return NULL;
    if (access("/sys/devices/system/cpu", X_OK) != 0)
        return "it needs /sys";
    if (!pocl_find_directory(path, sizeof path))
        return "it has no directory for its cache (HOME, XDG_CACHE_HOME, POCL_CACHE_DIR)";
    if (!clb_cache_usable(path))
        return "the directory of its cache can't be written";
    if (!is_private(path))
        return "the directory of its cache is not the user's alone";
    if (!clb_cache_has_room(path))
        return "the disk of its cache is full";
    return visit_cache(path, false)
               ? NULL
               : "the directory of its cache has files that are not the user's alone";
}

/* ---- the environment variable that PoCL sets ---- */

/* PoCL sets this so that hwloc loads no plugins; the program's children would inherit it. */
static const char *const variable = "HWLOC_PLUGINS_PATH";

char *clb_pocl_save_environment(void)
{
    const char *value = getenv(variable);
    return value != NULL ? strdup(value) : NULL;
}

/* Neither call reallocates `environ`: setenv changes the value of an existing name, and unsetenv
 * removes the name that PoCL has added at the end. */
void clb_pocl_restore_environment(char *value)
{
    const char *now = getenv(variable);
    if (value == NULL && now != NULL)
        unsetenv(variable);
    else if (value != NULL && (now == NULL || strcmp(now, value) != 0))
        setenv(variable, value, 1);
    free(value);
}
