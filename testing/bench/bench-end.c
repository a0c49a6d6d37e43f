/* How long the end of a program takes that has only opened OpenCL's drivers, without the shim: what
 * an exit in the midst of a start can't be shorter than (docs/safety.md).
 *
 * usage: bench-end [--reps N]
 *
 * The program asks for the platforms, for their devices too, or makes a context for the first GPU,
 * or the first device, as well; then it ends by exit, by _exit, which runs no handler, or by
 * SIGKILL. Or it ends while another thread does all that, so many milliseconds after that has
 * begun. Milliseconds until its parent's waitpid returns. */
#define CL_TARGET_OPENCL_VERSION 120
#include "bench.h"

#include <CL/cl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOTHING, PLATFORMS, DEVICES, CONTEXT, OPENED };
static const char *const opened_names[OPENED] = {"nothing", "platforms", "devices", "a context"};

enum { BY_EXIT, BY_QUICK_EXIT, BY_SIGNAL, ENDS };
static const char *const end_names[ENDS] = {"exit", "_exit", "SIGKILL"};

enum { MOST_PLATFORMS = 16, LAST_MOMENT = 300, MOMENT_STEP = 20, PATIENCE = 20 };

static void open_drivers(int how_far)
{
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint count = 0;
    cl_device_id device = NULL, any = NULL;
    void *loader = how_far > NOTHING ? dlopen("libOpenCL.so.1", RTLD_NOW) : NULL;
    if (loader == NULL)
        return;
    __typeof__(clGetPlatformIDs) *get_platforms;
    __typeof__(clGetDeviceIDs) *get_devices;
    __typeof__(clCreateContext) *create_context;
    void *symbols[] = {dlsym(loader, "clGetPlatformIDs"), dlsym(loader, "clGetDeviceIDs"),
                       dlsym(loader, "clCreateContext")};
    memcpy(&get_platforms, &symbols[0], sizeof get_platforms);
    memcpy(&get_devices, &symbols[1], sizeof get_devices);
    memcpy(&create_context, &symbols[2], sizeof create_context);
    if (get_platforms(MOST_PLATFORMS, platforms, &count) != CL_SUCCESS)
        count = 0;
    for (cl_uint i = 0; i < count && i < MOST_PLATFORMS && how_far >= DEVICES; i++) {
        if (device == NULL)
            get_devices(platforms[i], CL_DEVICE_TYPE_GPU, 1, &device, NULL);
        if (any == NULL)
            get_devices(platforms[i], CL_DEVICE_TYPE_ALL, 1, &any, NULL);
    }
    device = device != NULL ? device : any;
    if (how_far >= CONTEXT && device != NULL)
        create_context(NULL, 1, &device, NULL, NULL, NULL);
}

static void *open_all(void *unused)
{
    (void)unused;
    open_drivers(CONTEXT);
    return NULL;
}

static void end(int how)
{
    if (how == BY_EXIT)
        exit(EXIT_SUCCESS);
    if (how == BY_QUICK_EXIT)
        _exit(EXIT_SUCCESS);
    raise(SIGKILL);
}

/* Milliseconds of a child's end; `moment` is negative where it opens the drivers itself before. */
static double time_end(int opened, int moment, int how, int *status)
{
    double *begin =
        mmap(NULL, sizeof *begin, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED)
        bench_fail("no memory");
    fflush(stdout); /* or the child writes it too */
    const pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        alarm(PATIENCE);
        if (moment < 0)
            open_drivers(opened);
        else if (pthread_create(&thread, NULL, open_all, NULL) != 0)
            _exit(EXIT_FAILURE);
        usleep(moment > 0 ? (useconds_t)moment * 1000 : 0);
        *begin = bench_now();
        end(how);
    }
    waitpid(child, status, 0);
    const double took = 1e3 * (bench_now() - *begin);
    munmap(begin, sizeof *begin);
    return took;
}

static void time_ends(int opened, int moment, int how, int reps)
{
    for (int i = 0; i < reps; i++) {
        int status = 0;
        const double took = time_end(opened, moment, how, &status);
        const bool crashed = WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL;
        printf(" %.1f%s", took, crashed ? " (crashed)" : "");
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    int reps = 4;
    if (argc == 3 && strcmp(argv[1], "--reps") == 0)
        reps = atoi(argv[2]);
    if ((argc != 1 && argc != 3) || reps < 1)
        bench_fail("usage: bench-end [--reps N]");
    for (int opened = NOTHING; opened < OPENED; opened++) {
        for (int how = 0; how < ENDS; how++) {
            printf("%-10s %-8s", opened_names[opened], end_names[how]);
            time_ends(opened, -1, how, reps);
        }
    }
    for (int how = BY_EXIT; how <= BY_QUICK_EXIT; how++) {
        for (int moment = 0; moment <= LAST_MOMENT; moment += MOMENT_STEP) {
            printf("after %3d ms of all this, %-5s", moment, end_names[how]);
            time_ends(CONTEXT, moment, how, 1);
        }
    }
    return EXIT_SUCCESS;
}
