/* Which library each BLAS or LAPACK name of a program is bound to, from what the dynamic linker
 * writes with LD_DEBUG=bindings,scopes. SPDX-License-Identifier: BSD-3-Clause */
#include "command.h"

#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

/* mkl_blas_dgemm, dgemm_64__, xyz_dgemm_ilp64_: what precedes the routine ends with an underscore,
 * and what follows it says how wide integers are. */
static bool is_decorated(const char *name)
{
    static const char *const endings[] = {"_", "ilp64", "64"};
    char stem[64];
    size_t length = strlen(name);
    for (size_t i = 0; i < CLB_COUNT_OF(endings); i++) {
        size_t ending = strlen(endings[i]);
        while (length > ending && strncmp(name + length - ending, endings[i], ending) == 0) {
            length -= ending;
            i = 0;
            ending = strlen(endings[i]);
        }
    }
    size_t begin = length;
    while (begin > 0 && name[begin - 1] != '_')
        begin--;
    if (length - begin + 2 > sizeof stem)
        return false;
    snprintf(stem, sizeof stem, "%.*s_", (int)(length - begin), name + begin);
    return clb_name_is_ours(stem);
}

/* dgemv_, scipy_dsyevd_64_, cblas_ddot, LAPACKE_dgesdd: may be of a BLAS or LAPACK. */
static bool is_like_lapack(const char *name)
{
    static const char scipy[] = "scipy_";
    if (strncmp(name, scipy, sizeof scipy - 1) == 0)
        name += sizeof scipy - 1;
    if (strncmp(name, "cblas_", 6) == 0 || strncmp(name, "LAPACKE_", 8) == 0)
        return true;
    size_t letters = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789");
    return strchr("sdcz", name[0]) != NULL && letters >= 4 && letters <= 9 &&
           (strcmp(name + letters, "_") == 0 || strcmp(name + letters, "_64_") == 0);
}

static size_t count_definitions(const char *path)
{
    return json_object_size(clb_elf_read(path)->defines);
}

/* A provider defines the names, and needs the shim. */
bool clb_is_shim(const char *path)
{
    const char *name = clb_base_name(path);
    return strstr(name, "libclblas_shim.so") != NULL ||
           (strncmp(name, "lib", 3) == 0 && count_definitions(path) > 0 &&
            json_object_get(clb_elf_read(path)->needs, "libclblas_shim.so.0") != NULL);
}

const char *clb_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* ---- one process ---- */

struct process {
    struct clb_bindings *bindings;
    char program[4096]; /* its first object */
    char object[4096];  /* whose scopes are listed */
    bool shim;          /* it is loaded */
    json_t *deep;       /* objects that look into their own libraries first */
    json_t *rows;       /* [name, from, to] */
};

/* Cut the text at " [N]" and return what follows; NULL: it has none. */
static char *cut_namespace(char *text)
{
    for (char *at = text; (at = strstr(at, " [")) != NULL; at++) {
        size_t digits = strspn(at + 2, "0123456789-");
        if (digits > 0 && at[2 + digits] == ']') {
            *at = '\0';
            return at + 3 + digits;
        }
    }
    return NULL;
}

static void read_binding(struct process *process, char *from)
{
    char *to = cut_namespace(from), *name, *end;
    if (to == NULL || strncmp(to, " to ", 4) != 0)
        return;
    to += 4;
    char *rest = cut_namespace(to);
    if (rest == NULL || (name = strchr(rest, '`')) == NULL || (end = strchr(++name, '\'')) == NULL)
        return;
    *end = '\0';
    process->shim = process->shim || clb_is_shim(to) || clb_is_shim(from);
    json_object_set_new(process->bindings->objects, to, json_true());
    json_object_set_new(process->bindings->objects, from, json_true());
    if (!clb_is_shim(from) &&
        (clb_name_is_ours(name) || is_decorated(name) || is_like_lapack(name)))
        json_array_append_new(process->rows, json_pack("[s,s,s]", name, from, to));
}

static void read_line(struct process *process, char *line)
{
    static const char binding[] = "binding file ", object[] = "object=", scope[] = " scope 0: ";
    char *text = strchr(line, '\t');
    line[strcspn(line, "\n")] = '\0';
    if (text++ == NULL)
        return;
    if (strncmp(text, binding, sizeof binding - 1) == 0) {
        read_binding(process, text + sizeof binding - 1);
    } else if (strncmp(text, object, sizeof object - 1) == 0) {
        cut_namespace(text);
        snprintf(process->object, sizeof process->object, "%s", text + sizeof object - 1);
        if (process->program[0] == '\0')
            memcpy(process->program, process->object, sizeof process->program);
    } else if (strncmp(text, scope, sizeof scope - 1) == 0) {
        const char *first = text + sizeof scope - 1;
        size_t length = strlen(process->program);
        if (strncmp(first, process->program, length) != 0 ||
            (first[length] != ' ' && first[length] != '\0'))
            json_object_set_new(process->deep, process->object, json_true());
    }
}

