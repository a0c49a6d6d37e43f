/* SPDX-License-Identifier: BSD-3-Clause
 * clblas-shim devices: platforms, devices and drivers, what is taken and why the rest is not. */
#include "command.h"

#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

/* Why a device is not taken. `rest`: why none is that has no defect, or "". */
static const char *why_not(const json_t *device, const char *rest)
{
    const char *wanted = getenv("CLBLAS_SHIM_DEVICE");
    if (clb_is_true(device, "taken"))
        return "";
    if (*clb_text_of(device, "defect") != '\0')
        return clb_text_of(device, "defect");
    if (*rest != '\0')
        return rest;
    return wanted != NULL && *wanted != '\0' ? "CLBLAS_SHIM_DEVICE names another"
                                             : "another one ranks higher";
}

/* Add a driver's devices. `rest` as above; "taken" is cleared where it is not "". */
static void add_devices(json_t *list, const json_t *driver, const char *rest)
{
    CLB_EACH(device, json_object_get(driver, "devices")) {
        if (*rest != '\0')
            json_object_set_new(device, "taken", json_false());
        json_object_set_new(device, "why", json_string(why_not(device, rest)));
        json_object_del(device, "defect");
        json_array_append(list, device);
    }
}

/* A row for a driver that gives no device. */
static void add_broken(json_t *list, const json_t *driver)
{
    const char *death = clb_text_of(driver, "death");
    json_array_append_new(
        list, json_pack("{s:s,s:s,s:s,s:b,s:s}", "place", "", "platform",
                        clb_text_of(driver, "library"), "name", "", "taken", 0, "why",
                        *death != '\0'                  ? death
                        : clb_is_true(driver, "loaded") ? "the driver has no device"
                                                        : "the driver can't be loaded"));
}

static json_int_t rank_of(const json_t *driver)
{
    return json_integer_value(json_object_get(driver, "rank"));
}

/* Where the drivers die together, the one with the best device is used alone. */
static const json_t *find_only(const json_t *drivers)
{
    const json_t *only = NULL;
    CLB_EACH(driver, drivers) {
        if (*clb_text_of(driver, "death") == '\0' && rank_of(driver) >= 0 &&
            (only == NULL || rank_of(driver) > rank_of(only)))
            only = driver;
    }
    return only;
}

static const char *find_problem(const json_t *used, const json_t *devices, size_t drivers)
{
    static char text[512];
    const char *wanted = getenv("CLBLAS_SHIM_DEVICE");
    if (used != NULL && rank_of(used) >= 0)
        return NULL;
    if (wanted != NULL && strcmp(wanted, "none") == 0)
        return "CLBLAS_SHIM_DEVICE is none";
    json_t *device = json_array_get(devices, 0);
    if (used == NULL) {
        snprintf(text, sizeof text, "no OpenCL driver works: %s: %s",
                 clb_text_of(device, "platform"), clb_text_of(device, "why"));
        return text;
    }
    if (!clb_is_true(used, "loaded"))
        return "there is no OpenCL loader (libOpenCL.so.1; in Debian ocl-icd-libopencl1)";
    if (drivers == 0 && json_array_size(devices) == 0)
        return "no OpenCL driver is installed: /etc/OpenCL/vendors names none";
    size_t usable = 0;
    CLB_EACH(one, devices)
        usable += strcmp(clb_text_of(one, "why"), "it does not start") == 0 ||
                  strcmp(clb_text_of(one, "why"), "CLBLAS_SHIM_DEVICE names another") == 0;
    snprintf(text, sizeof text, "no OpenCL driver has a device that can be used (%s: %s)",
             clb_text_of(device, "platform"), clb_text_of(device, "why"));
    if (usable == 0)
        return text;
    return wanted != NULL && *wanted != '\0' ? "CLBLAS_SHIM_DEVICE names none of the devices"
                                             : "the device does not start";
}

json_t *clb_devices_list(void)
{
    json_auto_t *answer = clb_ask_helper();
    json_t *devices = json_array();
    if (answer == NULL)
        return NULL;
    json_t *all = json_object_get(answer, "all"), *drivers = json_object_get(answer, "drivers");
    const json_t *used = *clb_text_of(all, "death") == '\0' ? all : find_only(drivers);
    const char *wanted = getenv("CLBLAS_SHIM_DEVICE");
    const char *rest = used != NULL && rank_of(used) < 0 && (wanted == NULL || *wanted == '\0')
                           ? "it does not start"
                           : "";
    if (used != NULL)
        add_devices(devices, used, rest);
    CLB_EACH(driver, drivers) {
        if (json_array_size(json_object_get(driver, "devices")) == 0)
            add_broken(devices, driver);
        else if (used != all && used != driver)
            add_devices(devices, driver, "the drivers don't work together");
    }
    const char *problem = find_problem(used, devices, json_array_size(drivers));
    return json_pack("{s:o,s:{s:O,s:O,s:O?,s:O?},s:s?}", "devices", devices, "cache", "folder",
                     json_object_get(answer, "cache"), "room", json_object_get(answer, "room"),
                     "steps", used != NULL ? json_object_get(used, "steps") : NULL, "outdated",
                     json_object_get(answer, "outdated"), "problem", problem);
}

