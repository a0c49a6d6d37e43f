/* SPDX-License-Identifier: BSD-3-Clause
 * The trace: spans of threads and queues, written at exit for chrome://tracing and Perfetto. */
#include "process.h"

#include <math.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* At most so many spans, some 40 MB, are kept: a trace is for a short run. */
#define MAX_SPANS ((size_t)1 << 20)

enum side { HOST, DEVICE };

struct span {
    const char *name;
    double begin, end;
    long track; /* the number of the thread or queue */
    enum side side;
};

const char *clb_trace_file;
static struct clb_mutex lock = CLB_MUTEX_INITIALIZER; /* guards what follows */
static struct span *spans;
static size_t count, lost;
static double device_offset = INFINITY; /* finite when there is a span of the device */

void clb_trace_open(const char *name)
{
    clb_trace_file = name;
    clb_report_file_note(name);
}

static void add(const struct span *span, double offset)
{
    if (clb_lock(&lock)) /* the trace of a forked child begins with the fork */
        count = lost = 0;
    device_offset = fmin(device_offset, offset);
    if (spans == NULL) /* pages are there once they are written to */
        spans = calloc(MAX_SPANS, sizeof *spans);
    if (spans != NULL && count < MAX_SPANS)
        spans[count++] = *span;
    else
        lost++;
    clb_unlock(&lock);
}

void clb_trace_since(const char *name, double begin)
{
    add(&(struct span){name, begin, clb_now(), syscall(SYS_gettid), HOST}, INFINITY);
}

void clb_trace_command(long queue, const char *name, double begin, double end, double offset)
{
    add(&(struct span){name, begin, end, queue, DEVICE}, offset);
}

/* By clb_now(). */
static double begin_of(const struct span *span)
{
    return span->begin + (span->side == DEVICE ? device_offset : 0);
}

/* Times in microseconds since the first span. */
static void format(struct clb_text *text)
{
    static const char *const sides[] = {[HOST] = "host", [DEVICE] = "device"};
    double first = begin_of(&spans[0]);
    for (size_t i = 0; i < count; i++)
        first = fmin(first, begin_of(&spans[i]));
    clb_text_add(text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (size_t s = 0; s < CLB_COUNT_OF(sides); s++)
        clb_text_addf(text,
                      "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%zu,\"args\":{\"name\":"
                      "\"%s\"}},\n",
                      s, sides[s]);
    for (size_t i = 0; i < count; i++) {
        const struct span *span = &spans[i];
        clb_text_add(text, "{\"ph\":\"X\",\"name\":");
        clb_text_add_quoted(text, span->name);
        clb_text_addf(text, ",\"pid\":%d,\"tid\":%ld,\"ts\":", (int)span->side, span->track);
        clb_text_add_double(text, 1e6 * (begin_of(span) - first));
        clb_text_add(text, ",\"dur\":");
        clb_text_add_double(text, 1e6 * (span->end - span->begin));
        clb_text_add(text, i + 1 < count ? "},\n" : "}\n");
    }
    clb_text_addf(text, "],\"lost\":%zu}\n", lost);
}

/* Other threads may still run; spans that they add from now on are not written. */
__attribute__((destructor)) static void write_trace_at_exit(void)
{
    bool first;
    if (!clb_trace_wanted() || !clb_lock_try(&lock, &first))
        return;
    if (first)
        count = 0;
    struct clb_text text = {0};
    if (count > 0) {
        format(&text);
        clb_report_file_write("CLBLAS_SHIM_TRACE", clb_trace_file, &text);
    }
    clb_text_free(&text);
    clb_trace_file = NULL;
    clb_unlock(&lock);
}
