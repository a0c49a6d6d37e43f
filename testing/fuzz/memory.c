/* The operands in one piece of memory, with a NaN of one pattern wherever there is no operand or an
 * operand is not to be read. What the call has changed must be an output.
 *
 * Arrangements: 0 apart; 1 parts of one matrix, so that gaps belong to other operands; 2 A and B
 * the same memory; 3 A and B overlapping. SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GUARD = 64, ALL_GUARDED = 1 << 24 };

size_t element_size(const struct problem *p)
{
    return p->p->real_size * (p->p->complex ? 2 : 1);
}

long line_length(const struct operand *x)
{
    return x->by_rows ? x->cols : x->rows;
}

static long line_count(const struct operand *x)
{
    return x->by_rows ? x->rows : x->cols;
}

char *element(const struct problem *p, const struct operand *x, long i, long j)
{
    const size_t at = (size_t)(x->by_rows ? i : j) * (size_t)x->ld + (size_t)(x->by_rows ? j : i);
    return x->data + at * element_size(p);
}

bool is_in_part(const struct operand *x, long i, long j)
{
    if (x->unit && i == j)
        return false;
    return x->part == PART_ALL || (x->part == PART_UPPER ? i <= j : i >= j);
}

/* ---- guards ---- */

static const uint32_t guard32 = 0x7fc5a5a5;
static const uint64_t guard64 = 0x7ff8a5a5a5a5a5a5;

void put_guard(const struct precision *p, char *at)
{
    memcpy(at, p->real_size == 4 ? (const void *)&guard32 : &guard64, p->real_size);
}

bool is_guard(const struct precision *p, const char *at)
{
    return memcmp(at, p->real_size == 4 ? (const void *)&guard32 : &guard64, p->real_size) == 0;
}

static bool add_span(struct problem *p, char *at, size_t bytes)
{
    struct memory *memory = &p->memory;
    char *before = malloc(bytes);
    if (before == NULL)
        return false;
    for (size_t i = 0; i < bytes; i += p->p->real_size)
        put_guard(p->p, at + i);
    memory->spans[memory->count++] = (struct span){at, before, bytes};
    return true;
}

/* All of the memory, or where it is too large for that the lines with what is around them. */
static bool guard_all(struct problem *p)
{
    struct memory *memory = &p->memory;
    const size_t size = element_size(p);
    size_t lines = 1;
    for (int i = 0; i < OPERANDS; i++)
        lines += (size_t)line_count(&p->operands[i]);
    memory->spans = calloc(lines, sizeof *memory->spans);
    if (memory->spans == NULL)
        return false;
    if (!memory->mapped)
        return add_span(p, memory->base, memory->bytes);
    for (int i = 0; i < OPERANDS; i++) {
        const struct operand *x = &p->operands[i];
        for (long line = 0; line < line_count(x); line++) {
            char *at = x->data + (size_t)line * (size_t)x->ld * size - GUARD * size;
            if (!add_span(p, at, ((size_t)line_length(x) + 2 * GUARD) * size))
                return false;
        }
    }
    return true;
}

/* ---- places ---- */

static size_t extent(const struct operand *x)
{
    return line_count(x) == 0
               ? 0
               : (size_t)(line_count(x) - 1) * (size_t)x->ld + (size_t)line_length(x);
}

/* Sets leading dimensions and the first element of each, as offsets; the elements in all. */
static size_t arrange(struct problem *p, size_t offsets[OPERANDS])
{
    struct operand *x = p->operands;
    const long *value = p->c.value, place = value[FIELD_PLACE];
    const size_t gap = GUARD + (size_t)value[FIELD_SHIFT];
    size_t at = gap, ld = 0;
    for (int i = 0; i < OPERANDS; i++)
        x[i].ld = larger(line_length(&x[i]), 1) + value[FIELD_PAD_A + i];
    if (place == 1) {
        for (int i = 0; i < OPERANDS; i++)
            ld += (size_t)x[i].ld;
        for (int i = 0; i < OPERANDS; i++) {
            offsets[i] = at + (i > 0 ? offsets[i - 1] - at + (size_t)x[i - 1].ld : 0);
        }
        long lines = 0;
        for (int i = 0; i < OPERANDS; i++) {
            x[i].ld = (long)ld;
            lines = larger(lines, line_count(&x[i]));
        }
        return at + (size_t)lines * ld + gap;
    }
    if (place > 1)
        x[0].ld = x[1].ld = larger(x[0].ld, x[1].ld) + 1;
    for (int i = 0; i < OPERANDS; i++) {
        offsets[i] = at;
        if (i == 0 && place > 1) {
            /* The overlapping one begins in the second row of the second column. */
            offsets[1] = at + (place == 3 ? 1 + (size_t)x[0].ld : 0);
            at = (extent(&x[0]) < extent(&x[1]) ? offsets[1] + extent(&x[1])
                                                : offsets[1] + extent(&x[0]));
            at += gap;
            i = 1;
            continue;
        }
        at += extent(&x[i]) + gap;
    }
    return at;
}

