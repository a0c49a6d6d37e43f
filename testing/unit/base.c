/* SPDX-License-Identifier: BSD-3-Clause
 * The base layer: numbers, configuration, extents, text, log, guest guard, forks. */
#include "host/process.h"
#include "tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t seed;

/* ---- numbers ---- */

static void check_number(const char *text, bool valid, double value)
{
    double got = -1;
    bool good = clb_parse_number(text, strlen(text), &got);
    expect(good == valid, "\"%s\" is %s", text, good ? "taken" : "refused");
    expect(!valid || fabs(got - value) <= 1e-15 * fabs(value), "\"%s\" is %.17g", text, got);
}

static void numbers(void *locale)
{
    if (locale != NULL)
        expect(setlocale(LC_ALL, locale) != NULL, "%s", (char *)locale);
    check_number("0", true, 0);
    check_number("12", true, 12);
    check_number("1.5", true, 1.5);
    check_number(".5", true, 0.5);
    check_number("5.", true, 5);
    check_number("1e3", true, 1000);
    check_number("1E+3", true, 1000);
    check_number("25e-2", true, 0.25);
    check_number("123456789012345678901", true, 123456789012345678901.0);
    static const char *const bad[] = {
        "",      ".",    "e3",  "1e",  "1e+",   "-1",     "+1", " 1",  "1 ",          "1,5",
        "1.2.3", "0x10", "inf", "nan", "1e999", "1e-999", "1k", "abc", "1e5000000000"};
    for (size_t i = 0; i < CLB_COUNT_OF(bad); i++)
        check_number(bad[i], false, 0);
    expect(!clb_parse_number("12x", 3, &(double){0}), "the length is not respected");
    expect(clb_parse_number("12x", 2, &(double){0}), "read beyond the length");
}

static void check_bytes(const char *text, bool valid, double value, bool share)
{
    double got = -1;
    bool percent = false, good = clb_parse_bytes(text, strlen(text), &got, &percent);
    expect(good == valid, "\"%s\" is %s", text, good ? "taken" : "refused");
    expect(!valid || (got == value && percent == share), "\"%s\" is %.17g%s", text, got,
           percent ? "%" : "");
}

static void bytes(void *unused)
{
    (void)unused;
    check_bytes("1", true, 1, false);
    check_bytes("64K", true, 65536, false);
    check_bytes("64k", true, 65536, false);
    check_bytes("1.5M", true, 1572864, false);
    check_bytes("2g", true, 2147483648.0, false);
    check_bytes("80%", true, 80, true);
    check_bytes("12.5%", true, 12.5, true);
    check_bytes("", false, 0, false);
    check_bytes("K", false, 0, false);
    check_bytes("%", false, 0, false);
    check_bytes("1T", false, 0, false);
    check_bytes("1KB", false, 0, false);
    check_bytes("-1K", false, 0, false);
    check_bytes("1K%", false, 0, false);
}

/* ---- configuration ---- */

static const char *set_name, *set_value;

static const char *look_up(const char *name)
{
    return strcmp(name, set_name) == 0 ? set_value : NULL;
}

static void parse_one(struct clb_config *config, const char *name, const char *value)
{
    set_name = name;
    set_value = value;
    clb_config_parse(config, look_up);
}

static bool is_default(const struct clb_config *config)
{
    return config->mode == CLB_MODE_AUTO && config->math == CLB_MATH_DEFAULT &&
           config->device == NULL && config->next == NULL && config->threshold < 0 &&
           config->memory.percent == 80 && config->memory.bytes == 0 && config->kernel == NULL &&
           config->params == NULL && config->log == CLB_LOG_ERROR && config->log_file == NULL &&
           config->stats == NULL && config->cache_dir == NULL &&
           config->cache_size == (uint64_t)64 << 20;
}

