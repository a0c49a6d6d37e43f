/* A layer over the system's OpenCL drivers (OPENCL_LAYERS) that keeps PoCL's programs for the
 * tests. SPDX-License-Identifier: BSD-3-Clause
 *
 * Thousands of short processes build the same few programs, and each time PoCL has clang preprocess
 * 20 KB of source and 60 KB of headers, before it finds what it has compiled: 20 ms of CPU time.
 * From a binary it is 1 ms; but PoCL compiles all kernels of a program again to make one. So what
 * has been built WORTH times is kept as a binary in the folder that PROGRAMS names, and taken from
 * there. The kernels that run are the same ones of PoCL's own cache.
 *
 * A file has the key, whose length comes first, and the binary. */
#if __has_include(<CL/cl_layer.h>) /* else no layer: the loader does without it */
#include "layer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORTH = 60, MAX_PATH = 4096 };

static struct _cl_icd_dispatch real;
static const char *folder;

/* The program that stands for one of the caller's; its kernels are made of it. */
struct substitute {
    cl_program given, built;
    struct substitute *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct substitute *substitutes;

static cl_program built_of(cl_program given)
{
    cl_program found = given;
    pthread_mutex_lock(&lock);
    for (const struct substitute *s = substitutes; s != NULL; s = s->next) {
        if (s->given == given)
            found = s->built;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- files ---- */

struct bytes {
    unsigned char *data;
    size_t size;
};

/* Everything that determines the binary; empty when that is not known. */
static struct bytes make_key(cl_program program, cl_device_id device, const char *options)
{
    char version[256] = "", name[256] = "";
    size_t length = 0;
    struct bytes key = {NULL, 0};
    if (real.clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof version, version, NULL) !=
            CL_SUCCESS ||
        strstr(version, "PoCL") == NULL ||
        real.clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL) != CL_SUCCESS ||
        real.clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, &length) != CL_SUCCESS ||
        length < 2)
        return key;
    const size_t room = strlen(version) + strlen(name) + strlen(options) + 4 + length;
    char *text = malloc(room);
    if (text == NULL)
        return key;
    const int head = snprintf(text, room, "%s\n%s\n%s\n", version, name, options);
    if (real.clGetProgramInfo(program, CL_PROGRAM_SOURCE, length, text + head, NULL) ==
        CL_SUCCESS) {
        key.data = (unsigned char *)text;
        key.size = (size_t)head + length;
    } else {
        free(text);
    }
    return key;
}

static void find_path(char *path, const struct bytes *key)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < key->size; i++)
        hash = (hash ^ key->data[i]) * UINT64_C(0x100000001b3);
    snprintf(path, MAX_PATH, "%s/%016" PRIx64, folder, hash);
}

/* The binary of this key. */
static struct bytes load(const char *path, const struct bytes *key)
{
    struct bytes file = {NULL, 0}, binary = {NULL, 0};
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return binary;
    if (fstat(fd, &info) == 0 && (file.data = malloc((size_t)info.st_size)) != NULL)
        file.size = (size_t)info.st_size;
    const bool whole = file.size > sizeof key->size + key->size &&
                       read(fd, file.data, file.size) == (ssize_t)file.size;
    close(fd);
    if (whole && memcmp(file.data, &key->size, sizeof key->size) == 0 &&
        memcmp(file.data + sizeof key->size, key->data, key->size) == 0) {
        const size_t begin = sizeof key->size + key->size;
        binary.size = file.size - begin;
        memmove(file.data, file.data + begin, binary.size);
        binary.data = file.data;
    } else {
        free(file.data);
    }
    return binary;
}

static void store(const char *path, const struct bytes *key, const struct bytes *binary)
{
    char unfinished[MAX_PATH + 32];
    snprintf(unfinished, sizeof unfinished, "%s.%ld", path, (long)getpid());
    FILE *file = fopen(unfinished, "wxe");
    if (file == NULL)
        return;
    bool good = fwrite(&key->size, sizeof key->size, 1, file) == 1 &&
                fwrite(key->data, key->size, 1, file) == 1 &&
                fwrite(binary->data, binary->size, 1, file) == 1;
    good = fclose(file) == 0 && good;
    if (!good || rename(unfinished, path) != 0)
        unlink(unfinished);
}

