/* SPDX-License-Identifier: BSD-3-Clause
 * The table of OpenCL functions, and what their errors mean. The OpenCL ICD loader, or one driver,
 * is opened by dlopen at first use: the shim must load on systems without it. */
#include "start.h"
#include "host/process.h"

#include <CL/cl_icd.h>
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct clb_cl clb_cl;
void (*clb_cl_loaded_hook)(struct clb_cl *table);

/* ---- the ICD loader ---- */

static bool find_function(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    if (address == NULL)
        clb_log(CLB_LOG_INFO, "no OpenCL: %s is missing", name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

static clb_status load_loader(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        clb_log(CLB_LOG_INFO, "no OpenCL: %s", dlerror());
        return CLB_ERR_NODEVICE;
    }
#define FIND(name) &&find_function(library, "cl" #name, &clb_cl.name)
    return true CLB_CL_FUNCTIONS(FIND) ? CLB_OK : CLB_ERR_NODEVICE;
#undef FIND
}

/* ---- one driver alone ---- */

/* As the loader does it (cl_khr_icd): the driver lists its platforms, and every object of a driver
 * begins with a pointer to the driver's table of functions. */
static clb_status load_driver(const char *driver)
{
    void *library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
    void *(CL_API_CALL * get_address)(const char *name) = NULL;
    cl_int(CL_API_CALL * get_platforms)(cl_uint, cl_platform_id *, cl_uint *) = NULL;
    cl_platform_id platform = NULL;
    cl_uint count = 0;
    const struct _cl_icd_dispatch *table;
    void *address = library == NULL ? NULL : dlsym(library, "clGetExtensionFunctionAddress");
    if (address == NULL) {
        clb_log(CLB_LOG_WARN, "%s is not loaded: %s", driver, dlerror());
        return CLB_ERR_NODEVICE;
    }
    memcpy(&get_address, &address, sizeof address);
    address = get_address("clIcdGetPlatformIDsKHR");
    memcpy(&get_platforms, &address, sizeof address);
    if (address == NULL || get_platforms(1, &platform, &count) != CL_SUCCESS || count == 0)
        return CLB_ERR_NODEVICE;
    memcpy(&table, (const void *)platform, sizeof table);
#define COPY(name) clb_cl.name = table->cl##name;
    CLB_CL_FUNCTIONS(COPY)
#undef COPY
    clb_cl.GetPlatformIDs = get_platforms;
    return CLB_OK;
}

clb_status clb_cl_load(const char *driver)
{
    clb_status status = driver == NULL ? load_loader() : load_driver(driver);
    if (status == CLB_OK && clb_cl_loaded_hook != NULL)
        clb_cl_loaded_hook(&clb_cl);
    return status;
}

/* ---- which drivers are installed ---- */

/* Look for a library that an .icd file names without a folder as the dynamic linker does, but for
 * its cache, whose folders are the C library's and a few others. */
static bool find_library_file(const char *name, struct stat *info)
{
    char file[PATH_MAX], folders[PATH_MAX];
    Dl_info libc;
    const char *given = getenv("LD_LIBRARY_PATH");
    if (strchr(name, '/') != NULL)
        return stat(name, info) == 0;
    if (dladdr((void *)(uintptr_t)&getenv, &libc) == 0 || libc.dli_fname == NULL)
        libc.dli_fname = "/lib/libc.so.6";
    const char *slash = strrchr(libc.dli_fname, '/');
    const int length = slash == NULL ? 0 : (int)(slash - libc.dli_fname);
    snprintf(folders, sizeof folders, "%s:%.*s:/usr%.*s:/usr/lib64:/usr/lib:/usr/local/lib",
             given != NULL ? given : "", length, libc.dli_fname, length, libc.dli_fname);
    for (char *rest = folders, *folder; (folder = strsep(&rest, ":")) != NULL;) {
        const int size = snprintf(file, sizeof file, "%s/%s", folder, name);
        if (*folder != '\0' && size > 0 && (size_t)size < sizeof file && stat(file, info) == 0)
            return true;
    }
    return false;
}

/* The first line of an .icd file is the library. */
static bool read_icd(const char *file, struct clb_icd *icd)
{
    struct stat info;
    *icd = (struct clb_icd){0};
    FILE *text = clb_file_read(file);
    bool good = text != NULL && fgets(icd->library, sizeof icd->library, text) != NULL;
    if (text != NULL)
        fclose(text);
    icd->library[strcspn(icd->library, "\r\n")] = '\0';
    if (!good || icd->library[0] == '\0')
        return false;
    if (find_library_file(icd->library, &info)) {
        icd->size = (uint64_t)info.st_size;
        icd->time = (uint64_t)info.st_mtim.tv_sec * 1000000000 + (uint64_t)info.st_mtim.tv_nsec;
    }
    return true;
}

static bool ends_icd(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL && strcmp(dot, ".icd") == 0;
}

static int is_icd_file(const struct dirent *entry)
{
    return ends_icd(entry->d_name);
}

/* OCL_ICD_VENDORS (a folder, an .icd file or a library) is ocl-icd's, OPENCL_VENDOR_PATH (a folder)
 * that of others too. */
size_t clb_icd_list(struct clb_icd *icd)
{
    const char *where = getenv("OCL_ICD_VENDORS");
    struct dirent **entries = NULL;
    size_t count = 0;
    if (where == NULL || *where == '\0')
        where = getenv("OPENCL_VENDOR_PATH");
    if (where == NULL || *where == '\0')
        where = "/etc/OpenCL/vendors";
    if (ends_icd(where))
        return read_icd(where, icd) ? 1 : 0;
    int found = scandir(where, &entries, is_icd_file, alphasort);
    for (int i = 0; i < found; i++) {
        char file[PATH_MAX];
        int length = snprintf(file, sizeof file, "%s/%s", where, entries[i]->d_name);
        if (count < CLB_MAX_ICDS && length > 0 && (size_t)length < sizeof file &&
            read_icd(file, &icd[count]))
            count++;
        free(entries[i]);
    }
    free(entries);
    return count;
}

/* ---- errors ---- */

/* Of 0, -1 and so on; OpenCL 1.2 has none for -15 to -29 that its functions return. */
static const char error_names[] =
    "CL_SUCCESS\0CL_DEVICE_NOT_FOUND\0CL_DEVICE_NOT_AVAILABLE\0CL_COMPILER_NOT_AVAILABLE\0"
    "CL_MEM_OBJECT_ALLOCATION_FAILURE\0CL_OUT_OF_RESOURCES\0CL_OUT_OF_HOST_MEMORY\0"
    "CL_PROFILING_INFO_NOT_AVAILABLE\0CL_MEM_COPY_OVERLAP\0CL_IMAGE_FORMAT_MISMATCH\0"
    "CL_IMAGE_FORMAT_NOT_SUPPORTED\0CL_BUILD_PROGRAM_FAILURE\0CL_MAP_FAILURE\0"
    "CL_MISALIGNED_SUB_BUFFER_OFFSET\0CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST\0"
    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    "CL_INVALID_VALUE\0CL_INVALID_DEVICE_TYPE\0CL_INVALID_PLATFORM\0CL_INVALID_DEVICE\0"
    "CL_INVALID_CONTEXT\0CL_INVALID_QUEUE_PROPERTIES\0CL_INVALID_COMMAND_QUEUE\0"
    "CL_INVALID_HOST_PTR\0CL_INVALID_MEM_OBJECT\0CL_INVALID_IMAGE_FORMAT_DESCRIPTOR\0"
    "CL_INVALID_IMAGE_SIZE\0CL_INVALID_SAMPLER\0CL_INVALID_BINARY\0CL_INVALID_BUILD_OPTIONS\0"
    "CL_INVALID_PROGRAM\0CL_INVALID_PROGRAM_EXECUTABLE\0CL_INVALID_KERNEL_NAME\0"
    "CL_INVALID_KERNEL_DEFINITION\0CL_INVALID_KERNEL\0CL_INVALID_ARG_INDEX\0"
    "CL_INVALID_ARG_VALUE\0CL_INVALID_ARG_SIZE\0CL_INVALID_KERNEL_ARGS\0"
    "CL_INVALID_WORK_DIMENSION\0CL_INVALID_WORK_GROUP_SIZE\0CL_INVALID_WORK_ITEM_SIZE\0"
    "CL_INVALID_GLOBAL_OFFSET\0CL_INVALID_EVENT_WAIT_LIST\0CL_INVALID_EVENT\0"
    "CL_INVALID_OPERATION\0CL_INVALID_GL_OBJECT\0CL_INVALID_BUFFER_SIZE\0"
    "CL_INVALID_MIP_LEVEL\0CL_INVALID_GLOBAL_WORK_SIZE\0";

const char *clb_cl_error_name(cl_int status)
{
    const char *name = error_names;
    for (; status < 0 && name < error_names + sizeof error_names - 1; status++)
        name += strlen(name) + 1;
    return status == 0 && *name != '\0' ? name : "unknown OpenCL error";
}

clb_status clb_cl_failed(cl_int status, const char *what)
{
    clb_log(CLB_LOG_WARN, "%s: %s (%d)", what, clb_cl_error_name(status), (int)status);
    return status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_HOST_MEMORY ||
                   status == CL_INVALID_BUFFER_SIZE
               ? CLB_ERR_NOMEM
               : CLB_ERR_OPENCL;
}
