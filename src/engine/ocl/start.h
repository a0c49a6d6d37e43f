/* SPDX-License-Identifier: BSD-3-Clause
 * start: what only the start of a device, its helper and the building of programs use. */
#ifndef CLB_START_H
#define CLB_START_H

#include "cl.h"

/* ---- loader.c: the drivers that are installed ---- */

/* Load the system's ICD loader, or with `driver` only that driver's library. */
clb_status clb_cl_load(const char *driver) CLB_MUST_CHECK;

/* A driver that is installed: the library that its .icd file names. */
enum { CLB_MAX_ICDS = 32, CLB_DRIVER_PATH = 512 };
struct clb_icd {
    char library[CLB_DRIVER_PATH];
    uint64_t size, time; /* of the library's file; 0 where it is not found */
};
/* List them in the loader's order; returns their number. `icd` has CLB_MAX_ICDS elements. */
size_t clb_icd_list(struct clb_icd *icd);

/* ---- runtime.c: the choice of a device ---- */

/* A device with its indices in CLBLAS_SHIM_DEVICE. `defect` is empty or why it can't be used; a
 * platform that can't be asked for its devices is listed as one without an id. */
enum { CLB_MAX_DEVICES = 64 };
struct clb_listed_device {
    struct clb_device device;
    unsigned platform, index;
    char defect[128];
};

/* List the devices of the drivers that clb_cl_load has loaded; returns their number. */
size_t clb_device_list(struct clb_listed_device *list, size_t capacity);

/* The device that CLBLAS_SHIM_DEVICE asks for, or the best one. */
clb_status clb_device_select(const char *wanted, struct clb_device *device) CLB_MUST_CHECK;
double clb_device_rank(const struct clb_device *device);

/* ---- nvidia.c, pocl.c: what is peculiar to a vendor or a driver ---- */

/* Called when all else of the device is described: set the vendor and quirks if it is theirs. */
void clb_nvidia_describe(struct clb_device *device);
void clb_pocl_describe(struct clb_device *device);

/* True when a source has instructions that NVIDIA's compiler passes on as comments of PTX. */
bool clb_nvidia_needs_patch(const char *source);
/* Make instructions of these comments. False when `ptx` has none, or is for another target. */
struct clb_text;
bool clb_nvidia_patch(const char *ptx, struct clb_text *patched);

/* Writes what identifies PoCL's cache of programs: if it changes, some may have been lost. */
void clb_pocl_identify_cache(char *text, size_t size);
/* NULL, or why the platform of this name must not be asked for its devices. Removes damaged
 * programs from PoCL's cache. */
const char *clb_pocl_refusal(const char *platform_name);
/* Called when kernels have passed checks: files in PoCL's cache that differ later are damaged. */
void clb_pocl_store_sums(const struct clb_device *device);
/* Undo PoCL's change of the environment: called around its start. `restore` frees `saved`. */
char *clb_pocl_save_environment(void);
void clb_pocl_restore_environment(char *saved);

/* ---- limits.c ---- */

/* Read numbers from a file by scanf's format; those that it does not have stay as they are. */
__attribute__((format(scanf, 2, 3))) void clb_proc_read(const char *path, const char *format, ...);

/* NULL, or the limit that keeps this process from starting a driver, or from building a program. */
const char *clb_limits_on_start(void);
const char *clb_limits_on_build(void);

/* ---- driver.c ---- */

/* Whether the task of this driver thread is for a call that does not wait for a helper process. */
bool clb_driver_has_limit(void);
/* Called on a driver thread around a wait for a helper process; does nothing on others. */
int clb_driver_leave(void);
void clb_driver_enter(int left);
extern CLB_THREAD bool clb_driver_is_self; /* this is a driver thread */

/* ---- driver_threads.c: the threads of a driver ---- */

struct clb_thread_list {
    size_t count;
    int id[4096];
};

/* List the threads of the process, before the driver starts. */
void clb_threads_note(struct clb_thread_list *before);
/* Pin each thread that the driver has started since to a CPU of its own, if there are enough. */
void clb_threads_pin(const struct clb_device *device, const struct clb_thread_list *before);

#endif
