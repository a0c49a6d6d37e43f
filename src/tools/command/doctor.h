/* SPDX-License-Identifier: BSD-3-Clause
 * doctor: whether the shim works here. The verdict is the worst of the findings. */
#ifndef CLB_DOCTOR_H
#define CLB_DOCTOR_H

#include "measure.h"

/* From the mildest to the worst. */
enum clb_found {
    CLB_FOUND_NOTE,    /* worth saying, and the shim works */
    CLB_FOUND_UNUSED,  /* nothing calls it */
    CLB_FOUND_NO_GAIN, /* it works, but calls are not faster by it */
    CLB_FOUND_BROKEN,
    CLB_FOUND_KINDS
};
void clb_find(enum clb_found kind, const char *format, ...) CLB_PRINTF(2, 3);
/* Say what the verdict says where the shim works; replaces what was said before. */
void clb_find_works(const char *format, ...) CLB_PRINTF(1, 2);

/* Print, unless JSON is wanted. */
void clb_say(const char *format, ...) CLB_PRINTF(1, 2);

/* ---- doctor.c ---- */

/* Judge and print a next BLAS, as clb_next_describe describes it. */
void clb_doctor_next(const json_t *next, const json_t *devices, bool of_program);

/* ---- doctor_program.c ---- */

/* Run a program under the shim and judge its calls. 0, or an exit status after a message. */
int clb_doctor_program(char **program, const json_t *devices, json_t *result);

/* ---- doctor_process.c ---- */

void clb_doctor_process(long pid);

#endif
