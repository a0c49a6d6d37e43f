/* keep.h: keeps libraries loaded whose function addresses the shim has stored (keep.c). */
#ifndef CLB_NEXT_KEEP_H
#define CLB_NEXT_KEEP_H

#include "host/symbols.h"

/* A loaded object; valid also outside of clb_objects_visit. */
struct clb_place {
    uintptr_t base;
    bool stays;      /* it can't be unloaded, or the code is in no object */
    char path[1024]; /* as the dynamic linker has it; empty when that is longer */
};

/* Fill in *place; to be called inside a visit. `object` NULL: the code is in no object. */
void clb_place_note(struct clb_place *place, const struct clb_objects *objects,
                    const struct clb_object *object);

/* True when the object is known to stay loaded. Takes no lock. */
bool clb_place_stays(const struct clb_place *place);

/* The same; and when it is not known, start to keep the object loaded, without waiting for a lock
 * of the dynamic linker that another thread may hold. Ask again at a later call. */
bool clb_place_keep(const struct clb_place *place);

/* The same, but keep it loaded at once. Waits until a dlopen of another thread has ended. */
bool clb_place_keep_now(const struct clb_place *place);

/* Record that the object stays loaded: a handle of it, or of an object that needs it, is open for
 * good. */
void clb_place_is_kept(const struct clb_place *place);

#endif
