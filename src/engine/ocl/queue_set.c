/* SPDX-License-Identifier: BSD-3-Clause
 * The queues and kernel objects of one call, and the calls that are on the device at once. */
#include "cl.h"

#include <stdlib.h>
#include <string.h>

/* ---- calls at once ---- */

/* Calls take numbers; those below `ended` + CALLS_AT_ONCE have their turn, so that one that has
 * gone on without it counts as soon as its turn comes. */
enum { CALLS_AT_ONCE = 4 };

void clb_turn_begin(struct clb_runtime *runtime, double patience)
{
    struct clb_turns *turns = &runtime->turns;
    int status = 0;
    if (runtime->device.unified)
        return;
    const struct timespec until = clb_time_of(clb_now() + patience);
    pthread_mutex_lock(&turns->lock);
    const size_t number = turns->begun++;
    while (number >= turns->ended + CALLS_AT_ONCE && status == 0)
        status = pthread_cond_clockwait(&turns->come[number % CLB_COUNT_OF(turns->come)],
                                        &turns->lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&turns->lock);
}

void clb_turn_end(struct clb_runtime *runtime)
{
    struct clb_turns *turns = &runtime->turns;
    if (runtime->device.unified)
        return;
    pthread_mutex_lock(&turns->lock);
    const size_t next = turns->ended++ + CALLS_AT_ONCE;
    pthread_cond_broadcast(&turns->come[next % CLB_COUNT_OF(turns->come)]);
    pthread_mutex_unlock(&turns->lock);
}

/* ---- queue sets ---- */

#define QUEUES CLB_COUNT_OF(((struct clb_queue_set *)0)->each)

clb_status clb_queue_set_open_queues(struct clb_queue_set *queue_set)
{
    clb_status status = CLB_OK;
    for (size_t i = 0; i < QUEUES && status == CLB_OK; i++) {
        if (queue_set->each[i] == NULL)
            status = clb_queue_open(queue_set->runtime, true, &queue_set->each[i]);
    }
    return status;
}

clb_status clb_queue_set_acquire(struct clb_runtime *runtime, struct clb_queue_set **out)
{
    pthread_mutex_lock(&runtime->sets.lock);
    struct clb_queue_set *queue_set = runtime->sets.idle;
    if (queue_set != NULL)
        runtime->sets.idle = queue_set->link;
    pthread_mutex_unlock(&runtime->sets.lock);
    if (queue_set == NULL)
        queue_set = calloc(1, sizeof *queue_set);
    *out = queue_set;
    if (queue_set == NULL)
        return CLB_ERR_NOMEM;
    queue_set->runtime = runtime;
    const clb_status status =
        queue_set->queue == NULL ? clb_queue_open(runtime, false, &queue_set->queue) : CLB_OK;
    if (status != CLB_OK) {
        free(queue_set);
        *out = NULL;
    }
    return status;
}

void clb_queue_set_end(struct clb_queue_set *queue_set, bool idle)
{
    if (queue_set == NULL || !idle)
        return;
    for (size_t i = 0; i < QUEUES; i++) {
        const struct clb_queue *queue = queue_set->each[i];
        if (queue != NULL && (queue->failed || queue->first != NULL))
            return;
    }
    struct clb_runtime *runtime = queue_set->runtime;
    pthread_mutex_lock(&runtime->sets.lock);
    queue_set->link = runtime->sets.idle;
    runtime->sets.idle = queue_set;
    pthread_mutex_unlock(&runtime->sets.lock);
}

/* Waits for all queues even when one fails, so that all commands that can end have ended. */
clb_status clb_queue_set_finish(struct clb_queue_set *queue_set)
{
    struct clb_queue **queue = queue_set->each;
    clb_event last[QUEUES];
    bool begun[QUEUES];
    clb_status result = CLB_OK;
    for (size_t i = 0; i < QUEUES; i++)
        begun[i] = queue[i] != NULL && clb_queue_finish_begin(queue[i], &last[i]);
    for (size_t i = 0; i < QUEUES; i++) {
        clb_status status =
            queue[i] != NULL ? clb_queue_finish_end(queue[i], begun[i], last[i]) : CLB_OK;
        result = status != CLB_OK ? status : result;
    }
    return result;
}

bool clb_queue_set_settle(struct clb_queue_set *queue_set)
{
    bool idle = true;
    if (clb_queue_set_finish(queue_set) == CLB_OK)
        return true;
    for (size_t i = 0; i < QUEUES; i++)
        idle = idle && (queue_set->each[i] == NULL || !queue_set->each[i]->unended);
    return idle;
}

clb_status clb_queue_set_check(struct clb_queue_set *queue_set)
{
    clb_status result = CLB_OK;
    for (size_t i = 0; i < QUEUES; i++) {
        struct clb_queue *queue = queue_set->each[i];
        clb_status status = queue == NULL ? CLB_OK : clb_queue_check(queue);
        result = status != CLB_OK ? status : result;
    }
    return result;
}

clb_status clb_queue_set_await(struct clb_queue_set *queue_set, clb_event *event)
{
    clb_status status = clb_event_wait(*event);
    clb_event_drop(event);
    return status == CLB_OK ? clb_queue_set_check(queue_set) : status;
}

/* ---- kernel objects ---- */

clb_status clb_queue_set_kernel(struct clb_queue_set *queue_set, struct clb_program *program,
                                const char *name, cl_kernel *kernel)
{
    for (struct clb_queue_set_kernel *entry = queue_set->kernels; entry != NULL;
         entry = entry->next) {
        if (entry->program == program && strcmp(entry->name, name) == 0) {
            *kernel = entry->kernel;
            return CLB_OK;
        }
    }
    return clb_queue_set_make_kernel(queue_set, program, name, kernel);
}
