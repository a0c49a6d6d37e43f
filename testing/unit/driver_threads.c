/* A CPU device's worker threads have a CPU each, within the process's set, and nobody else is
 * bound. SPDX-License-Identifier: BSD-3-Clause */
#include "tap.h"

#include "engine/ocl/device.h"
#include "engine/ocl/start.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static cpu_set_t process_set(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return set;
}

/* Bound threads of this process; *apart is false when two have the same CPU or one is outside. */
static int count_bound(const cpu_set_t *allowed, bool *apart)
{
    static struct clb_thread_list threads;
    cpu_set_t seen;
    int bound = 0;
    CPU_ZERO(&seen);
    *apart = true;
    clb_threads_note(&threads);
    for (size_t i = 0; i < threads.count; i++) {
        cpu_set_t set, common;
        if (sched_getaffinity(threads.id[i], sizeof set, &set) != 0 || CPU_COUNT(&set) != 1)
            continue;
        CPU_AND(&common, &set, &seen);
        *apart = *apart && CPU_COUNT(&common) == 0;
        CPU_AND(&common, &set, allowed);
        *apart = *apart && CPU_COUNT(&common) == 1;
        CPU_OR(&seen, &seen, &set);
        bound++;
    }
    return bound;
}

static void body(void *argument)
{
    const bool disabled = *(const bool *)argument;
    const cpu_set_t before = process_set();
    clb_runtime_state state;
    struct clb_thread_state guest;
    bool apart;
    clb_thread_state_save(&guest, true);
    const struct clb_runtime *runtime = clb_runtime_get(&state);
    clb_thread_state_restore(&guest);
    if (!expect(runtime != NULL, "no device"))
        return;
    const cpu_set_t after = process_set();
    int bound = count_bound(&before, &apart);
    int wanted = disabled || (int)runtime->device.units > CPU_COUNT(&before)
                     ? 0
                     : (int)runtime->device.units;
    expect(bound == wanted, "%d threads are bound, not %d", bound, wanted);
    expect(apart, "two threads have one CPU, or one has a CPU outside of the set");
    expect(CPU_EQUAL(&before, &after), "the calling thread's set has changed");
}

int main(void)
{
    bool disabled = false;
    const cpu_set_t set = process_set();
    if (CPU_COUNT(&set) < 2) {
        tap_skip("one CPU", "worker threads");
        return tap_done();
    }
    tap_child("worker threads have a CPU each", 60, body, &disabled);
    disabled = true;
    setenv("POCL_AFFINITY", "0", 1);
    tap_child("not when the user has POCL_AFFINITY", 60, body, &disabled);
    return tap_done();
}
