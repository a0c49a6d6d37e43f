/* What a program does while the device starts behind its back.
 *
 * startup CALLS
 *
 * calls DGEMM every 100 ms.
 *
 * startup ACTION COUNT LONGEST COLD
 *
 * COUNT processes call DGEMM, which starts the device, and do ACTION at a random moment of the next
 * LONGEST ms; of "=MOMENT" at that moment. With COLD "cold" each begins with an empty cache. Fails
 * when one gets a signal, hangs, or gets something wrong. Prints the longest time of an action in
 * ms, then a line for each that took over 50 ms: its moment and the time.
 *
 * exit         exit of the main thread
 * exit-thread  exit of a thread that has called nothing
 * exit-handler exit of a signal handler
 * exit-load    exit of the constructor of ./leave.so, a library that the program loads
 * return       return from main, when another thread has called DGEMM
 * fork         fork; the child loads a library and exits
 * spawn        posix_spawn of a program
 * dlopen       load a library
 * call         another DGEMM; the moment decides its size, 300 to 900
 * environment  200 times getenv, and setenv of a name that exists
 * interrupt    SIGINT at its default ends the process
 *
 * With PLUGIN the library of that name is loaded at the first call, and called. With AWAIT the
 * moment begins when there is a file of that name. */
#include "check.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e3 * (double)time.tv_sec + 1e-6 * (double)time.tv_nsec;
}

static void sleep_ms(double ms)
{
    struct timespec time = {(time_t)(ms / 1e3), 0};
    time.tv_nsec = (long)(1e6 * (ms - 1e3 * (double)time.tv_sec));
    nanosleep(&time, NULL);
}

/* Shared with the processes. */
static struct {
    double begun, took; /* took: 0 until the action has ended; exits end with the process */
} * action;

static __typeof__(dgemm_) *find_dgemm(void)
{
    const char *plugin = getenv("PLUGIN");
    __typeof__(dgemm_) *found = dgemm_;
    if (plugin != NULL) {
        const void *address = dlsym(dlopen(plugin, RTLD_NOW), "dgemm_");
        memcpy(&found, &address, sizeof found);
    }
    REQUIRE(found != NULL);
    return found;
}

/* A call that the tables give to the device; right? */
static bool multiply(void)
{
    static double a[1100 * 128], b[128 * 1100], c[1100 * 1100];
    const blas_int m = 1100, k = 128;
    const double one = 1, zero = 0;
    for (size_t i = 0; i < sizeof a / sizeof *a; i++)
        a[i] = b[i] = 1;
    find_dgemm()("N", "N", &m, &m, &k, &one, a, &m, b, &k, &zero, c, &m);
    return c[0] == 128 && c[1100 * 1100 - 1] == 128;
}

/* Calls while the device gets ready, and for some time after that. */
static int call_for_long(int calls)
{
    int bad = 0;
    for (int i = 0; i < calls; i++) {
        bad += !multiply();
        sleep_ms(100);
    }
    return bad;
}

static int call_beside(double moment)
{
    static double a[900 * 900], b[900 * 900], c[900 * 900];
    const blas_int n = 300 + (blas_int)(1e4 * moment + 0.5) % 601;
    const double one = 1, zero = 0;
    for (size_t i = 0; i < sizeof a / sizeof *a; i++)
        a[i] = b[i] = c[i] = 1;
    action->begun = now();
    dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);
    action->took = now() - action->begun;
    return c[0] != n || c[(size_t)n * (size_t)n - 1] != n;
}

static void *exit_now(void *unused)
{
    (void)unused;
    exit(0);
}

static void exit_in_handler(int number)
{
    (void)number;
    exit(0);
}

static void *multiply_in_thread(void *right)
{
    *(bool *)right = multiply();
    return NULL;
}

static bool multiply_elsewhere(void)
{
    pthread_t thread;
    bool right = false;
    REQUIRE(pthread_create(&thread, NULL, multiply_in_thread, &right) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    return right;
}

static int fork_and_load(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        exit(dlopen("libresolv.so.2", RTLD_NOW) == NULL);
    }
    action->took = now() - action->begun;
    return waitpid(pid, &status, 0) != pid || status != 0;
}

