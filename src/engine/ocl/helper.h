/* helper: the process that meets drivers, what it is asked for, and what it has found out. */
#ifndef CLB_HELPER_H
#define CLB_HELPER_H

#include "device.h"
#include "store.h"

#include <stdatomic.h>

/* ---- what this process is -------------------------------------------------------------------- */

typedef enum clb_probe_role {
    CLB_PROBE_HERE,    /* no helper: this process starts drivers and builds programs itself */
    CLB_PROBE_USER,    /* has the helper do that, and loads what has passed */
    CLB_PROBE_BUILDER, /* a child of the helper: builds, checks and stores */
    CLB_PROBE_LOADER   /* a child of the helper: loads what is stored, and checks it again */
} clb_probe_role;

/* Exit statuses of the helper; 0: the step's record is in the cache. */
enum { CLB_PROBE_EXIT_FAILED = 1, CLB_PROBE_EXIT_NO_LOCK = 73, CLB_PROBE_EXIT_BUSY = 75 };

/* Which row of the tuning tables is the first that works on a device, which one is used where rates
 * decide, and their GFLOP/s: of a CPU device for each core, 0 where it is not known. */
struct clb_choice {
    struct clb_ranked {
        size_t row;
        double rate;
        char name[48];
    } first, used;
};
enum { CLB_CHOICES = 2 }; /* of any kernels, and of those that do without split numbers */

/* Memory that the helper shares with its child. */
struct clb_probe_shared {
    _Atomic bool stop;             /* the program has ended: begin nothing that takes long */
    bool finished;                 /* the child has: a driver may call exit */
    double rank;                   /* of the best device, for choosing between drivers */
    char library[CLB_DRIVER_PATH]; /* the only driver that the child may open; empty: the loader */
    char device[32];               /* the only device, as in CLBLAS_SHIM_DEVICE; empty: the best */
    bool chooses;                  /* the builder finds out the choice, the loader takes it */
    struct clb_choice choice[CLB_CHOICES];
    char current[(size_t)1 << 20]; /* what the child does: a program's key, or empty */
};

/* Called in a child of the helper before all else. */
void clb_probe_become(clb_probe_role as, struct clb_probe_shared *with);
clb_probe_role clb_probe_get_role(void);

/* In a child of the helper: say what is begun now, so that it can be marked; the helper should end
 * before the next program. Elsewhere nothing happens. */
void clb_probe_note(const char *what);
bool clb_probe_should_stop(void);
/* In a child of the helper: the only device that it may use, or NULL. */
const char *clb_probe_device(void);

/* The file that a working helper has locked, and writes to. */
bool clb_probe_lock_path(char *text, size_t size);

/* ---- marks ----------------------------------------------------------------------------------- */

/* A mark on a program, by its key, or on a device, by its identity, is found for a week. */
void clb_mark_set(const char *what, const char *reason);
bool clb_mark_find(const char *what, struct clb_record *record);

/* ---- drivers --------------------------------------------------------------------------------- */

/* What decides which drivers there are and what they do, malloc'ed. */
char *clb_drivers_describe(void);

/* Before a driver is loaded: CLB_OK, and in `library` the only driver that may be opened or "" for
 * all of them by the loader; CLB_ERR_NODEVICE when there is none that works. */
clb_status clb_probe_meet_drivers(char *library, size_t size) CLB_MUST_CHECK;

/* ---- steps -----------------------------------------------------------------------------------
 *
 * A step is what one check needs, in one precision: its programs, built, launched and checked. */

typedef enum clb_probe_step {
    CLB_STEP_GEMM,      /* clb_gemm_variant_get */
    CLB_STEP_DIRECT,    /* clb_direct_prepare */
    CLB_STEP_SKIP,      /* clb_skip_prepare */
    CLB_STEP_STRUCTURE, /* clb_structure_check */
    CLB_STEP_SYSTEMS,   /* clb_workspace_check */
    CLB_STEP_PANELS,    /* clb_getf2_check */
    CLB_STEP_BLOCKS,    /* clb_potf2_check */
    CLB_STEPS
} clb_probe_step;

/* "gemm:d", and back; false for any other text. */
void clb_step_format(char *text, size_t size, clb_probe_step step, clb_precision precision);
bool clb_step_parse(const char *text, clb_probe_step *step, clb_precision *precision);

/* Called by a check before it gets its programs: CLB_OK when the helper has done the step, or when
 * there is no helper and this process builds them. The helper does a step of which there is no
 * record, and again one that failed an hour ago, or whose rates are a week old. */
struct clb_runtime;
clb_status clb_step_need(const struct clb_runtime *runtime, clb_probe_step step,
                         clb_precision precision) CLB_MUST_CHECK;
/* Have the last step done again, because the cache has lost a program; false if that fails. */
bool clb_probe_request_again(void);

/* All that decides which programs a step builds, and how they are checked; malloc'ed. */
char *clb_step_describe(const struct clb_device *device, clb_probe_step step,
                        clb_precision precision);
/* The record of a step that has been done on this device; false when there is none. */
bool clb_step_find(const struct clb_device *device, clb_probe_step step, clb_precision precision,
                   struct clb_record *record);

/* Where the row of the tuning tables is that this machine has kept. */
static inline struct clb_key clb_row_key(const struct clb_device *device, clb_precision precision)
{
    static const char *const letters[CLB_PRECISIONS] = {"s", "d", "c", "z"};
    return (struct clb_key){CLB_RECORD_ROW, device->identity, letters[precision]};
}

/* In the helper: record what has become of a step. */
void clb_step_record(const struct clb_device *device, clb_probe_step step, clb_precision precision,
                     clb_status status);

/* ---- how fast devices and kernels are ---------------------------------------------------------
 *
 * The helper measures kernels when they have passed, as part of the step for products. What is
 * missing is not known, and then the order of the tables and of the drivers decides. A process that
 * builds its kernels itself knows nothing. */

#define CLB_RATE_LASTS 604800 /* seconds after which a rate is measured again */

/* A plain loop on one core of any CPU does about so many GFLOP/s in any precision; a device that
 * does less, a CPU device for each of its cores, is too slow. */
#define CLB_LEAST_RATE 1.0
#define CLB_LEAST_NAME "a core's plain loop"

/* True where the user leaves it to rates which kernels are used, and whether. */
bool clb_rates_decide(void);

/* What the helper has chosen in this precision; false where this process must find out, and then
 * says what it has found. */
bool clb_choice_find(const struct clb_device *device, clb_precision precision, int which,
                     struct clb_choice *choice);
void clb_choice_note(int which, const struct clb_choice *choice);

struct clb_rate {
    double gflops; /* of a CPU device for each core; 0: not known */
    bool useless;  /* no kernel works */
};
/* The rate of a device with this place, "P:D", measured now where it must be. */
struct clb_rate clb_device_rate(const struct clb_device *device, const char *place);

/* What was not used because of its rate, what was instead, and their rates in GFLOP/s: for the log
 * and the report, which has the first few. */
enum { CLB_RATE_DECISIONS = 16 };
struct clb_rate_decision {
    char dropped[192], used[192];
    double dropped_rate, used_rate;
};
void clb_rate_note(const struct clb_rate_decision *decision);
/* Returns their number. */
size_t clb_rate_decisions(const struct clb_rate_decision **list);

/* True, for a week, of a device that was found too slow in a precision, which need not be started
 * for that; the decision is noted when it is first asked. */
bool clb_rate_was_slow(const struct clb_device *device, clb_precision precision);
/* The decision about kernels of this name and rate. */
void clb_rate_note_slow(const struct clb_device *device, clb_precision precision, const char *name,
                        double rate);

#endif
