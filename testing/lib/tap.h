/* tap: results in the Test Anything Protocol, and bodies that run in a process of their own.
 *
 * The shim reads its configuration once per process and starts its device once, so most tests fork:
 * the parent never calls the shim, the child sets its environment and reports by its exit status.
 * SPDX-License-Identifier: BSD-3-Clause */
#ifndef TAP_H
#define TAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A result line; returns `good`. */
bool tap_ok(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tap_skip(const char *reason, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A comment line. */
void tap_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The plan line; the exit status of the program. */
int tap_done(void);

/* Inside a body: count a failed expectation and say so, once for each of the first few. */
bool expect(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Expectations that failed in this process. */
long expect_failures(void);

/* Run `body` in a child that needs at most `seconds` on an idle machine and is killed after three
 * times that; one result line, good when the body returned, no expectation failed and nothing
 * crashed. */
bool tap_child(const char *name, unsigned seconds, void (*body)(void *), void *argument);

/* tap_child for each of them. */
struct tap_test {
    const char *name;
    void (*body)(void *);
    void *argument;
};
void tap_children(unsigned seconds, const struct tap_test *tests, size_t count);

/* The same as tap_child without a result line: the child's wait status. Standard error goes to
 * `error_text` when that is not NULL, at most size-1 characters. */
int run_child(unsigned seconds, void (*body)(void *), void *argument, char *error_text,
              size_t size);

/* Make a folder below TMPDIR, or /tmp; *path is its name. */
bool tap_folder(char *path, size_t size);

/* Run a body in `count` threads at once, each with its part of an array, and wait for them. */
void run_threads(size_t count, void *(*body)(void *), void *array, size_t size);

/* The seed of this run, SEED in the environment; without it always the same one. Printed as a
 * comment. */
uint64_t tap_seed(void);

/* How much is done. FULL in the environment is empty in `make check`, where what takes long is
 * sampled; "few" stands for still less. `make check-full`, and a test that is run by hand: all. */
bool tap_full(void);
/* For tests of many small launches, before anything starts: in a sample PoCL has one thread, as it
 * takes longer to wake more than to compute. */
void tap_few_threads(void);
/* The distance of those that are tried of a series of failures, 1 or such that they are forty
 * at most, or ten. It is prime to whatever a test chooses by the failure's number. */
long tap_step(long series);
/* How many of a number of random problems are tried: all, or an eighth but at least eight, or a
 * sixteenth but at least four. */
int tap_runs(int runs);
/* How many of a number of rounds, each over all kinds of case: all, or a third. */
int tap_rounds(int rounds);

/* Uniform numbers, reproducible from *state. */
uint64_t random_bits(uint64_t *state);
size_t random_below(uint64_t *state, size_t bound);
double random_uniform(uint64_t *state); /* in [-1, 1), 32 bits, never 0 */

#endif
