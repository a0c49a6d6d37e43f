/* Memory that the program never touched: every result arrives there, nothing beside it is written,
 * and no page is asked for that holds nothing of C. SPDX-License-Identifier: BSD-3-Clause */
#include "engine/gemm/gemm.h"
#include "engine/gemm/structure.h"
#include "matrix.h"
#include "tap.h"
#include "engine/transfer/transfer_queue.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARD ((size_t)6 << 20)

/* ---- pages ---- */

static size_t page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static unsigned char *fresh(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(1);
    return memory;
}

/* Pages of [begin, begin + bytes) that are there; both are multiples of a page. */
static size_t present(unsigned char *begin, size_t bytes)
{
    size_t count = 0;
    unsigned char is;
    for (size_t i = 0; i < bytes; i += page()) {
        if (mincore(begin + i, page(), &is) == 0)
            count += is & 1;
    }
    return count;
}

/* What is told apart here depends on the system: fresh memory is absent, a page at a time. */
static bool can_tell(void)
{
    unsigned char *memory = fresh(GUARD);
    bool absent = present(memory, GUARD) == 0;
    memory[GUARD / 2] = 1;
    absent = absent && present(memory, GUARD) == 1;
    munmap(memory, GUARD);
    return absent;
}

/* Linux before 5.14 does not know how to. */
static bool can_populate(void)
{
    unsigned char *memory = fresh(GUARD);
    clb_pages_populate(memory, GUARD);
    bool all = present(memory, GUARD) == GUARD / page();
    munmap(memory, GUARD);
    return all;
}

static void populates(void *unused)
{
    (void)unused;
    unsigned char *memory = fresh(GUARD);
    expect(clb_pages_absent(memory + 100, GUARD - 200), "fresh memory is there");
    expect(!clb_pages_absent(memory + 100, page() - 200), "a range without a whole page is absent");
    clb_pages_populate(memory + 100, 10 * page());
    size_t count = present(memory, GUARD);
    expect(count == 9 || !can_populate(), "%zu pages of 9 are there", count);
    expect(present(memory, page()) == 0, "the first page holds other data");
    expect(clb_pages_absent(memory, GUARD), "most pages are absent");
    memset(memory, 7, GUARD);
    expect(!clb_pages_absent(memory + 100, GUARD - 200), "written memory is absent");
    clb_pages_populate(memory, GUARD);
    clb_pages_want_huge(memory, GUARD);
    for (size_t i = 0; i < GUARD; i++) {
        if (!expect(memory[i] == 7, "byte %zu changed", i))
            break;
    }
    munmap(memory, GUARD);
    /* Memory that is not there at all is nobody's fault here. */
    clb_pages_populate(memory, GUARD);
    clb_pages_want_huge(memory, GUARD);
    clb_pages_absent(memory, GUARD);
}

/* ---- pages ahead of results ---- */

/* C in memory never touched, in units of some 130 columns, none of them whole huge pages. */
struct fresh_c {
    unsigned char *memory;
    size_t bytes;
    struct clb_gemm problem;
};

enum { ROWS = 2000, COLUMNS = 1000 };

static struct fresh_c fresh_c_make(size_t gap)
{
    struct fresh_c c = {
        .problem = {.precision = CLB_D, .m = ROWS, .n = COLUMNS, .ldc = ROWS + gap}};
    c.bytes = (c.problem.ldc * COLUMNS * sizeof(double) / page() + 2) * page();
    c.memory = fresh(c.bytes);
    c.problem.c = c.memory + 16;
    return c;
}

/* Whole pages of the columns [first, end) that are not there. */
static size_t missing(const struct clb_gemm *problem, size_t first, size_t end)
{
    const size_t step = problem->ldc * sizeof(double);
    size_t count = 0;
    for (size_t j = first; j < end; j++) {
        uintptr_t begin = (uintptr_t)problem->c + j * step, stop = begin + ROWS * sizeof(double);
        begin = (begin + page() - 1) / page() * page();
        stop = stop / page() * page();
        count += (stop - begin) / page() - present((unsigned char *)begin, stop - begin);
    }
    return count;
}

/* As many units as are said to hold columns hold them, and fewer than all for the first ones. Pages
 * that the system is just joining to a huge one are absent for a moment. */
