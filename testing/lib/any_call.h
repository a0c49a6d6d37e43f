/* any_call: calls of any routine of the table through the route layer. Sizes are fixed, options and
 * contents random; the signature and shapes in routines.def say what its operands are. */
#ifndef ANY_CALL_H
#define ANY_CALL_H

#include "shim/route/route.h"

/* One call, computed by whoever takes it. The greatest deviation of what it writes from the next
 * library's result, relative to 1 + its magnitude; infinity where INFO or pivots differ or anything
 * else has changed; negative when the next library has no such routine. */
double any_call_run(clb_routine routine, uint64_t *seed);

/* A smaller deviation is right, in the routine's precision. */
double any_call_tolerance(clb_routine routine);

/* Called before and after a call goes through the route layer; NULL by default. */
extern void (*any_call_routes)(bool begins);

/* OpenBLAS 0.3.21's zlauu2 reads beyond the matrix, which AddressSanitizer may not survive. */
bool any_call_reads_beyond(clb_routine routine);

#endif
