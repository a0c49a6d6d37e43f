/* SPDX-License-Identifier: BSD-3-Clause
 * Compiled programs: one entry for every source and option string, in memory and on disk. */
#include "helper.h"
#include "start.h"
#include "store.h"
#include "host/process.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void log_build(struct clb_runtime *runtime, cl_program handle, const char *name)
{
    size_t length = 0;
    if (!clb_log_wanted(CLB_LOG_WARN) ||
        clb_cl.GetProgramBuildInfo(handle, runtime->device.id, CL_PROGRAM_BUILD_LOG, 0, NULL,
                                   &length) != CL_SUCCESS ||
        length < 2)
        return;
    char *text = calloc(1, length + 1);
    if (text != NULL && clb_cl.GetProgramBuildInfo(handle, runtime->device.id, CL_PROGRAM_BUILD_LOG,
                                                   length, text, NULL) == CL_SUCCESS)
        clb_log(CLB_LOG_WARN, "%s: %s", name, text);
    free(text);
}

/* Clang, in this process for a CPU device, counts its warnings on stderr: none are asked for. */
static clb_status program_build(struct clb_runtime *runtime, struct clb_program *program)
{
    const bool is_cpu = (runtime->device.type & CL_DEVICE_TYPE_CPU) != 0;
    struct clb_text options = {0};
    clb_text_addf(&options, "%s%s", is_cpu ? "-w " : "", program->options);
    clb_status status =
        options.failed ? CLB_ERR_NOMEM
                       : clb_cl_check(clb_cl.BuildProgram(program->handle, 1, &runtime->device.id,
                                                          options.data, NULL, NULL),
                                      "clBuildProgram");
    clb_text_free(&options);
    if (status != CLB_OK) {
        log_build(runtime, program->handle, program->source->name);
        clb_cl.ReleaseProgram(program->handle);
        program->handle = NULL;
    }
    return status;
}

static clb_status create_from_binary(struct clb_runtime *runtime, struct clb_program *program,
                                     const unsigned char *data, size_t size)
{
    cl_int error, accepted = CL_SUCCESS;
    program->handle = clb_cl.CreateProgramWithBinary(runtime->context, 1, &runtime->device.id,
                                                     &size, &data, &accepted, &error);
    clb_status status =
        clb_cl_check(error != CL_SUCCESS ? error : accepted, "clCreateProgramWithBinary");
    return status == CLB_OK ? program_build(runtime, program) : status;
}

/* The binary of a built program, malloc'ed and terminated; NULL when the driver returns none. */
static unsigned char *get_binary(const struct clb_program *program, size_t *size)
{
    *size = 0;
    if (clb_cl.GetProgramInfo(program->handle, CL_PROGRAM_BINARY_SIZES, sizeof *size, size, NULL) !=
            CL_SUCCESS ||
        *size == 0)
        return NULL;
    unsigned char *data = calloc(1, *size + 1);
    if (data != NULL && clb_cl.GetProgramInfo(program->handle, CL_PROGRAM_BINARIES, sizeof data,
                                              &data, NULL) != CL_SUCCESS) {
        free(data);
        data = NULL;
    }
    return data;
}

/* Build again what NVIDIA's driver has made of a source, patched (nvidia.c). */
static clb_status rebuild_patched(struct clb_runtime *runtime, struct clb_program *program)
{
    size_t size;
    struct clb_text patched = {0};
    unsigned char *ptx = get_binary(program, &size);
    clb_status status = CLB_ERR_BUILD;
    if (ptx != NULL && clb_nvidia_patch((const char *)ptx, &patched)) {
        clb_cl.ReleaseProgram(program->handle);
        program->handle = NULL;
        status = create_from_binary(runtime, program, (const unsigned char *)patched.data,
                                    patched.length + 1);
    }
    clb_text_free(&patched);
    free(ptx);
    return status;
}

/* ---- building ---- */

static clb_status build_from_source(struct clb_runtime *runtime, struct clb_program *program)
{
    cl_int error;
    const char *text = program->source->text;
    program->handle = clb_cl.CreateProgramWithSource(runtime->context, 1, &text,
                                                     &program->source->length, &error);
    clb_status status = clb_cl_check(error, "clCreateProgramWithSource");
    CLB_THEN(status, program_build(runtime, program));
    if (status == CLB_OK && clb_nvidia_needs_patch(program->source->text) &&
        strstr(program->options, "-DCLB_EMULATE=1") == NULL)
        status = rebuild_patched(runtime, program);
    return status;
}

