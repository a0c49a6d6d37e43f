/* The fault matrix: each family of routines, in each kind of memory, with each fault of a driver at
 * random places of a call. The result is right and nothing else has changed (`wrong` counts), and
 * the program goes on, in time, and its report adds up (`lost` counts).
 * SPDX-License-Identifier: BSD-3-Clause
 * usage: faults [--jobs N] [--seconds S] [--record FILE] [--page FILE] [CELL ...]
 *
 * By hand and in `make check-faults` all cells, otherwise a sample of them. CELL is a part of
 * cells' names, "getrf/own memory/flipped". Cells that FILE says this program has finished are not
 * run again; after S seconds no more are begun. With all of them finished the page is written.
 *
 * Without CELL also every place in turn: each OpenCL call of a warm call fails once, each kernel is
 * once not run, each transfer fails once; by hand all, otherwise those at a distance. */
#include "any_call.h"
#include "fakecl.h"
#include "routed.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- families: routines of the same arguments, computed alike ---- */

enum { MAX_FAMILIES = 40 };

static struct family {
    clb_routine first;
    char name[32];
} families[MAX_FAMILIES];
static size_t family_count;

static bool are_alike(clb_routine x, clb_routine y)
{
    return strcmp(clb_routines[x].signature, clb_routines[y].signature) == 0 &&
           clb_routines[x].kind == clb_routines[y].kind &&
           clb_routine_has_flag(x, 'l') == clb_routine_has_flag(y, 'l');
}

static void find_families(void)
{
    for (int r = 0; r < CLB_ROUTINES; r++) {
        const char *stem = clb_routines[r].stem;
        size_t f = 0;
        while (f < family_count && !are_alike(families[f].first, (clb_routine)r))
            f++;
        if (f == MAX_FAMILIES)
            abort();
        struct family *family = &families[f];
        if (f == family_count) {
            family_count++;
            family->first = (clb_routine)r;
            snprintf(family->name, sizeof family->name, "%s", stem);
        } else if (strstr(family->name, stem) == NULL) {
            const size_t length = strlen(family->name);
            snprintf(family->name + length, sizeof family->name - length, ", %s", stem);
        }
    }
}

static clb_routine draw_routine(const struct family *family, uint64_t *seed)
{
    for (;;) {
        const clb_routine r = (clb_routine)random_below(seed, CLB_ROUTINES);
        /* Sampled: the precisions whose kernels other tests compile too. */
        if (are_alike(family->first, r) && !any_call_reads_beyond(r) &&
            (tap_full() || clb_precision_real_size(clb_routines[r].precision) == sizeof(double)))
            return r;
    }
}

/* What an abandoned device may still use is never freed: no leak that LeakSanitizer, which asks
 * this, should report at the end of such a process. */
static bool leaves_memory;
int __lsan_is_turned_off(void);
__attribute__((visibility("default"))) int __lsan_is_turned_off(void)
{
    return leaves_memory;
}

/* ---- memory ---- */

#define PARAMS "gemm.tile=min,trsm.nb=8,trsm.part=8,getrf.nb=8,potrf.nb=8,geqrf.nb=8"

enum { VARIANTS = 3 };

static const struct memory {
    const char *name, *kernel;
    bool discrete;
    const char *params[VARIANTS];
} memories[] = {
    {"shared memory", "cpu", false, {PARAMS, PARAMS, PARAMS ",potrf.block=2"}},
    {"own memory",
     "portable",
     true,
     {PARAMS ",gemm.threads=3", PARAMS ",gemm.threads=2,getrf.panel=2,potrf.block=1",
      PARAMS ",gemm.threads=3,getrf.block=16,getrf.panel=2"}},
    {"streamed",
     "cpu",
     false,
     {PARAMS ",gemm.stream=1,gemm.threads=1", PARAMS ",gemm.stream=1,gemm.threads=2,getrf.panel=2",
      PARAMS ",gemm.stream=1,gemm.threads=1,getrf.block=10"}},
};

/* ---- allocations of the library, which is linked with --wrap ---- */

static _Atomic long allocations, fail_allocation, failed_allocations;

static bool may_allocate(void)
{
    if (++allocations != fail_allocation)
        return true;
    failed_allocations++;
    errno = ENOMEM;
    return false;
}

#define WRAPPED(type, name, parameters, arguments)              \
    type __real_##name parameters;                              \
    type __wrap_##name parameters;                              \
    type __wrap_##name parameters                               \
    {                                                           \
        return may_allocate() ? __real_##name arguments : NULL; \
    }
