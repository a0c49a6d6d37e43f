/* Files of compiled programs.
 *
 * An entry is a header, the key in full and the driver's binary; it is used only when its checksum
 * and its whole key match, because drivers accept damaged binaries (PoCL runs them, or aborts the
 * process on a truncated one). Entries are written to a temporary name and renamed. */
#include "ocl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define ROOM_FOR_BUILD ((uint64_t)32 << 20)
#define LARGEST_ENTRY  ((uint64_t)256 << 20)
#define DAY            86400

struct header {
    char magic[8];
    uint64_t key_size;
    uint64_t data_size;
    uint64_t checksum; /* of key and data */
};

static const char magic[8] = "CLBSHIM1";

/* ---- directories ----------------------------------------------------------------------------- */

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

/* False where other users may put code into the directory. */
static bool is_private(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && clb_file_is_private(&info);
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

/* True when the parent folder of `path` exists. */
static bool is_in_folder(const char *path)
{
    char parent[PATH_MAX];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 1 && path[length - 1] != '/')
        length--;
    if (length >= sizeof parent)
        return false;
    memcpy(parent, path, length);
    parent[length] = '\0';
    return cache_is_folder(parent);
}

/* True for a process of root where the path, or what exists of it, belongs to another user: folders
 * that root made there, a .cache not least, that user could not use (sudo -E). */
static bool is_of_another_user(const char *path)
{
    char partial[PATH_MAX];
    struct stat info;
    int length = snprintf(partial, sizeof partial, "%s", path);
    if (geteuid() != 0 || length < 0 || (size_t)length >= sizeof partial)
        return false;
    while (stat(partial, &info) != 0) {
        char *slash = strrchr(partial, '/');
        if (slash == NULL || slash == partial)
            return false;
        *slash = '\0';
    }
    return info.st_uid != 0;
}

/* $XDG_CACHE_HOME/name or $HOME/.cache/name; false when neither variable is set or its folder does
 * not exist: a process of root must not create a missing home folder, and nothing in one that is
 * another user's. */
