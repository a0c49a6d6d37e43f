/* PoCL: its quirks, and workarounds.
 *
 * PoCL ends the process when it can't read the machine's memory size, and when a file in its cache
 * of compiled kernels is damaged; it runs any code that it finds in the cache. So PoCL is used only
 * when its cache directory belongs to the user alone, and damaged programs are removed from it
 * before PoCL starts. */
#include "start.h"
#include "store.h"
#include "host/process.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DAY 86400 /* seconds */

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

/* ---- the directory of its cache -------------------------------------------------------------- */

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

/* The directory of PoCL's cache; false when it is not known. */
static bool pocl_find_directory(char *path, size_t size)
{
    const char *wanted = getenv("POCL_CACHE_DIR");
    int length = 0;
    if (wanted == NULL)
        return clb_cache_user_path(path, size, "pocl/kcache");
    length = snprintf(path, size, "%s", wanted);
    return length > 0 && (size_t)length < size;
}

/* ---- damage ---------------------------------------------------------------------------------- */

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

/* LLVM bitcode is a magic number and blocks. The first word of a block has its number and is not
 * checked, the second is its length in words (LLVM Bitcode File Format, "Blocks"). */
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

/* What is known of a program's files. Whoever has just checked kernels stores the checksums of the
 * files that PoCL keeps of them: it had found the files good when it started. */
struct program_files {
    struct clb_record known; /* its text is a line "PLACE CHECKSUM" for each file */
    struct clb_text *now;    /* what is to be stored; NULL: look for damage */
    char place[1024];        /* of a file below the program's folder */
};

static struct clb_key files_key(const char *letters, const char *program)
{
    static char name[2 * NAME_MAX + 2]; /* one thread at a time starts drivers and checks */
    snprintf(name, sizeof name, "%s/%s", letters, program);
    return (struct clb_key){CLB_RECORD_POCL, "files", name};
}

/* The line's checksum; 0: there is none. */
static uint64_t find_sum(const struct program_files *files)
{
    const size_t length = strlen(files->place);
    for (const char *line = files->known.text; line != NULL && *line != '\0';) {
        if (strncmp(line, files->place, length) == 0 && line[length] == ' ')
            return strtoull(line + length + 1, NULL, 16);
        line = strchr(line, '\n');
        line += line != NULL;
    }
    return 0;
}

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

/* Looks only at names that PoCL reads. */
static bool is_damaged(int folder, const char *name, const struct program_files *files)
{
    struct stat info;
    const char *ending = strrchr(name, '.');
    bool object = ending != NULL && strcmp(ending, ".so") == 0;
    bool bitcode = ending != NULL && strcmp(ending, ".bc") == 0;
    if (!object && !bitcode)
        return false;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno != ENOENT;
    const uint64_t known = find_sum(files);
    bool whole = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && clb_file_is_private(&info) &&
                 (object ? is_whole_object(fd, info.st_size) : is_whole_bitcode(fd, info.st_size));
    if (whole && files->now != NULL) {
        const bool newer = info.st_mtim.tv_sec + 2 > files->known.time / 1000000000;
        clb_text_addf(files->now, "%s %016llx\n", files->place,
                      (unsigned long long)(known == 0 || newer ? sum_of(fd, &info) : known));
    } else if (whole && known != 0) {
        whole = sum_of(fd, &info) == known;
    }
    close(fd);
    return !whole;
}

static DIR *open_folder(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL && fd >= 0)
        close(fd);
    return folder;
}

static bool pocl_is_folder(const struct dirent *entry)
{
    return entry->d_type == DT_DIR && entry->d_name[0] != '.';
}

/* Levels of folders below the cache: two letters, a program, a kernel, its work-group size. */
#define DEEPEST 4

/* Whoever may write to a folder may have this program run his code. */
static bool is_open_to_others(DIR *folder)
{
    struct stat info;
    return fstat(dirfd(folder), &info) != 0 || !clb_file_is_private(&info);
}

