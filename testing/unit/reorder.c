/* SPDX-License-Identifier: BSD-3-Clause
 * Pipelines on a driver that uses every freedom that their events leave (fakecl_reorder.c): the
 * tests of products, factorisations, solves and inverses run again, and must pass. Before that,
 * that the driver keeps what OpenCL promises, and that what lacks a wait is seen. */
#include "fakecl.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the driver itself ---- */

enum { ROUNDS = 200 };

struct device {
    struct clb_runtime *runtime;
    cl_command_queue queue[2];
    cl_mem mem;
};

static bool open_device(struct device *device)
{
    cl_int status = CL_SUCCESS;
    device->runtime = fake_cl_start("cpu", "", false);
    for (int i = 0; device->runtime != NULL && i < 2; i++) {
        device->queue[i] = clb_cl.CreateCommandQueue(device->runtime->context,
                                                     device->runtime->device.id, 0, &status);
        expect(status == CL_SUCCESS, "clCreateCommandQueue: %d", (int)status);
    }
    if (device->runtime == NULL || status != CL_SUCCESS)
        return false;
    device->mem =
        clb_cl.CreateBuffer(device->runtime->context, CL_MEM_READ_WRITE, 64, NULL, &status);
    return expect(status == CL_SUCCESS, "clCreateBuffer: %d", (int)status);
}

/* What is read on one queue after a number was written on another; `waits`: for that. */
static int write_then_read(const struct device *device, bool waits)
{
    static int number;
    int written = ++number, read = -1;
    cl_event event;
    cl_int status = clb_cl.EnqueueWriteBuffer(device->queue[0], device->mem, CL_FALSE, 0,
                                              sizeof written, &written, 0, NULL, &event);
    status = status != CL_SUCCESS ? status : clb_cl.Flush(device->queue[0]);
    status = status != CL_SUCCESS
                 ? status
                 : clb_cl.EnqueueReadBuffer(device->queue[1], device->mem, CL_TRUE, 0, sizeof read,
                                            &read, waits ? 1 : 0, waits ? &event : NULL, NULL);
    expect(status == CL_SUCCESS, "%d", (int)status);
    expect(clb_cl.WaitForEvents(1, &event) == CL_SUCCESS, "clWaitForEvents");
    (void)clb_cl.ReleaseEvent(event);
    return read == written;
}

static void keeps_order(void *unused)
{
    struct device device;
    int in_order = 0, seen = 0;
    (void)unused;
    if (!open_device(&device))
        return;
    for (int i = 0; i < ROUNDS; i++)
        in_order += write_then_read(&device, true);
    expect(in_order == ROUNDS, "%d of %d reads had waited for nothing", ROUNDS - in_order, ROUNDS);
    for (int i = 0; i < ROUNDS; i++)
        seen += !write_then_read(&device, false);
    expect(seen > ROUNDS / 4, "only %d of %d missing waits were seen", seen, ROUNDS);
}

/* Commands of one queue are in order, whatever is asked for first. */
static void keeps_queues(void *unused)
{
    struct device device;
    int numbers[16], read[16];
    cl_event events[16];
    (void)unused;
    if (!open_device(&device))
        return;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 16; i++) {
            numbers[i] = 100 * round + i;
            (void)clb_cl.EnqueueWriteBuffer(device.queue[0], device.mem, CL_FALSE, 0,
                                            sizeof numbers[i], &numbers[i], 0, NULL, NULL);
            (void)clb_cl.EnqueueReadBuffer(device.queue[0], device.mem, CL_FALSE, 0, sizeof read[i],
                                           &read[i], 0, NULL, &events[i]);
        }
        (void)clb_cl.WaitForEvents(1, &events[round % 16]);
        expect(read[round % 16] == numbers[round % 16], "the queue is out of order");
        (void)clb_cl.Finish(device.queue[0]);
        expect(memcmp(read, numbers, sizeof read) == 0, "the queue is out of order at its end");
        for (int i = 0; i < 16; i++)
            (void)clb_cl.ReleaseEvent(events[i]);
    }
}

