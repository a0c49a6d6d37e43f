/* SPDX-License-Identifier: BSD-3-Clause
 * helper: the process that meets drivers, what it is asked for, and what it has found out. */
#ifndef CLB_HELPER_H
#define CLB_HELPER_H

#include "device.h"

struct clb_record;

/* ---- what this process is ---- */

typedef enum clb_helper_role {
    CLB_HELPER_NONE,   /* no helper: this process starts drivers and builds programs itself */
    CLB_HELPER_USED,   /* has the helper do that, and loads what has passed */
    CLB_HELPER_BUILDS, /* a child of the helper: builds, checks and stores */
    CLB_HELPER_AHEAD,  /* a child of the helper: builds programs that the builder will want */
    CLB_HELPER_LOADS   /* a child of the helper: loads what is stored, and checks it again */
} clb_helper_role;

/* Exit statuses of the helper; 0: the step's record is in the cache. */
enum { CLB_HELPER_EXIT_FAILED = 1, CLB_HELPER_EXIT_NO_LOCK = 73, CLB_HELPER_EXIT_BUSY = 75 };

/* The first row of the tuning tables that works on a device. Its rate is GFLOP/s, of a CPU device
 * for each core; the link's, of a device with memory of its own, bytes in a second. 0: not known.
 */
struct clb_choice {
    size_t row;
    double rate, link;
    char name[48];
};
enum { CLB_CHOICES = 2 }; /* of any kernels, and of those that do without split numbers */

/* What becomes of a step, besides statuses of its check: it had passed or failed before, or the
 * device can't have it. */
enum { CLB_HELPER_READY = -1, CLB_HELPER_FAILED = -2, CLB_HELPER_NONE_SUCH = -3 };
enum { CLB_MOST_STEPS = 64, CLB_MOST_AHEAD = 5 };

/* Memory that the helper shares with its children. */
struct clb_helper_shared {
    _Atomic bool stop;   /* the program has ended: begin no program */
    _Atomic bool opened; /* a driver, and there is something to build */
    _Atomic int last;    /* behind the last step that will be built */
    double rank;         /* of the best device, for choosing between drivers */
    char library[512];   /* the only driver that children may open; empty: the loader */
    char device[32];     /* the only device, as in CLBLAS_SHIM_DEVICE; empty: the best */
    int lock_file;       /* of clb_helper_lock_path */
    struct clb_choice choice[CLB_PRECISIONS][CLB_CHOICES]; /* that the builder has made */
    int status[CLB_MOST_STEPS];                            /* of steps that are done */
    struct clb_helper_child {
        _Atomic int step;              /* that it does, from 0 */
        bool finished;                 /* it has: a driver may call exit */
        bool chooses;                  /* it finds out a choice, unless there is one */
        char current[(size_t)1 << 20]; /* a program, to be marked if it dies; or empty */
    } builder, loader, ahead[CLB_MOST_AHEAD];
};

/* NULL but in a child of the helper. */
extern struct clb_helper_shared *clb_helper_shared;
extern struct clb_helper_child *clb_helper_child;
/* Called first in a child of the helper. */
void clb_helper_become(clb_helper_role as, struct clb_helper_shared *with);
clb_helper_role clb_helper_get_role(void);

/* The file that a working helper has locked, and writes to. */
bool clb_helper_lock_path(char *text, size_t size);

/* Take what only one child of the helper may have at a time: a program that is to be built, by its
 * identity, or CLB_HELPER_DEVICE, so that nothing else is computed while a rate is measured. A
 * child waits for it, or else: false, another one has it. A child that dies leaves it. */
#define CLB_HELPER_DEVICE "device"
bool clb_helper_take(const char *what, bool waits);
void clb_helper_leave(const char *what);

/* ---- drivers ---- */

/* A bit for each kind of GPU that has a device file here; a driver's device is else the CPU. */
unsigned clb_gpu_files(void);

/* What decides which drivers there are and what they do, malloc'ed. */
char *clb_drivers_describe(void);

/* By a record of these drivers that counts (*known): CLB_OK, and in `library` the only one that
 * works where that is so. */
clb_status clb_drivers_recall(char *library, size_t size, bool *known) CLB_MUST_CHECK;
/* What calls want that may start the device: the helper that meets drivers builds it at once. */
void clb_helper_expect(clb_precision precision, bool systems);
/* Before a driver is loaded: CLB_OK, and in `library` the only driver that may be opened, or "" for
 * the loader; CLB_ERR_NODEVICE when none works. */
clb_status clb_helper_meet_drivers(char *library, size_t size) CLB_MUST_CHECK;

/* ---- steps ----
 *
 * A step is what one check needs, in one precision: its programs, built, launched and checked. */

typedef enum clb_helper_step {
    CLB_STEP_GEMM,    /* clb_gemm_variant_get */
    CLB_STEP_SYSTEMS, /* clb_workspace_check */
    CLB_STEP_DIRECT,  /* clb_direct_prepare */
    CLB_STEP_SKIP,    /* clb_skip_prepare */
    CLB_STEP_PANELS,  /* clb_getf2_check */
    CLB_STEP_BLOCKS,  /* clb_potf2_check */
    CLB_STEPS
} clb_helper_step;

