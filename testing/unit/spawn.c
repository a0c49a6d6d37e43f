/* Processes that the program does not notice: no SIGCHLD, nothing from any form of wait, whatever
 * the program is, and no trace of the program in them. SPDX-License-Identifier: BSD-3-Clause */
#include "tap.h"

#include "engine/ocl/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE 60.0

static char self[4096];

/* A program may have a clone of its own, as those built with ThreadSanitizer do, which is for its
 * threads and children only: helpers are not started by it. */
int clone(int (*function)(void *), void *stack, int flags, void *argument, ...);
int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
    (void)function, (void)stack, (void)flags, (void)argument;
    errno = ENOSYS;
    return -1;
}

/* ---- the helper: this program with other arguments ---- */

static volatile sig_atomic_t terminated;

static void note_termination(int signal)
{
    (void)signal;
    terminated = 1;
}

static void write_word(const char *path, const char *word)
{
    FILE *file = fopen(path, "w");
    if (file != NULL) {
        fputs(word, file);
        fclose(file);
    }
}

/* Where the kernel groups processes by session the group has a nice value of its own, which may be
 * set ten times a second. */
static bool session_is_polite(void)
{
    for (int i = 0; i < 200; i++) {
        int nice = 0;
        FILE *file = fopen("/proc/self/autogroup", "r");
        const bool read = file != NULL && fscanf(file, "/autogroup-%*d nice %d", &nice) == 1;
        if (file != NULL)
            fclose(file);
        if (!read || nice >= 10)
            return true;
        usleep(50000);
    }
    return false;
}

/* The number of the first thing in a helper that tells of the program, or 0. */
static int find_trace(void)
{
    sigset_t blocked;
    struct stat null, standard;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    if (stat("/dev/null", &null) != 0)
        return 1;
    for (int fd = 0; fd < 3; fd++) {
        if (fstat(fd, &standard) != 0 || standard.st_rdev != null.st_rdev)
            return 2;
    }
    for (int fd = 3; fd < 1024; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            return 3;
    }
    for (int number = 1; number < NSIG; number++) {
        if (sigismember(&blocked, number) == 1)
            return 4;
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* those have handlers */
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            return 5;
#endif
    }
    if (getsid(0) == getpid() || getsid(0) != getpgrp() || getsid(0) != getppid())
        return 6; /* the session is the keeper's */
    if (getpriority(PRIO_PROCESS, 0) < 10 || getenv("LD_PRELOAD") != NULL)
        return 7;
    if (!session_is_polite())
        return 9;
    return strcmp(getenv("SPAWN_TEST"), "here") == 0 ? 0 : 8;
}

static int be_helper(const char *what, const char *path)
{
    if (strcmp(what, "traces") == 0)
        return find_trace();
    if (strcmp(what, "signal") == 0)
        raise(SIGQUIT);
    if (strcmp(what, "outlive") == 0) { /* until it is told */
        signal(SIGTERM, note_termination);
        write_word(path, "started");
        for (int i = 0; i < 600 && !terminated; i++)
            usleep(50000);
        write_word(path, terminated ? "told" : "not told");
    }
    if (strcmp(what, "write") == 0) { /* signs of life for 4 s, and its number */
        char number[32], file[80];
        snprintf(number, sizeof number, "%ld", (long)getpid());
        snprintf(file, sizeof file, "%s.number", path);
        write_word(file, number);
        for (int i = 0; i < 80; i++) {
            write_word(path, "started");
            usleep(50000);
        }
    }
    return 42;
}

/* ---- the program ---- */

static _Atomic int signals;

static void count_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&signals, 1);
}