/* A device that runs nothing before somebody waits must not get so many launches that a driver
 * would hold the thread that enqueues the next one (fakecl_reorder.c fails at 500). */
static void limits_launches(void *unused)
{
    static const char text[] =
        "kernel void count(global uint *x, global volatile uint *chain,\n"
        "                  global volatile uint *report, uint counter, uint launch)\n"
        "{\n"
        "    x[0]++;\n"
        "    if (launch != 0 && chain[counter] == launch - 1)\n"
        "        chain[counter] = report[counter] = launch;\n"
        "}\n";
    const struct clb_source source = {"count.cl", text, sizeof text - 1};
    const struct clb_geometry one = {{1}, {1}, 1};
    struct clb_runtime *runtime = fake_cl_start("cpu", "", false);
    struct clb_queue_set *set = NULL;
    struct clb_program *program;
    struct clb_buffer *buffer;
    cl_uint zero = 0, launches = 0;
    (void)unused;
    if (runtime == NULL || clb_queue_set_acquire(runtime, &set) != CLB_OK ||
        clb_program_get(runtime, &source, "", &program) != CLB_OK ||
        clb_buffer_get(runtime, CLB_MEMORY_DEVICE, sizeof zero, &buffer) != CLB_OK ||
        clb_queue_write_now(set->queue, buffer->mem, 0, sizeof zero, &zero) != CLB_OK)
        exit(2);
    const struct clb_argument x = CLB_ARG(buffer->mem);
    clb_status status = CLB_OK;
    for (int i = 0; i < 1200 && status == CLB_OK; i++)
        status = clb_kernel_launch(set, program, "count", &one, (struct clb_order){0}, &x, 1);
    expect(status == CLB_OK && clb_queue_set_finish(set) == CLB_OK, "a launch has failed");
    status = clb_queue_read_now(set->queue, buffer->mem, 0, sizeof launches, &launches);
    expect(status == CLB_OK && launches == 1200, "%u of 1200 launches", (unsigned)launches);
}

/* ---- pipelines ---- */

static const char *folder;

/* Another test as it is; what it says only when it fails. */
static void run_test(void *name)
{
    char program[4096], log[4096], line[512];
    snprintf(program, sizeof program, "%s/%s", folder, (const char *)name);
    snprintf(log, sizeof log, "%s/%s.reorder", folder, (const char *)name);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (freopen(log, "w", stdout) == NULL || dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
            _exit(1);
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    expect(child > 0 && waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    FILE *file = status != 0 ? fopen(log, "r") : NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "ok ", 3) != 0)
            printf("# %s", line);
    }
    if (file != NULL)
        fclose(file);
    unlink(log);
}

int main(int count, char **arguments)
{
    enum { ALWAYS = 2 }; /* the others in `make check-full` alone */
    static const char *const tests[] = {"gemm",  "getrf", "geqrf", "potrf", "level3",
                                        "split", "trsm",  "gesv",  "ormqr", "inverse"};
    char path[4096], seed[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)tap_seed());
    snprintf(path, sizeof path, "%s", arguments[0]);
    char *slash = strrchr(path, '/');
    if (slash != NULL)
        *slash = '\0';
    folder = slash != NULL ? path : ".";
    setenv("REORDER", seed, 1);
    setenv("SEED", seed, 1);
    tap_few_threads(); /* commands are carried out one at a time */
    setenv("FULL", tap_full() ? "" : "few", 1);
    tap_child("what waits is in order, what does not is not", 60, keeps_order, NULL);
    tap_child("a queue is in order", 60, keeps_queues, NULL);
    tap_child("fewer than 500 launches are unfinished", 60, limits_launches, NULL);
    for (size_t i = 0; i < CLB_COUNT_OF(tests); i++) {
        if (count > 1 ? strcmp(arguments[1], tests[i]) != 0 : i >= ALWAYS && !tap_full())
            continue;
        tap_child(tests[i], 300, run_test, (void *)(uintptr_t)tests[i]);
    }
    return tap_done();
}
