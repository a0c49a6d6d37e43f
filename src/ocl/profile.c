/* When every command ran on the device: for benchmarks, which ask for it before the runtime starts.
 * Programs never do, so that nothing of this costs them anything. */
#include "ocl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct note {
    struct clb_profiled command;
    cl_event event;
};

static atomic_bool on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct note *notes;
static size_t count, room;

void clb_profile_begin(void)
{
    atomic_store(&on, true);
}

bool clb_profile_is_on(void)
{
    return atomic_load(&on);
}

static bool make_room(void)
{
    size_t wanted = clb_max(2 * room, 4096);
    struct note *more = count < room ? notes : realloc(notes, wanted * sizeof *notes);
    if (more == NULL)
        return false;
    room = count < room ? room : wanted;
    notes = more;
    return true;
}

void clb_profile_note(cl_command_queue queue, const char *name, cl_event event)
{
    pthread_mutex_lock(&lock);
    if (make_room() && clb_cl.RetainEvent(event) == CL_SUCCESS)
        notes[count++] = (struct note){{name, queue, 0, 0}, event};
    pthread_mutex_unlock(&lock);
}

size_t clb_profile_take(struct clb_profiled **commands)
{
    size_t taken = 0;
    pthread_mutex_lock(&lock);
    struct clb_profiled *list = calloc(count + 1, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        struct clb_profiled command = notes[i].command;
        if (list != NULL &&
            clb_cl.GetEventProfilingInfo(notes[i].event, CL_PROFILING_COMMAND_START,
                                         sizeof command.start, &command.start,
                                         NULL) == CL_SUCCESS &&
            clb_cl.GetEventProfilingInfo(notes[i].event, CL_PROFILING_COMMAND_END,
                                         sizeof command.end, &command.end, NULL) == CL_SUCCESS)
            list[taken++] = command;
        clb_cl.ReleaseEvent(notes[i].event);
    }
    count = 0;
    pthread_mutex_unlock(&lock);
    *commands = list;
    return taken;
}