/* One more build of it; true when a binary is worth its making: the length of a file counts. */
static bool count_build(const char *path)
{
    char name[MAX_PATH + 8];
    struct stat info = {0};
    snprintf(name, sizeof name, "%s.count", path);
    const int fd = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    const bool counted = write(fd, "+", 1) == 1 && fstat(fd, &info) == 0;
    close(fd);
    return counted && info.st_size >= WORTH;
}

static void keep(cl_program program, const char *path, const struct bytes *key)
{
    struct bytes binary = {NULL, 0};
    if (real.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof binary.size, &binary.size,
                              NULL) != CL_SUCCESS ||
        binary.size == 0 || (binary.data = malloc(binary.size)) == NULL)
        return;
    if (real.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary.data, &binary.data,
                              NULL) == CL_SUCCESS)
        store(path, key, &binary);
    free(binary.data);
}

/* ---- the layer ---- */

/* The program is built from a binary that was kept. */
static bool substitute(cl_program program, cl_device_id device, const char *options,
                       const struct bytes *binary)
{
    cl_context context = NULL;
    cl_int status, accepted;
    const unsigned char *data = binary->data;
    struct substitute *entry = malloc(sizeof *entry);
    if (entry == NULL || real.clGetProgramInfo(program, CL_PROGRAM_CONTEXT, sizeof context,
                                               &context, NULL) != CL_SUCCESS) {
        free(entry);
        return false;
    }
    cl_program built = real.clCreateProgramWithBinary(context, 1, &device, &binary->size, &data,
                                                      &accepted, &status);
    if (built == NULL ||
        real.clBuildProgram(built, 1, &device, options, NULL, NULL) != CL_SUCCESS) {
        if (built != NULL)
            real.clReleaseProgram(built);
        free(entry);
        return false;
    }
    pthread_mutex_lock(&lock);
    *entry = (struct substitute){program, built, substitutes};
    substitutes = entry;
    pthread_mutex_unlock(&lock);
    return true;
}

static cl_int CL_API_CALL build(cl_program program, cl_uint count, const cl_device_id *devices,
                                const char *options, void(CL_CALLBACK *notify)(cl_program, void *),
                                void *user)
{
    char path[MAX_PATH];
    struct bytes key = {NULL, 0};
    if (count == 1 && notify == NULL && options != NULL)
        key = make_key(program, devices[0], options);
    if (key.data == NULL)
        return real.clBuildProgram(program, count, devices, options, notify, user);
    find_path(path, &key);
    struct bytes binary = load(path, &key);
    cl_int status = CL_SUCCESS;
    if (binary.data == NULL || !substitute(program, devices[0], options, &binary)) {
        status = real.clBuildProgram(program, count, devices, options, notify, user);
        if (status == CL_SUCCESS && count_build(path))
            keep(program, path, &key);
    }
    free(binary.data);
    free(key.data);
    return status;
}

static cl_kernel CL_API_CALL create_kernel(cl_program program, const char *name, cl_int *status)
{
    return real.clCreateKernel(built_of(program), name, status);
}

static cl_int CL_API_CALL get_build_info(cl_program program, cl_device_id device,
                                         cl_program_build_info name, size_t size, void *value,
                                         size_t *needed)
{
    return real.clGetProgramBuildInfo(built_of(program), device, name, size, value, needed);
}

/* The library retains no program. */
static cl_int CL_API_CALL release(cl_program program)
{
    struct substitute *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct substitute **at = &substitutes; *at != NULL && found == NULL;) {
        if ((*at)->given == program) {
            found = *at;
            *at = found->next;
        } else {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&lock);
    if (found != NULL)
        real.clReleaseProgram(found->built);
    free(found);
    return real.clReleaseProgram(program);
}

static void layer_init(struct _cl_icd_dispatch *table)
{
    real = *table;
    folder = getenv("PROGRAMS");
    if (folder == NULL)
        return;
    table->clBuildProgram = build;
    table->clCreateKernel = create_kernel;
    table->clGetProgramBuildInfo = get_build_info;
    table->clReleaseProgram = release;
}
#else
typedef int clb_no_layer;
#endif
