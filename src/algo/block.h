/* block: small diagonal blocks of Cholesky factorised by the device, for devices to which a trip to
 * the CPU would cost more. kernels/potrf_block.cl has the kernel. */
#ifndef CLB_BLOCK_H
#define CLB_BLOCK_H

#include "dmat.h"

struct clb_block {
    struct clb_program *program; /* NULL: the device is not used */
    size_t most, group;          /* order of a block, work-items */
    struct clb_buffer *state, *state_host;
    cl_event seen[2]; /* copies of the state on their way to the host, by turns */
    size_t turn;
};

/* Ready to factor blocks on the engine's device. CLB_ERR_UNSUPPORTED when that did not factor a
 * test block rightly. On failure nothing is held. */
clb_status clb_block_open(struct clb_block *block, struct clb_engine *engine) CLB_MUST_CHECK;
/* `idle`: nothing that was enqueued is under way. */
void clb_block_close(struct clb_block *block, struct clb_engine *engine, bool idle);

/* Whether blocks had better be the device's, as far as its kind tells. */
bool clb_block_is_faster(const struct clb_device *device);

/* block_check.c: have a test block factored, once for each precision. */
clb_status clb_block_check(struct clb_block *block, struct clb_engine *engine) CLB_MUST_CHECK;

/* Factor a block of at most `most` rows in place, behind what is in the queue: one triangle of it,
 * the other is neither read nor written. It begins with column `first` of the matrix. */
clb_status clb_block_factor(struct clb_block *block, struct clb_engine *engine,
                            const struct clb_dmat *x, bool upper, size_t first) CLB_MUST_CHECK;

/* The first column (1-based) with a pivot that is not positive, 0: none; as it was when the last
 * call but one was made, so that the device never waits for the host. The first call says 0. */
clb_status clb_block_look(struct clb_block *block, struct clb_engine *engine,
                          size_t *info) CLB_MUST_CHECK;
/* The same as it is when all that was enqueued is done. */
clb_status clb_block_finish(struct clb_block *block, struct clb_engine *engine,
                            size_t *info) CLB_MUST_CHECK;

#endif
