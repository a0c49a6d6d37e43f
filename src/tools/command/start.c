/* Files of the installation, and programs under the shim. SPDX-License-Identifier: BSD-3-Clause */
#include "command.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- files of the installation ---- */

/* A file in the first of these folders where it can be accessed so; without a leading slash they
 * are relative to this program's folder. NULL after a message. */
static const char *find_file(const char *name, const char *const *folders, int mode)
{
    char self[PATH_MAX], path[3 * PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL)
        *slash = '\0';
    for (; *folders != NULL; folders++) {
        snprintf(path, sizeof path, "%s%s%s/%s", **folders == '/' ? "" : self,
                 **folders == '/' ? "" : "/", *folders, name);
        if (access(path, mode) == 0)
            return realpath(path, NULL);
    }
    clb_fail(0, "%s is neither beside this program nor in %s", name, folders[-1]);
    return NULL;
}

#define HELPER "clblas-shim-probe"

const char *clb_find_library(void)
{
    /* The second where the program is in libexec. */
    static const char *const folders[] = {".libs", "../../lib", "../lib", CLB_LIBDIR, NULL};
    static const char *library;
    if (library == NULL)
        library = find_file("libclblas_shim.so.0", folders, R_OK);
    return library;
}

/* Folders of the package's programs: in the build, beside a moved installation, as configured. */
static const char *const programs[] = {".", "../libexec/clblas-shim", CLB_PKGLIBEXECDIR, NULL};

const char *clb_find_helper(void)
{
    static const char *helper;
    const char *wanted = getenv("CLBLAS_SHIM_PROBE");
    const bool is_named = wanted != NULL && wanted[0] == '/';
    if (helper == NULL && is_named && access(wanted, X_OK) != 0)
        clb_fail(0, "%s: %s", wanted, strerror(errno));
    else if (helper == NULL)
        helper = is_named ? wanted : find_file(HELPER, programs, X_OK);
    return helper;
}

const char *clb_find_ladder(void)
{
    return find_file("clblas-shim-ladder", programs, X_OK);
}

/* ---- children ---- */

/* Replace this process by the helper, with its output in a file. */
static void become_helper(const char *helper, const char *const *arguments, int output)
{
    unsetenv("LD_PRELOAD");
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
    dup2(output, STDOUT_FILENO);
    execv(helper, (char *const *)(uintptr_t)arguments);
    _exit(CLB_EXIT_NO_EXEC);
}

/* What a child writes: the helper, where that is named, or what `answer` returns. */
static FILE *begin(const char *helper, const char *const *arguments,
                   json_t *(*answer)(void *argument), void *argument)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return NULL;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0 && helper != NULL)
        become_helper(helper, arguments, pipes[1]);
    if (child == 0) {
        unsetenv("LD_PRELOAD");
        json_dumpfd(answer(argument), pipes[1], JSON_COMPACT);
        _exit(0);
    }
    close(pipes[1]);
    return fdopen(pipes[0], "r");
}

FILE *clb_helper_begin(const char *steps)
{
    const char *helper = clb_find_helper(), *const arguments[] = {HELPER, steps, NULL};
    return helper != NULL ? begin(helper, arguments, NULL, NULL) : NULL;
}

/* The same, when it has ended. */
static json_t *ask(const char *helper, json_t *(*answer)(void *argument), void *argument)
{
    static const char *const arguments[] = {HELPER, "--stall", "20", "--cpu", "60", "list", NULL};
    FILE *file = begin(helper, arguments, answer, argument);
    if (file == NULL)
        return NULL;
    json_t *result = json_loadf(file, 0, NULL);
    fclose(file);
    wait(NULL);
    return result;
}

json_t *clb_ask_helper(void)
{
    const char *helper = clb_find_helper();
    json_t *result = helper != NULL ? ask(helper, NULL, NULL) : NULL;
    if (helper != NULL && result == NULL)
        clb_fail(0, "%s: it gave no answer", helper);
    return result;
}

json_t *clb_ask_child(json_t *(*answer)(void *argument), void *argument)
{
    return ask(NULL, answer, argument);
}

/* ---- programs under the shim ---- */

void clb_preload(const char *library)
{
    const char *before = getenv("LD_PRELOAD");
    const bool any = before != NULL && *before != '\0';
    char *list;
    if (asprintf(&list, "%s%s%s", library, any ? ":" : "", any ? before : "") < 0)
        return;
    setenv("LD_PRELOAD", list, 1);
    free(list);
}

/* The terminal signals both processes, so only signals of other processes are passed on. */
static int await_program(pid_t child, const sigset_t *all)
{
    for (;;) {
        siginfo_t info;
        int status, number = sigwaitinfo(all, &info);
        if (number > 0 && number != SIGCHLD && info.si_code <= 0)
            kill(child, number);
        while (number == SIGCHLD && waitpid(child, &status, WNOHANG | WUNTRACED) == child) {
            if (WIFEXITED(status))
                return WEXITSTATUS(status);
            if (WIFSIGNALED(status))
                return CLB_EXIT_SIGNAL + WTERMSIG(status);
            raise(SIGSTOP); /* as the program has; both go on together */
            kill(child, SIGCONT);
        }
    }
}

int clb_run_program(char **program)
{
    sigset_t all, before;
    posix_spawnattr_t attributes;
    pid_t child;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &before);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int error = posix_spawnp(&child, program[0], NULL, &attributes, program, environ);
    posix_spawnattr_destroy(&attributes);
    int status = error == 0 ? await_program(child, &all)
                            : clb_fail(error == ENOENT ? CLB_EXIT_NOT_FOUND : CLB_EXIT_NO_EXEC,
                                       "%s: %s", program[0], strerror(error));
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* ---- temporary files ---- */

char *clb_make_folder(void)
{
    const char *where = getenv("TMPDIR");
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/clblas-shim-XXXXXX",
             where != NULL && *where != '\0' ? where : "/tmp");
    if (mkdtemp(folder) != NULL)
        return strdup(folder);
    clb_fail(0, "can't make a folder %s: %s", folder, strerror(errno));
    return NULL;
}

void clb_consume_folder(const char *folder, void (*visit)(const char *path, void *argument),
                        void *argument)
{
    struct dirent **entries = NULL;
    int found = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < found; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            visit(path, argument);
            unlink(path);
        }
        free(entries[i]);
    }
    free(entries);
    rmdir(folder);
}
