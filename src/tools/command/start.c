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

/* In the build folder, as it is installed wherever that was moved to, or where it was installed. */
static char *find_program(const char *const *candidates)
{
    char *program = find_file(candidates, X_OK);
    if (program == NULL)
        clb_fail(0, "%s is neither beside this program nor in %s", candidates[0],
                 CLB_PKGLIBEXECDIR);
    return program;
}
#define PLACES(name)                                                                               \
    {                                                                                              \
        name, "../libexec/clblas-shim/" name, CLB_PKGLIBEXECDIR "/" name, NULL                     \
    }

#define HELPER "clblas-shim-probe"

const char *clb_find_helper(void)
{
    static const char *const candidates[] = PLACES(HELPER);
    static char *helper;
    const char *wanted = getenv("CLBLAS_SHIM_PROBE");
    if (wanted != NULL && wanted[0] == '/')
        return wanted;
    if (helper == NULL)
        helper = find_program(candidates);
    return helper;
}

const char *clb_find_ladder(void)
{
    static const char *const candidates[] = PLACES("clblas-shim-ladder");
    return find_program(candidates);
}

/* Start the helper; its output goes to *output unless that is NULL. 0 or an errno. */
static int start_helper(const char *helper, const char *const *arguments, FILE **output,
                        pid_t *child)
{
    int pipes[2] = {-1, -1}, failed = 0;
    posix_spawn_file_actions_t files;
    unsetenv("LD_PRELOAD");
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (output != NULL && pipe2(pipes, O_CLOEXEC) != 0)
        failed = errno;
    if (output != NULL)
        posix_spawn_file_actions_adddup2(&files, pipes[1], STDOUT_FILENO);
    if (failed == 0)
        failed =
            posix_spawn(child, helper, &files, NULL, (char *const *)(uintptr_t)arguments, environ);
    posix_spawn_file_actions_destroy(&files);
    if (output != NULL) {
        close(pipes[1]);
        *output = failed == 0 ? fdopen(pipes[0], "re") : NULL;
    }
    return failed;
}

json_t *clb_ask_helper(void)
{
    static const char *const arguments[] = {HELPER, "--stall", "20", "--cpu", "60", "list", NULL};
    const char *helper = clb_find_helper();
    json_error_t error;
    FILE *output;
    pid_t child;
    if (helper == NULL)
        return NULL;
    int failed = start_helper(helper, arguments, &output, &child);
    json_t *answer = output != NULL ? json_loadf(output, 0, &error) : NULL;
    if (output != NULL)
        fclose(output);
    if (failed == 0)
        waitpid(child, NULL, 0);
    if (answer == NULL)
        clb_fail(0, "%s: %s", helper, failed != 0 ? strerror(failed) : "it gave no answer");
    return answer;
}

pid_t clb_helper_begin(const char *step)
{
    const char *helper = clb_find_helper(), *const arguments[] = {HELPER, step, NULL};
    pid_t child;
    int failed = helper != NULL ? start_helper(helper, arguments, NULL, &child) : ENOENT;
    if (failed != 0 && helper != NULL)
        clb_fail(0, "%s: %s", helper, strerror(failed));
    return failed == 0 ? child : -1;
}

/* ---- programs under the shim ----------------------------------------------------------------- */

void clb_preload(const char *library, const char *device)
{
    const char *before = getenv("LD_PRELOAD");
    struct clb_text list = {0};
    clb_text_add(&list, library);
    if (before != NULL && *before != '\0')
        clb_text_addf(&list, ":%s", before);
    if (!list.failed)
        setenv("LD_PRELOAD", list.data, 1);
    clb_text_free(&list);
    if (device != NULL)
        setenv("CLBLAS_SHIM_DEVICE", device, 1);
}

/* The program has stopped: so does this process, and both go on together. */
static void stop_with(pid_t child)
{
    raise(SIGSTOP);
    kill(child, SIGCONT);
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
            stop_with(child);
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

json_t *clb_ask_child(json_t *(*answer)(void *argument), void *argument)
{
    int pipes[2];
    json_t *result = NULL;
    if (pipe(pipes) != 0)
        return NULL;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        FILE *output = fdopen(pipes[1], "w");
        json_t *object = answer(argument);
        if (output != NULL) {
            json_dumpf(object, output, JSON_COMPACT);
            fflush(output);
        }
        _exit(0);
    }
    close(pipes[1]);
    FILE *input = fdopen(pipes[0], "r");
    if (input != NULL && child > 0)
        result = json_loadf(input, 0, NULL);
    if (input != NULL)
        fclose(input);
    if (child > 0)
        waitpid(child, NULL, 0);
    return result;
}

/* ---- temporary files ------------------------------------------------------------------------- */

char *clb_make_folder(void)
{
    const char *where = getenv("TMPDIR");
    struct clb_text folder = {0};
    clb_text_addf(&folder, "%s/clblas-shim-XXXXXX",
                  where != NULL && *where != '\0' ? where : "/tmp");
    if (!folder.failed && mkdtemp(folder.data) != NULL)
        return folder.data;
    clb_fail(0, "can't make a folder %s: %s", folder.failed ? "" : folder.data, strerror(errno));
    clb_text_free(&folder);
    return NULL;
}

static int is_plain_name(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

void clb_consume_folder(const char *folder, void (*visit)(const char *path, void *argument),
                        void *argument)
{
    struct dirent **entries = NULL;
    int found = scandir(folder, &entries, is_plain_name, alphasort);
    for (int i = 0; i < found; i++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (length > 0 && (size_t)length < sizeof path) {
            visit(path, argument);
            unlink(path);
        }
        free(entries[i]);
    }
    free(entries);
    rmdir(folder);
}
