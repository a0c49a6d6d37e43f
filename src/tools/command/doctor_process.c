/* SPDX-License-Identifier: BSD-3-Clause
 * clblas-shim doctor --pid: what a running process has loaded. Only files and /proc are read. */
#include "doctor.h"

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file of /proc/PID. NULL after a finding. */
static FILE *open_proc(long pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        clb_find(CLB_FOUND_BROKEN, "%s can't be read: %s", path, strerror(errno));
    return file;
}

static bool is_privileged(long pid)
{
    FILE *file = open_proc(pid, "auxv");
    ElfW(auxv_t) entry;
    bool secure = false;
    while (file != NULL && fread(&entry, sizeof entry, 1, file) == 1)
        secure = secure || (entry.a_type == AT_SECURE && entry.a_un.a_val != 0);
    if (file != NULL)
        fclose(file);
    return secure;
}

/* The pieces of a file that end with a character, from `mark` on in each that has it, as keys. */
static json_t *list_pieces(long pid, const char *name, char end, const char *mark)
{
    FILE *file = open_proc(pid, name);
    json_t *pieces = json_object();
    char *piece = NULL;
    size_t capacity = 0;
    for (ssize_t size; file != NULL && (size = getdelim(&piece, &capacity, end, file)) > 0;) {
        piece[size - (piece[size - 1] == end)] = '\0';
        const char *found = strstr(piece, mark);
        if (found != NULL)
            json_object_set_new(pieces, found, json_true());
    }
    free(piece);
    if (file != NULL)
        fclose(file);
    return pieces;
}

static bool has_preload(long pid)
{
    json_auto_t *variables = list_pieces(pid, "environ", '\0', "");
    bool found = false;
    CLB_EACH_MEMBER(variable, unused, variables)
        found = found || (strncmp(variable, "LD_PRELOAD=", 11) == 0 &&
                          strstr(variable, "libclblas_shim") != NULL);
    return found;
}

void clb_doctor_process(long pid)
{
    char exe[64], target[PATH_MAX];
    json_auto_t *define = json_object(),
                *refer = json_object(); /* paths of files with names of ours */
    const char *shim = NULL;
    json_auto_t *paths = list_pieces(pid, "maps", '\n', "/");
    snprintf(exe, sizeof exe, "/proc/%ld/exe", pid);
    ssize_t length = readlink(exe, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    CLB_EACH_MEMBER(path, unused, paths) {
        if (clb_is_shim(path))
            shim = path;
        const struct clb_elf *elf = clb_elf_read(path);
        if (shim != path && json_object_size(elf->defines) > 0)
            json_object_set_new(define, path, json_true());
        if (shim != path && json_object_size(elf->refers) > 0)
            json_object_set_new(refer, path, json_true());
    }
    clb_say("Process %ld: %s\n", pid, target);
    CLB_EACH_MEMBER(path, unused, define)
        clb_say("  has BLAS or LAPACK: %s\n", path);
    CLB_EACH_MEMBER(path, unused, refer)
        clb_say("  calls BLAS or LAPACK: %s\n", path);
    const char *blas = json_object_iter_key(json_object_iter(define));
    if (json_object_size(paths) == 0)
        clb_find(CLB_FOUND_BROKEN, "nothing is known of process %ld", pid);
    else if (clb_elf_read(exe)->kind == CLB_ELF_STATIC)
        clb_find(CLB_FOUND_BROKEN, "%s is a static program, into which nothing can be preloaded",
                 target);
    else if (is_privileged(pid))
        clb_find(CLB_FOUND_BROKEN,
                 "the process is set-uid or has capabilities: the shim stays off in it");
    else if (shim == NULL)
        clb_find(CLB_FOUND_BROKEN, "the library is not loaded: %s",
                 has_preload(pid) ? "LD_PRELOAD names it, but the dynamic linker did not find it"
                                  : "start the program by clblas-shim run");
    else if (json_object_get(define, target) != NULL)
        clb_find(CLB_FOUND_BROKEN, "%s has a BLAS of its own inside", target);
    else if (json_object_size(refer) == 0)
        clb_find(
            CLB_FOUND_UNUSED,
            "nothing that is loaded so far calls a BLAS or LAPACK routine that the shim has%s%s",
            blas != NULL ? ", unless by dlsym from " : "", blas != NULL ? blas : "");
    clb_find_works("%s is loaded", shim != NULL ? clb_base_name(shim) : "");
}
