/* Signals of a program while a thread of its is inside a device call.
 * SPDX-License-Identifier: BSD-3-Clause
 *   signals install MS     handlers that another thread installs MS ms into a first call stay
 *   signals install-all    the same at many moments, one after the other
 *   signals once           one call of a first product
 *   signals long           calls without end
 *   signals end NUMBER MS MODE   the program in that mode gets a signal MS ms after it is ready,
 *                          which ends it before its call has ended
 *   signals handled        a handler takes SIGINT and SIGTERM while a thread compiles
 *   signals waited         SIGTERM is blocked and waited for: it must not end the program */
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int numbers[] = {SIGHUP, SIGINT,  SIGQUIT, SIGILL,  SIGTRAP, SIGABRT,
                              SIGBUS, SIGFPE,  SIGUSR1, SIGSEGV, SIGUSR2, SIGTERM,
                              SIGSYS, SIGXCPU, SIGXFSZ, SIGALRM, SIGCHLD, SIGWINCH};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static _Atomic int handled, ended;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

static void on_other(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1000);
}

static void *multiply(void *size)
{
    REQUIRE(check_dgemm('N', 'N', *(size_t *)size, 60, 60) == 0);
    atomic_store(&ended, 1);
    return NULL;
}

static void *multiply_single(void *size)
{
    REQUIRE(check_sgemm('N', 'N', *(size_t *)size, 60, 60) == 0);
    return multiply(size);
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void install(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    for (int i = 0; i < NUMBERS; i++)
        REQUIRE(sigaction(numbers[i], &action, NULL) == 0);
}

static void require_handlers(void (*handler)(int))
{
    int lost = 0;
    for (int i = 0; i < NUMBERS; i++) {
        struct sigaction action;
        REQUIRE(sigaction(numbers[i], NULL, &action) == 0);
        if (action.sa_handler != handler) {
            fprintf(stderr, "the handler of signal %d is lost\n", numbers[i]);
            lost++;
        }
    }
    REQUIRE(lost == 0);
}

static int install_after(long ms)
{
    static size_t size = 60;
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, multiply, &size) == 0);
    sleep_ms(ms);
    install(on_signal);
    pthread_join(thread, NULL);
    require_handlers(on_signal);
    return 0;
}

static int install_at_all_times(void)
{
    static size_t size = 60;
    pthread_t thread;
    void (*handler)(int) = on_signal;
    REQUIRE(pthread_create(&thread, NULL, multiply_single, &size) == 0);
    while (!atomic_load(&ended)) {
        handler = handler == on_signal ? on_other : on_signal;
        install(handler);
        sleep_ms(3);
    }
    pthread_join(thread, NULL);
    require_handlers(handler);
    return 0;
}

static int take_while_compiling(void)
{
    static size_t size = 60;
    pthread_t thread;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    REQUIRE(pthread_create(&thread, NULL, multiply, &size) == 0);
    int sent = 0;
    for (; !atomic_load(&ended); sent++) {
        kill(getpid(), sent % 2 == 0 ? SIGINT : SIGTERM);
        nanosleep(&(struct timespec){0, 300000}, NULL);
    }
    pthread_join(thread, NULL);
    REQUIRE(sent > 50);
    REQUIRE(atomic_load(&handled) == sent);
    return 0;
}

static int wait_for_signal(void)
{
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGTERM);
    for (int i = 0; i < 300; i++)
        REQUIRE(check_dgemm('N', 'N', 60, 60, 60) == 0);
    REQUIRE(sigtimedwait(&set, &info, &(struct timespec){0, 0}) == SIGTERM);
    return 0;
}

/* The child writes 'r' when it is ready, and 'e' when its call has ended. */
static int end_program(const char *self, int number, long ms, const char *mode)
{
    int ends[2], status;
    char said = 0;
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        signal(number, SIG_DFL); /* shells have what runs in the background ignore SIGINT */
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(self, self, mode, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    REQUIRE(read(ends[0], &said, 1) == 1 && said == 'r');
    sleep_ms(ms);
    kill(child, number);
    /* Whoever waits for the call's end says 'e' here. */
    REQUIRE(read(ends[0], &said, 1) == 0);
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status) && WTERMSIG(status) == number);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    size_t size = 60;
    setvbuf(stdout, NULL, _IONBF, 0);
    if (strcmp(what, "install") == 0)
        return install_after(argc > 2 ? atol(argv[2]) : 0);
    if (strcmp(what, "install-all") == 0)
        return install_at_all_times();
    if (strcmp(what, "handled") == 0)
        return take_while_compiling();
    if (strcmp(what, "waited") == 0)
        return wait_for_signal();
    if (strcmp(what, "end") == 0)
        return end_program(argv[0], atoi(argv[2]), atol(argv[3]), argv[4]);
    if (strcmp(what, "once") == 0) {
        printf("r");
        multiply(&size);
        printf("e");
        return 0;
    }
    if (strcmp(what, "long") == 0) {
        multiply(&size);
        printf("r");
        for (;;)
            REQUIRE(check_dgemm('N', 'N', 900, 900, 900) == 0);
    }
    return 2;
}