static struct clb_key key_of(const struct clb_program *program)
{
    return (struct clb_key){CLB_RECORD_PROGRAM, program->identity, NULL};
}

static struct clb_key mark_of(const struct clb_program *program)
{
    return (struct clb_key){CLB_RECORD_MARK, program->identity, NULL};
}

/* The record of a driver that keeps programs itself is what identifies the driver's own cache. */
static clb_status build_from_cache(struct clb_runtime *runtime, struct clb_program *program)
{
    struct clb_record record;
    char cache[128];
    if (!clb_record_load(key_of(program), &record))
        return CLB_ERR_IO;
    clb_status status = CLB_ERR_IO;
    if (!clb_device_has(&runtime->device, CLB_QUIRK_KEEPS_PROGRAMS)) {
        status = create_from_binary(runtime, program, (unsigned char *)record.text, record.size);
    } else {
        clb_pocl_identify_cache(cache, sizeof cache);
        if (strcmp(record.text, cache) == 0)
            status = build_from_source(runtime, program);
    }
    clb_record_free(&record);
    return status;
}

static clb_status build_and_store(struct clb_runtime *runtime, struct clb_program *program)
{
    struct clb_record record = {.verdict = CLB_PASSED};
    char cache[128];
    clb_status status = CLB_ERR_BUILD;
    if (clb_helper_shared != NULL && clb_helper_shared->stop)
        return CLB_ERR_NOMEM;
    program->is_new = true;
    if (clb_cache_has_room(clb_cache_directory()))
        status = build_from_source(runtime, program);
    if (status == CLB_ERR_OPENCL && clb_helper_get_role() == CLB_HELPER_BUILDS)
        clb_record_note(mark_of(program), CLB_FAILED, "it does not build");
    if (status != CLB_OK)
        return status;
    if (clb_device_has(&runtime->device, CLB_QUIRK_KEEPS_PROGRAMS)) {
        clb_pocl_identify_cache(cache, sizeof cache);
        clb_record_note(key_of(program), CLB_PASSED, cache);
    } else if ((record.text = (char *)get_binary(program, &record.size)) != NULL) {
        clb_record_store(key_of(program), record);
        clb_record_free(&record);
    }
    return CLB_OK;
}

/* Who builds ahead has no use for programs, but of PoCL, which compiles their kernels later. */
static bool is_stored_only(const struct clb_runtime *runtime)
{
    return clb_helper_get_role() == CLB_HELPER_AHEAD &&
           !clb_device_has(&runtime->device, CLB_QUIRK_KEEPS_PROGRAMS);
}

/* In a child of the helper another one may build it, or have built it by now. */
static clb_status build_once(struct clb_runtime *runtime, struct clb_program *program,
                             const char **origin)
{
    if (!clb_helper_take(program->identity, !is_stored_only(runtime)))
        return CLB_ERR_NOMEM;
    clb_status status = clb_helper_shared != NULL ? build_from_cache(runtime, program) : CLB_ERR_IO;
    if (status != CLB_OK) {
        *origin = "source";
        status = build_and_store(runtime, program);
    }
    clb_helper_leave(program->identity);
    return status;
}

/* The program from the cache, else built, or where that is the helper's work asked for again. */
static clb_status load_or_build(struct clb_runtime *runtime, struct clb_program *program,
                                const char **origin)
{
    clb_helper_role role = clb_helper_get_role();
    *origin = "disk";
    clb_status status = build_from_cache(runtime, program);
    if (status == CLB_OK || role == CLB_HELPER_LOADS)
        return status;
    if (role == CLB_HELPER_USED && clb_helper_request_again())
        status = build_from_cache(runtime, program);
    role = clb_helper_get_role(); /* another one where the cache can't be locked */
    if (status == CLB_OK || role == CLB_HELPER_USED)
        return status == CLB_OK ? status : CLB_ERR_BUILD;
    return build_once(runtime, program, origin);
}

