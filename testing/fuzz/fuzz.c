/* Random calls of all routines through a library's public names.
 *
 * usage: fuzz [--seed N] [--count N] [--seconds N] [--routines gemm,dtrsm] [--threads N]
 *             [--largest N] [--often N] [--wide[=N]] [--flush] [--hang SECONDS] [--first N]
 *             [--library FILE] [--next FILE[:FILE...]] [--run 'CASE'] [--reference FILE[:FILE]]
 *             [--forms fcw] [--report FILE]
 *
 * Calls go by all names that the library has and a next library can have: plain ones, whose
 * integers are as wide as the next library's, and with testing/lib/names.c those of 64-bit integers
 * and of Python's wheels; of Fortran (--forms f), CBLAS and LAPACKE (c), and LAPACKE's functions
 * with a workspace (w). FILE gets the library's report. SPDX-License-Identifier: BSD-3-Clause
 *
 * One call in --often (1000) has sizes of up to --largest (200), the others of up to 40, and some
 * products one of up to five times --largest. One in --wide (3000) has operands of more than 2^31
 * elements.
 *
 * What is called is the shim of this build unless --library names another, e.g. an OpenBLAS, to see
 * what the judges make of it; --flush if it may take subnormal numbers for zero. A call that does
 * not end in --hang seconds (120) has failed. --reference names the reference's BLAS and LAPACK
 * where they are not installed as Debian does: an entry with NaN or infinity is what they or
 * OpenBLAS make of it. Its configuration is the environment's; CLBLAS_SHIM is `always` unless it is
 * set. A failure is made simpler and printed with the command that repeats it. SIGTERM ends it as
 * if the time were over. Exit status: 0, 1 after a failure, 2 for misuse. */
#include "worker.h"

#include <getopt.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* What the arguments say. */
static struct settings settings = {.count = 10000,
                                   .threads = 1,
                                   .largest = 200,
                                   .often = 1000,
                                   .hang = 120,
                                   .seconds = 1000000000};
static const char *one_case;

/* ---- processes ---- */

static volatile sig_atomic_t current_worker, stopped;

static void stop(int signal)
{
    stopped = 1;
    if (current_worker != 0)
        kill((pid_t)current_worker, signal);
}

/* Waits for the worker; a negative status is the signal that ended it. */
static int wait_for(pid_t child, const struct shared *shared, long hang)
{
    long calls = -1;
    int status = 0;
    long still = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        const struct timespec pause = {0, 20000000};
        nanosleep(&pause, NULL);
        const long now = atomic_load(&shared->calls);
        still = now == calls ? still + 1 : 0;
        calls = now;
        if (still > hang * 50)
            kill(child, SIGKILL);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* What happened to a worker, as a failure; true when it failed. */
static bool has_failed(struct shared *shared, int status)
{
    if (status == -SIGTERM && stopped) /* before it could mind */
        return false;
    if (atomic_load(&shared->has_failed) || (status == 0 && atomic_load(&shared->ended)))
        return atomic_load(&shared->has_failed);
    if (status >= 0)
        snprintf(shared->message, MESSAGE, "the process ended with status %d", status);
    else
        snprintf(shared->message, MESSAGE,
                 status == -SIGKILL ? "no call ended for %ld s" : "signal %ld",
                 status == -SIGKILL ? settings.hang : -(long)status);
    return true;
}

/* Runs cases, or the one case, in a process of their own. */
static int run(const struct fuzz_case *c, struct shared *shared)
{
    *shared = (struct shared){.calls = 0};
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGTERM, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int status = c != NULL ? work_once(&settings, c, shared) : work(&settings, shared);
        fflush(NULL);
        _exit(status);
    }
    if (child < 0)
        return 2;
    current_worker = child;
    int status = wait_for(child, shared, settings.hang);
    current_worker = 0;
    return status;
}

/* ---- simpler cases ---- */

static bool still_fails(const struct fuzz_case *c, struct shared *shared)
{
    const int status = run(c, shared);
    return status != 2 && !stopped && has_failed(shared, status);
}