json_t *clb_devices_ready(void)
{
    json_t *list = clb_devices_list();
    const char *problem = json_string_value(json_object_get(list, "problem"));
    if (problem == NULL)
        return list;
    clb_fail(0, "%s", problem);
    json_decref(list);
    return NULL;
}

const json_t *clb_devices_taken(const json_t *list)
{
    CLB_EACH(device, json_object_get(list, "devices")) {
        if (clb_is_true(device, "taken"))
            return device;
    }
    return NULL;
}

bool clb_devices_on_cpu(const json_t *list)
{
    return strcmp(clb_text_of(clb_devices_taken(list), "type"), "CPU") == 0;
}

size_t clb_devices_count(const json_t *list, const char *state)
{
    size_t count = 0;
    CLB_EACH_MEMBER(step, now, json_object_get(json_object_get(list, "cache"), "steps"))
        count += strcmp(json_string_value(now), state) == 0;
    return count;
}

/* ---- the table ---- */

static void print_device(FILE *stream, const json_t *device)
{
    char memory[32] = "-";
    double bytes = clb_number_of(device, "memory");
    bool known = bytes > 0, taken = clb_is_true(device, "taken");
    if (known)
        snprintf(memory, sizeof memory, "%.1f GiB", bytes / (1 << 30));
    fprintf(stream, "%-6s %-5s %-4s %-7s %10s  %-12s %s%s%s%s  %s%s%s\n",
            *clb_text_of(device, "place") != '\0' ? clb_text_of(device, "place") : "-",
            known ? clb_text_of(device, "type") : "-",
            !known                        ? "-"
            : clb_is_true(device, "fp64") ? "yes"
                                          : "no",
            !known                           ? "-"
            : clb_is_true(device, "unified") ? "yes"
                                             : "no",
            memory, known ? clb_text_of(device, "driver") : "-",
            clb_style(stream, taken ? CLB_GREEN : CLB_YELLOW),
            taken ? "yes" : "no: ", clb_text_of(device, "why"), clb_style(stream, CLB_PLAIN),
            clb_text_of(device, "platform"), *clb_text_of(device, "name") != '\0' ? ": " : "",
            clb_text_of(device, "name"));
}

static void print_cache(FILE *stream, const json_t *list)
{
    const json_t *cache = json_object_get(list, "cache");
    const size_t steps = json_object_size(json_object_get(cache, "steps")),
                 failed = clb_devices_count(list, "failed");
    const char *folder = clb_text_of(cache, "folder");
    if (*folder == '\0') {
        fprintf(stream, "\nThere is no cache that can be written: every process compiles anew.\n");
    } else {
        fprintf(stream, "\nCache %s%s", folder,
                clb_is_true(cache, "room") ? "" : ", whose disk is full");
        if (steps > 0)
            fprintf(stream,
                    ": %zu of %zu sets of kernels are compiled, others when they are needed",
                    clb_devices_count(list, "passed"), steps);
        if (failed > 0)
            fprintf(stream, "; %zu don't work on this device", failed);
        fprintf(stream, ".\n");
    }
    const json_t *outdated = json_object_get(cache, "outdated");
    if (clb_is_true(outdated, "tune"))
        fprintf(stream, "Its times are of another version: run clblas-shim tune again.\n");
    if (clb_is_true(outdated, "warm"))
        fprintf(stream, "Its kernels are of another version: run clblas-shim warm again.\n");
}

void clb_devices_print(FILE *stream, const json_t *list)
{
    const json_t *devices = json_object_get(list, "devices");
    if (json_array_size(devices) > 0)
        fprintf(stream, "%s%-6s %-5s %-4s %-7s %10s  %-12s %s%s\n", clb_style(stream, CLB_BOLD),
                "device", "type", "fp64", "unified", "memory", "driver", "taken",
                clb_style(stream, CLB_PLAIN));
    CLB_EACH(device, devices)
        print_device(stream, device);
    print_cache(stream, list);
}

/* ---- the command ---- */

int clb_command_devices(int argc, char **argv)
{
    const int first = clb_options_read(argc, argv);
    if (first < argc)
        return clb_fail(CLB_EXIT_USAGE, "it takes no operand: %s", argv[first]);
    json_auto_t *list = clb_devices_list();
    if (list == NULL)
        return CLB_EXIT_FAILED;
    const char *problem = json_string_value(json_object_get(list, "problem"));
    if (clb_option('j') != NULL)
        clb_json_print(list);
    else
        clb_devices_print(stdout, list);
    return problem == NULL ? EXIT_SUCCESS : clb_fail(CLB_EXIT_FAILED, "%s", problem);
}
