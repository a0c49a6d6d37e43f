/* SPDX-License-Identifier: BSD-3-Clause
 * Prefaults memory that the program has allocated and not touched, since a page fault takes longer
 * than copying the page's data. Idle threads can have pages allocated beforehand, in batches, and
 * as huge pages where possible: only whole pages inside a range, whose content does not change.
 * When the system lacks or refuses a request, the pages are allocated by faults. */
#include "host.h"

#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define SAMPLES   ((size_t)4)
#define HUGE_PAGE ((uintptr_t)2 << 20)

/* Where whole units of `unit` bytes inside a range begin, and their bytes; 0: there are none. */
static size_t find_inner(const void *begin, size_t bytes, uintptr_t unit, uintptr_t *first)
{
    const uintptr_t end = ((uintptr_t)begin + bytes) / unit * unit;
    *first = clb_round_up((uintptr_t)begin, unit);
    return end > *first ? end - *first : 0;
}

bool clb_pages_absent(const void *begin, size_t bytes)
{
    const uintptr_t page = (uintptr_t)getpagesize();
    uintptr_t first;
    unsigned char present;
    const size_t inner = find_inner(begin, bytes, page, &first);
    if (inner == 0)
        return false;
    size_t last = inner / page - 1;
    for (size_t i = 0; i < SAMPLES; i++) {
        void *sample = (void *)(first + i * last / (SAMPLES - 1) * page);
        if (mincore(sample, page, &present) == 0 && (present & 1) == 0)
            return true;
    }
    return false;
}

void clb_pages_populate(void *begin, size_t bytes)
{
    uintptr_t first;
    const size_t inner = find_inner(begin, bytes, (uintptr_t)getpagesize(), &first);
    if (inner > 0)
        (void)madvise((void *)first, inner, MADV_POPULATE_WRITE);
}

void clb_pages_want_huge(void *begin, size_t bytes)
{
    uintptr_t first;
    const size_t inner = find_inner(begin, bytes, HUGE_PAGE, &first);
    if (inner > 0)
        (void)madvise((void *)first, inner, MADV_HUGEPAGE);
}

/* ---- the pages of C ---- */

/* Where the program never touched C, large matrices get huge pages, and threads fault units in
 * ahead of the results (next_job in transfer_queue.c). Columns are faulted in from left to right,
 * the order in which results arrive. */

/* Smaller matrices are not faulted in early, unless the tuning says so. */
#define LARGE_MATRIX ((size_t)8 << 20)

/* Bytes that a thread faults in at once: units of a solid matrix end at boundaries of huge pages,
 * so that no two threads fault in the same one. */
#define UNIT      HUGE_PAGE
#define LEAST_GAP ((size_t)4096)

enum mode { MODE_BY_SIZE, MODE_LEAVE, MODE_POPULATE, MODE_HUGE };

/* Where a unit of a solid matrix begins; for unit == units, where the last one ends. */
static char *boundary(const struct clb_prefault *prefault, size_t unit)
{
    if (unit == 0)
        return prefault->c;
    if (unit == prefault->units)
        return prefault->c + (prefault->columns - 1) * prefault->step + prefault->bytes;
    char *at = prefault->c + unit * prefault->per_unit * prefault->step;
    size_t back = (uintptr_t)at % UNIT;
    return (size_t)(at - prefault->c) > back ? at - back : prefault->c;
}

static bool is_absent(const struct clb_prefault *prefault, size_t unit, size_t end)
{
    if (prefault->solid)
        return clb_pages_absent(boundary(prefault, unit),
                                (size_t)(boundary(prefault, end) - boundary(prefault, unit)));
    size_t first = unit * prefault->per_unit,
           last = clb_min(end * prefault->per_unit, prefault->columns) - 1;
    return clb_pages_absent(prefault->c + first * prefault->step, prefault->bytes) ||
           clb_pages_absent(prefault->c + last * prefault->step, prefault->bytes);
}

struct clb_prefault clb_prefault_begin(void *c, size_t bytes, size_t step, size_t columns,
                                       size_t mode)
{
    struct clb_prefault prefault = {.c = c, .bytes = bytes, .step = step, .columns = columns};
    size_t span = (prefault.columns - 1) * prefault.step + prefault.bytes;
    prefault.solid = prefault.step - prefault.bytes < LEAST_GAP;
    prefault.per_unit = clb_max(UNIT / prefault.step, 1);
    prefault.units = clb_div_up(prefault.columns, prefault.per_unit);
    if (mode == MODE_LEAVE || (mode == MODE_BY_SIZE && span < LARGE_MATRIX) ||
        !is_absent(&prefault, 0, prefault.units))
        prefault.units = 0;
    else if (prefault.solid && mode != MODE_POPULATE)
        clb_pages_want_huge(prefault.c, span);
    return prefault;
}

size_t clb_prefault_units(const struct clb_prefault *prefault, size_t end)
{
    /* The last column may end in the next unit, which begins at a huge page's boundary. */
    const size_t units = clb_div_up(end, prefault->per_unit) + prefault->solid;
    return clb_min(units, prefault->units);
}

void clb_prefault_unit(const struct clb_prefault *prefault, size_t unit)
{
    if (!is_absent(prefault, unit, unit + 1))
        return;
    if (prefault->solid) {
        char *begin = boundary(prefault, unit);
        clb_pages_populate(begin, (size_t)(boundary(prefault, unit + 1) - begin));
        return;
    }
    size_t end = clb_min((unit + 1) * prefault->per_unit, prefault->columns);
    for (size_t j = unit * prefault->per_unit; j < end; j++)
        clb_pages_populate(prefault->c + j * prefault->step, prefault->bytes);
}