static void valid_values(void *unused)
{
    struct clb_config config;
    (void)unused;
    parse_one(&config, "", NULL);
    expect(is_default(&config), "the defaults");
    static const char *const modes[] = {"auto", "off", "always", "dry-run"};
    for (size_t i = 0; i < CLB_COUNT_OF(modes); i++) {
        parse_one(&config, "CLBLAS_SHIM", modes[i]);
        expect(config.mode == (clb_mode)i, "%s", modes[i]);
    }
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    for (size_t i = 0; i < CLB_COUNT_OF(levels); i++) {
        parse_one(&config, "CLBLAS_SHIM_LOG", levels[i]);
        expect(config.log == (clb_log_level)i, "%s", levels[i]);
    }
    parse_one(&config, "CLBLAS_SHIM_MATH", "strict");
    expect(config.math == CLB_MATH_STRICT, "strict");
    parse_one(&config, "CLBLAS_SHIM_MATH", "fast");
    expect(config.math == CLB_MATH_FAST, "fast");
    parse_one(&config, "CLBLAS_SHIM_DEVICE", "0:1");
    expect(config.device != NULL && strcmp(config.device, "0:1") == 0, "device");
    parse_one(&config, "CLBLAS_SHIM_NEXT", "a.so:b.so");
    expect(config.next != NULL && strcmp(config.next, "a.so:b.so") == 0, "next");
    parse_one(&config, "CLBLAS_SHIM_THRESHOLD", "0");
    expect(config.threshold == 0, "threshold 0");
    parse_one(&config, "CLBLAS_SHIM_THRESHOLD", "512.5");
    expect(config.threshold == 512.5, "threshold");
    parse_one(&config, "CLBLAS_SHIM_MEMORY", "2G");
    expect(config.memory.bytes == (uint64_t)2 << 30 && config.memory.percent == 0, "memory");
    parse_one(&config, "CLBLAS_SHIM_MEMORY", "25%");
    expect(config.memory.percent == 25, "memory in percent");
    parse_one(&config, "CLBLAS_SHIM_KERNEL", "portable");
    expect(config.kernel != NULL && strcmp(config.kernel, "portable") == 0, "kernel");
    parse_one(&config, "CLBLAS_SHIM_PARAMS", "gemm.kc=64,gemm.tile=min");
    struct clb_param_override first, second;
    expect(clb_param_next(&config.params, &first) && first.key_length == 7 &&
               memcmp(first.key, "gemm.kc", 7) == 0 && first.value_length == 2 &&
               clb_param_next(&config.params, &second) && second.value_length == 3 &&
               !clb_param_next(&config.params, &second),
           "params");
    parse_one(&config, "CLBLAS_SHIM_LOG_FILE", "x");
    expect(config.log_file != NULL, "log file");
    parse_one(&config, "CLBLAS_SHIM_STATS", "-");
    expect(config.stats != NULL, "stats");
    parse_one(&config, "CLBLAS_SHIM_CACHE_DIR", "none");
    expect(config.cache_dir != NULL, "cache");
    parse_one(&config, "CLBLAS_SHIM_CACHE_SIZE", "200M");
    expect(config.cache_size == (uint64_t)200 << 20, "cache size");
    /* An empty value is none at all. */
    parse_one(&config, "CLBLAS_SHIM_MEMORY", "");
    expect(is_default(&config), "an empty value");
}

struct bad_value {
    const char *name, *value;
};

static void parse_bad(void *argument)
{
    const struct bad_value *bad = argument;
    struct clb_config config;
    parse_one(&config, bad->name, bad->value);
    expect(is_default(&config), "%s=%s changes the configuration", bad->name, bad->value);
}

static void test_invalid_values(void)
{
    const struct bad_value bad[] = {
        {"CLBLAS_SHIM", "on"},
        {"CLBLAS_SHIM", "Auto"},
        {"CLBLAS_SHIM_MATH", "exact"},
        {"CLBLAS_SHIM_LOG", "loud"},
        {"CLBLAS_SHIM_THRESHOLD", "-1"},
        {"CLBLAS_SHIM_THRESHOLD", "1,5"},
        {"CLBLAS_SHIM_MEMORY", "0"},
        {"CLBLAS_SHIM_MEMORY", "101%"},
        {"CLBLAS_SHIM_MEMORY", "lots"},
        {"CLBLAS_SHIM_MEMORY", "1e300G"},
        {"CLBLAS_SHIM_CACHE_SIZE", "0"},
        {"CLBLAS_SHIM_CACHE_SIZE", "50%"},
        {"CLBLAS_SHIM_PARAMS", "gemm.kc"},
        {"CLBLAS_SHIM_PARAMS", "=5"},
        {"CLBLAS_SHIM_PARAMS", "gemm.kc=5,oops"},
    };
    for (size_t i = 0; i < CLB_COUNT_OF(bad); i++) {
        char text[4096];
        int status = run_child(30, parse_bad, (void *)(uintptr_t)&bad[i], text, sizeof text);
        const char *end = strchr(text, '\n');
        tap_ok(status == 0 && strstr(text, bad[i].name) == text + strlen("clblas-shim: ") &&
                   end != NULL && end[1] == '\0',
               "%s=%.20s is refused with one line", bad[i].name, bad[i].value);
    }
}