/* No form of wait may find anything to wait for, or anything that has ended. */
static int look_for_children(void)
{
    siginfo_t info;
    errno = 0;
    return (wait(NULL) == -1 && errno == ECHILD) + (waitpid(-1, NULL, 0) == -1 && errno == ECHILD) +
           (waitid(P_ALL, 0, &info, WEXITED) == -1 && errno == ECHILD) +
           (waitpid(0, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static _Atomic bool over;

static void *wait_always(void *unused)
{
    (void)unused;
    while (!over)
        expect(look_for_children() == 4, "a wait found a child");
    return NULL;
}

static clb_status run_helper(const char *what, const char *path, struct clb_spawn_result *result)
{
    char *arguments[] = {self, (char *)(uintptr_t)what, (char *)(uintptr_t)path, NULL};
    return clb_spawn(self, arguments, "/nonexistent", PATIENCE, result);
}

/* One start, unseen by signal handler, waits and descriptors. */
static void start_unseen(int status)
{
    struct clb_spawn_result result;
    pthread_t waiter;
    over = false;
    expect(pthread_create(&waiter, NULL, wait_always, NULL) == 0, "a thread");
    expect(run_helper(status == 128 + SIGQUIT ? "signal" : "traces", NULL, &result) == CLB_OK,
           "started");
    over = true;
    pthread_join(waiter, NULL);
    expect(result.exit_status == status && result.error == 0, "exit status %d, errno %d",
           result.exit_status, result.error);
    expect(result.peak_kib > 0 && result.seconds > 0, "peak %ld KiB", result.peak_kib);
    expect(signals == 0, "%d signals", signals);
    errno = 0;
    expect(waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD, "nothing is left");
}

static void plain(void *flags)
{
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = *(const int *)flags};
    int pipe_of_program[2];
    setenv("SPAWN_TEST", "here", 1);
    setenv("LD_PRELOAD", "/nonexistent.so", 1);
    expect(sigaction(SIGCHLD, &action, NULL) == 0 && pipe(pipe_of_program) == 0, "set up");
    for (int i = 0; i < 20; i++)
        start_unseen(0);
    start_unseen(128 + SIGQUIT);
}

static void ignoring(void *unused)
{
    (void)unused;
    setenv("SPAWN_TEST", "here", 1);
    signal(SIGCHLD, SIG_IGN);
    start_unseen(0);
    unsetenv("SPAWN_TEST"); /* the environment is that of the first start */
    start_unseen(0);
}

static void subreaper(void *unused)
{
    static const int no_flags;
    (void)unused;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    plain((void *)(uintptr_t)&no_flags);
}

static void all_descriptors_in_use(void *unused)
{
    const struct rlimit few = {6, 6};
    (void)unused;
    setenv("SPAWN_TEST", "here", 1);
    setrlimit(RLIMIT_NOFILE, &few);
    while (open("/dev/null", O_RDONLY) >= 0)
        ;
    start_unseen(0);
}

static void own_children(void *unused)
{
    (void)unused;
    setenv("SPAWN_TEST", "here", 1);
    for (int i = 0; i < 20; i++) {
        struct clb_spawn_result result;
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            _exit(7);
        expect(run_helper("traces", NULL, &result) == CLB_OK && result.exit_status == 0, "helper");
        expect(wait(&status) == child && WEXITSTATUS(status) == 7, "the program's own child");
    }
}

/* ---- where it can't be started ---- */

static void missing(void *unused)
{
    struct clb_spawn_result result;
    char *arguments[] = {self, NULL};
    (void)unused;
    clb_status status = clb_spawn("/nonexistent", arguments, "/nonexistent", PATIENCE, &result);
    expect(status == CLB_ERR_IO && result.error == ENOENT, "errno %d", result.error);
    expect(look_for_children() == 4, "no child");
}

static void refused_by_filter(void *unused)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {CLB_COUNT_OF(code), code};
    struct clb_spawn_result result;
    (void)unused;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        return;
    clb_status status = run_helper("traces", NULL, &result);
    expect(status == CLB_ERR_IO && result.error == EPERM, "errno %d", result.error);
    expect(look_for_children() == 4, "no child");
}

static void no_more_processes(void *unused)
{
    struct clb_spawn_result result;
    const struct passwd *nobody = getpwnam("nobody");
    const struct rlimit none = {0, 0};
    (void)unused;
    if (geteuid() == 0 && (nobody == NULL || setuid(nobody->pw_uid) != 0))
        return;
    setrlimit(RLIMIT_NPROC, &none);
    clb_status status = run_helper("traces", NULL, &result);
    expect(status == CLB_ERR_IO && result.error == EAGAIN, "errno %d", result.error);
    expect(look_for_children() == 4, "no child");
}

/* ---- when the program ends ---- */

static char note[64], number_note[80];

static bool note_says(const char *word)
{
    char text[32] = "";
    FILE *file = fopen(note, "r");
    if (file != NULL && fgets(text, sizeof text, file) == NULL)
        text[0] = '\0';
    if (file != NULL)
        fclose(file);
    return strcmp(text, word) == 0;
}

static bool note_soon_says(const char *word)
{
    for (int i = 0; i < 200 && !note_says(word); i++)
        usleep(50000);
    return note_says(word);
}

static void *start_and_wait(void *unused)
{
    struct clb_spawn_result result;
    (void)unused;
    if (run_helper("outlive", note, &result) != CLB_OK)
        write_word(note, "not started");
    return NULL;
}

/* Starts the helper on a thread, and then ends by SIGKILL, by exit, or by exec. */
static void program_that_ends(void *argument)
{
    const char how = *(const char *)argument;
    pthread_t thread;
    expect(pthread_create(&thread, NULL, start_and_wait, NULL) == 0, "a thread");
    if (!note_soon_says("started"))
        _exit(1);
    if (how == 'k')
        raise(SIGKILL);
    if (how == 'e')
        execl("/bin/sleep", "sleep", "30", (char *)NULL);
    _exit(0);
}

static void ended(void *argument)
{
    pid_t child = fork();
    if (child == 0)
        program_that_ends(argument);
    expect(note_soon_says("told"), "the helper was not told");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    unlink(note);
}

/* setuid() and the like wait for each thread of the program, also for the one that starts. */
static void change_user(void)
{
    struct timespec begin, end;
    pthread_t thread;
    expect(pthread_create(&thread, NULL, start_and_wait, NULL) == 0, "a thread");
    expect(note_soon_says("started"), "the helper was not started");
    alarm(10);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    expect(seteuid(geteuid()) == 0, "errno %d", errno);
    clock_gettime(CLOCK_MONOTONIC, &end);
    expect(end.tv_sec - begin.tv_sec < 5, "it took %ld s", (long)(end.tv_sec - begin.tv_sec));
    expect(note_says("started"), "the helper has ended");
    alarm(0);
    _exit(expect_failures() != 0);
}

static void user_changed(void *unused)
{
    int status = 0;
    (void)unused;
    pid_t child = fork();
    if (child == 0)
        change_user();
    expect(waitpid(child, &status, 0) == child && status == 0, "status %x", (unsigned)status);
    expect(note_soon_says("told"), "the helper was not told");
    unlink(note);
}

/* Its keeper, too: whoever stops it may stop all that has its name. */
static void *stop_helper(void *unused)
{
    pid_t helper = 0;
    (void)unused;
    if (note_soon_says("started")) {
        FILE *file = fopen(number_note, "r");
        if (file != NULL && fscanf(file, "%d", &helper) == 1 && helper > 1) {
            kill(getpgid(helper), SIGSTOP);
            kill(helper, SIGSTOP);
        }
        if (file != NULL)
            fclose(file);
    }
    return NULL;
}

/* What a helper that does not get on is: it never ends, or is stopped. */
static void gives_up(void *argument)
{
    const bool stopped = *(const bool *)argument;
    char *arguments[] = {self, (char *)(uintptr_t)(stopped ? "write" : "outlive"), note, NULL};
    struct clb_spawn_result result;
    pthread_t stopper;
    if (stopped)
        expect(pthread_create(&stopper, NULL, stop_helper, NULL) == 0, "a thread");
    clb_status status =
        clb_spawn(self, arguments, stopped ? note : "/nonexistent", stopped ? 1 : 0.5, &result);
    expect(status == CLB_ERR_IO && result.gave_up && result.seconds < 20, "%g s", result.seconds);
    expect(look_for_children() == 4, "no child");
    if (stopped)
        pthread_join(stopper, NULL);
    unlink(note);
    unlink(number_note);
}

/* Longer than the bound, but with signs of life. */
static void slow(void *unused)
{
    char *arguments[] = {self, (char *)(uintptr_t) "write", note, NULL};
    struct clb_spawn_result result;
    (void)unused;
    clb_status status = clb_spawn(self, arguments, note, 2, &result);
    expect(status == CLB_OK && result.exit_status == 42 && result.seconds > 3, "%g s",
           result.seconds);
    unlink(note);
    unlink(number_note);
}

int main(int argc, char **argv)
{
    static const int no_flags = 0, no_wait = SA_NOCLDWAIT;
    static const bool no = false, yes = true;
    static const struct tap_test tests[] = {
        {"a program with a handler for SIGCHLD", plain, (void *)(uintptr_t)&no_flags},
        {"with SA_NOCLDWAIT", plain, (void *)(uintptr_t)&no_wait},
        {"that ignores SIGCHLD", ignoring, NULL},
        {"that is a subreaper", subreaper, NULL},
        {"whose descriptors are all in use", all_descriptors_in_use, NULL},
        {"with children of its own", own_children, NULL},
        {"no such file", missing, NULL},
        {"a filter refuses to execute", refused_by_filter, NULL},
        {"no more processes", no_more_processes, NULL},
        {"the program is killed", ended, (void *)(uintptr_t) "k"},
        {"the program ends", ended, (void *)(uintptr_t) "x"},
        {"the program executes another", ended, (void *)(uintptr_t) "e"},
        {"the program changes its user", user_changed, NULL},
        {"it never ends", gives_up, (void *)(uintptr_t)&no},
        {"a stopped helper stops the program", gives_up, (void *)(uintptr_t)&yes},
        {"a helper that takes long and gets on", slow, NULL},
    };
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return 99;
    if (argc > 1 && strcmp(argv[1], "first") == 0) { /* as process 1 */
        static const int flags = 0;
        plain((void *)(uintptr_t)&flags);
        return expect_failures() == 0 && getpid() == 1 ? 0 : 1;
    }
    if (argc > 1)
        return be_helper(argv[1], argv[2]);
    snprintf(note, sizeof note, "spawn.note.%ld", (long)getpid());
    snprintf(number_note, sizeof number_note, "%s.number", note);
    tap_children(60, tests, CLB_COUNT_OF(tests));
    char command[sizeof self + 64];
    /* LeakSanitizer can't trace process 1. */
    if (getenv("SANITIZE") != NULL && getenv("SANITIZE")[0] != '\0') {
        tap_skip("built with sanitizers", "process 1");
    } else if (system("unshare -pf true 2>/dev/null") != 0) {
        tap_skip("unshare -pf does not work here", "process 1");
    } else {
        snprintf(command, sizeof command, "unshare -pf '%s' first", self);
        tap_ok(system(command) == 0, "process 1");
    }
    return tap_done();
}
