/* Opens the OpenCL ICD loader by dlopen at first use: the shim must load on systems without it. */
#include "ocl.h"

#include <dlfcn.h>
#include <string.h>

struct clb_cl clb_cl;
void (*clb_cl_loaded_hook)(struct clb_cl *table);

clb_status clb_cl_load(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } functions[] = {
#define CLB_CL_STATUS(name, parameters, arguments) {"cl" #name, offsetof(struct clb_cl, name)},
#define CLB_CL_HANDLE(type, name, parameters, arguments)                                           \
    {"cl" #name, offsetof(struct clb_cl, name)},
#include "functions.def"
#undef CLB_CL_STATUS
#undef CLB_CL_HANDLE
    };
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        clb_log(CLB_LOG_INFO, "no OpenCL: %s", dlerror());
        return CLB_ERR_NODEVICE;
    }
    for (size_t i = 0; i < CLB_COUNT_OF(functions); i++) {
        void *address = dlsym(library, functions[i].name);
        if (address == NULL) {
            clb_log(CLB_LOG_INFO, "no OpenCL: %s is missing", functions[i].name);
            return CLB_ERR_NODEVICE;
        }
        memcpy((char *)&clb_cl + functions[i].offset, &address, sizeof address);
    }
    if (clb_cl_loaded_hook != NULL)
        clb_cl_loaded_hook(&clb_cl);
    if (clb_trace_wanted())
        clb_cl_trace(&clb_cl);
    return CLB_OK;
}