/* ---- extents ---- */

static void extents(void *unused)
{
    size_t size = 1;
    (void)unused;
    expect(clb_extent_bytes(3, 4, 10, 8, &size) == CLB_OK && size == (3 * 10 + 3) * 8, "3x4");
    expect(clb_extent_bytes(0, 4, 10, 8, &size) == CLB_OK && size == 0, "no rows");
    expect(clb_extent_bytes(3, 0, SIZE_MAX, 8, &size) == CLB_OK && size == 0, "no columns");
    expect(clb_extent_bytes(5, 1, SIZE_MAX, 8, &size) == CLB_OK && size == 40, "one column");
    expect(clb_extent_bytes(5, 3, SIZE_MAX / 2, 8, &size) == CLB_ERR_RANGE, "ld overflows");
    expect(clb_extent_bytes(SIZE_MAX, 2, 1, 1, &size) == CLB_ERR_RANGE, "rows overflow");
    expect(clb_extent_bytes(5, 2, (size_t)1 << 61, 8, &size) == CLB_ERR_RANGE, "bytes overflow");
    expect(clb_extent_bytes(1, 2, PTRDIFF_MAX, 1, &size) == CLB_ERR_RANGE, "past PTRDIFF_MAX");
    expect(clb_extent_bytes(1, 2, (size_t)PTRDIFF_MAX - 1, 1, &size) == CLB_OK &&
               size == PTRDIFF_MAX,
           "PTRDIFF_MAX");
    expect(clb_extent_bytes(100, 5, (size_t)1 << 31, 4, &size) == CLB_OK &&
               size == 4 * (((size_t)4 << 31) + 100),
           "past 2^31 elements");
}

/* ---- text and log ---- */

static void text(void *locale)
{
    struct clb_text t = {0};
    if (locale != NULL)
        setlocale(LC_ALL, locale);
    clb_text_add_quoted(&t, "a\"b\\c\n\t\x01z\xc3\xa9");
    expect(strcmp(t.data, "\"a\\\"b\\\\c\\u000a\\u0009\\u0001z\xc3\xa9\"") == 0, "%s", t.data);
    clb_text_free(&t);
    expect(t.data == NULL, "freed");
    for (int i = 0; i < 3000; i++) {
        double value = i == 0   ? 0.1
                       : i == 1 ? 1e300
                       : i == 2 ? 0
                       : i == 3 ? -1.5
                                : ldexp(random_uniform(&seed), (int)random_below(&seed, 400) - 200);
        clb_text_add_double(&t, value);
        char *point = strchr(t.data, '.');
        if (point != NULL)
            *point = *localeconv()->decimal_point;
        expect(strchr(t.data, ',') == NULL || *localeconv()->decimal_point == ',', "%s", t.data);
        expect(strtod(t.data, NULL) == value, "%.17g became %s", value, t.data);
        clb_text_free(&t);
    }
    for (int i = 0; i < 5000; i++)
        clb_text_addf(&t, "%d,", i % 10);
    expect(t.length == 10000 && strlen(t.data) == 10000 && !t.failed, "a long text");
    clb_text_free(&t);
}

static void log_lines(void *unused)
{
    char line[5000];
    (void)unused;
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    clb_log_open(CLB_LOG_WARN, NULL);
    errno = 5;
    clb_log(CLB_LOG_INFO, "not wanted");
    clb_log(CLB_LOG_WARN, "wanted %d", 1);
    clb_log(CLB_LOG_ERROR, "%s", line);
    expect(errno == 5, "errno");
    expect(clb_log_wanted(CLB_LOG_WARN) && !clb_log_wanted(CLB_LOG_INFO), "levels");
}

static void log_file(void *unused)
{
    char path[64], content[256] = "";
    (void)unused;
    clb_log_open(CLB_LOG_DEBUG, "/tmp/clb-log-%p");
    clb_log(CLB_LOG_DEBUG, "line");
    snprintf(path, sizeof path, "/tmp/clb-log-%ld", (long)getpid());
    FILE *file = fopen(path, "r");
    expect(file != NULL && fgets(content, sizeof content, file) != NULL &&
               strcmp(content, "clblas-shim: line\n") == 0,
           "\"%s\"", content);
    if (file != NULL)
        fclose(file);
    unlink(path);
    clb_log_open(CLB_LOG_ERROR, "/nonexistent/file");
    clb_log(CLB_LOG_ERROR, "to stderr all the same");
}

