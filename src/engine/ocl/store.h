/* store: records in the cache folder, one a file. SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_STORE_H
#define CLB_STORE_H

#include "host/host.h"

/* ---- the folder ---- */

/* The folder, or NULL; constant once found. One that the user has named may be read-only: what is
 * there is used, and nothing is stored. */
const char *clb_cache_directory(void);

/* True while the file system below `directory` has room for a build: PoCL ends the process when the
 * disk fills while it compiles. */
bool clb_cache_has_room(const char *directory);

/* Make the directory `path` and its parents; true when files can be created in it. */
bool clb_cache_usable(const char *path);
/* $XDG_CACHE_HOME/name or $HOME/.cache/name; false when neither is set and may be used. */
bool clb_cache_user_path(char *path, size_t size, const char *name);

uint64_t clb_cache_hash(const void *data, size_t size);

/* ---- records ---- */

/* In a file the bytes before the key: a line, and the subject. */
enum { CLB_RECORD_HEADER = 72 };

typedef enum clb_record_kind {
    CLB_RECORD_PROGRAM, /* a compiled program; its text is the driver's binary */
    CLB_RECORD_CHECK,   /* a check that a program has passed */
    CLB_RECORD_STEP,    /* what has become of a step of the helper, and its choices */
    CLB_RECORD_MARK,    /* a program or device with a defect, and which: not used for a week */
    CLB_RECORD_DRIVERS, /* whether these drivers work, or the only one of them that does */
    CLB_RECORD_DEVICE,  /* the device that was chosen where there are these drivers */
    CLB_RECORD_REQUEST, /* what a helper has been asked for */
    CLB_RECORD_ROW,     /* the row of the tuning tables that this machine has kept */
    CLB_RECORD_POCL,    /* checksums of the files in PoCL's cache, or when one was removed */
    CLB_RECORD_PROFILE, /* what calls have taken, as text; its file is NAME.profile */
    CLB_RECORD_KINDS
} clb_record_kind;

/* What a record is about: a device, a program, drivers; and what of it. Both are any text. */
struct clb_key {
    clb_record_kind kind;
    const char *subject;
    const char *detail; /* NULL: nothing */
};

#define CLB_MARK_LASTS 604800 /* seconds */

enum { CLB_VERDICT_NONE, CLB_PASSED, CLB_FAILED, CLB_LIBRARY };

struct clb_record {
    int64_t verdict;
    int64_t time; /* nanoseconds since 1970; 0: set when it is stored */
    char *text;   /* of a loaded record malloc'ed and terminated; NULL: none */
    size_t size;  /* of the text */
};

/* Records belong to a version of the library. False, with an empty record, when there is none of
 * this version or it is damaged; clb_record_free frees the text of one that was loaded. */
bool clb_record_load(struct clb_key key, struct clb_record *record);
void clb_record_free(struct clb_record *record);
void clb_record_store(struct clb_key key, struct clb_record record);
/* The same for a record that is a verdict with a reason. */
void clb_record_note(struct clb_key key, int64_t verdict, const char *reason);
bool clb_record_is_older(const struct clb_record *record, double seconds);
/* There is one that is not older; and load it. */
bool clb_record_exists(struct clb_key key, double seconds);
bool clb_record_load_recent(struct clb_key key, double seconds, struct clb_record *record);

/* The row of the tuning tables that this machine has kept for a device. */
static inline struct clb_key clb_row_key(const char *identity, clb_precision precision)
{
    static const char *const letters[CLB_PRECISIONS] = {"s", "d", "c", "z"};
    return (struct clb_key){CLB_RECORD_ROW, identity, letters[precision]};
}

/* ---- records of other versions ---- */

/* Which results of other versions there are without any of this one. */
struct clb_outdated {
    bool kernels; /* of `warm`, or of programs */
    bool tuning;  /* of `tune` */
};
/* With `remove`, as in the helper, files of other versions that are long unused are removed. */
struct clb_outdated clb_store_visit_outdated(bool remove);

#endif
