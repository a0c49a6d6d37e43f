/* C that the program never touched: its pages are huge where it is large, and threads without other
 * work have them made while the first operands are on their way to the device. Columns are faulted
 * in from left to right, as results reach them. */
#include "algo.h"

/* Smaller matrices are left to the faults, unless the tuning says what to do. */
#define LARGE_MATRIX ((size_t)8 << 20)

/* Bytes that a thread faults in at once: of huge pages, about as long as it takes to copy a piece.
 * Units of a solid matrix end at huge pages, so that no two threads make the same one. */
#define UNIT      ((size_t)4 << 20)
#define GRAIN     ((uintptr_t)2 << 20)
#define LEAST_GAP ((size_t)4096)

enum mode { MODE_BY_SIZE, MODE_LEAVE, MODE_POPULATE, MODE_HUGE };

/* Where a unit of a solid matrix begins, or the last one ends. */
static char *boundary(const struct clb_touch *touch, size_t unit)
{
    if (unit == 0)
        return touch->c;
    if (unit == touch->units)
        return touch->c + (touch->columns - 1) * touch->step + touch->bytes;
    char *at = touch->c + unit * touch->per_unit * touch->step;
    size_t back = (uintptr_t)at % GRAIN;
    return (size_t)(at - touch->c) > back ? at - back : touch->c;
}

/* Whether pages of the units [unit, end) seem to be missing. */
static bool is_absent(const struct clb_touch *touch, size_t unit, size_t end)
{
    if (touch->solid)
        return clb_pages_absent(boundary(touch, unit),
                                (size_t)(boundary(touch, end) - boundary(touch, unit)));
    size_t first = unit * touch->per_unit,
           last = clb_min(end * touch->per_unit, touch->columns) - 1;
    return clb_pages_absent(touch->c + first * touch->step, touch->bytes) ||
           clb_pages_absent(touch->c + last * touch->step, touch->bytes);
}

struct clb_touch clb_touch_begin(const struct clb_gemm *problem, size_t mode)
{
    size_t element = clb_precision_size(problem->precision);
    struct clb_touch touch = {.c = problem->c,
                              .bytes = problem->m * element,
                              .step = problem->ldc * element,
                              .columns = problem->n};
    size_t span = (touch.columns - 1) * touch.step + touch.bytes;
    touch.solid = touch.step - touch.bytes < LEAST_GAP;
    touch.per_unit = clb_max(UNIT / touch.step, 1);
    touch.units = clb_div_up(touch.columns, touch.per_unit);
    if (mode == MODE_LEAVE || (mode == MODE_BY_SIZE && span < LARGE_MATRIX) ||
        !is_absent(&touch, 0, touch.units))
        touch.units = 0;
    else if (touch.solid && mode != MODE_POPULATE)
        clb_pages_want_huge(touch.c, span);
    return touch;
}

void clb_touch_unit(const struct clb_touch *touch, size_t unit)
{
    if (!is_absent(touch, unit, unit + 1))
        return;
    if (touch->solid) {
        char *begin = boundary(touch, unit);
        clb_pages_populate(begin, (size_t)(boundary(touch, unit + 1) - begin));
        return;
    }
    size_t end = clb_min((unit + 1) * touch->per_unit, touch->columns);
    for (size_t j = unit * touch->per_unit; j < end; j++)
        clb_pages_populate(touch->c + j * touch->step, touch->bytes);
}