static const char *why_not_caught(const struct process *process, const char *from, const char *to)
{
    if (!process->shim)
        return "the library is not loaded in this process: its environment was cleared, or it is "
               "set-uid";
    if (json_object_get(process->deep, from) != NULL)
        return "it was loaded with RTLD_DEEPBIND; load it without, or link it with -lclblas_shim "
               "before its BLAS";
    if (strcmp(to, process->program) == 0)
        return "the program has a function of this name; link it with a shared BLAS instead";
    if (strcmp(from, to) == 0)
        return "it is looked up in that library alone (dlsym); have the program open "
               "libclblas_shim.so.0 instead";
    return process->bindings->linked
               ? "that library comes before the shim; link with -lclblas_shim before -lblas"
               : "that library was found before the shim";
}

/* Names with the same libraries and reason share a row. */
static void add_row(struct clb_bindings *bindings, const char *state, const char *name,
                    const char *from, const char *to, const char *why)
{
    json_t *row = NULL;
    CLB_EACH(old, bindings->rows) {
        if (strcmp(clb_text_of(old, "state"), state) == 0 &&
            strcmp(clb_text_of(old, "from"), from) == 0 &&
            strcmp(clb_text_of(old, "to"), to) == 0 && strcmp(clb_text_of(old, "why"), why) == 0)
            row = old;
    }
    if (row == NULL) {
        row = json_pack("{s:s,s:s,s:s,s:s,s:{}}", "state", state, "from", from, "to", to, "why",
                        why, "names");
        json_array_append_new(bindings->rows, row);
    }
    json_object_set_new(json_object_get(row, "names"), name, json_true());
}

/* The shim's search for what its caller would have reached looks like a binding of the caller. */
static bool is_search(const struct process *process, const char *name, const char *from)
{
    bool found = false;
    CLB_EACH(row, process->bindings->rows)
        found = found || (process->shim && strcmp(clb_text_of(row, "state"), "caught") == 0 &&
                          strcmp(clb_text_of(row, "from"), from) == 0 &&
                          (json_object_get(json_object_get(row, "names"), name) != NULL ||
                           json_object_get(clb_elf_read(from)->refers, name) == NULL));
    return found;
}

static void judge(const struct process *process, const char *name, const char *from, const char *to)
{
    struct clb_bindings *bindings = process->bindings;
    const bool ours = clb_name_is_ours(name);
    /* A package's own copy of a BLAS, where the tools that make wheels put it. */
    const bool bundled = strstr(to, "/site-packages/") != NULL || strstr(to, ".libs/") != NULL;
    if (ours && clb_is_shim(to)) {
        add_row(bindings, "caught", name, from, to, "");
        bindings->caught++;
    } else if (ours && !is_search(process, name, from)) {
        add_row(bindings, "missed", name, from, to, why_not_caught(process, from, to));
        bindings->missed++;
    } else if (!ours && is_decorated(name)) {
        add_row(bindings, "missed", name, from, to,
                bundled ? "the shim has no name of this form, which is that of a BLAS that "
                          "the package brings; take the system's package instead"
                        : "the shim has no name of this form");
        bindings->missed++;
    } else if (!ours && count_definitions(to) > 0 && count_definitions(from) == 0) {
        add_row(bindings, "not covered", name, from, to,
                "the shim has no such routine; products inside it are caught if it calls them by "
                "name");
    }
}

static bool is_caught(const struct clb_bindings *bindings, const char *name)
{
    CLB_EACH(row, bindings->rows) {
        if (strcmp(clb_text_of(row, "state"), "caught") == 0 &&
            json_object_get(json_object_get(row, "names"), name) != NULL)
            return true;
    }
    return false;
}

/* A BLAS's references to its own names say nothing of the program. With the shim preloaded they
 * would reach the shim, so that one to itself comes from dlsym: the shim's, where it was called. */
static bool is_internal(const struct process *process, const char *name, const char *from,
                        const char *to)
{
    bool by_dlsym = strcmp(from, to) == 0 && process->shim && !process->bindings->linked &&
                    json_object_get(process->deep, from) == NULL &&
                    !is_caught(process->bindings, name);
    return count_definitions(from) > 0 && strcmp(from, process->program) != 0 && !by_dlsym;
}

void clb_bindings_read(struct clb_bindings *bindings, const char *path)
{
    struct process process = {.bindings = bindings, .deep = json_object(), .rows = json_array()};
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t capacity = 0;
    while (file != NULL && getline(&line, &capacity, file) > 0)
        read_line(&process, line);
    free(line);
    if (file != NULL)
        fclose(file);
    CLB_EACH(row, process.rows) {
        const char *name, *from, *to;
        json_unpack(row, "[s,s,s]", &name, &from, &to);
        if (!is_internal(&process, name, from, to))
            judge(&process, name, from, to);
    }
    json_decref(process.rows);
    json_decref(process.deep);
}

const char *clb_bindings_own_blas(const struct clb_bindings *bindings)
{
    const char *own = NULL;
    json_auto_t *needed = json_object();
    CLB_EACH_MEMBER(path, unused, bindings->objects)
        json_object_update(needed, clb_elf_read(path)->needs);
    CLB_EACH_MEMBER(path, unused, bindings->objects) {
        /* What other files are linked with is a shared BLAS. */
        if (!clb_is_shim(path) && count_definitions(path) > 0 &&
            json_object_get(needed, clb_base_name(path)) == NULL)
            own = path;
    }
    return own;
}