WRAPPED(void *, malloc, (size_t size), (size))
WRAPPED(void *, calloc, (size_t count, size_t size), (count, size))
WRAPPED(void *, realloc, (void *memory, size_t size), (memory, size))
WRAPPED(char *, strdup, (const char *text), (text))

/* ---- faults ---- */

/* What a run is made of: a fault comes at one of these. */
enum place { CALL, KERNEL, TRANSFER, READ, QUERY, ALLOCATION, NOWHERE };

static long count_of(enum place place)
{
    switch (place) {
    case CALL:
        return fake_cl.calls;
    case KERNEL:
        return fake_cl.launches;
    case TRANSFER:
        return fake_cl.transfers;
    case READ:
        return fake_cl.reads;
    case QUERY:
        return fake_cl.queries;
    case ALLOCATION:
        return allocations;
    default:
        return 1;
    }
}

struct chance {
    long at; /* 0: no fault */
    uint64_t seed;
    bool single;
};

struct fault {
    const char *name, *words;
    enum place place;
    void (*arm)(const struct chance *chance);
    long (*hits)(void); /* how often it came */
    long runs;
    bool cold; /* in the first call of a process */
    bool verified, reordered;
    bool hangs; /* a device with its own memory is given up, and only such a one */
};

static cl_int code_of(uint64_t seed)
{
    static const cl_int codes[] = {CL_OUT_OF_RESOURCES,
                                   CL_MEM_OBJECT_ALLOCATION_FAILURE,
                                   CL_OUT_OF_HOST_MEMORY,
                                   CL_INVALID_VALUE,
                                   CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
                                   CL_DEVICE_NOT_AVAILABLE,
                                   -9999 /* a vendor's own */};
    return codes[seed % CLB_COUNT_OF(codes)];
}

static void fail_call(const struct chance *chance)
{
    fake_cl.run_anyway = chance->seed % 3 == 0;
    fake_cl_arm(chance->at, code_of(chance->seed >> 8), false);
}

static void fail_calls(const struct chance *chance)
{
    fail_call(chance);
    fake_cl.persistent = chance->at != 0;
}

static long failed_calls(void)
{
    return fake_cl.failures;
}

static long slow_call;
static _Atomic long entered, slept;

static void sleep_in_call(fake_function function)
{
    if (function == FAKE_GetEventInfo || ++entered != slow_call)
        return;
    slept++;
    nanosleep(&(struct timespec){0, 60000000}, NULL);
}

static void delay_call(const struct chance *chance)
{
    entered = slept = 0;
    slow_call = chance->at;
    fake_cl.enter = sleep_in_call;
}

static long slept_calls(void)
{
    return slept;
}

static void fail_event(const struct chance *chance)
{
    fake_cl_skip(chance->at, FAKE_EVENT_REPORTS);
}

static void fail_finish(const struct chance *chance)
{
    fake_cl_skip(chance->at, FAKE_FINISH_REPORTS);
}

static void drop_kernel(const struct chance *chance)
{
    fake_cl_skip(chance->at, FAKE_NOBODY_REPORTS);
}

static void hang_in_kernel(const struct chance *chance)
{
    fake_cl_skip(chance->at, FAKE_NEVER_ENDS);
}

static long skipped_kernels(void)
{
    return fake_cl.skipped;
}

static void fail_transfer(const struct chance *chance)
{
    fake_cl_fail_transfer(chance->at);
}

/* Several at once: the call that ends a tile and the one that waits for the rest. */
static void fail_waiting(const struct chance *chance)
{
    fail_calls(chance);
    fake_cl.only = 1ull << FAKE_Finish | 1ull << FAKE_WaitForEvents | 1ull << FAKE_Flush |
                   1ull << FAKE_ReleaseEvent | 1ull << FAKE_ReleaseMemObject |
                   1ull << FAKE_EnqueueUnmapMemObject;
}

/* But for asking what has become of a command: how often that is done depends on time. */
static void fail_each(const struct chance *chance)
{
    fail_call(chance);
    fake_cl.only = ~(1ull << FAKE_GetEventInfo);
}

static void fail_asking(const struct chance *chance)
{
    fail_call(chance);
    fake_cl.only = 1ull << FAKE_GetEventInfo;
}

static void report_garbage(const struct chance *chance)
{
    fake_cl_lie(chance->at, chance->seed);
}

