/* SPDX-License-Identifier: BSD-3-Clause
 * A libOpenCL.so.1 over the system's that plays smaller devices; see limits.c. */
#ifndef LIMITS_H
#define LIMITS_H

#include "engine/ocl/cl.h"

/* The real loader's functions; opened at first use, and the process ends when that fails. */
const struct clb_cl *real_cl(void);
/* One of them that the shim's table does not have. */
void (*real_function(const char *name))(void);

#endif