/* Look at the files of a program, or add their checksums. */
static bool has_damage(int parent, const char *name, int depth, struct program_files *files)
{
    const size_t length = strlen(files->place);
    DIR *folder = open_folder(parent, name);
    bool damaged = folder == NULL ? errno != ENOENT : is_open_to_others(folder);
    for (struct dirent *entry; folder != NULL && !damaged && (entry = readdir(folder)) != NULL;) {
        snprintf(files->place + length, sizeof files->place - length, "/%s", entry->d_name);
        if (!pocl_is_folder(entry))
            damaged = is_damaged(dirfd(folder), entry->d_name, files);
        else if (depth < DEEPEST)
            damaged = has_damage(dirfd(folder), entry->d_name, depth + 1, files);
    }
    files->place[length] = '\0';
    if (folder != NULL)
        closedir(folder);
    return damaged;
}

/* True when it is good. */
static bool check_program(int parent, const char *letters, const char *name)
{
    struct program_files files = {0};
    clb_record_load(files_key(letters, name), &files.known);
    const bool damaged = has_damage(parent, name, 2, &files);
    clb_record_free(&files.known);
    if (damaged)
        clb_record_remove(files_key(letters, name));
    return !damaged;
}

static void store_sums(int parent, const char *letters, const char *name)
{
    struct clb_text now = {0};
    struct program_files files = {.now = &now};
    clb_record_load(files_key(letters, name), &files.known);
    if (!has_damage(parent, name, 2, &files) && !now.failed && now.length > 0 &&
        (files.known.text == NULL || strcmp(files.known.text, now.data) != 0))
        clb_record_note(files_key(letters, name), CLB_PASSED, now.data);
    clb_record_free(&files.known);
    clb_text_free(&now);
}

static bool remove_folder(int parent, const char *name, int depth)
{
    DIR *folder = open_folder(parent, name);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (pocl_is_folder(entry) && depth < DEEPEST)
            remove_folder(dirfd(folder), entry->d_name, depth + 1);
        else if (!pocl_is_folder(entry))
            unlinkat(dirfd(folder), entry->d_name, 0); /* fails for . and .. */
    }
    if (folder != NULL)
        closedir(folder);
    return unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

/* When a program was last removed. */
static const struct clb_key damage_key = {CLB_RECORD_POCL, "damage", NULL};

/* PoCL compiles again, when it is needed, what was removed. */
static bool throw_away(int parent, const char *name, int depth)
{
    clb_log(CLB_LOG_WARN, "%s in PoCL's cache is damaged, it is removed and made again", name);
    clb_record_note(damage_key, CLB_FAILED, name);
    return remove_folder(parent, name, depth);
}

/* Look at the programs whose names begin with these letters, or store what they are like. */
static bool clean_letters(int cache, const char *letters, bool store)
{
    bool clean = true;
    DIR *programs = open_folder(cache, letters);
    if (programs == NULL)
        return errno == ENOENT;
    if (is_open_to_others(programs)) {
        closedir(programs);
        return store || throw_away(cache, letters, 1);
    }
    for (struct dirent *program; (program = readdir(programs)) != NULL;) {
        if (!pocl_is_folder(program))
            continue;
        if (store)
            store_sums(dirfd(programs), letters, program->d_name);
        else if (!check_program(dirfd(programs), letters, program->d_name))
            clean = throw_away(dirfd(programs), program->d_name, 2) && clean;
    }
    closedir(programs);
    return clean;
}

/* PoCL leaves an empty one in each process. */
static void remove_old_temporary(int cache, const char *name)
{
    struct stat info;
    if (strncmp(name, "tempfile_", 9) == 0 &&
        fstatat(cache, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
        time(NULL) - info.st_mtime > DAY)
        unlinkat(cache, name, 0);
}

/* Remove each program that has a damaged file, or that others may have put there; false where that
 * can't be done. Or store what the programs are like. */
static bool visit_cache(const char *path, bool store)
{
    bool clean = true;
    DIR *cache = open_folder(AT_FDCWD, path);
    for (struct dirent *entry; cache != NULL && (entry = readdir(cache)) != NULL;) {
        if (pocl_is_folder(entry))
            clean = clean_letters(dirfd(cache), entry->d_name, store) && clean;
        else if (!store)
            remove_old_temporary(dirfd(cache), entry->d_name);
    }
    if (cache != NULL)
        closedir(cache);
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

/* ---- before PoCL is asked for its devices ---------------------------------------------------- */

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

/* ---- the environment variable that PoCL sets ------------------------------------------------- */

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