static long lies(void)
{
    return fake_cl.lies;
}

static void flip_read(const struct chance *chance)
{
    fake_cl_flip_read(chance->at, chance->single, chance->seed);
}

static long flipped_reads(void)
{
    return fake_cl.flipped;
}

static void fail_allocations(const struct chance *chance)
{
    allocations = failed_allocations = 0;
    fail_allocation = chance->at;
}

static long allocation_failures(void)
{
    return failed_allocations;
}

static void arm_nothing(const struct chance *chance)
{
    (void)chance;
}

static long always(void)
{
    return 1;
}

static const struct fault faults[] = {
    {"call fails", "a call fails once", CALL, fail_call, failed_calls, .runs = 16},
    {"call fails, cold", "a call fails once, in the first call of a process", CALL, fail_call,
     failed_calls, .runs = 4, .cold = true},
    {"all fail", "a call and all calls after it fail", CALL, fail_calls, failed_calls, .runs = 12},
    {"all fail, cold", "the same, in the first call of a process", CALL, fail_calls, failed_calls,
     .runs = 4, .cold = true},
    {"call hangs", "a call takes 60 ms longer", CALL, delay_call, slept_calls, .runs = 8},
    {"event fails", "a kernel is not run, its event has a negative status", KERNEL, fail_event,
     skipped_kernels, .runs = 12},
    {"finish fails", "a kernel is not run, which only clFinish says", KERNEL, fail_finish,
     skipped_kernels, .runs = 12},
    {"dropped", "a kernel is not run, which nobody says", KERNEL, drop_kernel, skipped_kernels,
     .runs = 12},
    {"never ends", "a kernel never ends, and its queue with it", KERNEL, hang_in_kernel,
     skipped_kernels, .runs = 4, .hangs = true},
    {"flipped", "a bit of a number that is read back is flipped; CLBLAS_SHIM_VERIFY=1", READ,
     flip_read, flipped_reads, .runs = 12, .verified = true},
    {"garbage", "a query of a size is answered with garbage, in the first call of a process", QUERY,
     report_garbage, lies, .runs = 6, .cold = true},
    {"no memory", "an allocation of the shim's own fails", ALLOCATION, fail_allocations,
     allocation_failures, .runs = 12},
    {"reordered", "commands run in any order that events and queues allow", NOWHERE, arm_nothing,
     always, .runs = 8, .reordered = true},
};

/* In every place in turn; `runs` of them in a sample. The last ones are for devices whose events
 * are kept, unlike NVIDIA's. */
static const struct fault series[] = {
    {"every call fails", "", CALL, fail_each, failed_calls, .runs = 16},
    {"waiting fails", "", CALL, fail_waiting, failed_calls, .runs = 3},
    {"asking fails", "", CALL, fail_asking, failed_calls, .runs = 2},
    {"every transfer fails", "", TRANSFER, fail_transfer, skipped_kernels, .runs = 4},
    {"every kernel is dropped", "", KERNEL, drop_kernel, skipped_kernels, .runs = 3},
    {"every kernel fails by its event", "", KERNEL, fail_event, skipped_kernels, .runs = 3},
    {"every kernel fails by clFinish", "", KERNEL, fail_finish, skipped_kernels, .runs = 3},
};

enum {
    FAULTS = CLB_COUNT_OF(faults),
    SERIES = CLB_COUNT_OF(series),
    SERIES_WITHOUT_EVENTS = 5,
    MEMORIES = CLB_COUNT_OF(memories)
};

/* ---- a process with its share of a cell's runs ---- */

enum { MOST_IN_PROCESS = 12, LIMIT = 60 }; /* LIMIT: seconds */

struct counts {
    long runs, noticed, wrong, lost;
};

static const struct cell {
    const struct family *family;
    const struct memory *memory;
    const struct fault *fault;
} * cell;

/* Between a worker and its children. */
static struct shared {
    struct counts counts;
    long wanted;
    uint64_t seed;
    long places; /* of a first call; 0: not known */
    bool absent; /* the next library has no such routine, or a call has no such place */
    bool faulty; /* a call with a fault is running */
} * shared;

static const char *cell_name(const struct cell *of)
{
    static char name[120];
    snprintf(name, sizeof name, "%s/%s/%s", of->family->name, of->memory->name, of->fault->name);
    return name;
}

