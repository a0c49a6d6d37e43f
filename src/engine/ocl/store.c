/* Records in the cache folder. SPDX-License-Identifier: BSD-3-Clause
 *
 * A file is a header, the key in full and the record's text; it is used only when its checksum and
 * its whole key match, because PoCL runs damaged binaries, or aborts the process on a truncated
 * one. Files are written under a temporary name and renamed. */
#include "store.h"
#include "host/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define ROOM_FOR_BUILD ((uint64_t)32 << 20)
#define LARGEST_ENTRY  ((uint64_t)256 << 20)
#define DAY            86400

/* Days for which the files of another version stay that nobody uses. */
#define RECORDS_LAST  7
#define PROFILES_LAST 30

struct header {
    char magic[8];
    char version[16]; /* of the library */
    int64_t kind, verdict, time;
    uint64_t key_size, text_size;
    uint64_t checksum; /* of all that: of this with a checksum of 0, of key and text */
};

static const char magic[8] = "CLBSHIM3";
_Static_assert(sizeof CLB_VERSION <= 16, "the version does not fit");
_Static_assert(sizeof(struct header) == CLB_RECORD_HEADER, "doctor.c reads what is behind it");

/* ---- directories ---- */

/* mkdir -p; directories that it makes are the user's own. */
static bool make_directories(const char *path)
{
    char partial[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof partial || path[0] != '/')
        return false;
    memcpy(partial, path, length + 1);
    for (char *slash = partial + 1; slash != NULL;) {
        slash = strchr(slash, '/');
        if (slash != NULL)
            *slash = '\0';
        if (mkdir(partial, 0700) != 0 && errno != EEXIST && access(partial, X_OK) != 0)
            return false;
        if (slash != NULL)
            *slash++ = '/';
    }
    return true;
}

bool clb_cache_usable(const char *path)
{
    return make_directories(path) && access(path, R_OK | W_OK | X_OK) == 0;
}

static bool format_path(char *path, size_t size, const char *format, const char *a, const char *b)
{
    int length = snprintf(path, size, format, a, b);
    return length > 0 && (size_t)length < size;
}

static bool cache_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Root must not create a missing home folder, nor anything in another user's, who could not use
 * folders that root made there, a .cache not least (sudo -E). */
bool clb_cache_user_path(char *path, size_t size, const char *name)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char copy[PATH_MAX], *existing = copy;
    struct stat info;
    bool found = false;
    if (xdg != NULL && xdg[0] == '/')
        found = format_path(copy, sizeof copy, "%s%s", xdg, "") && cache_is_folder(dirname(copy)) &&
                format_path(path, size, "%s/%s", xdg, name);
    else if (home != NULL && home[0] == '/')
        found = cache_is_folder(home) && format_path(path, size, "%s/.cache/%s", home, name);
    if (!found || geteuid() != 0)
        return found;
    snprintf(copy, sizeof copy, "%s", path);
    while (stat(existing, &info) != 0)
        existing = dirname(existing);
    return info.st_uid == 0;
}

static char directory[PATH_MAX];
static bool directory_found;
static pthread_once_t directory_once = PTHREAD_ONCE_INIT;

static void cache_find_directory(void)
{
    const char *wanted = clb_config_get()->cache_dir;
    if (wanted != NULL && strcmp(wanted, "none") == 0)
        return;
    if (wanted != NULL)
        directory_found = format_path(directory, sizeof directory, "%s%s", wanted, "") &&
                          make_directories(directory) && access(directory, R_OK | X_OK) == 0;
    else
        directory_found = clb_cache_user_path(directory, sizeof directory, "clblas-shim") &&
                          clb_cache_usable(directory);
    struct stat info;
    /* Other users may put code into it. */
    if (directory_found && (stat(directory, &info) != 0 || !clb_file_is_private(&info))) {
        directory_found = false;
        if (wanted != NULL)
            clb_complain("CLBLAS_SHIM_CACHE_DIR=%s is another user's, or others may write to it: "
                         "there is no cache",
                         wanted);
    }
    if (!directory_found)
        clb_log(CLB_LOG_INFO, "no cache directory, compiled kernels are not kept");
}

const char *clb_cache_directory(void)
{
    pthread_once(&directory_once, cache_find_directory);
    return directory_found ? directory : NULL;
}

bool clb_cache_has_room(const char *path)
{
    struct statvfs info;
    if (path == NULL || statvfs(path, &info) != 0)
        return true; /* no file is written */
    return (uint64_t)info.f_bavail * info.f_frsize >= ROOM_FOR_BUILD;
}

/* ---- keys ---- */

