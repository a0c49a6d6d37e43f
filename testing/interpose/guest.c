/* A program with trapping floating point, its own signal handlers, alternate stack, signal mask and
 * locale: after device use all is as before. SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

extern char **environ;

#define SIGNALS 64
static volatile sig_atomic_t got_usr1, got_fpe;

static void on_usr1(int number)
{
    got_usr1 += number == SIGUSR1;
}

static void on_fpe(int number)
{
    (void)number;
    got_fpe++;
    _exit(42); /* a trap inside a call would come here */
}

struct state {
    struct sigaction action[SIGNALS + 1];
    bool known[SIGNALS + 1];
    sigset_t mask;
    stack_t stack;
    int rounding, trapping, cancel_state, cancel_type;
    unsigned short control;
    unsigned mxcsr;
    char locale[256], environment[65536];
};

static void read_environment(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (char **entry = environ; *entry != NULL; entry++) {
        used += (size_t)snprintf(text + used, size - used, "%s\n", *entry);
        REQUIRE(used < size);
    }
}

static struct state *read_state(void)
{
    struct state *state = calloc(1, sizeof *state);
    REQUIRE(state != NULL);
    for (int i = 1; i <= SIGNALS; i++)
        state->known[i] = sigaction(i, NULL, &state->action[i]) == 0;
    /* The C library's own flag, which appears when any disposition is set, also the default one. */
    for (int i = 1; i <= SIGNALS; i++)
        state->action[i].sa_flags &= ~0x04000000;
    pthread_sigmask(SIG_SETMASK, NULL, &state->mask);
    sigaltstack(NULL, &state->stack);
    state->rounding = fegetround();
    state->trapping = fegetexcept();
#if defined(__x86_64__)
    __asm__ volatile("fnstcw %0" : "=m"(state->control));
    __asm__ volatile("stmxcsr %0" : "=m"(state->mxcsr));
    state->mxcsr &= ~0x3fu; /* flags of the program's own arithmetic */
#endif
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state->cancel_state);
    pthread_setcancelstate(state->cancel_state, NULL);
    snprintf(state->locale, sizeof state->locale, "%s", setlocale(LC_ALL, NULL));
    read_environment(state->environment, sizeof state->environment);
    return state;
}

static void name_new_variables(const char *before, const char *after)
{
    for (const char *line = after; *line != '\0'; line = strchr(line, '\n') + 1) {
        char entry[256];
        snprintf(entry, sizeof entry, "%.*s", (int)strcspn(line, "\n"), line);
        if (strstr(before, entry) == NULL)
            fprintf(stderr, "%s is new in the environment\n", entry);
    }
}

static void compare(const struct state *a, const struct state *b)
{
    for (int i = 1; i <= SIGNALS; i++) {
        REQUIRE(a->known[i] == b->known[i]);
        if (!a->known[i])
            continue;
        if (a->action[i].sa_handler != b->action[i].sa_handler ||
            a->action[i].sa_flags != b->action[i].sa_flags)
            fprintf(stderr, "signal %d has another handler\n", i);
        REQUIRE(a->action[i].sa_handler == b->action[i].sa_handler);
        REQUIRE(a->action[i].sa_flags == b->action[i].sa_flags);
        for (int s = 1; s <= SIGNALS; s++)
            REQUIRE(sigismember(&a->action[i].sa_mask, s) == sigismember(&b->action[i].sa_mask, s));
    }
    for (int s = 1; s <= SIGNALS; s++)
        REQUIRE(sigismember(&a->mask, s) == sigismember(&b->mask, s));
    REQUIRE(a->stack.ss_sp == b->stack.ss_sp && a->stack.ss_size == b->stack.ss_size);
    REQUIRE(a->rounding == b->rounding);
    REQUIRE(a->trapping == b->trapping);
    REQUIRE(a->control == b->control && a->mxcsr == b->mxcsr);
    REQUIRE(a->cancel_state == b->cancel_state);
    REQUIRE(strcmp(a->locale, b->locale) == 0);
    name_new_variables(a->environment, b->environment);
    REQUIRE(strcmp(a->environment, b->environment) == 0);
}