static void test_log(void)
{
    char content[8192];
    int status = run_child(30, log_lines, NULL, content, sizeof content);
    char *second = strchr(content, '\n');
    tap_ok(status == 0 && strncmp(content, "clblas-shim: wanted 1\n", 22) == 0 && second != NULL &&
               strncmp(second + 1, "clblas-shim: xxxx", 17) == 0 &&
               content[strlen(content) - 1] == '\n' && strlen(content) < 1100,
           "log lines to stderr");
    tap_ok(run_child(30, log_file, NULL, content, sizeof content) == 0 &&
               strstr(content, "LOG_FILE") != NULL,
           "log lines to a file");
}

/* ---- files ---- */

static _Atomic int caught;

static void count_signal(int number)
{
    (void)number;
    caught++;
}

static bool is_pending(int number)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, number) == 1;
}

/* A write to a pipe that nobody reads raises nothing, and takes nothing that the program waits for:
 * with the signal handled, ignored, blocked, and blocked and pending. */
static void closed_pipes(void *unused)
{
    int ends[2];
    sigset_t pipe_signal, now;
    (void)unused;
    expect(pipe(ends) == 0 && close(ends[0]) == 0, "a pipe");
    signal(SIGPIPE, count_signal);
    expect(clb_file_write(ends[1], "x", 1, 0) == EPIPE && caught == 0, "handled");
    signal(SIGPIPE, SIG_DFL);
    expect(clb_file_write(ends[1], "x", 1, 0) == EPIPE, "default");
    signal(SIGPIPE, SIG_IGN);
    expect(clb_file_write(ends[1], "x", 1, 0) == EPIPE, "ignored");
    signal(SIGPIPE, count_signal);
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, NULL);
    expect(clb_file_write(ends[1], "x", 1, 0) == EPIPE && !is_pending(SIGPIPE), "blocked");
    raise(SIGPIPE);
    expect(clb_file_write(ends[1], "x", 1, 0) == EPIPE && is_pending(SIGPIPE), "the program's own");
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    expect(sigismember(&now, SIGPIPE) == 1 && sigismember(&now, SIGXFSZ) == 0, "the mask");
    expect(caught == 0, "%d signals too early", caught);
    pthread_sigmask(SIG_UNBLOCK, &pipe_signal, NULL);
    expect(caught == 1, "%d signals", caught);
    dup2(ends[1], STDERR_FILENO);
    errno = 5;
    clb_complain("to nobody");
    expect(caught == 1 && errno == 5, "a complaint");
}

/* A pipe that is full and not read: as much as it takes, and no more than the time allowed. */
static void full_pipes(void *unused)
{
    int ends[2];
    char read_back[4096];
    static char data[1 << 20];
    (void)unused;
    expect(pipe2(ends, O_NONBLOCK) == 0, "a pipe");
    double begin = clb_now();
    expect(clb_file_write(ends[1], data, sizeof data, 0.1) == EAGAIN, "a full pipe");
    expect(clb_now() - begin >= 0.1, "it was not waited for");
    expect(read(ends[0], read_back, sizeof read_back) == (ssize_t)sizeof read_back, "read");
    expect(clb_file_write(ends[1], data, sizeof read_back, 0) == 0, "room for a piece");
}

static void *drain(void *argument)
{
    char data[4096];
    size_t total = 0;
    ssize_t got;
    while ((got = read(*(int *)argument, data, sizeof data)) > 0) {
        total += (size_t)got;
        usleep(100);
    }
    return (void *)(uintptr_t)total;
}

/* More than a pipe holds reaches a slow reader. */
static void slow_readers(void *unused)
{
    int ends[2];
    pthread_t thread;
    void *total;
    static char data[1 << 20];
    (void)unused;
    expect(pipe(ends) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0, "a pipe");
    expect(pthread_create(&thread, NULL, drain, &ends[0]) == 0, "thread");
    expect(clb_file_write(ends[1], data, sizeof data, 20) == 0, "all of it");
    close(ends[1]);
    pthread_join(thread, &total);
    expect((uintptr_t)total == sizeof data, "%zu bytes", (size_t)(uintptr_t)total);
}

