/* keep.h: libraries whose addresses are remembered stay loaded (keep.c). */
#ifndef CLB_NEXT_KEEP_H
#define CLB_NEXT_KEEP_H

#include "base/symbols.h"

/* A loaded object, outside of clb_objects_visit. */
struct clb_place {
    uintptr_t base;
    bool stays;      /* it can't be unloaded, or is none */
    char path[1024]; /* the dynamic linker's; empty where it is too long */
};

/* Inside a visit. NULL: code that is in no object. */
void clb_place_note(struct clb_place *place, const struct clb_objects *objects,
                    const struct clb_object *object);

/* True when the object is known to stay loaded. Takes no lock. */
bool clb_place_stays(const struct clb_place *place);

/* The same. Otherwise that will be seen to, without waiting for the
 * dynamic linker where other threads may hold it: ask again at a later call. */
bool clb_place_keep(const struct clb_place *place);

/* The same at once. Waits until a dlopen of another thread has ended. */
bool clb_place_keep_now(const struct clb_place *place);

/* It stays: a handle of it, or of what needs it, is open for good. */
void clb_place_is_kept(const struct clb_place *place);

#endif