static void holds(void *argument)
{
    for (size_t end = 1; end <= COLUMNS; end += end == 1 ? 59 : 60) {
        struct fresh_c c = fresh_c_make(*(const size_t *)argument);
        const struct clb_prefault prefault = clb_gemm_prefault(&c.problem, 2);
        const size_t units = clb_prefault_units(&prefault, end);
        expect(units <= prefault.units && (end > 1 || units < prefault.units), "%zu units of %zu",
               units, prefault.units);
        for (size_t unit = 0; unit < units; unit++)
            clb_prefault_unit(&prefault, unit);
        size_t absent = missing(&c.problem, 0, end);
        for (int i = 0; i < 100 && absent > 0; i++, absent = missing(&c.problem, 0, end))
            usleep(1000);
        expect(absent == 0, "%zu columns, %zu units: %zu pages missing", end, units, absent);
        munmap(c.memory, c.bytes);
    }
}

struct writer {
    const struct clb_gemm *problem;
    atomic_size_t missing, written;
};

static clb_status write_columns(void *context, const struct clb_transfer *transfer,
                                const struct clb_rect *rect, char *slot)
{
    struct writer *writer = context;
    const size_t first = transfer->column + rect->col, step = writer->problem->ldc * sizeof(double);
    atomic_fetch_add(&writer->missing, missing(writer->problem, first, first + rect->cols));
    for (size_t j = 0; j < rect->cols; j++)
        memcpy((char *)writer->problem->c + (first + j) * step, slot + j * ROWS * sizeof(double),
               ROWS * sizeof(double));
    atomic_fetch_add(&writer->written, rect->cols);
    return CLB_OK;
}

/* Results that are all there at once are not written before their pages are. */
static void comes_after_pages(void *argument)
{
    enum { STRIPS = 4, COLS = COLUMNS / STRIPS };
    struct fresh_c c = fresh_c_make(*(const size_t *)argument);
    struct writer writer = {.problem = &c.problem};
    struct clb_transfer strip[STRIPS];
    struct clb_queue_set *set;
    struct clb_buffer *buffer;
    clb_runtime_state state;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (!expect(runtime != NULL && clb_queue_set_acquire(runtime, &set) == CLB_OK &&
                    clb_buffer_get(runtime, CLB_MEMORY_DEVICE, ROWS * COLUMNS * sizeof(double),
                                   &buffer) == CLB_OK,
                "no device"))
        return;
    for (size_t i = 0; i < STRIPS; i++)
        strip[i] = (struct clb_transfer){.down = true,
                                         .column = i * COLS,
                                         .x = {buffer->mem, i * COLS * ROWS, ROWS, COLS, ROWS},
                                         .extent = 50,
                                         .slot_ld = ROWS};
    struct clb_transfer_queue transfers = {.queue_set = &set,
                                           .queue_sets = 1,
                                           .queues = 1,
                                           .precision = CLB_D,
                                           .transfer = strip,
                                           .downloads = STRIPS,
                                           .wanted_threads = 4,
                                           .most_threads = 4,
                                           .copy = write_columns,
                                           .context = &writer,
                                           .prefault = clb_gemm_prefault(&c.problem, 2)};
    clb_status status = clb_transfer_queue_open(&transfers);
    if (status == CLB_OK) {
        clb_transfer_queue_start(&transfers, 1);
        for (size_t i = 0; i < STRIPS; i++)
            clb_transfer_queue_release_now(&transfers, i);
    }
    status = clb_transfer_queue_finish(&transfers, status);
    clb_transfer_queue_close(&transfers, true);
    expect(status == CLB_OK, "%s", clb_status_name(status));
    expect(writer.written == COLUMNS, "%zu columns of %d", writer.written, COLUMNS);
    expect(writer.missing == 0, "%zu pages were not there", writer.missing);
    clb_buffer_end(runtime, buffer, true);
    clb_queue_set_end(set, true);
    munmap(c.memory, c.bytes);
}

/* ---- results in such memory ---- */

static void check_entries(const double *a, const double *b, const double *c, size_t ldc, size_t m,
                          size_t n, size_t k)
{
    for (size_t e = 0; e < m * n; e += 7) {
        size_t i = e % m, j = e / m;
        double sum = 0;
        for (size_t p = 0; p < k; p++)
            sum += a[i + p * m] * b[p + j * k];
        /* Small integers: exact. */
        if (!expect(c[i + j * ldc] == sum, "(%zu,%zu): %g, expected %g", i, j, c[i + j * ldc], sum))
            return;
    }
}

/* Nothing around C or between its columns was written, and pages without any of it are not there.
 */