/* With all descriptors free, a file gets none of the first. */
static void low_descriptors(void *unused)
{
    (void)unused;
    closefrom(0);
    int fd = clb_file_open("/dev/null", O_WRONLY, 0);
    FILE *file = clb_file_read("/proc/self/stat");
    bool good = fd >= 10 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 && file != NULL;
    for (int i = 0; i <= STDERR_FILENO; i++)
        good = good && fcntl(i, F_GETFD) < 0;
    good = good && clb_file_read("/dev/null") == NULL;
    _exit(good ? 0 : 1);
}

static void test_files(void)
{
    tap_child("a closed pipe raises no SIGPIPE", 30, closed_pipes, NULL);
    tap_child("a full pipe is not waited for without end", 30, full_pipes, NULL);
    tap_child("a slow reader gets everything", 60, slow_readers, NULL);
    tap_child("closed standard descriptors stay closed", 30, low_descriptors, NULL);
}

/* ---- guest ---- */

static void handler(int number)
{
    (void)number;
}

static void guest(void *unused)
{
    struct clb_thread_state saved;
    sigset_t mask, now;
    (void)unused;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    signal(SIGHUP, handler);
    signal(SIGTERM, SIG_DFL);
    fesetround(FE_UPWARD);
    feenableexcept(FE_DIVBYZERO);
    feraiseexcept(FE_INEXACT);
    errno = 77;
    clb_thread_state_save(&saved, true);
    errno = 1;
    expect(fegetround() == FE_TONEAREST && fegetexcept() == 0, "the environment inside");
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    expect(sigismember(&now, SIGPIPE) == 1 && sigismember(&now, SIGXFSZ) == 1 &&
               sigismember(&now, SIGHUP) == 1 && sigismember(&now, SIGTERM) == 0 &&
               sigismember(&now, SIGSEGV) == 0,
           "the mask inside");
    feraiseexcept(FE_OVERFLOW);
    clb_thread_state_restore(&saved);
    expect(errno == 77, "errno");
    expect(fegetround() == FE_UPWARD && fegetexcept() == FE_DIVBYZERO, "the environment");
    expect(fetestexcept(FE_ALL_EXCEPT) == FE_INEXACT, "the flags");
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    expect(sigismember(&now, SIGUSR2) == 1 && sigismember(&now, SIGTERM) == 0, "the mask");
}

/* A module that is loaded while a task runs stands for a driver. */
static void install_from_module(int number)
{
    char path[4096];
    struct sigaction action = {.sa_handler = SIG_DFL};
    snprintf(path, sizeof path, "%s/testing/unit/.libs/next32.so", getenv("builddir"));
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *function = module == NULL ? NULL : dlsym(module, "sgemm_");
    expect(function != NULL, "a function of %s", path);
    memcpy(&action.sa_handler, &function, sizeof function);
    sigaction(number, &action, NULL);
}

static void *set_handler(void *number)
{
    sigaction(*(int *)number, &(struct sigaction){.sa_handler = handler}, NULL);
    return NULL;
}

static void task_dispositions(void *unused)
{
    int term = SIGTERM, hup = SIGHUP;
    pthread_t thread;
    struct sigaction got;
    (void)unused;
    set_handler(&hup);
    signal(SIGINT, SIG_DFL); /* shells have what runs in the background ignore it */
    clb_signals_begin_task();
    install_from_module(SIGHUP);
    install_from_module(SIGINT);
    install_from_module(SIGTERM);
    usleep(100000); /* the watcher has put back what it finds, or the task's end does */
    pthread_create(&thread, NULL, set_handler, &term);
    pthread_join(thread, NULL);
    signal(SIGUSR1, SIG_IGN);
    clb_signals_end_task();
    sigaction(SIGHUP, NULL, &got);
    expect(got.sa_handler == handler, "the program's handler is back");
    sigaction(SIGINT, NULL, &got);
    expect(got.sa_handler == SIG_DFL, "the default is back");
    sigaction(SIGTERM, NULL, &got);
    expect(got.sa_handler == handler, "what another thread installed stays");
    sigaction(SIGUSR1, NULL, &got);
    expect(got.sa_handler == SIG_IGN, "what was ignored meanwhile is");
}

