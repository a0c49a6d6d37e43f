/* Faulting in the pages of a C that the program never touched. Large matrices get huge pages, and
 * threads without other work fault units in while the first operands are on their way to the
 * device. Columns are faulted in from left to right, the order in which results arrive. */
#include "prefault.h"

/* Smaller matrices are not faulted in early, unless the tuning says so. */
#define LARGE_MATRIX ((size_t)8 << 20)

/* Bytes that a thread faults in at once: with huge pages this takes about as long as copying a
 * piece. Units of a solid matrix end at boundaries of huge pages, so that no two threads fault in
 * the same one. */
#define UNIT      ((size_t)4 << 20)
#define GRAIN     ((uintptr_t)2 << 20)
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
    size_t back = (uintptr_t)at % GRAIN;
    return (size_t)(at - prefault->c) > back ? at - back : prefault->c;
}

/* Whether pages of the units [unit, end) seem to be missing. */
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

struct clb_prefault clb_prefault_begin(const struct clb_gemm *problem, size_t mode)
{
    size_t element = clb_precision_size(problem->precision);
    struct clb_prefault prefault = {.c = problem->c,
                                    .bytes = problem->m * element,
                                    .step = problem->ldc * element,
                                    .columns = problem->n};
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
