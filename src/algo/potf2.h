/* block: small diagonal blocks of Cholesky factorised by the device, for devices to which a trip to
 * the CPU would cost more. kernels/potf2.cl has the kernel. */
#ifndef CLB_POTF2_H
#define CLB_POTF2_H

#include "dmat.h"

struct clb_potf2 {
    struct clb_program *program; /* NULL: the device is not used */
    size_t most, group;          /* order of a block, work-items */
    struct clb_buffer *state, *state_host;
    cl_event seen[2]; /* copies of the state on their way to the host, by turns */
    size_t turn;
};

/* Ready to factor blocks on the workspace's device. CLB_ERR_UNSUPPORTED when that did not factor a
 * test block rightly. On failure nothing is held. */
clb_status clb_potf2_open(struct clb_potf2 *block, struct clb_workspace *workspace) CLB_MUST_CHECK;
/* `idle`: nothing that was enqueued is under way. */
void clb_potf2_close(struct clb_potf2 *block, struct clb_workspace *workspace, bool idle);

/* Whether blocks had better be the device's, as far as its kind tells. */
bool clb_potf2_is_faster(const struct clb_device *device);

/* potf2_check.c: have a test block factored, once for each precision. */
clb_status clb_potf2_check(struct clb_potf2 *block, struct clb_workspace *workspace) CLB_MUST_CHECK;

/* Factor a block of at most `most` rows in place, behind what is in the queue: one triangle of it,
 * the other is neither read nor written. It begins with column `first` of the matrix. */
clb_status clb_potf2_factor(struct clb_potf2 *block, struct clb_workspace *workspace,
                            const struct clb_dmat *x, bool upper, size_t first) CLB_MUST_CHECK;

/* The first column (1-based) with a pivot that is not positive, 0: none; as it was when the last
 * call but one was made, so that the device never waits for the host. The first call says 0. */
clb_status clb_potf2_look(struct clb_potf2 *block, struct clb_workspace *workspace,
                          size_t *info) CLB_MUST_CHECK;
/* The same as it is when all that was enqueued is done. */
clb_status clb_potf2_finish(struct clb_potf2 *block, struct clb_workspace *workspace,
                            size_t *info) CLB_MUST_CHECK;

#endif
