/* NVIDIA: quirks of its driver, and PTX for instructions that its OpenCL compiler does not know.
 *
 * Limits on an H200 with driver 580: it reports 256 work-items and 48 KiB of local memory for
 * kernels that run with 512 and 180 KiB. SPDX-License-Identifier: BSD-3-Clause */
#include "start.h"
#include "host/process.h"

#include <string.h>

void clb_nvidia_describe(struct clb_device *device)
{
    if ((device->type & CL_DEVICE_TYPE_GPU) == 0 ||
        strcasestr(device->vendor_name, "nvidia") == NULL)
        return;
    device->vendor = CLB_VENDOR_NVIDIA;
    device->quirks |= CLB_QUIRK_FAILS_FOR_GOOD | CLB_QUIRK_UNDERSTATES_LIMITS |
                      CLB_QUIRK_GROUPS_PROGRESS | CLB_QUIRK_ONE_ENQUEUER;
}

/* ---- patched PTX ----
 *
 * The driver generates PTX for sm_90, which has no sm_90a instructions. Kernel files write
 * those as PTX comments that begin with "//@" (operands are substituted in comments too). The
 * driver's binaries are PTX text: the marks are deleted, the target becomes sm_90a, and it is
 * built again. */

#define MARK "//@"

bool clb_nvidia_needs_patch(const char *source)
{
    return strstr(source, MARK) != NULL;
}

bool clb_nvidia_patch(const char *ptx, struct clb_text *patched)
{
    static const char target[] = ".target sm_90";
    const char *found = strstr(ptx, target);
    if (found == NULL || found[sizeof target - 1] == 'a' || strstr(ptx, MARK) == NULL)
        return false;
    clb_text_addf(patched, "%.*s%sa", (int)(found - ptx), ptx, target);
    for (const char *rest = found + sizeof target - 1;;) {
        const char *mark = strstr(rest, MARK);
        if (mark == NULL) {
            clb_text_add(patched, rest);
            return !patched->failed;
        }
        clb_text_addf(patched, "%.*s", (int)(mark - rest), rest);
        rest = mark + strlen(MARK);
    }
}