/* As FNV-1a, but by eight bytes. Each step is one to one, so no change of one word is lost. */
static uint64_t hash(uint64_t seed, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    while (size > 0) {
        uint64_t word = 0;
        const size_t taken = size < sizeof word ? size : sizeof word;
        memcpy(&word, bytes, taken);
        seed = (seed ^ word) * UINT64_C(0x100000001b3);
        seed ^= seed >> 32;
        bytes += taken;
        size -= taken;
    }
    return seed;
}

#define SEED UINT64_C(0xcbf29ce484222325)

uint64_t clb_cache_hash(const void *data, size_t size)
{
    return hash(SEED, data, size);
}

/* Malloc'ed; NULL where there is no memory. */
static char *format_key(struct clb_key key)
{
    struct clb_text text = {0};
    clb_text_addf(&text, "%d %s\n", (int)key.kind, CLB_VERSION);
    clb_text_add(&text, key.subject);
    clb_text_add(&text, "\n");
    clb_text_add(&text, key.detail != NULL ? key.detail : "");
    if (text.failed)
        clb_text_free(&text);
    return text.data;
}

/* False: there is no cache. */
static bool file_of(char *path, size_t size, const char *key, clb_record_kind kind)
{
    char name[40];
    const char *where = clb_cache_directory();
    snprintf(name, sizeof name, "%016llx.%s", (unsigned long long)hash(~SEED, key, strlen(key)),
             kind == CLB_RECORD_PROGRAM   ? "bin"
             : kind == CLB_RECORD_PROFILE ? "profile"
                                          : "ok");
    return where != NULL && format_path(path, size, "%s/%s", where, name);
}

/* ---- reading ---- */

static uint64_t checksum(struct header header, const char *key, const char *text)
{
    header.checksum = 0;
    uint64_t sum = hash(SEED, &header, sizeof header);
    return hash(hash(sum, key, header.key_size), text, header.text_size);
}

/* The text, malloc'ed and terminated, of a file whose key is this one; else NULL. */
static char *read_text(FILE *file, const char *key, struct header *header)
{
    const size_t key_size = strlen(key);
    if (fread(header, sizeof *header, 1, file) != 1 ||
        memcmp(header->magic, magic, sizeof magic) != 0 || header->key_size != key_size ||
        header->text_size > LARGEST_ENTRY)
        return NULL;
    const size_t size = key_size + header->text_size;
    char *text = malloc(size + 1);
    if (text == NULL || fread(text, 1, size, file) != size || fgetc(file) != EOF ||
        memcmp(text, key, key_size) != 0 ||
        checksum(*header, key, text + key_size) != header->checksum) {
        free(text);
        return NULL;
    }
    memmove(text, text + key_size, header->text_size);
    text[header->text_size] = '\0';
    return text;
}

bool clb_record_load(struct clb_key key, struct clb_record *record)
{
    char path[PATH_MAX], *name = format_key(key);
    struct header header;
    *record = (struct clb_record){0};
    FILE *file =
        name != NULL && file_of(path, sizeof path, name, key.kind) ? clb_file_read(path) : NULL;
    if (file != NULL) {
        record->text = read_text(file, name, &header);
        fclose(file);
        struct stat info; /* its times say when it was last used, to a day */
        if (record->text == NULL)
            clb_log(key.kind == CLB_RECORD_PROFILE ? CLB_LOG_WARN : CLB_LOG_INFO,
                    "%s is damaged or of another version, it is ignored", path);
        else if (stat(path, &info) == 0 && time(NULL) - info.st_mtime > DAY)
            utimensat(AT_FDCWD, path, NULL, 0);
    }
    free(name);
    if (record->text == NULL)
        return false;
    record->verdict = header.verdict;
    record->time = header.time;
    record->size = header.text_size;
    return true;
}

void clb_record_free(struct clb_record *record)
{
    free(record->text);
    record->text = NULL;
}

static int64_t wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool clb_record_is_older(const struct clb_record *record, double seconds)
{
    return (double)(wall_clock() - record->time) > 1e9 * seconds;
}

bool clb_record_load_recent(struct clb_key key, double seconds, struct clb_record *record)
{
    if (clb_record_load(key, record) && !clb_record_is_older(record, seconds))
        return true;
    clb_record_free(record);
    return false;
}

bool clb_record_exists(struct clb_key key, double seconds)
{
    struct clb_record record;
    const bool exists = clb_record_load_recent(key, seconds, &record);
    clb_record_free(&record);
    return exists;
}

/* ---- the folder's size ---- */

/* Records and the temporary files of processes that were killed; nothing else. */
static bool is_ours(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL && (strcmp(dot, ".bin") == 0 || strcmp(dot, ".ok") == 0 ||
                           strncmp(name, ".clblas-shim-", 13) == 0);
}

/* Remove what has not been used for longest until the cache is small enough: files of other
 * versions of drivers and of the shim go first. */
