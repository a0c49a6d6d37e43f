/* GEMM on a device with its own memory: what the files stream*.c share.
 *
 * The operands are cut into bands, bands of rows of A and of columns of B, each into slabs of
 * depth. A *load* brings one slab of one band to the device: CPU threads copy it in pieces into
 * pinned memory, an upload queue moves the pieces into a raw buffer, a kernel packs that into its
 * place in the packed operand, which stays there. A step loads one band, of the operand of which
 * less is there, and makes a *strip* of C computable: the product of that band with what is there
 * of the other operand. So after a fraction t of the operands has arrived the fraction t^2 of the
 * product can be under way, and little is left to do after the last load. Each strip is downloaded
 * in pieces to pinned memory and merged into the caller's C by CPU threads while the device works
 * on.
 *
 * Bound: with T the time to bring A and B in and W that of the kernels, no schedule over squares
 * ends before max over t of t*T + (1-t^2)*W.
 *
 * Where all of C is kept on the device and the depth is large, its first slab is an first_slabs: it
 * is loaded of all bands and multiplied before anything of the others is loaded. So the device has
 * work earlier: what can be computed after a fraction t of the operands is (t/s)^2 of the first
 * part's share s, and not t^2 of all.
 *
 * When the packed operands don't fit, C is cut into blocks that are computed one after the other in
 * one run, in a serpentine, so that only one operand of the next block has to be loaded, band by
 * band with a strip of the whole height or width after each.
 *
 * Operands with a shape are loaded in pieces (structure.h): zeros are not, what is beside the
 * stored triangle is copied from the other side of the diagonal and packed transposed, and what
 * crosses it is made by the thread that copies it. Where both operands are one matrix, as in A*A^T,
 * a load is packed for both. Of a triangle of C only the strips in it are computed, and on the
 * diagonal squares of one piece. Where C is one of the operands (trmm) its strips are whole columns
 * or rows, of which each piece has all elements.
 *
 * Queues: one packs, strips go round several others, because a strip alone may not fill the device,
 * and in either direction the pieces go round one or more. A device that has room keeps all of C,
 * so that kernels never wait for a strip to be brought down.
 *
 * Split families: after the packing of each step the flag is read into pinned memory, on the
 * packing queue, so that word s tells exactly whether everything up to step s is within the range.
 * Strips of steps with a raised word are never merged, all others always are: what each kernel
 * family computes depends on the operands and the plan, not on time. */
#ifndef CLB_STREAM_H
#define CLB_STREAM_H

#include "structure.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- stream_plan.c --------------------------------------------------------------------------- */

/* Most threads that carry the data of one call; and most as long as the tuning does not ask for
 * more. */
#define CLB_MAX_STAGING_THREADS CLB_MAX_WORKERS
#define CLB_STAGING_THREADS     12

/* Extents are multiples of the kernel's tile and depth step. */
struct clb_stream_plan {
    size_t block_m, block_n; /* of C */
    size_t band_m, band_n, slab;
    size_t slabs;                /* of all terms */
    size_t first_slabs;          /* slabs that are loaded of all bands before the others */
    size_t square;               /* on the diagonal of a triangular region; or 0 */
    size_t strip_m, strip_n;     /* of strips that are whole columns or rows; or 0 */
    bool shared;                 /* both operands are the same matrices: loads are for both */
    bool down_first;             /* the serpentine goes down the columns of blocks */
    size_t a_bytes, b_bytes;     /* a block's packed operands, one buffer for each slab */
    size_t raw_bytes, raw_slots; /* loads on their way */
    size_t strip_bytes, strip_slots;
    size_t staging_threads;             /* at most */
    size_t piece_bytes;                 /* of a pinned slot and of what goes through it at once */
    size_t unit_m, unit_n, strip_tiles; /* the kernel's tile, and most of them in a strip or 0 */
    uint64_t available;                 /* bytes of device memory that there were */
    uint64_t bytes;                     /* of them taken, when not all of C is kept there */
};

/* The plan for at most `available` bytes and buffers of at most `max_alloc` that moves the fewest
 * bytes; CLB_ERR_NOMEM when there is none. The slab never depends on free memory. Strips have at
 * most as many tiles as the device has `units`, if that is many and the tuning says nothing else.
 */