bool clb_cache_user_path(char *path, size_t size, const char *name)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool found = false;
    if (xdg != NULL && xdg[0] == '/')
        found = is_in_folder(xdg) && format_path(path, size, "%s/%s", xdg, name);
    else if (home != NULL && home[0] == '/')
        found = cache_is_folder(home) && format_path(path, size, "%s/.cache/%s", home, name);
    return found && !is_of_another_user(path);
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
    if (directory_found && !is_private(directory)) {
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

bool clb_cache_has_entries(void)
{
    const char *path = clb_cache_directory();
    DIR *folder = path != NULL ? opendir(path) : NULL;
    bool found = false;
    for (struct dirent *entry; folder != NULL && !found && (entry = readdir(folder)) != NULL;)
        found = entry->d_name[0] != '.';
    if (folder != NULL)
        closedir(folder);
    return found;
}

bool clb_cache_has_room(const char *path)
{
    struct statvfs info;
    if (path == NULL || statvfs(path, &info) != 0)
        return true; /* no file is written */
    return (uint64_t)info.f_bavail * info.f_frsize >= ROOM_FOR_BUILD;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* FNV-1a. */
static uint64_t hash(uint64_t seed, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        seed = (seed ^ bytes[i]) * UINT64_C(0x100000001b3);
    return seed;
}

uint64_t clb_cache_hash(const void *data, size_t size)
{
    return hash(UINT64_C(0xcbf29ce484222325), data, size);
}

static uint64_t checksum(const char *key, size_t key_size, const void *data, size_t size)
{
    return hash(hash(UINT64_C(0xcbf29ce484222325), key, key_size), data, size);
}

static bool entry_path(char *path, size_t size, const char *key)
{
    char name[40];
    const char *where = clb_cache_directory();
    bool record = strncmp(key, CLB_CACHE_RECORD, strlen(CLB_CACHE_RECORD)) == 0;
    snprintf(name, sizeof name, "%016llx.%s",
             (unsigned long long)hash(UINT64_C(0x84222325cbf29ce4), key, strlen(key)),
             record ? "ok" : "bin");
    return where != NULL && format_path(path, size, "%s/%s", where, name);
}

static bool read_entry(FILE *file, const char *key, unsigned char **data, size_t *size)
{
    struct header header;
    size_t key_size = strlen(key);
    bool good = false;
    if (fread(&header, sizeof header, 1, file) != 1 ||
        memcmp(header.magic, magic, sizeof magic) != 0 || header.key_size != key_size ||
        header.data_size == 0 || header.data_size > LARGEST_ENTRY)
        return false;
    char *stored = malloc(key_size);
    unsigned char *content = malloc(header.data_size);
    if (stored != NULL && content != NULL)
        good = fread(stored, 1, key_size, file) == key_size && memcmp(stored, key, key_size) == 0 &&
               fread(content, 1, header.data_size, file) == header.data_size &&
               fgetc(file) == EOF &&
               checksum(key, key_size, content, header.data_size) == header.checksum;
    free(stored);
    if (!good) {
        free(content);
        return false;
    }
    *data = content;
    *size = header.data_size;
    return true;
}

/* The times of entries say when they were last used, to a day. */
static void note_use(const char *path)
{
    struct stat info;
    if (stat(path, &info) == 0 && time(NULL) - info.st_mtime > DAY)
        utimensat(AT_FDCWD, path, NULL, 0);
}

clb_status clb_cache_load(const char *key, unsigned char **data, size_t *size)
{
    char path[PATH_MAX];
    if (!entry_path(path, sizeof path, key))
        return CLB_ERR_IO;
    FILE *file = clb_file_read(path);
    if (file == NULL)
        return CLB_ERR_IO;
    bool good = read_entry(file, key, data, size);
    fclose(file);
    if (good)
        note_use(path);
    else
        clb_log(CLB_LOG_INFO, "%s is damaged or of another version, it is made again", path);
    return good ? CLB_OK : CLB_ERR_IO;
}

/* ---- its size -------------------------------------------------------------------------------- */

/* Entries, records and the temporary files of processes that were killed; nothing else. */
static bool is_ours(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL && (strcmp(dot, ".bin") == 0 || strcmp(dot, ".ok") == 0 ||
                           strncmp(name, ".clblas-shim-", 13) == 0);
}

/* The bytes of all entries; *oldest becomes the name of the one whose last use is longest ago. */
static uint64_t measure(DIR *folder, char oldest[NAME_MAX + 1])
{
    struct stat info;
    time_t least = 0;
    uint64_t sum = 0;
    oldest[0] = '\0';
    rewinddir(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (!is_ours(entry->d_name) ||
            fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        sum += (uint64_t)info.st_size;
        if (oldest[0] == '\0' || info.st_mtime < least) {
            least = info.st_mtime;
            snprintf(oldest, NAME_MAX + 1, "%s", entry->d_name);
        }
    }
    return sum;
}

/* Remove what has not been used for the longest time until the cache is small enough: entries of
 * other versions of drivers and of the shim go first, because nobody uses them. */
static void trim(void)
{
    char oldest[NAME_MAX + 1];
    DIR *folder = opendir(clb_cache_directory());
    while (folder != NULL && measure(folder, oldest) > clb_config_get()->cache_size &&
           oldest[0] != '\0' && unlinkat(dirfd(folder), oldest, 0) == 0)
        clb_log(CLB_LOG_INFO, "%s is removed from the cache, which is full", oldest);
    if (folder != NULL)
        closedir(folder);
}

void clb_cache_store(const char *key, const unsigned char *data, size_t size)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    struct header header = {.key_size = strlen(key), .data_size = size};
    memcpy(header.magic, magic, sizeof magic);
    header.checksum = checksum(key, header.key_size, data, size);
    if (!entry_path(path, sizeof path, key) || !clb_cache_has_room(clb_cache_directory()))
        return;
    int fd = clb_file_temporary(temporary, sizeof temporary, path, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (file == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    bool good = fwrite(&header, sizeof header, 1, file) == 1 &&
                fwrite(key, 1, header.key_size, file) == header.key_size &&
                fwrite(data, 1, size, file) == size;
    good = fclose(file) == 0 && good;
    if (!good || rename(temporary, path) != 0)
        unlink(temporary);
    trim();
}
