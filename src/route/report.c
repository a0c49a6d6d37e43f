/* The report at exit: a plain write, no OpenCL call, no lock. */
#include "route.h"

#include <string.h>

void clb_report_configure(void)
{
    clb_output_note(clb_config_get()->stats);
}

__attribute__((destructor)) static void write_report_at_exit(void)
{
    if (!clb_stats_wanted() || !clb_stats_any())
        return;
    const char *name = clb_config_get()->stats;
    struct clb_text report = {0};
    bool table = strcmp(name, "-") == 0;
    if (table)
        clb_stats_format_table(&report);
    else
        clb_stats_format_json(&report);
    clb_output_write("CLBLAS_SHIM_STATS", name, &report);
    clb_text_free(&report);
}