/* Called by a check before it gets its programs: CLB_OK when the helper has done the step, or this
 * process builds them; CLB_ERR_STARTING when it is at work and the call has a time limit. It does a
 * step without a record, and again one that failed an hour ago or whose rates are a week old. */
clb_status clb_step_need(const struct clb_runtime *runtime, clb_helper_step step,
                         clb_precision precision) CLB_MUST_CHECK;

/* "gemm:d", and back; false for any other text. */
void clb_step_format(char *text, size_t size, clb_helper_step step, clb_precision precision);
bool clb_step_parse(const char *text, clb_helper_step *step, clb_precision *precision);

/* Have the last step done again, because the cache has lost a program; false if that fails. */
bool clb_helper_request_again(void);

/* All that decides which programs a step builds, and how they are checked; malloc'ed. */
char *clb_step_describe(const struct clb_device *device, clb_helper_step step,
                        clb_precision precision);
/* False when the step has no record on this device. */
bool clb_step_find(const struct clb_device *device, clb_helper_step step, clb_precision precision,
                   struct clb_record *record);

/* In the helper: record what has become of a step. */
void clb_step_record(const struct clb_device *device, clb_helper_step step, clb_precision precision,
                     clb_status status);

/* ---- how fast devices and kernels are ----
 *
 * The helper measures kernels that have passed, in the step for products. Where no rate is known,
 * as in a process that builds its kernels itself, the order of drivers decides. */

#define CLB_RATE_LASTS 604800 /* seconds after which a rate is measured again */

/* About what a plain loop on one core of any CPU does, in GFLOP/s in any precision; a device that
 * does less, a CPU device for each core, is too slow. */
#define CLB_LEAST_RATE 1.0
#define CLB_LEAST_NAME "a core's plain loop"

/* True where the user leaves it to rates whether kernels are used. */
bool clb_rates_decide(void);

/* What the helper has chosen; false where this process must find out and note it. */
bool clb_choice_find(const struct clb_device *device, clb_precision precision, int which,
                     struct clb_choice *choice);
void clb_choice_note(clb_precision precision, int which, const struct clb_choice *choice);

/* The rate of the device at this place, "P:D", in GFLOP/s, of a CPU device for each core; measured
 * now if need be. 0: not known; below 0: no kernel works. */
double clb_device_rate(const struct clb_device *device, const char *place);

/* What was not used because of its rate, and what was, in GFLOP/s; the report has the first few. */
enum { CLB_RATE_DECISIONS = 16 };
struct clb_rate_decision {
    char dropped[192], used[192];
    double dropped_rate, used_rate;
};
void clb_rate_note(const struct clb_rate_decision *decision);
/* Returns their number. */
size_t clb_rate_decisions(const struct clb_rate_decision **list);

/* The decision about kernels of this name and rate. */
void clb_rate_note_slow(const struct clb_device *device, clb_precision precision, const char *name,
                        double rate);

/* ---- spawn.c: processes that the program does not notice ---- */

struct clb_spawn_result {
    int exit_status;    /* 128 and the signal's number where one has ended it */
    int error;          /* 0, or the errno for which it was not started */
    bool gave_up;       /* it was killed, because it did not get on */
    double seconds;     /* from the call to its end */
    double cpu_seconds; /* of it and its children */
    long peak_kib;      /* the memory of the largest of them */
};

/* Run the program `path` and wait for its end, or kill it when the file `sign`, to which it writes
 * while it gets on, has not changed for so many seconds. This process gets no signal, nothing from
 * any form of wait, and no descriptor. The helper has clb_spawn_environment, /dev/null as its three
 * files, a session of its own and a lower priority; it gets SIGTERM when this process ends.
 * CLB_ERR_IO where it was not started or has not ended. */
clb_status clb_spawn(const char *path, char *const *arguments, const char *sign, double seconds,
                     struct clb_spawn_result *result) CLB_MUST_CHECK;

/* CPUs that a helper at work leaves to a next library whose threads wait for one another: all but
 * one. 0: no helper works, there are fewer than four CPUs, or results must not differ. */
int clb_helper_leaves(void);

/* A copy of the environment at the first call, without LD_PRELOAD. That call is made in a thread of
 * the program, which may change its environment while a driver task runs. */
char **clb_spawn_environment(void);

/* ---- driver.c: the thread on which drivers start and compile ---- */

/* Run a task on a thread of its own and wait for its end; on such a thread, call it. The caller
 * must hold no lock that a task may take. The task's status, or CLB_ERR_NOMEM without a thread. */
clb_status clb_driver_call(clb_status (*run)(void *argument), void *argument) CLB_MUST_CHECK;

/* The same for a thread with a time limit: CLB_ERR_STARTING when another task runs, or when this
 * one has not ended by then or waits for a helper. It goes on all the same, so it gets a copy of
 * the `size` bytes at `argument`, which must not refer to the caller's stack. */
clb_status clb_driver_request(clb_status (*run)(void *argument), const void *argument,
                              size_t size) CLB_MUST_CHECK;

/* ---- program.c: what earlier processes have checked ---- */

/* True when the program has passed the check of this name in an earlier process, compiled by the
 * same driver; set_checked records that. Never true for a program that this process compiled. */
bool clb_program_is_checked(const struct clb_program *program, const char *check);
void clb_program_set_checked(const struct clb_runtime *runtime, const struct clb_program *program,
                             const char *check);

#endif