/* Not blocked inside the guard, or not after clb_signals_let_through. */
static void pending_default(void *later)
{
    struct clb_thread_state saved;
    signal(SIGTERM, SIG_DFL);
    clb_thread_state_save(&saved, later == NULL);
    kill(getpid(), SIGTERM);
    if (later == NULL)
        sleep(20);
    clb_signals_let_through();
    sleep(20);
    clb_thread_state_restore(&saved);
}

static void pending_for_program(void *later)
{
    struct clb_thread_state saved;
    sigset_t term, now;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    signal(SIGINT, handler);
    clb_thread_state_save(&saved, later == NULL);
    clb_signals_let_through();
    kill(getpid(), SIGTERM);
    kill(getpid(), SIGINT);
    usleep(300000);
    sigpending(&now);
    expect(sigismember(&now, SIGTERM) == 1, "SIGTERM is still there for the program");
    expect(sigismember(&now, SIGINT) == 1, "and SIGINT for its handler");
    clb_thread_state_restore(&saved);
    sigpending(&now);
    expect(sigismember(&now, SIGTERM) == 1 && sigismember(&now, SIGINT) == 0, "after the guard");
}

/* What a driver's write to a closed pipe raises inside the guard is gone after it; what was pending
 * before stays. */
static void raised_by_driver(void *pends)
{
    struct clb_thread_state saved;
    sigset_t set, now;
    int ends[2];
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    if (pends != NULL)
        pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pends != NULL)
        raise(SIGPIPE);
    expect(pipe(ends) == 0 && close(ends[0]) == 0, "a pipe");
    clb_thread_state_save(&saved, true);
    expect(write(ends[1], "", 1) < 0 && errno == EPIPE, "written");
    clb_thread_state_restore(&saved);
    sigpending(&now);
    expect(sigismember(&now, SIGPIPE) == (pends != NULL), "pending");
}

/* ---- forks ---- */

/* What a loading thread and the forking one tell each other. */
struct load {
    bool endless; /* until `stop` */
    atomic_bool begun, over, stop;
};

static void *load_slowly(void *argument)
{
    struct load *load = argument;
    clb_load_begin();
    clb_load_begin(); /* loading may make something else load */
    atomic_store(&load->begun, true);
    usleep(20000);
    while (load->endless && !atomic_load(&load->stop))
        usleep(1000);
    clb_load_end();
    atomic_store(&load->over, true);
    clb_load_end();
    return NULL;
}