static void trim(void)
{
    struct stat info;
    struct dirent *entry;
    DIR *folder = opendir(clb_cache_directory());
    for (bool removed = folder != NULL; removed;) {
        char oldest[NAME_MAX + 1] = "";
        time_t least = 0;
        uint64_t sum = 0;
        for (rewinddir(folder); (entry = readdir(folder)) != NULL;) {
            if (!is_ours(entry->d_name) ||
                fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
                continue;
            sum += (uint64_t)info.st_size;
            if (oldest[0] == '\0' || info.st_mtime < least) {
                least = info.st_mtime;
                strcpy(oldest, entry->d_name);
            }
        }
        removed = sum > clb_config_get()->cache_size && oldest[0] != '\0' &&
                  unlinkat(dirfd(folder), oldest, 0) == 0;
        if (removed)
            clb_log(CLB_LOG_INFO, "%s is removed from the cache, which is full", oldest);
    }
    if (folder != NULL)
        closedir(folder);
}

/* ---- writing ---- */

void clb_record_store(struct clb_key key, struct clb_record record)
{
    char path[PATH_MAX], temporary[PATH_MAX], *name = format_key(key);
    const char *text = record.text != NULL ? record.text : "";
    int fd = -1;
    if (name != NULL && file_of(path, sizeof path, name, key.kind) &&
        clb_cache_has_room(clb_cache_directory()))
        fd = clb_file_temporary(temporary, sizeof temporary, path, 0600);
    if (fd >= 0) {
        struct header header = {.version = CLB_VERSION,
                                .kind = key.kind,
                                .verdict = record.verdict,
                                .time = record.time != 0 ? record.time : wall_clock(),
                                .key_size = strlen(name),
                                .text_size = record.text != NULL ? record.size : 0};
        memcpy(header.magic, magic, sizeof magic);
        header.checksum = checksum(header, name, text);
        const struct iovec part[] = {{&header, sizeof header},
                                     {name, header.key_size},
                                     {(char *)(uintptr_t)text, header.text_size}};
        const size_t size = sizeof header + header.key_size + header.text_size;
        const bool good = writev(fd, part, CLB_COUNT_OF(part)) == (ssize_t)size;
        if (close(fd) == 0 && good && rename(temporary, path) == 0)
            trim();
        else
            unlink(temporary);
    }
    free(name);
}

void clb_record_note(struct clb_key key, int64_t verdict, const char *reason)
{
    clb_record_store(key, (struct clb_record){.verdict = verdict,
                                              .text = (char *)(uintptr_t)reason,
                                              .size = strlen(reason)});
}

/* ---- other versions ---- */

/* The version that has written a file, and its kind: CLB_RECORD_KINDS for files that do not say
 * their version. False for what isn't ours. */
static bool read_version(int folder, const char *name, char version[16], int64_t *kind)
{
    struct header header;
    if ((!is_ours(name) && strstr(name, ".profile") == NULL) || name[0] == '.')
        return false;
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const ssize_t got = fd < 0 ? 0 : pread(fd, &header, sizeof header, 0);
    if (fd >= 0)
        close(fd);
    const bool says = got == sizeof header && memcmp(header.magic, magic, sizeof magic) == 0;
    snprintf(version, 16, "%.15s", says ? header.version : "");
    *kind = says ? header.kind : CLB_RECORD_KINDS;
    return fd >= 0;
}

struct clb_outdated clb_store_visit_outdated(bool remove)
{
    size_t kernels[2] = {0}, tuning[2] = {0}; /* of other versions, of this one */
    char version[16];
    int64_t kind;
    const char *path = clb_cache_directory();
    DIR *folder = path != NULL ? opendir(path) : NULL;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (!read_version(dirfd(folder), entry->d_name, version, &kind))
            continue;
        const bool ours = strcmp(version, CLB_VERSION) == 0;
        kernels[ours] += kind == CLB_RECORD_STEP || kind == CLB_RECORD_KINDS;
        tuning[ours] += kind == CLB_RECORD_ROW || kind == CLB_RECORD_PROFILE;
        const time_t days = kind == CLB_RECORD_PROFILE ? PROFILES_LAST : RECORDS_LAST;
        struct stat info;
        if (remove && !ours &&
            fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            time(NULL) - info.st_mtime > days * DAY &&
            unlinkat(dirfd(folder), entry->d_name, 0) == 0)
            clb_log(CLB_LOG_INFO, "%s of version %s is removed from the cache", entry->d_name,
                    version);
    }
    if (folder != NULL)
        closedir(folder);
    return (struct clb_outdated){.kernels = kernels[0] > 0 && kernels[1] == 0,
                                 .tuning = tuning[0] > 0 && tuning[1] == 0};
}