static int spawn(void)
{
    char *arguments[] = {"true", NULL};
    pid_t pid;
    int status = -1;
    int error = posix_spawnp(&pid, "true", NULL, NULL, arguments, environ);
    action->took = now() - action->begun;
    return error != 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

static int use_environment(void)
{
    int bad = 0;
    for (int i = 0; i < 200; i++) {
        double begin = now();
        bad += setenv("SEED", i % 2 == 0 ? "2" : "3", 1) != 0 || getenv("SEED") == NULL ||
               getenv("PATH") == NULL || getenv("STARTUP_UNKNOWN") != NULL;
        double took = now() - begin;
        action->took = took > action->took ? took : action->took;
        sleep_ms(0.2);
    }
    return bad;
}

static int act(const char *what, double moment)
{
    pthread_t thread;
    action->begun = now();
    if (strcmp(what, "exit") == 0)
        exit(0);
    if (strcmp(what, "exit-thread") == 0)
        REQUIRE(pthread_create(&thread, NULL, exit_now, NULL) == 0 && pause());
    if (strcmp(what, "exit-handler") == 0)
        REQUIRE(signal(SIGUSR1, exit_in_handler) != SIG_ERR && raise(SIGUSR1));
    if (strcmp(what, "exit-load") == 0)
        REQUIRE(dlopen("./leave.so", RTLD_NOW) == NULL);
    if (strcmp(what, "fork") == 0)
        return fork_and_load();
    if (strcmp(what, "spawn") == 0)
        return spawn();
    if (strcmp(what, "call") == 0)
        return call_beside(moment);
    if (strcmp(what, "environment") == 0)
        return use_environment();
    if (strcmp(what, "interrupt") == 0)
        sleep_ms(20000);
    int bad = dlopen("libresolv.so.2", RTLD_NOW) == NULL;
    action->took = now() - action->begun;
    return bad;
}

/* One process; returns its status. The process of "return" returns from this with RETURNS. */
#define RETURNS (-1)

static int run(const char *what, double moment)
{
    int status = 0;
    const bool interrupts = strcmp(what, "interrupt") == 0, returns = strcmp(what, "return") == 0;
    action->begun = action->took = 0;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60); /* its default ends a process that hangs */
        signal(SIGINT, SIG_DFL);
        const bool right = returns ? multiply_elsewhere() : multiply();
        while (getenv("AWAIT") != NULL && access(getenv("AWAIT"), F_OK) != 0)
            sleep_ms(1);
        sleep_ms(interrupts ? 0 : moment);
        if (returns && right) {
            action->begun = now();
            return RETURNS;
        }
        int bad = act(what, moment) != 0 || !right;
        fflush(NULL);
        _exit(bad);
    }
    while (interrupts && *(volatile double *)&action->begun == 0)
        sleep_ms(0.2);
    if (interrupts) {
        sleep_ms(moment);
        action->begun = now();
        kill(pid, SIGINT);
    }
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (action->took == 0)
        action->took = now() - action->begun;
    return interrupts && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT ? 0 : status;
}

int main(int count, char **arguments)
{
    if (count == 2)
        return call_for_long(atoi(arguments[1])) != 0;
    REQUIRE(count == 5);
    const bool given = arguments[3][0] == '=';
    double longest = 0, within = given ? 0 : atof(arguments[3]), *took, *moments;
    const int processes = atoi(arguments[2]);
    int bad = 0;
    bool cold = strcmp(arguments[4], "cold") == 0;
    action = mmap(NULL, sizeof *action, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    srand((unsigned)atoi(getenv("SEED") != NULL ? getenv("SEED") : "1"));
    took = calloc((size_t)processes + 1, sizeof *took);
    moments = calloc((size_t)processes + 1, sizeof *moments);
    REQUIRE(took != NULL && moments != NULL);
    for (int i = 0; i < processes; i++) {
        const double moment = moments[i] =
            given ? atof(arguments[3] + 1) : floor(1e4 * within * rand() / RAND_MAX) / 1e4;
        char folder[64];
        snprintf(folder, sizeof folder, "cache.%d.%d", (int)getpid(), i);
        if (cold)
            REQUIRE(mkdir(folder, 0700) == 0);
        if (cold)
            setenv("XDG_CACHE_HOME", realpath(folder, NULL), 1);
        int status = run(arguments[1], moment);
        if (status == RETURNS)
            return 0;
        if (status != 0)
            fprintf(stderr, "%s after %.1f ms: status %#x\n", arguments[1], moment,
                    (unsigned)status);
        bad += status != 0;
        took[i] = action->took;
        longest = took[i] > longest ? took[i] : longest;
    }
    printf("%.1f\n", longest);
    for (int i = 0; i < processes; i++) {
        if (took[i] > 50)
            printf("%.4f %.1f\n", moments[i], took[i]);
    }
    free(took);
    free(moments);
    return bad != 0;
}