/* Takes the first simpler case that fails too, until none does or time is up. */
static void simplify(struct fuzz_case *c, char message[MESSAGE], struct shared *shared)
{
    const time_t end = time(NULL) + 120;
    struct fuzz_case simpler;
    for (size_t candidate = 0; !stopped && time(NULL) < end && simpler_case(c, candidate, &simpler);
         candidate++) {
        if (memcmp(&simpler, c, sizeof *c) == 0 || !still_fails(&simpler, shared))
            continue;
        *c = simpler;
        memcpy(message, shared->message, MESSAGE);
        candidate = (size_t)-1;
    }
}

static void print_environment(void)
{
    for (char **variable = environ; *variable != NULL; variable++) {
        if (strncmp(*variable, "CLBLAS_SHIM", 11) == 0)
            printf("'%s' ", *variable);
    }
}

/* The case that failed, or those that were under way when the process ended. */
static size_t suspects_of(const struct shared *shared, struct fuzz_case list[MOST_THREADS])
{
    size_t count = 0;
    list[0] = shared->failed;
    if (atomic_load(&shared->has_failed))
        return 1;
    for (size_t i = 0; i < MOST_THREADS; i++) {
        if (atomic_load(&shared->busy[i]))
            list[count++] = shared->current[i];
    }
    return count;
}

static void report_failure(const char *program, struct shared *shared)
{
    char text[600], message[MESSAGE];
    struct fuzz_case suspects[MOST_THREADS];
    const size_t count = suspects_of(shared, suspects);
    const long at = atomic_load(&shared->has_failed) ? atomic_load(&shared->at) + 1
                                                     : atomic_load(&shared->calls) + (long)count;
    for (size_t i = 0; i < count; i++) {
        print_case(&suspects[i], text, sizeof text);
        printf("FAILED: %s: %s\n", text, shared->message);
    }
    printf("repeat: env ");
    print_environment();
    for (size_t i = 0; i < count; i++) {
        struct fuzz_case c = suspects[i];
        if (!still_fails(&c, shared))
            continue;
        memcpy(message, shared->message, sizeof message);
        simplify(&c, message, shared);
        print_case(&c, text, sizeof text);
        printf("%s --library %s%s --run '%s'\n", program, settings.library,
               settings.flush ? " --flush" : "", text);
        printf("there:  %s\n", message);
        return;
    }
    /* Only behind others, or beside them. */
    printf("%s --library %s --seed %ld --count %ld --threads %ld --largest %ld --often %ld "
           "--wide=%ld%s%s%s\n",
           program, settings.library, settings.seed, at, settings.threads, settings.largest,
           settings.often, settings.wide, settings.flush ? " --flush" : "",
           settings.routines != NULL ? " --routines " : "",
           settings.routines != NULL ? settings.routines : "");
}

/* ---- libraries ---- */

/* The first file that matches; NULL when there is none. */
static char *find_file(const char *pattern)
{
    glob_t found;
    char *file = NULL;
    if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0)
        file = strdup(found.gl_pathv[0]);
    globfree(&found);
    return file;
}

/* The files that match, with colons; NULL when the first two have no match. */
static char *find_files(const char *const patterns[3])
{
    char *list = NULL;
    for (int i = 0; i < 3; i++) {
        char *file = find_file(patterns[i]), *longer = NULL;
        if (file == NULL && i < 2)
            return NULL;
        if (file != NULL && asprintf(&longer, "%s%s%s", list != NULL ? list : "",
                                     list != NULL ? ":" : "", file) >= 0)
            list = longer;
        free(file);
    }
    return list;
}

static const char *const reference_files[3] = {"/usr/lib/*-linux-gnu*/blas/libblas.so.3",
                                               "/usr/lib/*-linux-gnu*/lapack/liblapack.so.3",
                                               "/usr/lib/*-linux-gnu*/liblapacke.so.3"};
static const char *const wide_files[3] = {"/usr/lib/*-linux-gnu*/blas64/libblas64.so.3",
                                          "/usr/lib/*-linux-gnu*/lapack64/liblapack64.so.3",
                                          "/usr/lib/*-linux-gnu*/liblapacke64.so.3"};

/* The library beside the folder of this program's, in the build's tree. */
static char *find_built(const char *program, const char *file)
{
    char *slash = strrchr(program, '/'), *path = NULL;
    if (asprintf(&path, "%.*s/../../%s", slash != NULL ? (int)(slash - program) : 1,
                 slash != NULL ? program : ".", file) < 0)
        return NULL;
    return path;
}

