/* device: what a device is like, and which one is used. */
#ifndef CLB_DEVICE_H
#define CLB_DEVICE_H

#include "host/host.h"

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

/* Who made the device, as far as the shim treats makers differently: GPUs only, because drivers of
 * others name the maker of a CPU. */
typedef enum clb_vendor {
    CLB_VENDOR_OTHER,
    CLB_VENDOR_NVIDIA,
    CLB_VENDOR_AMD,
    CLB_VENDOR_INTEL
} clb_vendor;

/* Peculiarities of drivers. They are found once, when a device is described: each vendor's and
 * driver's in the file that is named here. */
typedef enum clb_quirk {
    /* nvidia.c: after a command has failed, all later commands and every wait fail too, because the
     * context is unusable. So queues keep no events there, which elsewhere are the only report of a
     * failure and cost a lock and some microseconds a command. */
    CLB_QUIRK_FAILS_FOR_GOOD = 1 << 0,
    /* nvidia.c: the driver reports fewer work-items (256) and less local memory (48 KiB) for
     * kernels than their launches accept. Kernels that run would be refused if it were believed; a
     * launch that really needs too much fails. */
    CLB_QUIRK_UNDERSTATES_LIMITS = 1 << 1,
    /* nvidia.c: all work-groups of a launch that the device can hold make progress, so that they
     * may wait for each other. Elsewhere they may run one after the other, and such a kernel hangs.
     */
    CLB_QUIRK_GROUPS_PROGRESS = 1 << 2,
    /* pocl.c: a launch of a kernel that is wider than those before it ends the process when another
     * thread's launch of that kernel ends meanwhile. So the first launch must be the widest. */
    CLB_QUIRK_WIDEST_LAUNCH_FIRST = 1 << 3,
    /* pocl.c: the user has asked the driver to pin its worker threads. The shim doesn't. */
    CLB_QUIRK_PINS_WORKERS = 1 << 4,
    /* pocl.c: the driver keeps compiled programs itself, and compiles every kernel once more when
     * it is asked for binaries. So programs are built from source in each process. */
    CLB_QUIRK_KEEPS_PROGRAMS = 1 << 5,
    /* nvidia.c: a thread of the driver spins for a while after calls when more than one thread of
     * the process has enqueued, and threads that ask it for events delay each other. So one thread
     * does both for all (enqueuer.c). */
    CLB_QUIRK_ONE_ENQUEUER = 1 << 6
} clb_quirk;

struct clb_device {
    cl_platform_id platform;
    cl_device_id id;
    clb_vendor vendor;
    unsigned quirks; /* of clb_quirk */
    char name[128];
    char vendor_name[128];
    char driver[128];
    char platform_name[128];
    /* Platform, vendor, name and driver, with their versions: what is stored about a device belongs
     * to all that have the same. */
    char identity[648];
    cl_device_type type;
    bool fp64;
    bool unified; /* shares memory with the host: inputs are used in place */
    cl_uint units;
    cl_uint vector_bytes; /* native vector width in bytes */
    uint64_t memory;      /* bytes; host memory if unified */
    uint64_t max_alloc;   /* largest buffer in bytes */
    uint64_t local_memory;
    size_t max_group; /* most work-items of a work-group, all in the first dimension */
};

static inline bool clb_device_has(const struct clb_device *device, clb_quirk quirk)
{
    return (device->quirks & (unsigned)quirk) != 0;
}

/* What this process's device is like: the one that has started, or before that the one that an
 * earlier process has chosen among the same drivers, without its ids. NULL: not known. Reads a file
 * at its first call. */
const struct clb_device *clb_device_expected(void);

/* True, for a week, of a device that was found too slow in a precision, which need not be started
 * for that; the decision is noted when it is first asked. */
bool clb_rate_was_slow(const struct clb_device *device, clb_precision precision);

#endif