/* All threads but the calling one are the driver's and the shim's: every asynchronous signal is
 * blocked in them, so that none of the program's signals is handled there. */
static int check_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int others = 0;
    REQUIRE(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], line[256];
        if (task->d_name[0] == '.' || atoi(task->d_name) == (int)gettid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        unsigned long long blocked = 0;
        while (status != NULL && fgets(line, sizeof line, status) != NULL)
            sscanf(line, "SigBlk: %llx", &blocked);
        if (status != NULL)
            fclose(status);
        static const int asynchronous[] = {SIGHUP,  SIGINT,    SIGQUIT, SIGUSR1, SIGUSR2,
                                           SIGPIPE, SIGALRM,   SIGTERM, SIGCHLD, SIGWINCH,
                                           SIGPROF, SIGVTALRM, SIGIO,   SIGURG};
        for (size_t i = 0; i < sizeof asynchronous / sizeof *asynchronous; i++) {
            int number = asynchronous[i];
            if ((blocked >> (number - 1) & 1) == 0)
                fprintf(stderr, "thread %s does not block signal %d\n", task->d_name, number);
            REQUIRE((blocked >> (number - 1) & 1) != 0);
        }
        others++;
    }
    closedir(tasks);
    return others;
}

static bool device;

/* On the device products overflow and underflow without a trap in the driver's threads or here; the
 * next library would trap, and rightly so. */
static void compute(size_t n)
{
    int trapping = fegetexcept();
    const blas_int size = (blas_int)n;
    const double one = 1, zero = 0;
    double *a = malloc(n * n * sizeof *a), *c = malloc(n * n * sizeof *c);
    REQUIRE(a != NULL && c != NULL);
    for (size_t i = 0; i < n * n; i++)
        a[i] = device && i % 7 == 0 ? 1e300 : device && i % 5 == 0 ? 1e-300 : 0.1 * (double)(i % 9);
    dgemm_("N", "N", &size, &size, &size, &one, a, &size, a, &size, &zero, c, &size);
    REQUIRE(fegetexcept() == trapping);
    free(a);
    free(c);
    REQUIRE(check_sgemm('N', 'T', n, n, n) == 0);
}

int main(int argc, char **argv)
{
    static char stack[65536];
    device = argc > 1 && strcmp(argv[1], "device") == 0;
    const char *locale = setlocale(LC_ALL, "");
    REQUIRE(argc < 3 || (locale != NULL && localeconv()->decimal_point[0] == ','));
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction usr1 = {.sa_handler = on_usr1, .sa_flags = SA_RESTART};
    struct sigaction fpe = {.sa_handler = on_fpe, .sa_flags = SA_ONSTACK | SA_NODEFER};
    sigaddset(&usr1.sa_mask, SIGTERM);
    sigaction(SIGUSR1, &usr1, NULL);
    sigaction(SIGFPE, &fpe, NULL);
    signal(SIGPIPE, SIG_IGN);
    sigset_t block;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR2);
    sigaddset(&block, SIGWINCH);
    pthread_sigmask(SIG_BLOCK, &block, NULL);
    feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW | FE_UNDERFLOW);
    struct state *before = read_state();

    errno = EXDEV;
    compute(60);
    REQUIRE(errno == EXDEV);
    struct state *after = read_state();
    compare(before, after);

    /* The program's own signal arrives, in this thread and from outside. */
    for (int i = 0; i < 20; i++) {
        kill(getpid(), SIGUSR1);
        compute(100);
    }
    for (int i = 0; i < 1000 && got_usr1 < 20; i++)
        usleep(1000);
    REQUIRE(got_usr1 == 20);
    REQUIRE(got_fpe == 0);

    /* The other rounding modes are the program's business and stay as they are. */
    fesetround(FE_TOWARDZERO);
    compute(30);
    REQUIRE(fegetround() == FE_TOWARDZERO);
    fesetround(FE_TONEAREST);

    int others = check_threads();
    if (device)
        REQUIRE(others > 0);
    compare(before, read_state());
    return 0;
}