clb_status clb_stream_make_plan(const struct clb_gemm_variant *variant,
                                const struct clb_gemm *problem, uint64_t available,
                                uint64_t max_alloc, size_t units,
                                struct clb_stream_plan *plan) CLB_MUST_CHECK;

/* Rows of a strip's buffer on the device. */
size_t clb_stream_ld(size_t rows, size_t element);

/* ---- stream_schedule.c: what is done in which order ------------------------------------------ */

/* Where a load is packed, as a slab of an operand. */
struct clb_pack_target {
    clb_operand_role role;
    size_t slab;
    bool conjugated;
};

struct clb_load {
    const struct clb_operand *operand;
    clb_piece_kind kind;
    bool depth_contiguous; /* as it is copied */
    size_t i0, w, p0, k;
    size_t slab; /* of the operand, and of all terms */
    struct clb_pack_target target[2];
    size_t targets;
    size_t origin; /* where the operand's block begins: packed panels are relative to it */
    size_t step;
    size_t first_piece, pieces, piece_cols;
    size_t enqueued;  /* pieces whose transfer has been enqueued */
    cl_event *upload; /* their events */
    cl_event packed;  /* the raw buffer is free again; NULL until enqueued */
};

struct clb_strip {
    struct clb_rect rect;      /* of C */
    size_t a_origin, b_origin; /* of its block */
    size_t ldc;                /* on the device */
    size_t offset;             /* elements into C where all of it is kept there */
    size_t step;
    size_t slab, end_slab; /* that are added here; what is complete only later has no pieces */
    size_t queue;
    size_t first_piece, pieces, piece_cols;
    size_t merged;  /* pieces that are in the caller's matrix */
    cl_event ready; /* the kernel's */
};

/* Loads, then the strips that they make computable. */
struct clb_step {
    size_t loads, strips;
    bool new_block;   /* its loads overwrite what earlier strips read */
    cl_event checked; /* split families: the flag has been read */
    /* Products with a triangle: an element of the general operand is not finite. Set before the
     * load of it is enqueued, so that it stands when a strip comes down. */
    atomic_bool infinite;
};

struct clb_schedule {
    struct clb_load *load;
    struct clb_strip *strip;
    struct clb_step *step;
    size_t loads, strips, steps;
    size_t load_pieces, strip_pieces; /* in all */
    size_t strip_elements;            /* of all strips on the device */
};

/* All loads and strips of a problem; a and b, one for each term, outlive the schedule. */
clb_status clb_schedule_make(const struct clb_stream_plan *plan, const struct clb_gemm *problem,
                             const struct clb_operand *a, const struct clb_operand *b,
                             struct clb_schedule *schedule) CLB_MUST_CHECK;
void clb_schedule_free(struct clb_schedule *schedule);

/* ---- the run --------------------------------------------------------------------------------- */

#define CLB_STRIP_QUEUES 3
#define CLB_MAX_QUEUES   (1 + CLB_STRIP_QUEUES) /* in one direction: the queue_sets' */

/* Where the time of a call goes, for the log: of a thread. */
enum clb_spell {
    CLB_SPELL_IDLE,    /* nothing to do */
    CLB_SPELL_COPY,    /* into pinned memory */
    CLB_SPELL_ENQUEUE, /* in the driver */
    CLB_SPELL_UP,      /* waiting for transfers up */
    CLB_SPELL_DOWN,    /* for kernels and transfers down */
    CLB_SPELL_MERGE,   /* out of pinned memory */
    CLB_SPELL_TOUCH,   /* faulting C in */
    CLB_SPELLS
};

/* And of the whole, after its begin. */
enum clb_mark {
    CLB_MARK_HELD,   /* queues, memory and threads are there */
    CLB_MARK_FIRST,  /* the first strip is enqueued */
    CLB_MARK_LOADED, /* the last load is packed, as far as enqueueing goes */
    CLB_MARK_QUEUED, /* the last strip is enqueued */
    CLB_MARK_MERGED, /* all is in the caller's matrix */
    CLB_MARKS
};

/* Two pinned slots for either direction, so that a copy overlaps with the transfer before it. */
struct clb_staging_thread {
    struct clb_stream *stream;
    bool uploads_first;
    bool helps; /* no piece is left to take up */
    struct clb_buffer *slot[4];
    cl_event busy[2]; /* transfer out of upload slot; borrowed from the load */
    size_t turn_up, turn_down;
    size_t pending; /* download piece under way, plus one */
    cl_event pending_event;
    /* The piece that is being copied for an upload, for whoever helps (stream_copy.c): piece + 1
     * and next column, columns that are copied, slot. */
    _Atomic uint64_t ticket;
    _Atomic size_t copied, at;
    double since, spent[CLB_SPELLS]; /* when the run is timed */
};