static void start(uint64_t *seed)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)random_bits(seed));
    /* The rules go by what the device really says. */
    fake_cl.breaches_wanted = cell->fault->place == QUERY;
    if (cell->fault->reordered)
        setenv("REORDER", text, 1);
    if (cell->memory->discrete && random_below(seed, 2) == 0)
        setenv("ENQUEUER", "1", 1);
    setenv("CLBLAS_SHIM_VERIFY", cell->fault->verified ? "1" : "0", 1);
    setenv("CLBLAS_SHIM_KERNEL", cell->memory->kernel, 1);
    setenv("CLBLAS_SHIM_MEMORY", "256M", 1);
    if (cell->fault->cold && random_below(seed, 4) == 0) /* built from source */
        setenv("CLBLAS_SHIM_CACHE_DIR", "none", 1);
    routed_set_device(cell->memory->discrete);
    char params[256];
    snprintf(params, sizeof params, "%s%s", cell->memory->params[random_below(seed, VARIANTS)],
             cell->fault->hangs ? ",gemm.hang=1000" : "");
    routed_set_up("always", params);
    if (freopen("/dev/null", "w", stderr) == NULL) /* complaints of a device that is not found */
        exit(1);
}

static bool is_in_use(void)
{
    clb_runtime_state state;
    return clb_runtime_get(&state) != NULL;
}

/* PoCL compiles a kernel in its first run, which may take seconds: a limit (gemm.hang) that is
 * meant for a kernel that never ends holds from the first fault on. */
static void set_time_limit(unsigned millis)
{
    clb_runtime_state state;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (expect(runtime != NULL, "no device"))
        atomic_store(&runtime->hang_millis, millis);
}

static struct chance chance;
static long places, hits; /* of the last call */

static void disarm(void)
{
    static const struct chance never;
    for (size_t f = 0; f < FAULTS; f++)
        faults[f].arm(&never);
    fake_cl.only = 0;
    fake_cl.run_anyway = false;
    fake_cl.enter = NULL;
}

static void arm_call(bool begins)
{
    if (begins)
        cell->fault->arm(&chance);
    places = count_of(cell->fault->place);
    hits = cell->fault->hits();
    if (!begins)
        disarm();
}

/* A call of this problem, with a fault at this place or without. */
static void run_once(clb_routine routine, uint64_t problem, long at, uint64_t seed)
{
    const char *name = clb_symbol_at(routine, 0)->next.name;
    const double before = reported(name, "recovered") + reported(name, "quarantined");
    const bool single = clb_precision_real_size(clb_routines[routine].precision) == sizeof(float);
    chance = (struct chance){at, seed, single};
    shared->faulty = at != 0;
    const double worst = any_call_run(routine, &problem);
    shared->faulty = false;
    shared->absent = worst < 0;
    const bool hit = at != 0 && hits > 0, wrong = !(worst < any_call_tolerance(routine));
    shared->counts.runs += hit;
    shared->counts.wrong += wrong;
    shared->counts.noticed +=
        hit && reported(name, "recovered") + reported(name, "quarantined") > before;
    if (wrong)
        tap_note("%s: %s, fault at %ld of %ld: off by %g", cell_name(cell), name, at, places,
                 worst);
}

/* Until the device is not used any more, which also three failures in a row would lead to. */
static void run_faults(clb_routine routine, uint64_t problem, uint64_t *seed)
{
    const long last = places;
    shared->absent = last == 0;
    for (int i = 0;
         i < MOST_IN_PROCESS && last > 0 && shared->counts.runs < shared->wanted && is_in_use();
         i++) {
        run_once(routine, problem, 1 + (long)random_below(seed, (size_t)last), random_bits(seed));
        if (i % 2 == 1)
            run_once(routine, problem, 0, 0);
    }
}

/* The first call of the process, which tells how many places there are, or has a fault; and the
 * second. */
static void run_cold(clb_routine routine, uint64_t problem, uint64_t *seed)
{
    const long at = shared->places == 0 ? 0 : 1 + (long)random_below(seed, (size_t)shared->places);
    run_once(routine, problem, at, random_bits(seed));
    if (at == 0)
        shared->places = places;
    run_once(routine, problem, 0, 0);
}

enum { DRIVER_SIZE = 256 };

static void note_device(char *driver)
{
    const struct clb_runtime *runtime = clb_runtime_peek();
    if (runtime != NULL)
        snprintf(driver, DRIVER_SIZE, "%.100s %.100s", runtime->device.platform_name,
                 runtime->device.driver);
}

