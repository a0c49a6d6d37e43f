/* routed: calls through the route layer. GEMM with a fake next library, the report, and for the
 * routines of any family: calls that are declined, and a device of which every call fails in turn.
 */
#ifndef ROUTED_H
#define ROUTED_H

#include "matrix.h"
#include "shim/route/route.h"

/* A call of a name, as the interface would make it: true when the route layer took it. */
bool routed_call(struct clb_symbol *symbol, const struct clb_call *call,
                 struct clb_host_blas *host);

/* What the fake next library was asked for in this process. */
extern _Atomic long next_calls;     /* whole or part of a problem */
extern _Atomic size_t next_entries; /* entries of C that it computed */

/* Called by the fake next library before it computes; NULL by default. */
extern void (*next_hook)(void);

/* sgemm_ or dgemm_, as the interface would: computed on the device or by the fake next library.
 * True when the route layer took the call. */
bool routed_gemm(const struct gemm_case *g);

/* A random case: sizes in [1, largest], all transposes, alpha and beta often 0, 1 or -1. */
void routed_random(struct gemm_case *g, clb_precision precision, size_t largest, uint64_t *seed);

/* A number of the JSON report so far, e.g. ("dgemm_", "calls") or ("dgemm_", "small"); 0 when it is
 * not there. */
double reported(const char *symbol, const char *key);

/* calls = device + next + recovered, and the reasons add up to next, for a symbol. */
void expect_sums(const char *symbol);

/* So many calls of a symbol, and all of them declined for one reason. */
void expect_declined(const char *symbol, const char *reason, double count);

/* Configure this process, unless its parameters and its report are set already, and install the
 * failing OpenCL table. */
void routed_set_up(const char *mode, const char *params);

/* Before that: a device with memory of its own, or one that shares the CPU's. */
void routed_set_device(bool discrete);

/* ---- declined calls -------------------------------------------------------------------------- */

enum { ROUTED_CALLS = 8 };

/* Calls in a process of their own that are all declined for `reason`. */
struct routed_reason {
    const char *reason, *mode;
    const char *variable, *value; /* set in the environment; NULL: none */
    bool no_fp64;
    int times;
    struct {
        int routine; /* of the family's own numbers */
        clb_precision precision;
        size_t m, n, k; /* k = 0 and m = n = 0: no more calls */
    } call[ROUTED_CALLS];
};

/* A family of routines: how a test makes a call of it with random operands, checks it, and says
 * whether it was taken; a call that was declined has changed nothing. */
struct routed_family {
    const char *params;
    const char *(*symbol)(int routine, clb_precision precision);
    bool (*run_one)(int routine, clb_precision precision, size_t m, size_t n, size_t k);
    long most;    /* about how many of a call's OpenCL calls fail; 0: all */
    int routines; /* are numbered from 0; with m = n = 30 and this k the device computes each */
    size_t k;
    unsigned small; /* a bit for each that needs hardly any memory */
};

/* Off, no double precision, dry run and no memory, for every routine of a family. */
void routed_test_usual(const struct routed_family *family);

/* A result line for each reason. With "off" and "nodevice" OpenCL is
 * not started. */
void routed_test_reasons(const struct routed_family *family, const struct routed_reason *reasons,
                         size_t count);

/* ---- failures -------------------------------------------------------------------------------- */

struct routed_failing {
    const char *name, *params;
    int routine;
    clb_precision precision;
    bool discrete, wrong; /* wrong: singular, not definite or what the family makes of it */
    uint64_t seed;        /* is set; the same problem is computed in every run */
};

/* For each setting, in a process of its own: every OpenCL call of a warm call fails in turn, some
 * of them although they were made. `call` computes the setting's problem, checks the result and
 * expects that it was taken. */
void routed_test_failures(const struct routed_family *family, struct routed_failing *settings,
                          size_t count, uint64_t *seed,
                          void (*call)(const struct routed_failing *setting, long at));

/* ---- calls that the next library makes ------------------------------------------------------- */

/* For hooks: an SGEMM through the route layer, checked, from a random state of its own. */
void routed_call_product(void);
extern long routed_products;      /* how often that was done */
extern bool routed_product_taken; /* the last one was */

#endif