/* Fork while another thread loads; in the child: was the load over, and can this process load? */
static bool over_in_child(struct load *load)
{
    pthread_t thread;
    int status = -1;
    expect(pthread_create(&thread, NULL, load_slowly, load) == 0, "thread");
    while (!atomic_load(&load->begun))
        usleep(1000);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        clb_load_begin();
        clb_load_end();
        _exit(atomic_load(&load->over) ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    atomic_store(&load->stop, true);
    pthread_join(thread, NULL);
    clb_load_begin(); /* and in this process, after the fork */
    pid = fork();
    if (pid == 0)
        _exit(0);
    int own = -1;
    waitpid(pid, &own, 0);
    clb_load_end();
    expect(own == 0, "the fork of a loading thread: status %d", own);
    expect(WIFEXITED(status) && WEXITSTATUS(status) <= 1, "the child's status %d", status);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static struct clb_mutex many[16]; /* all zero: as CLB_MUTEX_INITIALIZER on Linux */

static void *hold_all(void *held)
{
    for (size_t i = 0; i < CLB_COUNT_OF(many); i++)
        clb_lock(&many[i]);
    atomic_store((atomic_bool *)held, true);
    pause();
    return NULL;
}

/* In a child that was forked while another thread held all locks: each is free, the first to take
 * it is told so, and the child's own threads exclude each other. */
static void locks_after_forks(void *unused)
{
    static atomic_bool held;
    pthread_t thread;
    int status = -1;
    (void)unused;
    clb_fork_watch();
    expect(pthread_create(&thread, NULL, hold_all, &held) == 0, "thread");
    while (!atomic_load(&held))
        usleep(1000);
    for (int depth = 0; depth < 2; depth++) { /* a child, and a child's child */
        pid_t pid = fork();
        if (pid != 0) {
            waitpid(pid, &status, 0);
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
        }
        alarm(20);
        bool first = false;
        for (size_t i = 0; i < CLB_COUNT_OF(many); i++) {
            if (!clb_lock(&many[i]) || clb_lock_try(&many[i], &first) || first)
                _exit(1);
        }
    }
    for (size_t i = 0; i < CLB_COUNT_OF(many); i++) {
        clb_unlock(&many[i]);
        if (clb_lock(&many[i]))
            _exit(2);
    }
    _exit(0);
}

static void forks(void *unused)
{
    (void)unused;
    expect(over_in_child(&(struct load){.endless = false}), "the fork did not wait for the load");
    expect(!over_in_child(&(struct load){.endless = true}), "the load ended too early");
}

/* ---- names ---- */

static void names(void *unused)
{
    (void)unused;
    for (int i = 0; i <= CLB_ERR_IO; i++)
        expect(strcmp(clb_status_name((clb_status)i), "unknown") != 0, "status %d", i);
    expect(strcmp(clb_status_name((clb_status)99), "unknown") == 0, "status 99");
    expect(clb_precision_size(CLB_S) == 4 && clb_precision_size(CLB_Z) == 16, "sizes");
}

/* ---- copies ---- */

static void copies(void *unused)
{
    (void)unused;
    for (int round = 0; round < 400; round++) {
        size_t largest = round % 8 == 0 ? 40000 : 700;
        size_t bytes = random_below(&seed, largest), runs = random_below(&seed, 9);
        size_t to_step = bytes + random_below(&seed, 80),
               from_step = bytes + random_below(&seed, 80);
        size_t to_at = random_below(&seed, 130), from_at = random_below(&seed, 130);
        size_t room = (largest + 80) * 9 + 300;
        unsigned char *from = malloc(room), *to = malloc(room), *want = malloc(room);
        for (size_t i = 0; i < room; i++)
            from[i] = (unsigned char)random_bits(&seed);
        memset(to, 0x5a, room);
        memset(want, 0x5a, room);
        for (size_t j = 0; j < runs; j++)
            memcpy(want + to_at + j * to_step, from + from_at + j * from_step, bytes);
        clb_copy_nontemporal(to + to_at, to_step, from + from_at, from_step, bytes, runs);
        expect(memcmp(to, want, room) == 0, "%zu runs of %zu bytes, %zu and %zu apart", runs, bytes,
               to_step, from_step);
        free(from);
        free(to);
        free(want);
    }
}

int main(void)
{
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "es_ES.UTF-8"};
    const char *comma = NULL;
    for (size_t i = 0; i < CLB_COUNT_OF(commas) && comma == NULL; i++)
        comma = setlocale(LC_ALL, commas[i]) != NULL ? commas[i] : NULL;
    setlocale(LC_ALL, "C");
    seed = tap_seed();
    tap_child("numbers", 30, numbers, NULL);
    if (comma != NULL) {
        tap_child("numbers in a locale with a decimal comma", 30, numbers,
                  (void *)(uintptr_t)comma);
        tap_child("text in a locale with a decimal comma", 30, text, (void *)(uintptr_t)comma);
    } else {
        tap_skip("no such locale", "numbers in a locale with a decimal comma");
    }
    tap_child("bytes", 30, bytes, NULL);
    tap_child("valid values of every variable", 30, valid_values, NULL);
    test_invalid_values();
    tap_child("extents", 30, extents, NULL);
    tap_child("text", 30, text, NULL);
    test_log();
    test_files();
    tap_child("guest guard", 30, guest, NULL);
    tap_child("only a driver's signal handlers are undone", 30, task_dispositions, NULL);
    tap_child("SIGPIPE that is raised inside the guard is removed", 30, raised_by_driver, NULL);
    tap_child("and one that the program had before is not", 30, raised_by_driver, &seed);
    for (int later = 0; later < 2; later++) {
        int ended = run_child(30, pending_default, later ? &seed : NULL, NULL, 0);
        tap_ok(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGTERM,
               "a signal at its default ends a program that is inside the guard");
        tap_child("signals that the program blocks or handles wait", 30, pending_for_program,
                  later ? &seed : NULL);
    }
    tap_child("a fork while a library is loaded: the child's dynamic linker is whole", 60, forks,
              NULL);
    tap_child("a child forked while another thread holds sixteen locks takes them all", 30,
              locks_after_forks, NULL);
    tap_child("names", 30, names, NULL);
    tap_child("copies past the cache", 30, copies, NULL);
    return tap_done();
}
