/* The thread that enqueues for all others (CLB_QUIRK_ONE_ENQUEUER), on a device that plays one with
 * its own memory. SPDX-License-Identifier: BSD-3-Clause */
#include "any_call.h"
#include "fakecl.h"
#include "routed.h"
#include "tap.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PARAMS "gemm.tile=min,trsm.nb=8,trsm.part=8,getrf.nb=8,gemm.threads=3"

/* What an abandoned device may still use is never freed: no leak that LeakSanitizer, which asks
 * this, should report at the end of such a process. */
static bool leaves_memory;
int __lsan_is_turned_off(void);
__attribute__((visibility("default"))) int __lsan_is_turned_off(void)
{
    return leaves_memory;
}

static _Atomic pid_t enqueuer;
static atomic_long strangers;

static void note_thread(fake_function function)
{
    pid_t none = 0;
    const pid_t self = (pid_t)syscall(SYS_gettid);
    if (strncmp(fake_cl_name(function), "Enqueue", 7) == 0 &&
        !atomic_compare_exchange_strong(&enqueuer, &none, self) && none != self)
        strangers++;
}

static void set_up_enqueuer(const char *params)
{
    setenv("ENQUEUER", "1", 1);
    setenv("CLBLAS_SHIM_KERNEL", "portable", 1);
    routed_set_device(true);
    routed_set_up("always", params);
}

/* From the device's start on, and with staging threads. */
static void enqueue_by_one(void *unused)
{
    static const clb_routine routines[] = {CLB_ROUTINE_dgemm, CLB_ROUTINE_dgetrf,
                                           CLB_ROUTINE_dtrsm};
    uint64_t problem = 1;
    (void)unused;
    fake_cl.enter = note_thread;
    set_up_enqueuer(PARAMS);
    for (size_t i = 0; i < CLB_COUNT_OF(routines); i++)
        expect(any_call_run(routines[i], &problem) < 1e-7, "a wrong result");
    expect(reported("dgemm_", "device") == 1, "the device did not compute");
    expect(enqueuer != 0 && enqueuer != getpid(), "nothing was enqueued by another thread");
    expect(strangers == 0, "%ld commands were enqueued by further threads", strangers);
    exit(expect_failures() != 0);
}

static fake_function blocking;
static atomic_bool blocks;

static void block(fake_function function)
{
    while (blocks && function == blocking && (pid_t)syscall(SYS_gettid) == enqueuer)
        pause();
    note_thread(function);
}

static void block_in_call(bool begins)
{
    leaves_memory = true;
    blocks = begins;
}

/* The driver does not return: the thread is left there, and the next library computes. */
static void leave_in_driver(void *function)
{
    uint64_t problem = 1;
    clb_runtime_state state;
    blocking = *(fake_function *)function;
    fake_cl.enter = block;
    set_up_enqueuer(PARAMS ",gemm.hang=500");
    expect(any_call_run(CLB_ROUTINE_dgemm, &problem) < 1e-7, "a wrong result");
    any_call_routes = block_in_call;
    const double begin = clb_now();
    expect(any_call_run(CLB_ROUTINE_dgemm, &problem) < 1e-7, "a wrong result");
    const double seconds = clb_now() - begin;
    expect(seconds > 0.45, "abandoned after %.2f s", seconds);
    expect(reported("dgemm_", "recovered") == 1 && clb_runtime_get(&state) == NULL,
           "the device is not abandoned");
    any_call_routes = NULL;
    expect(any_call_run(CLB_ROUTINE_dgemm, &problem) < 1e-7, "a wrong result");
    exit(expect_failures() != 0);
}

/* ---- requests that overtake ---- */

static atomic_bool held;
static char entered[16];
static atomic_uint entries;

/* The first command is held in the driver until the others have been left. */
static void note_command(fake_function function)
{
    const bool barrier = function == FAKE_EnqueueBarrierWithWaitList;
    if (!barrier && function != FAKE_EnqueueWriteBuffer)
        return;
    const unsigned number = entries++;
    if (number < sizeof entered)
        entered[number] = barrier ? 'k' : 't';
    while (held)
        sched_yield();
}

/* A transfer is enqueued ahead of commands of the other queue that were left before, but not ahead
 * of one that it waits for. */
static void overtake(void *unused)
{
    static char bytes[64];
    uint64_t problem = 1;
    clb_runtime_state state;
    struct clb_queue_set *set;
    struct clb_buffer *buffer;
    clb_event last = NULL;
    (void)unused;
    set_up_enqueuer(PARAMS);
    expect(any_call_run(CLB_ROUTINE_dgemm, &problem) < 1e-7, "a wrong result");
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (runtime == NULL || clb_queue_set_acquire(runtime, &set) != CLB_OK ||
        clb_queue_set_open_queues(set) != CLB_OK ||
        clb_buffer_get(runtime, CLB_MEMORY_DEVICE, sizeof bytes, &buffer) != CLB_OK)
        exit(2);
    held = true;
    fake_cl.enter = note_command;
    clb_status status = clb_queue_barrier(set->queue, NULL, NULL);
    while (entries == 0)
        sched_yield();
    if (status == CLB_OK)
        status = clb_queue_barrier(set->queue, NULL, NULL);
    if (status == CLB_OK)
        status = clb_queue_barrier(set->queue, NULL, &last);
    if (status == CLB_OK)
        status = clb_queue_write(set->upload, buffer->mem, CLB_LINE(0, 32), bytes, NULL, NULL);
    if (status == CLB_OK)
        status = clb_queue_write(set->upload, buffer->mem, CLB_LINE(32, 32), bytes, last, NULL);
    held = false;
    expect(status == CLB_OK, "a command could not be left");
    expect(clb_event_wait(last) == CLB_OK, "no end of a command");
    clb_event_drop(&last);
    expect(clb_queue_set_finish(set) == CLB_OK, "commands failed");
    expect(strncmp(entered, "ktkkt", 5) == 0, "enqueued in the order %s", entered);
    exit(expect_failures() != 0);
}

int main(void)
{
    static fake_function functions[] = {FAKE_EnqueueNDRangeKernel, FAKE_EnqueueWriteBuffer,
                                        FAKE_Flush, FAKE_GetEventInfo, FAKE_Finish};
    tap_child("one thread enqueues for all", 60, enqueue_by_one, NULL);
    tap_child("transfers overtake commands of other queues, except those they wait for", 60,
              overtake, NULL);
    for (size_t i = 0; i < CLB_COUNT_OF(functions); i++) {
        char name[120];
        snprintf(name, sizeof name, "it is left in a driver that does not return from cl%s",
                 fake_cl_name(functions[i]));
        tap_child(name, 60, leave_in_driver, &functions[i]);
    }
    return tap_done();
}