static void run_share(void *unused)
{
    uint64_t seed = shared->seed;
    const clb_routine routine = draw_routine(cell->family, &seed);
    const char *name = clb_symbol_at(routine, 0)->next.name;
    const uint64_t problem = random_bits(&seed);
    (void)unused;
    start(&seed);
    if (cell->fault->hangs)
        set_time_limit(1000 * LIMIT);
    any_call_routes = arm_call;
    if (cell->fault->cold) {
        run_cold(routine, problem, &seed);
    } else {
        for (int warm = 0; warm < 2 && !shared->absent; warm++)
            run_once(routine, problem, 0, 0);
        if (shared->absent)
            return;
        expect(reported(name, "device") == 2, "%s: not computed on the device", name);
        if (cell->fault->hangs)
            set_time_limit(1000);
        run_faults(routine, problem, &seed);
    }
    if (!shared->absent)
        expect_sums(name);
    leaves_memory = cell->fault->hangs;
    if (cell->fault->hangs) /* nothing waits for its commands */
        exit(expect_failures() != 0);
}

/* ---- cells ---- */

static void run_cell(const struct cell *of, long runs, uint64_t seed)
{
    cell = of;
    *shared = (struct shared){.wanted = runs};
    long absent = 0;
    for (long tries = 0; shared->counts.runs < runs && tries < 4 * runs && absent < 6; tries++) {
        shared->seed = random_bits(&seed);
        absent += shared->absent;
        shared->absent = false;
        const int status = run_child(LIMIT, run_share, NULL, NULL, 0);
        if (status == 0)
            continue;
        tap_note("%s: status %#x", cell_name(of), (unsigned)status);
        shared->counts.runs += shared->faulty;
        shared->counts.lost++;
        shared->faulty = false;
    }
}

static struct cell cells[MAX_FAMILIES * MEMORIES * FAULTS];
static size_t cell_count;

static void make_cells(void)
{
    find_families();
    for (size_t m = 0; m < MEMORIES; m++) {
        for (size_t f = 0; f < family_count; f++) {
            for (size_t i = 0; i < FAULTS; i++)
                cells[cell_count++] = (struct cell){&families[f], &memories[m], &faults[i]};
        }
    }
}

/* Where the results are: shared by all workers. */
static struct results {
    _Atomic size_t next;
    struct {
        bool done;
        struct counts counts;
    } cell[CLB_COUNT_OF(cells)];
    char driver[DRIVER_SIZE];
} * results;

static struct options {
    const char *record, *page;
    long jobs, seconds;
    char **filters;
    int filter_count;
    uint64_t seed, program;
} options = {.jobs = 1, .seconds = 100000000};

static bool applies(size_t index)
{
    return !cells[index].fault->hangs || cells[index].memory->discrete;
}

/* All of those that are recorded or named; else a sample: each fault with each family in turn, in
 * each memory in turn. */
static bool is_wanted(size_t index)
{
    const bool all = options.record != NULL || options.filter_count > 0;
    const size_t each = all ? 1 : tap_full() ? 27 : 33;
    bool named = options.filter_count == 0;
    for (int i = 0; i < options.filter_count && !named; i++)
        named = strstr(cell_name(&cells[index]), options.filters[i]) != NULL;
    return named && applies(index) && index % each == options.seed % each;
}

/* FNV-1a: the library is part of this program. */
static uint64_t hash_program(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    FILE *file = fopen("/proc/self/exe", "rb");
    for (int c; file != NULL && (c = getc(file)) != EOF;)
        hash = (hash ^ (unsigned)c) * UINT64_C(0x100000001b3);
    if (file != NULL)
        fclose(file);
    return hash;
}

#define RECORD "%016llx %llu %ld %ld %ld %ld %s\n"

static void store_record(size_t index)
{
    const struct counts *counts = &results->cell[index].counts;
    char line[256];
    const int length = snprintf(line, sizeof line, RECORD, (unsigned long long)options.program,
                                (unsigned long long)options.seed, counts->runs, counts->noticed,
                                counts->wrong, counts->lost, cell_name(&cells[index]));
    int file =
        options.record != NULL ? open(options.record, O_WRONLY | O_CREAT | O_APPEND, 0666) : -1;
    if (file >= 0 && write(file, line, (size_t)length) != length)
        tap_note("%s: %s", options.record, strerror(errno));
    if (file >= 0)
        close(file);
}