bool place_operands(struct problem *p)
{
    struct memory *memory = &p->memory;
    size_t offsets[OPERANDS];
    memory->bytes = arrange(p, offsets) * element_size(p);
    memory->mapped = memory->bytes > ALL_GUARDED;
    if (memory->mapped)
        memory->base = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    else
        memory->base = malloc(memory->bytes);
    if (memory->base == NULL || memory->base == MAP_FAILED) {
        memory->base = NULL;
        return false;
    }
    for (int i = 0; i < OPERANDS; i++)
        p->operands[i].data = memory->base + offsets[i] * element_size(p);
    return guard_all(p);
}

void free_operands(struct problem *p)
{
    struct memory *memory = &p->memory;
    for (size_t i = 0; i < memory->count; i++)
        free(memory->spans[i].before);
    free(memory->spans);
    if (memory->mapped && memory->base != NULL)
        munmap(memory->base, memory->bytes);
    else
        free(memory->base);
}

/* ---- before and after ---- */

void remember_operands(struct problem *p)
{
    for (size_t i = 0; i < p->memory.count; i++)
        memcpy(p->memory.spans[i].before, p->memory.spans[i].at, p->memory.spans[i].bytes);
}

void restore_operands(struct problem *p)
{
    for (size_t i = 0; i < p->memory.count; i++)
        memcpy(p->memory.spans[i].at, p->memory.spans[i].before, p->memory.spans[i].bytes);
}

bool all_intact(const struct problem *p)
{
    for (size_t i = 0; i < p->memory.count; i++) {
        const struct span *span = &p->memory.spans[i];
        if (memcmp(span->at, span->before, span->bytes) != 0)
            return false;
    }
    return true;
}

static bool is_output(const struct problem *p, const char *at)
{
    for (int i = 0; i < OPERANDS; i++) {
        const struct operand *x = &p->operands[i];
        if (!x->output || at < x->data)
            continue;
        const size_t index = (size_t)(at - x->data) / element_size(p);
        const long line = (long)(index / (size_t)x->ld), in = (long)(index % (size_t)x->ld);
        if (line < line_count(x) && in < line_length(x) &&
            is_in_part(x, x->by_rows ? line : in, x->by_rows ? in : line))
            return true;
    }
    return false;
}

/* Where something is, for a message. */
static void blame(struct problem *p, const char *at)
{
    int nearest = 0;
    for (int i = 0; i < OPERANDS; i++) {
        if (p->operands[i].rows > 0 && p->operands[i].cols > 0 && at >= p->operands[i].data)
            nearest = i;
    }
    const struct operand *x = &p->operands[nearest];
    const long index = (long)((at - x->data) / (long)element_size(p));
    fail(p, "%c was changed where it is no output: element %ld of line %ld", 'A' + nearest,
         index % x->ld, index / x->ld);
}

bool outside_intact(struct problem *p)
{
    const size_t size = p->p->real_size;
    for (size_t i = 0; i < p->memory.count; i++) {
        const struct span *span = &p->memory.spans[i];
        if (memcmp(span->at, span->before, span->bytes) == 0)
            continue;
        for (size_t at = 0; at < span->bytes; at += size) {
            if (memcmp(span->at + at, span->before + at, size) != 0 &&
                !is_output(p, span->at + at)) {
                blame(p, span->at + at);
                return false;
            }
        }
    }
    return true;
}
