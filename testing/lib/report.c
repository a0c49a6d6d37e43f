/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double report_number(const char *report, const char *symbol, const char *key)
{
    char name[64], field[64];
    snprintf(name, sizeof name, "\"%s\":{", symbol);
    snprintf(field, sizeof field, "\"%s\":", key);
    const char *routine = strstr(report, name);
    const char *end = routine != NULL ? strstr(routine, "}}") : NULL;
    const char *at = routine != NULL ? strstr(routine, field) : NULL;
    return at != NULL && at < end ? strtod(at + strlen(field), NULL) : 0;
}
