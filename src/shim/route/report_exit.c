/* Writes the report at exit, without OpenCL calls and without locks. */
#include "profile.h"
#include "route.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE "CLBLAS_SHIM_STATS"

void clb_report_configure(void)
{
    clb_output_note(clb_config_get()->stats);
}

/* True when the parent process has been started with the variable, too. */
static bool is_inherited(void)
{
    static const char wanted[] = VARIABLE "=";
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/environ", (long)getppid());
    FILE *file = clb_file_read(path);
    size_t same = 0;
    bool at_start = true;
    for (int c; file != NULL && wanted[same] != '\0' && (c = fgetc(file)) != EOF;) {
        bool goes_on = (at_start || same > 0) && c == wanted[same];
        same = goes_on ? same + 1 : 0;
        at_start = c == '\0';
    }
    if (file != NULL)
        fclose(file);
    return wanted[same] == '\0';
}

/* A user who asks for a table is told when it is empty, also when no call has reached the library
 * and the configuration was never read. Only the program that was started with the variable says
 * so. Its children are silent: they have inherited the variable, and their stderr may be used for
 * other messages. */
static bool must_say_nothing_came(void)
{
    return clb_config_asks_for_table() && clb_generation() == 0 && !is_inherited();
}

__attribute__((destructor)) static void write_report_at_exit(void)
{
    struct clb_text report = {0};
    const char *name = "-";
    if (clb_stats_wanted)
        clb_profile_write();
    if (clb_stats_wanted && clb_stats_any() && clb_config_get()->stats != NULL) {
        name = clb_config_get()->stats;
        if (strcmp(name, "-") == 0)
            clb_stats_format_table(&report);
        else
            clb_stats_format_json(&report);
    } else if (must_say_nothing_came()) {
        clb_text_addf(&report,
                      "clblas-shim " CLB_VERSION ": no BLAS or LAPACK call of %s (process %ld) "
                      "reached the library\n",
                      program_invocation_short_name, (long)getpid());
    }
    if (report.data != NULL)
        clb_output_write(VARIABLE, name, &report);
    clb_text_free(&report);
}