static clb_status program_make(struct clb_runtime *runtime, struct clb_program *program)
{
    double begin = clb_now();
    struct clb_record mark = {0};
    const char *origin = "disk", *limit = clb_limits_on_build();
    if (limit != NULL) {
        clb_log(CLB_LOG_WARN, "%s is not built in this process: %s", program->source->name, limit);
        return CLB_ERR_NOMEM;
    }
    clb_status status = CLB_ERR_BUILD;
    if (clb_helper_child != NULL)
        snprintf(clb_helper_child->current, sizeof clb_helper_child->current, "%s",
                 program->identity);
    if (clb_record_load_recent(mark_of(program), CLB_MARK_LASTS, &mark))
        clb_log(CLB_LOG_WARN, "%s is marked for this driver: %s", program->source->name, mark.text);
    else
        status = load_or_build(runtime, program, &origin);
    clb_record_free(&mark);
    /* A failed build is not a failure of the device: only calls that need the program are lost. */
    if (status == CLB_ERR_OPENCL || status == CLB_ERR_IO)
        status = CLB_ERR_BUILD;
    clb_log(CLB_LOG_INFO, "%s from %s: %s, %.0f ms (%s)", program->source->name, origin,
            clb_status_name(status), 1e3 * (clb_now() - begin), program->options);
    return is_stored_only(runtime) ? CLB_ERR_NOMEM : status;
}

/* ---- checks ---- */

bool clb_program_is_checked(const struct clb_program *program, const char *check)
{
    return !program->is_new &&
           clb_record_exists((struct clb_key){CLB_RECORD_CHECK, program->identity, check},
                             INFINITY);
}

void clb_program_set_checked(const struct clb_runtime *runtime, const struct clb_program *program,
                             const char *check)
{
    clb_record_note((struct clb_key){CLB_RECORD_CHECK, program->identity, check}, CLB_PASSED, "");
    if (clb_helper_get_role() == CLB_HELPER_NONE) /* else the helper does it, once for all checks */
        clb_pocl_store_sums(&runtime->device);
}

/* ---- all programs ---- */

struct program_wanted {
    struct clb_runtime *runtime;
    const struct clb_source *source;
    const char *options;
    struct clb_program *program;
};

static struct clb_program *find_program(const struct program_wanted *wanted)
{
    pthread_mutex_lock(&wanted->runtime->programs.lock);
    struct clb_program *program = wanted->runtime->programs.first;
    while (program != NULL &&
           (program->source != wanted->source || strcmp(program->options, wanted->options) != 0))
        program = program->next;
    pthread_mutex_unlock(&wanted->runtime->programs.lock);
    return program;
}

/* A driver task. The program may exist by now, if another thread has wanted it too. */
static clb_status add_wanted(void *argument)
{
    struct program_wanted *wanted = argument;
    struct clb_runtime *runtime = wanted->runtime;
    const struct clb_source *source = wanted->source;
    if ((wanted->program = find_program(wanted)) != NULL)
        return CLB_OK;
    struct clb_program *program = calloc(1, sizeof *program);
    struct clb_text text = {0};
    clb_text_addf(&text, "%s\n%s\n%016llx\n%s", runtime->device.identity, source->name,
                  (unsigned long long)clb_cache_hash(source->text, source->length),
                  wanted->options);
    clb_status status = program == NULL || text.failed ? CLB_ERR_NOMEM : CLB_OK;
    if (status == CLB_OK) {
        program->source = source;
        program->identity = text.data;
        program->options = text.data + text.length - strlen(wanted->options);
        status = program->status = program_make(runtime, program);
    }
    if (status == CLB_ERR_NOMEM) { /* a later build may get the memory */
        clb_text_free(&text);
        free(program);
        return CLB_ERR_NOMEM;
    }
    pthread_mutex_lock(&runtime->programs.lock);
    program->next = runtime->programs.first;
    runtime->programs.first = program;
    pthread_mutex_unlock(&runtime->programs.lock);
    wanted->program = program;
    return CLB_OK;
}

clb_status clb_program_get(struct clb_runtime *runtime, const struct clb_source *source,
                           const char *options, struct clb_program **out)
{
    struct program_wanted wanted = {runtime, source, options, NULL};
    wanted.program = find_program(&wanted);
    if (wanted.program == NULL)
        CLB_TRY(clb_driver_call(add_wanted, &wanted));
    *out = wanted.program;
    return wanted.program->status;
}
