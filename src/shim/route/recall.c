/* What a call reads of the history, without a lock. SPDX-License-Identifier: BSD-3-Clause */
#include "history.h"

#include "host/host.h"

#include <math.h>
#include <string.h>

/* ---- entries ---- */

enum { BITS = 9, CLASSES = 48 };

enum { FIRST_CALLS = 6, ASKED_EVERY = 32 };

static struct clb_history_entry entries[1 << BITS];
static struct clb_history_class classes[CLB_ROUTINES][CLASSES];

struct clb_history_entry *clb_history_place(const struct clb_history_key *key)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < CLB_HISTORY_WORDS; i++)
        hash = (hash ^ key->word[i]) * 0x9e3779b97f4a7c15U;
    return &entries[hash >> (64 - BITS)];
}

struct clb_history_class *clb_history_class_of(const struct clb_history_key *key, unsigned class)
{
    return &classes[(key->word[0] >> 32) % CLB_ROUTINES][class % CLASSES];
}

void clb_history_clear(void)
{
    memset(entries, 0, sizeof entries);
}

void clb_history_ask_anew(void)
{
    for (size_t i = 0; i < sizeof classes / sizeof **classes; i++)
        atomic_fetch_add(&classes[0][i].version, 1);
}

void clb_history_publish(struct clb_history_entry *entry, const struct clb_history_key *key,
                         const struct clb_decision *decision)
{
    uint64_t word[CLB_HISTORY_ENTRY_WORDS] = {0};
    memcpy(word, key->word, sizeof key->word);
    if (decision != NULL) {
        memcpy(&word[CLB_HISTORY_WORDS], &decision->alone.device, sizeof *word);
        memcpy(&word[CLB_HISTORY_WORDS + 1], &decision->alone.next, sizeof *word);
        word[CLB_HISTORY_WORDS + 2] = (uint64_t)decision->reason << 4 |
                                      (uint64_t)decision->for_device << 3 | 4U |
                                      (uint64_t)decision->by_times << 1 | decision->alone.measured;
        word[CLB_HISTORY_WORDS + 3] = (uint64_t)entry->class << 32 | entry->valid;
    }
    atomic_fetch_add(&entry->version, 1);
    for (size_t i = 0; i < CLB_HISTORY_ENTRY_WORDS; i++)
        atomic_store_explicit(&entry->word[i], word[i], memory_order_release);
    atomic_fetch_add(&entry->version, 1);
}

/* Whether a declined call is to be asked about again, and for how many it stands. */
static bool asks_again(struct clb_history_entry *entry, const struct clb_decision *decision,
                       unsigned *calls)
{
    if (atomic_load_explicit(&entry->trying, memory_order_relaxed) ||
        isgreaterequal(decision->alone.next, CLB_HISTORY_LONG))
        return true;
    const unsigned count = atomic_load_explicit(&entry->declined, memory_order_relaxed) + 1;
    atomic_store_explicit(&entry->declined, count, memory_order_relaxed);
    *calls = count > FIRST_CALLS ? ASKED_EVERY : 1;
    return count <= FIRST_CALLS || count % ASKED_EVERY == 0;
}

bool clb_history_recall(const struct clb_history_key *key, bool timed,
                        struct clb_decision *decision, bool *asks, unsigned *calls)
{
    struct clb_history_entry *entry = clb_history_place(key);
    uint64_t word[CLB_HISTORY_ENTRY_WORDS];
    const uint64_t version = atomic_load_explicit(&entry->version, memory_order_acquire);
    if (version % 2 != 0)
        return false;
    for (size_t i = 0; i < CLB_HISTORY_ENTRY_WORDS; i++)
        word[i] = atomic_load_explicit(&entry->word[i], memory_order_acquire);
    const uint64_t flags = word[CLB_HISTORY_WORDS + 2], class = word[CLB_HISTORY_WORDS + 3];
    if (atomic_load_explicit(&entry->version, memory_order_relaxed) != version || flags == 0 ||
        memcmp(word, key->word, sizeof key->word) != 0 ||
        (unsigned)class !=
            atomic_load_explicit(&clb_history_class_of(key, (unsigned)(class >> 32))->version,
                                 memory_order_relaxed))
        return false;
    memcpy(&decision->alone.device, &word[CLB_HISTORY_WORDS], sizeof *word);
    memcpy(&decision->alone.next, &word[CLB_HISTORY_WORDS + 1], sizeof *word);
    decision->alone.measured = (flags & 1) != 0;
    decision->by_times = (flags & 2) != 0;
    decision->for_device = (flags & 8) != 0;
    decision->reason = (unsigned)(flags >> 4);
    *calls = 1;
    *asks = timed && decision->by_times &&
            (decision->for_device ||
             (isless(decision->alone.device, CLB_HISTORY_CLOSE * decision->alone.next) &&
              asks_again(entry, decision, calls)));
    return true;
}

/* ---- the declined call that this thread is in ---- */

/* The call's struct is on the stack, and a call that is inside has a deeper one. So what an error
 * handler leaves here when it jumps out counts no longer when the stack is not that deep. */
static CLB_THREAD struct {
    const struct clb_call *call; /* NULL: none */
    double kept_until;           /* by clb_now; 0: none are */
} enclosing;

#define KEEPS_PATIENCE 10 /* times as long as was predicted */

bool clb_history_is_inside(const struct clb_call *call)
{
    return enclosing.call != NULL && (uintptr_t)call < (uintptr_t)enclosing.call;
}

bool clb_history_is_kept(const struct clb_call *call)
{
    return clb_history_is_inside(call) && enclosing.kept_until > 0 &&
           clb_now() < enclosing.kept_until;
}

void clb_history_enclose(const struct clb_call *call, bool keeps, double seconds)
{
    enclosing.call = call;
    enclosing.kept_until = keeps ? clb_now() + KEEPS_PATIENCE * seconds : 0;
}
