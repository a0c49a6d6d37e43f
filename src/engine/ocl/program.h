/* program: compiled programs, in memory and on disk. */
#ifndef CLB_PROGRAM_H
#define CLB_PROGRAM_H

#include "runtime.h"

struct clb_source {
    const char *name; /* "gemm_cpu.cl" */
    const char *text;
    size_t length;
};

/* All there are, NULL after the last: of the layer above that has them. */
extern const struct clb_source *const clb_sources[];

/* The program for a source and its options ("-DCLB_MR=32 ..."), built or taken from a cache. A
 * program that failed to build once fails at once the next time. */
clb_status clb_program_get(struct clb_runtime *runtime, const struct clb_source *source,
                           const char *options, struct clb_program **program) CLB_MUST_CHECK;

/* True when the program has passed the check of this name in an earlier process, compiled by the
 * same driver; set_checked records that. Never true for a program that this process compiled. */
bool clb_program_is_checked(const struct clb_runtime *runtime, const struct clb_program *program,
                            const char *check);
void clb_program_set_checked(const struct clb_runtime *runtime, const struct clb_program *program,
                             const char *check);
/* The OpenCL program. */
cl_program clb_program_handle(const struct clb_program *program);
#endif