static void load_records(void)
{
    char line[256];
    FILE *file = options.record != NULL ? fopen(options.record, "r") : NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned long long program, seed;
        struct counts counts;
        int name = 0;
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%llx %llu %ld %ld %ld %ld %n", &program, &seed, &counts.runs,
                   &counts.noticed, &counts.wrong, &counts.lost, &name) < 6 ||
            program != options.program || seed != options.seed)
            continue;
        for (size_t i = 0; i < cell_count; i++) {
            if (strcmp(line + name, cell_name(&cells[i])) == 0) {
                results->cell[i].done = true;
                results->cell[i].counts = counts;
            }
        }
    }
    if (file != NULL)
        fclose(file);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* One of those that share the cells. */
static void work(double end)
{
    size_t index;
    while ((index = results->next++) < cell_count && seconds_now() < end) {
        const struct fault *fault = cells[index].fault;
        if (results->cell[index].done || !is_wanted(index))
            continue;
        uint64_t seed = options.seed + index;
        run_cell(&cells[index], tap_full() || fault->runs < 2 ? fault->runs : 2,
                 random_bits(&seed));
        results->cell[index].counts = shared->counts;
        results->cell[index].done = true;
        store_record(index);
    }
}

static void *map_shared(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(1);
    return memory;
}