/* What the shim goes on to: the plain names of these files, and all others of names.c. */
static char *add_names(const char *program, const char *next, const char *reference)
{
    char *names = find_built(program, "testing/lib/.libs/names.so"), *list = NULL;
    if (names == NULL ||
        access(names, R_OK) != 0) { /* where the fuzzer was taken out of its tree */
        free(names);
        return next != NULL ? strdup(next) : NULL;
    }
#ifndef __SANITIZE_ADDRESS__ /* has no name spaces for them */
    char *wide = find_files(wide_files);
    if (reference != NULL)
        setenv("CLB_TEST_NARROW", reference, 0);
    if (wide != NULL)
        setenv("CLB_TEST_WIDE", wide, 0);
    free(wide);
#else
    (void)reference;
#endif
    if (next != NULL && asprintf(&list, "%s:%s", names, next) < 0)
        list = NULL;
    free(names);
    return list;
}

/* ---- main ---- */

enum { WIDE = 3000 };
static const struct {
    const char *name;
    enum { TEXT, NUMBER, NUMBER_OR_WIDE, FLAG } kind;
    void *value; /* const char *, long or bool */
} options[] = {
    {"seed", NUMBER, &settings.seed},
    {"count", NUMBER, &settings.count},
    {"seconds", NUMBER, &settings.seconds},
    {"routines", TEXT, &settings.routines},
    {"threads", NUMBER, &settings.threads},
    {"largest", NUMBER, &settings.largest},
    {"often", NUMBER, &settings.often},
    {"wide", NUMBER_OR_WIDE, &settings.wide},
    {"flush", FLAG, &settings.flush},
    {"hang", NUMBER, &settings.hang},
    {"first", NUMBER, &settings.first},
    {"library", TEXT, &settings.library},
    {"next", TEXT, &settings.next},
    {"run", TEXT, &one_case},
    {"reference", TEXT, &settings.witnesses[0]},
    {"forms", TEXT, &settings.forms},
    {"report", TEXT, &settings.report},
    {"quiet", FLAG, &settings.quiet},
};
enum { OPTIONS = sizeof options / sizeof *options };

static bool read_options(int count, char **arguments)
{
    static const int has[] = {required_argument, required_argument, optional_argument, no_argument};
    struct option list[OPTIONS + 1] = {{NULL, 0, NULL, 0}};
    for (int i = 0; i < OPTIONS; i++)
        list[i] = (struct option){options[i].name, has[options[i].kind], NULL, i};
    for (int i; (i = getopt_long(count, arguments, "", list, NULL)) != -1;) {
        if (i >= OPTIONS) /* '?' */
            return false;
        if (options[i].kind == FLAG)
            *(bool *)options[i].value = true;
        else if (options[i].kind == TEXT)
            *(const char **)options[i].value = optarg;
        else
            *(long *)options[i].value = optarg != NULL ? strtol(optarg, NULL, 10) : WIDE;
    }
    return optind == count && settings.threads > 0 && settings.threads <= MOST_THREADS &&
           settings.largest > 0 && settings.often > 0;
}

int main(int count, char **arguments)
{
    struct fuzz_case c;
    char *shim = find_built(arguments[0], ".libs/libclblas_shim.so.0");
    char *reference = find_files(reference_files), *next;
    char *openblas = find_file("/usr/lib/*-linux-gnu*/libopenblas.so.0");
    settings.library = shim;
    settings.next = reference != NULL ? reference : openblas;
    settings.witnesses[0] = reference;
    settings.witnesses[1] = openblas;
    settings.seed = (long)time(NULL);
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!read_options(count, arguments) || shared == MAP_FAILED ||
        (one_case != NULL && !read_case(&c, one_case))) {
        fprintf(stderr, "usage: see the beginning of testing/fuzz/fuzz.c\n");
        return 2;
    }
    settings.next = next = add_names(arguments[0], settings.next, settings.witnesses[0]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGTERM, stop);
    if (one_case == NULL && !settings.quiet)
        printf("# seed %ld\n", settings.seed);
    int status = run(one_case != NULL ? &c : NULL, shared);
    if (status != 2 && has_failed(shared, status)) {
        status = 1;
        if (one_case != NULL)
            printf("FAILED: %s\n", shared->message);
        else
            report_failure(arguments[0], shared);
    }
    free(shim);
    free(next);
    free(reference);
    free(openblas);
    return status;
}