static void check_rest(unsigned char *memory, size_t bytes, size_t at, size_t column, size_t step,
                       size_t n, bool pages)
{
    size_t first = at / page() * page();
    size_t end = at + (n - 1) * step + column;
    size_t last = (end + page() - 1) / page() * page();
    expect(!pages || present(memory, first) == 0, "pages in front of C");
    expect(!pages || present(memory + last, bytes - last) == 0, "pages behind C");
    for (size_t j = 0; j + 1 < n; j++) {
        size_t begin = at + j * step + column, stop = at + (j + 1) * step;
        size_t page_begin = (begin + page() - 1) / page() * page();
        size_t page_stop = stop / page() * page();
        if (pages && page_stop > page_begin &&
            !expect(present(memory + page_begin, page_stop - page_begin) == 0, "pages in a gap"))
            return;
        for (size_t i = begin; i < stop; i++) {
            if (!expect(memory[i] == 0, "a gap was written"))
                return;
        }
    }
}

struct setting {
    const char *name, *params;
    bool pages;
};

static void untouched(void *argument)
{
    const struct setting *setting = argument;
    static const size_t gaps[] = {0, 5, 2000};
    const size_t m = 1500, n = 420, k = 24;
    clb_runtime_state state;
    const struct clb_gemm_variant *variant;
    setenv("CLBLAS_SHIM_PARAMS", setting->params, 1);
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (!expect(runtime != NULL && clb_gemm_variant_get(runtime, CLB_D, &variant) == CLB_OK,
                "no device"))
        return;
    for (size_t round = 0; round < 2 * CLB_COUNT_OF(gaps); round++) {
        size_t ldc = m + gaps[round / 2], column = m * sizeof(double), step = ldc * sizeof(double);
        size_t at = GUARD + (round % 2 == 0 ? 16 : 0), bytes = 2 * GUARD + n * step;
        bytes = (bytes + page() - 1) / page() * page();
        unsigned char *memory = fresh(bytes);
        double *a = malloc(m * k * sizeof *a), *b = malloc(k * n * sizeof *b);
        for (size_t i = 0; i < m * k; i++)
            a[i] = (double)(i % 17) - 8;
        for (size_t i = 0; i < k * n; i++)
            b[i] = (double)(i % 13) - 6;
        struct clb_gemm problem = {.precision = CLB_D,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .terms = 1,
                                   .a = {{.data = a, .ld = m}},
                                   .b = {{.data = b, .ld = k}},
                                   .alpha = {{.d = {1}}},
                                   .c = memory + at,
                                   .ldc = ldc};
        struct clb_gemm_progress progress;
        clb_status status = clb_gemm_run(runtime, variant, &problem, &progress);
        clb_gemm_progress_free(&progress);
        if (expect(status == CLB_OK, "%s", clb_status_name(status))) {
            check_rest(memory, bytes, at, column, step, n, setting->pages);
            check_entries(a, b, (const double *)(const void *)(memory + at), ldc, m, n, k);
        }
        munmap(memory, bytes);
        free(a);
        free(b);
    }
}

int main(void)
{
    static struct setting settings[] = {
        {"left alone", "gemm.stream=1,gemm.threads=5,gemm.fault=1,gemm.band_m=256,gemm.band_n=64",
         true},
        {"populated", "gemm.stream=1,gemm.threads=5,gemm.fault=2,gemm.band_m=256,gemm.band_n=64",
         true},
        {"huge pages", "gemm.stream=1,gemm.threads=5,gemm.fault=3,gemm.band_m=256,gemm.band_n=64",
         true},
        {"many threads",
         "gemm.stream=1,gemm.threads=12,gemm.fault=3,gemm.band_m=256,gemm.band_n=64,gemm.piece=64K",
         true},
        {"in place", "gemm.fault=3", true},
        {"one thread", "gemm.stream=1,gemm.threads=1,gemm.fault=3,gemm.band_m=256,gemm.band_n=64",
         true},
    };
    static size_t gaps[] = {5, 700};
    bool pages = can_tell();
    setenv("CLBLAS_SHIM_KERNEL", "cpu", 1);
    if (pages)
        tap_child("pages are made when they are asked for", 60, populates, NULL);
    else
        tap_skip("the system does not tell which pages there are", "pages");
    if (pages && can_populate()) {
        tap_child("units hold their columns", 60, holds, &gaps[0]);
        tap_child("units hold their columns, with gaps", 60, holds, &gaps[1]);
        tap_child("pages are there before results", 60, comes_after_pages, &gaps[0]);
        tap_child("pages are there before results, with gaps", 60, comes_after_pages, &gaps[1]);
    }
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        char name[80];
        settings[i].pages = pages;
        snprintf(name, sizeof name, "untouched C, %s", settings[i].name);
        tap_child(name, 60, untouched, &settings[i]);
    }
    return tap_done();
}