static void run_all(void)
{
    const double end = seconds_now() + (double)options.seconds;
    fflush(NULL);
    for (long job = 0; job < options.jobs; job++) {
        if (fork() != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        shared = map_shared(sizeof *shared);
        work(end);
        fflush(NULL);
        _exit(0);
    }
    while (wait(NULL) > 0)
        continue;
}

/* ---- every place in turn ---- */

static void keep_no_events(void)
{
    clb_runtime_state state;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (expect(runtime != NULL, "no device"))
        runtime->device.quirks |= CLB_QUIRK_FAILS_FOR_GOOD;
}

/* Routines whose result is written in parts, none of which is computed twice. Panels of others are
 * always the next library's. */
static bool is_of_parts(clb_routine routine)
{
    return strstr("gemm gemm3m trmm trsm getrs potrs", clb_routines[routine].stem) != NULL;
}

/* A place in a call of the problem without a fault before; *partly: the next library has computed
 * a part. */
static void run_place(clb_routine routine, uint64_t problem, long at, uint64_t seed, bool *partly)
{
    const char *name = clb_symbol_at(routine, 0)->next.name;
    const double device = reported(name, "device");
    run_once(routine, problem, 0, 0);
    expect(reported(name, "device") == device + 1, "%s: not computed on the device", name);
    any_host_entries = 0;
    run_once(routine, problem, at, seed);
    if ((cell->fault->place == KERNEL || cell->fault->place == TRANSFER) && hits > 0)
        expect(reported(name, "device") == device + 1, "%s: %s: %ld is not noticed", name,
               cell->fault->name, at);
    const size_t entries = any_host_entries;
    expect(entries <= any_call_entries || !is_of_parts(routine),
           "%s, %ld: the next library got too much", name, at);
    *partly = *partly || (entries > 0 && entries < any_call_entries);
}

/* Quarantine comes after three failures in a row. */
static void run_series(void *argument)
{
    const struct cell *of = argument;
    uint64_t seed = shared->seed;
    const clb_routine routine = draw_routine(of->family, &seed);
    const char *name = clb_symbol_at(routine, 0)->next.name;
    const uint64_t problem = random_bits(&seed);
    struct cell here = {of->family, of->memory, &series[0]};
    long tried = 0;
    cell = &here;
    start(&seed);
    const bool events = !of->memory->discrete || random_below(&seed, 2) == 0;
    if (!events)
        keep_no_events();
    any_call_routes = arm_call;
    any_call_options = (struct any_options){
        .hosted = true, .wide = random_below(&seed, 2), .singular = random_below(&seed, 3) == 0};
    for (int warm = 0; warm < 2 && !shared->absent; warm++)
        run_once(routine, problem, 0, 0);
    for (size_t i = 0; i < (events ? SERIES : SERIES_WITHOUT_EVENTS) && !shared->absent; i++) {
        bool partly = false;
        here.fault = &series[i];
        run_once(routine, problem, 0, 0);
        const long last = places, step = 1 + last / here.fault->runs;
        for (long at = 1 + (long)random_below(&seed, (size_t)step); at <= last; at += step, tried++)
            run_place(routine, problem, at, random_bits(&seed), &partly);
        expect(partly || i > 0 || step > 1 || !tap_full() || !is_of_parts(routine),
               "%s: nothing is finished in part", name);
        expect(last > 1 || here.fault->place != KERNEL, "%s: %s: %ld places", name,
               here.fault->name, last);
    }
    expect(shared->absent || (shared->counts.wrong == 0 && shared->counts.runs > tried / 2),
           "%ld wrong, %ld of %ld faults came", shared->counts.wrong, shared->counts.runs, tried);
    expect(reported(name, "quarantined") == 0, "quarantined");
    expect_sums(name);
}

/* Each family, in a memory in turn. */
static void run_all_series(void)
{
    uint64_t seed = options.seed;
    shared = map_shared(sizeof *shared);
    for (size_t f = 0; f < family_count; f++) {
        for (size_t m = 0; m < MEMORIES; m++) {
            const struct cell of = {&families[f], &memories[m], &series[0]};
            char name[120];
            *shared = (struct shared){.seed = random_bits(&seed)};
            if ((f + options.seed) % MEMORIES != m)
                continue;
            snprintf(name, sizeof name, "%s in %s: places in turn", families[f].name,
                     memories[m].name);
            tap_child(name, 600, run_series, (void *)(uintptr_t)&of);
            tap_note("%ld faults, %ld recovered", shared->counts.runs, shared->counts.noticed);
        }
    }
}

/* ---- a process that is stopped ----
 */

/* Stop this process for a second, in its first question after a kernel that never ends. */
static void stop_once(fake_function function)
{
    if (function != FAKE_GetEventInfo || fake_cl.skipped == 0 || slept++ > 0)
        return;
    const pid_t parent = getpid(), child = fork();
    if (child == 0) {
        nanosleep(&(struct timespec){1, 0}, NULL);
        kill(parent, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    waitpid(child, NULL, 0);
}

static void stop_in_call(bool begins)
{
    leaves_memory = true;
    fake_cl_skip(begins ? 1 : 0, FAKE_NEVER_ENDS);
    fake_cl.enter = begins ? stop_once : NULL;
}

/* A second in which the process was stopped is no part of the half that the device has. */
static void count_running_time(void *unused)
{
    uint64_t problem = 1;
    (void)unused;
    setenv("CLBLAS_SHIM_KERNEL", "portable", 1);
    routed_set_device(true);
    routed_set_up("always", PARAMS ",gemm.hang=500");
    set_time_limit(1000 * LIMIT);
    any_call_run(CLB_ROUTINE_dgemm, &problem);
    set_time_limit(500);
    any_call_routes = stop_in_call;
    const double begin = seconds_now();
    expect(any_call_run(CLB_ROUTINE_dgemm, &problem) < 1e-7, "a wrong result");
    const double seconds = seconds_now() - begin;
    note_device(results->driver);
    expect(slept > 0, "the process was not stopped");
    expect(seconds > 1.45, "abandoned after %.2f s", seconds);
    expect(reported("dgemm_", "recovered") == 1 && !is_in_use(), "the device is not abandoned");
    any_call_routes = NULL;
    expect(any_call_run(CLB_ROUTINE_dgemm, &problem) < 1e-7, "a wrong result");
    expect(reported("dgemm_", "quarantined") == 1, "the device is used again");
    exit(expect_failures() != 0);
}

/* A second into a call that would wait for its device for an hour. */
static void end_by_signal(void *discrete)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGTERM};
    uint64_t problem = 1;
    timer_t timer;
    setenv("CLBLAS_SHIM_KERNEL", "portable", 1);
    routed_set_device(discrete != NULL);
    routed_set_up("always", PARAMS ",gemm.hang=3600000");
    any_call_run(CLB_ROUTINE_dgemm, &problem);
    fake_cl_skip(1, FAKE_NEVER_ENDS);
    signal(SIGTERM, SIG_DFL);
    expect(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 &&
               timer_settime(timer, 0, &(struct itimerspec){.it_value = {1, 0}}, NULL) == 0,
           "a timer");
    any_call_run(CLB_ROUTINE_dgemm, &problem);
}

/* ---- results ---- */

/* A line for each fault. In full a cell has all of its runs. */
static void judge(void)
{
    for (size_t f = 0; f < FAULTS; f++) {
        struct counts sum = {0};
        long done = 0, wanted = 0;
        for (size_t i = 0; i < cell_count; i++) {
            const struct counts *counts = &results->cell[i].counts;
            if (cells[i].fault != &faults[f] || !is_wanted(i))
                continue;
            wanted++;
            done += results->cell[i].done;
            sum.runs += counts->runs;
            sum.noticed += counts->noticed;
            sum.wrong += counts->wrong;
            sum.lost += counts->lost;
        }
        if (wanted > 0)
            tap_ok(sum.wrong == 0 && sum.lost == 0 && sum.runs >= done && done == wanted,
                   "%s: %ld runs of %ld of %ld cells, %ld recovered, %ld wrong, %ld lost",
                   faults[f].words, sum.runs, done, wanted, sum.noticed, sum.wrong, sum.lost);
    }
}

static void write_table(FILE *page, size_t memory)
{
    fprintf(page, "\n## %c%s\n\n| family |", memories[memory].name[0] - 'a' + 'A',
            memories[memory].name + 1);
    for (size_t f = 0; f < FAULTS; f++)
        fprintf(page, " %s |", faults[f].name);
    fprintf(page, "\n|---|");
    for (size_t f = 0; f < FAULTS; f++)
        fprintf(page, "---|");
    for (size_t i = memory * family_count * FAULTS; i < (memory + 1) * family_count * FAULTS; i++) {
        const struct counts *counts = &results->cell[i].counts;
        if (i % FAULTS == 0)
            fprintf(page, "\n| %s |", cells[i].family->name);
        if (counts->runs + counts->lost == 0)
            fprintf(page, " - |");
        else
            fprintf(page, " %ld/%ld/%ld |", counts->runs, counts->wrong, counts->lost);
    }
    fprintf(page, "\n");
}

static void write_page(const char *path)
{
    char date[32];
    const time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    for (size_t i = 0; i < cell_count; i++) {
        if (!results->cell[i].done && applies(i))
            return;
    }
    FILE *page = fopen(path, "w");
    if (!tap_ok(page != NULL, "%s is written", path))
        return;
    fprintf(page,
            "# Reliability\n\n"
            "What happens when a driver fails. In each run a fault comes at a random place of a\n"
            "call. The entries are *runs*/*wrong*/*lost*: runs in which the fault came; results\n"
            "that are off by more than the tolerance, or other memory that has changed; and\n"
            "processes that ended or hung, or whose report does not add up. The call after a\n"
            "fault is judged too. Zeros are the promise. A dash: a call has no such place, or the\n"
            "next library no such routine.\n\n"
            "Date: %s. Driver: %s, behind testing/lib/fakecl.c.\nCommand: `make check-faults "
            "SEED=%llu DOC=PAGE`, which writes this page.\n\n"
            "| fault | what happens |\n|---|---|\n",
            date, results->driver, (unsigned long long)options.seed);
    for (size_t f = 0; f < FAULTS; f++)
        fprintf(page, "| %s | %s |\n", faults[f].name, faults[f].words);
    for (size_t m = 0; m < MEMORIES; m++)
        write_table(page, m);
    fclose(page);
}

int main(int count, char **arguments)
{
    options.seed = tap_seed();
    options.program = hash_program();
    int i = 1;
    for (; i + 1 < count && strncmp(arguments[i], "--", 2) == 0; i += 2) {
        if (strcmp(arguments[i], "--jobs") == 0)
            options.jobs = atol(arguments[i + 1]);
        else if (strcmp(arguments[i], "--seconds") == 0)
            options.seconds = atol(arguments[i + 1]);
        else if (strcmp(arguments[i], "--record") == 0)
            options.record = arguments[i + 1];
        else if (strcmp(arguments[i], "--page") == 0)
            options.page = arguments[i + 1];
    }
    options.filters = arguments + i;
    options.filter_count = count - i;
    tap_few_threads();
    make_cells();
    results = map_shared(sizeof *results);
    load_records();
    run_all();
    judge();
    if (options.filter_count == 0 && options.record == NULL)
        run_all_series();
    if (options.filter_count == 0)
        tap_child("while the process is stopped a device does not hang", LIMIT, count_running_time,
                  NULL);
    for (int own = 0; own < 2 && options.filter_count == 0; own++) {
        const int ended = run_child(LIMIT, end_by_signal, own > 0 ? arguments : NULL, NULL, 0);
        tap_ok(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGTERM,
               "a signal at its default ends a program whose device hangs, %s memory",
               own > 0 ? "own" : "shared");
    }
    if (options.page != NULL)
        write_page(options.page);
    return tap_done();
}