struct clb_stream {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    const struct clb_gemm *problem;
    struct clb_gemm_progress *progress; /* part p is download piece p */
    struct clb_stream_plan plan;
    struct clb_schedule schedule;
    struct clb_queue_set *queue_set;
    struct clb_queue_set *strip_queue_set[CLB_STRIP_QUEUES];
    size_t queues; /* for transfers, in either direction */
    struct clb_operand a[CLB_MAX_TERMS], b[CLB_MAX_TERMS];
    struct clb_buffer **packed_a, **packed_b, **raw, **strip_buffer;
    struct clb_buffer **buffers; /* all of the above */
    size_t buffer_count;
    bool whole; /* one strip buffer holds all of C */
    struct clb_buffer *flag,
        *words; /* of split families: the flag, and as it was after each step */
    struct clb_workers workers;
    struct clb_staging_thread thread[CLB_MAX_STAGING_THREADS];
    size_t staging_threads;
    struct clb_prefault prefault; /* its next unit under the lock */
    bool timed;
    double begin, mark[CLB_MARKS];

    /* Shared by the threads of the run, under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t work;               /* staging_threads wait for something to do */
    pthread_cond_t advance;            /* the calling thread for loads and strips */
    size_t next_upload, next_download; /* pieces handed out */
    size_t published;                  /* download pieces whose kernel has been enqueued */
    bool complete;                     /* everything has been published */
    bool out_of_range;                 /* a split family's flag was found raised: load no more */
    bool inexact;                      /* pieces were left out, see clb_part_is_exact */
    clb_status status;                 /* the first failure */
};

/* What the thread did until now was this. */
void clb_staging_thread_note(struct clb_staging_thread *thread, enum clb_spell spell);

static inline void clb_staging_thread_spent(struct clb_staging_thread *thread, enum clb_spell spell)
{
    if (CLB_UNLIKELY(thread->stream->timed))
        clb_staging_thread_note(thread, spell);
}

static inline void clb_stream_mark(struct clb_stream *stream, enum clb_mark mark)
{
    if (stream->timed && stream->mark[mark] == 0)
        stream->mark[mark] = clb_now() - stream->begin;
}

/* The queue of a piece's transfer. */
static inline struct clb_queue *clb_stream_queue(const struct clb_stream *stream, bool up,
                                                 size_t piece)
{
    size_t turn = piece % stream->queues;
    const struct clb_queue_set *queue_set =
        turn == 0 ? stream->queue_set : stream->strip_queue_set[turn - 1];
    return up ? queue_set->upload : queue_set->download;
}

/* ---- stream_memory.c --------------------------------------------------------------------------
 */

/* Everything that the schedule of the run needs, at once. */
clb_status clb_stream_get(struct clb_stream *stream) CLB_MUST_CHECK;
/* Whether all commands that have ended did what they were to do: a piece of C depends on commands
 * of all queue_sets, its loads', its packing's, its product's. */
clb_status clb_stream_check(struct clb_stream *stream) CLB_MUST_CHECK;
/* Whatever is held goes back when nothing is outstanding, and is left alone otherwise. `enqueued`:
 * commands may have been. False: a command has failed, or the wait. */
bool clb_stream_put(struct clb_stream *stream, bool enqueued);
/* The events of all loads, which nobody asks for once everything has been enqueued: while there is
 * time, because the driver takes a good part of a microsecond for each. */
void clb_stream_release_loads(struct clb_stream *stream);

/* ---- stream_copy.c: what staging_threads do
 * ---------------------------------------------------------- */

/* A worker's task; the argument is its struct clb_staging_thread. */
void clb_stream_carry(void *thread);

/* In the calling thread, where there are no workers: bring the pieces of one load up, or those of
 * all published strips down. */
void clb_stream_upload_now(struct clb_staging_thread *thread, size_t end_piece);
void clb_stream_download_now(struct clb_staging_thread *thread);

/* Record the first failure and wake everybody. */
void clb_stream_fail(struct clb_stream *stream, clb_status status);

#endif
