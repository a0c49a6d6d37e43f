/* SPDX-License-Identifier: BSD-3-Clause
 * The progress line: on a terminal, for calls that take long, where it is asked for. */
#include "host/host.h"
#include "tap.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Make standard error a terminal, or a pipe. Returns where its text can be read. */
static int open_error(bool terminal)
{
    int ends[2] = {-1, -1};
    if (terminal) {
        ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
        if (ends[0] < 0 || grantpt(ends[0]) != 0 || unlockpt(ends[0]) != 0)
            return -1;
        ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
    } else if (pipe(ends) != 0) {
        return -1;
    }
    dup2(ends[1], STDERR_FILENO);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return ends[0];
}

/* Read what comes until nothing does for a while: a terminal hands text on when it finds time. */
static const char *read_all(int end)
{
    static char text[2048];
    size_t length = 0;
    struct pollfd ready = {.fd = end, .events = POLLIN};
    while (length < sizeof text - 1 && poll(&ready, 1, 300) > 0) {
        ssize_t count = read(end, text + length, sizeof text - 1 - length);
        if (count <= 0)
            break;
        length += (size_t)count;
    }
    text[length] = '\0';
    return text;
}

/* What a call of 10^12 operations that began so long ago shows at each quarter. */
static const char *show_quarters(bool terminal, const char *wanted, double seconds)
{
    int end = open_error(terminal);
    if (!expect(end >= 0, "there is no terminal"))
        return "";
    setenv("CLBLAS_SHIM_PROGRESS", wanted, 1);
    clb_progress_begin("dgemm_", 1e12);
    for (int quarter = 1; quarter <= 4; quarter++) {
        if (clb_progress.name != NULL) {
            clb_progress.begin = clb_now() - seconds * quarter;
            clb_progress.shown = 0;
        }
        clb_progress_note(quarter / 4.0);
    }
    clb_progress_end();
    expect(clb_progress.name == NULL, "the call is still noted");
    return read_all(end);
}

static void long_call(void *unused)
{
    const char *text = show_quarters(true, "1", 10);
    (void)unused;
    expect(strstr(text, "\rclblas-shim: dgemm_  25 %, 25 GFLOP/s, 30 s left") != NULL, "%s", text);
    expect(strstr(text, "\rclblas-shim: dgemm_ 100 %, 25 GFLOP/s, 0 s left") != NULL, "%s", text);
    const char *last = strrchr(text, 't'); /* of "left" */
    expect(last != NULL && strspn(last + 1, " \r") == strlen(last + 1) && strlen(last) > 40,
           "the line stays: %s", text);
    expect(strchr(text, '\n') == NULL, "a line ends");
}

static void nothing(void *argument)
{
    const char *which = argument;
    const char *text = strcmp(which, "short") == 0 ? show_quarters(true, "1", 0.4)
                       : strcmp(which, "off") == 0 ? show_quarters(true, "0", 10)
                                                   : show_quarters(false, "1", 10);
    expect(*text == '\0', "%s", text);
}

static void columns(void *unused)
{
    int end = open_error(true);
    (void)unused;
    setenv("CLBLAS_SHIM_PROGRESS", "1", 1);
    clb_progress_begin("dgetrf_", 1e15);
    clb_progress.begin -= 8.75;
    clb_progress_note_columns(50, 100); /* 7/8 of the work */
    clb_progress_end();
    const char *text = read_all(end);
    expect(strstr(text, "dgetrf_  88 %, 100 TFLOP/s, 1 s left") != NULL, "%s", text);
}

int main(void)
{
    const struct tap_test tests[] = {
        {"a call without a terminal shows nothing", nothing, (void *)(uintptr_t) "pipe"},
        {"a long one shows its line and removes it", long_call, NULL},
        {"a short one nothing", nothing, (void *)(uintptr_t) "short"},
        {"nor one that is not asked to", nothing, (void *)(uintptr_t) "off"},
        {"columns of a factorisation", columns, NULL}};
    const int error = dup(STDERR_FILENO), end = open_error(true);
    dup2(error, STDERR_FILENO);
    tap_children(5, tests, end >= 0 ? CLB_COUNT_OF(tests) : 1);
    if (end < 0)
        tap_skip("there is no terminal: is /dev/pts there?", "what a terminal shows");
    return tap_done();
}
