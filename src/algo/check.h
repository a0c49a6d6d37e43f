/* check: kernels compute on the device what is known, before anything else of them is believed.
 *
 * A check runs once for each kernel and precision, by the first caller who needs the kernel; others
 * wait for its verdict. The numbers of a matrix are real ones here: a complex element is two. */
#ifndef CLB_CHECK_H
#define CLB_CHECK_H

#include "ocl/ocl.h"

#include <stdatomic.h>

/* What has come of a check: static, zeros at first. */
struct clb_check {
    atomic_bool done;
    clb_status status;
};

typedef clb_status clb_check_task(void *argument);

/* The verdict of `task`, which the first caller has it give. CLB_OK, or CLB_ERR_UNSUPPORTED for
 * CLB_ERR_BUILD, CLB_ERR_LAUNCH and CLB_ERR_UNSUPPORTED: the kernels don't build, can't be launched
 * or miscalculate here, which is logged as "`lost`: why". Any other status, a lack of memory or a
 * failing device, is no verdict: it is returned, and the next caller has the task run again.
 *
 * Checks run one at a time. A task may have others run: never itself. */
clb_status clb_check_once(struct clb_check *check, const char *lost, clb_check_task *task,
                          void *argument) CLB_MUST_CHECK;

/* A check of one or two programs, by name; the name changes with what it tries. A new program is
 * checked at all the sizes at which its code takes another way; when it has passed, later processes
 * try a single small one. */
struct clb_check_programs {
    const char *name;
    const struct clb_runtime *runtime;
    const struct clb_program *program[2]; /* the second may be NULL */
};
bool clb_check_tries_all(const struct clb_check_programs *check);
void clb_check_note_passed(const struct clb_check_programs *check);

/* Have a task that checks something run now. */
clb_status clb_check_run(clb_check_task *task, void *argument) CLB_MUST_CHECK;

/* The next of a sequence of numbers from -1/2 to 1/2 which single precision has; *state is where it
 * begins. */
double clb_check_random(uint64_t *state);

/* Number `at` of a matrix of a precision. */
double clb_check_get(clb_precision precision, const void *x, size_t at);
void clb_check_put(clb_precision precision, void *x, size_t at, double value);

/* The unit roundoff. */
double clb_check_unit(clb_precision precision);

#endif
