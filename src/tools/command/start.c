/* Files of the installation, and programs under the shim. */
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

/* ---- files of the installation --------------------------------------------------------------- */

/* The first of these that can be accessed so; those without a leading slash are relative to the
 * folder of this program. */
static char *find_file(const char *const *candidates, int mode)
{
    static char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL)
        *slash = '\0';
    for (; *candidates != NULL; candidates++) {
        char path[2 * PATH_MAX];
        snprintf(path, sizeof path, "%s%s%s", **candidates == '/' ? "" : self,
                 **candidates == '/' ? "" : "/", *candidates);
        if (access(path, mode) == 0)
            return realpath(path, NULL);
    }
    return NULL;
}

#define LIBRARY "libclblas_shim.so.0"
#define HELPER  "clblas-shim-probe"

/* The second where the program is in libexec. */
const char *clb_find_library(void)
{
    static const char *const candidates[] = {".libs/" LIBRARY, "../../lib/" LIBRARY,
                                             "../lib/" LIBRARY, CLB_LIBDIR "/" LIBRARY, NULL};
    static char *library;
    if (library == NULL && (library = find_file(candidates, R_OK)) == NULL)
        clb_fail(0, "%s is neither beside this program nor in %s", LIBRARY, CLB_LIBDIR);
    return library;
}

/* A program of the package, in the build folder, as it is installed wherever that was moved to, or
 * where it was installed. Kept until the process ends. */
static const char *find_program(const char *name, const char *wanted)
{
    char moved[64], installed[PATH_MAX];
    snprintf(moved, sizeof moved, "../libexec/clblas-shim/%s", name);
    snprintf(installed, sizeof installed, "%s/%s", CLB_PKGLIBEXECDIR, name);
    const char *const candidates[] = {name, moved, installed, NULL};
    const bool is_named = wanted != NULL && wanted[0] == '/';
    const char *program = is_named ? wanted : find_file(candidates, X_OK);
    if (program == NULL)
        clb_fail(0, "%s is neither beside this program nor in %s", name, CLB_PKGLIBEXECDIR);
    if (!is_named || access(program, X_OK) == 0)
        return program;
    clb_fail(0, "%s: %s", program, strerror(errno));
    return NULL;
}

const char *clb_find_helper(void)
{
    static const char *helper;
    if (helper == NULL)
        helper = find_program(HELPER, getenv("CLBLAS_SHIM_PROBE"));
    return helper;
}

const char *clb_find_ladder(void)
{
    return find_program("clblas-shim-ladder", NULL);
}

/* ---- children -------------------------------------------------------------------------------- */

/* Replace this process by the helper, with its output in a file where that is wanted. */
static void become_helper(const char *helper, const char *const *arguments, int output)
{
    unsetenv("LD_PRELOAD");
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
    if (output >= 0)
        dup2(output, STDOUT_FILENO);
    execv(helper, (char *const *)(uintptr_t)arguments);
    _exit(CLB_EXIT_NO_EXEC);
}

pid_t clb_helper_begin(const char *step)
{
    const char *helper = clb_find_helper(), *const arguments[] = {HELPER, step, NULL};
    if (helper == NULL)
        return -1;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        become_helper(helper, arguments, -1);
    if (child < 0)
        clb_fail(0, "%s: %s", helper, strerror(errno));
    return child;
}

/* What a child writes: the helper, where that is named, or what `answer` returns. */
static json_t *ask(const char *helper, json_t *(*answer)(void *argument), void *argument)
{
    static const char *const arguments[] = {HELPER, "--stall", "20", "--cpu", "60", "list", NULL};
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return NULL;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0 && helper != NULL)
        become_helper(helper, arguments, pipes[1]);
    if (child == 0) {
        json_dumpfd(answer(argument), pipes[1], JSON_COMPACT);
        _exit(0);
    }
    close(pipes[1]);
    json_t *result = json_loadfd(pipes[0], 0, NULL);
    close(pipes[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
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

/* ---- programs under the shim ----------------------------------------------------------------- */

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

/* The terminal sends its signals to both processes, so only those of other processes are passed on.
 */
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

/* ---- temporary files ------------------------------------------------------------------------- */

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
