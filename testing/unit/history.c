/* The history of calls: what was decided, what calls took on both sides, and other threads' calls.
 * SPDX-License-Identifier: BSD-3-Clause */
#include "host/process.h"
#include "shim/route/history.h"
#include "tap.h"

#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *begin_calls(void *argument)
{
    const struct clb_prediction *expected = argument;
    clb_history_begin(CLB_SIDE_DEVICE, 1, 1);
    clb_history_end();
    clb_history_begin(CLB_SIDE_NEXT, 2, expected->next);
    return NULL;
}

static void begin_on_thread(double expected)
{
    pthread_t thread;
    struct clb_prediction next = {.next = expected};
    expect(pthread_create(&thread, NULL, begin_calls, &next) == 0, "no thread");
    pthread_join(thread, NULL);
}

/* Other threads' calls in flight count until they end, or longer than is expected. */
static void loads(void *unused)
{
    (void)unused;
    const struct clb_prediction alone = {.device = 4, .next = 4};
    clb_history_begin(CLB_SIDE_DEVICE, 9, 9);
    expect(clb_history_beside(&alone) == 0, "a thread's own call counts");
    begin_on_thread(1000);
    begin_on_thread(1000);
    double others = clb_history_beside(&alone);
    expect(others == 1, "%g for two of half the time", others);
    const struct clb_prediction shorter = {.device = 1, .next = 1};
    others = clb_history_beside(&shorter);
    expect(others == 2, "%g for two of more time", others);
    begin_on_thread(1e-9);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    expect(clb_history_beside(&alone) == 1, "a call that was to have ended counts");
    /* Places of more threads than there are belong to several. */
    for (int i = 0; i < 300; i++)
        begin_on_thread(1000);
    others = clb_history_beside(&shorter);
    expect(others > 100 && others <= 128, "%g of 300 threads", others);
}

/* So many calls that stand for `calls` each; how many go to the other side. Those take `there`
 * seconds, where it is not 0. */
/* What may be lost at first is spent by the first call that may go to the other side. */
static void spend_what_is_free(void)
{
    const struct clb_history_key key = {{99}};
    struct clb_prediction alone = {.device = 3.3555e-3, .next = 1.6778e-3};
    for (int i = 0; i < 2; i++)
        clb_history_tries(&key, 1, false, &alone);
}

static int try_calls(const struct clb_history_key *asked, int count, unsigned calls,
                     struct clb_prediction *alone, double there)
{
    int turned = 0;
    for (int i = 0; i < count; i++) {
        const bool to_device = clb_prediction_is_for_device(alone);
        const bool turns = clb_history_tries(asked, calls, false, alone);
        turned += turns;
        if (turns && there > 0)
            clb_history_learn(asked, to_device ? CLB_SIDE_NEXT : CLB_SIDE_DEVICE, there);
    }
    return turned;
}

/* Calls go to the other side in rows of at most 14, where predictions are close, seldom, and for a
 * hundredth of the time. */
static void other_side(void *unused)
{
    const struct clb_history_key asked = {{1}}, distant = {{2}}, slow = {{3}}, saving = {{4}},
                                 guessed = {{5}};
    const struct clb_prediction close = {.device = 12e-4, .next = 10e-4, .measured = true};
    struct clb_prediction alone = close;
    (void)unused;
    struct clb_decision decision = {.alone = {.device = 15e-4, .next = 12e-4}, .by_times = true};
    bool asks;
    unsigned calls;
    spend_what_is_free();
    clb_history_decide(&asked, &decision);
    expect(try_calls(&asked, 139, 1, &alone, 0) == 0, "tried before a hundredth pays for it");
    for (int i = 0; i < 7; i++)
        expect(clb_history_recall(&asked, true, &decision, &asks, &calls), "it is forgotten");
    expect(!asks, "a remembered call is asked about");
    expect(clb_history_tries(&asked, 1, false, &alone), "not tried");
    expect(clb_history_recall(&asked, true, &decision, &asks, &calls) && asks,
           "the row's calls are declined");
    expect(!clb_history_tries(&asked, 1, true, &alone), "tried beside other calls");
    expect(try_calls(&asked, 30, 1, &alone, 0) == 13, "the row is not of 14 calls");
    expect(alone.device == close.device, "it is known without a time");
    const int tried = try_calls(&asked, 800, 1, &alone, 0);
    expect(tried >= 70 && tried <= 84, "%d of 800 calls were tried", tried);
    struct clb_prediction far = {.device = 21e-4, .next = 10e-4, .measured = true};
    expect(try_calls(&distant, 10000, 32, &far, 0) == 0, "a side that is far behind is tried");
    /* What the device saves may be spent, too; not that it is far ahead. */
    struct clb_prediction ahead = {.device = 10e-4, .next = 40e-4};
    try_calls(&distant, 10, 1, &ahead, 0);
    expect(try_calls(&saving, 3, 1, &alone, 0) == 2, "not tried by what was saved");
    /* What takes twice as long as calls on the better side ends a row when 3 ms are lost. */
    struct clb_prediction better = {.device = 13e-4, .next = 12e-4};
    for (int i = 0; i < 5; i++)
        clb_history_learn(&slow, CLB_SIDE_NEXT, 12e-4);
    expect(try_calls(&slow, 20, 1, &better, 30e-4) == 3, "a row goes on that loses");
    expect(try_calls(&guessed, 20, 1, &better, 30e-4) == 3, "it goes on beside a prediction");
}

/* The times of both sides count when there are two of each, of 3 ms, without the first after calls
 * on the other side. */
static void both_sides(void *unused)
{
    const struct clb_history_key asked = {{1}}, others = {{2}};
    struct clb_prediction alone = {.device = 11e-4, .next = 10e-4},
                          far = {.device = 1, .next = 9e-4};
    (void)unused;
    spend_what_is_free();
    try_calls(&others, 10, 1000, &far, 0); /* so that time enough has passed */
    for (int i = 0; i < 7; i++)
        clb_history_learn(&asked, CLB_SIDE_NEXT, i < 1 ? 30e-4 : 10.5e-4);
    expect(try_calls(&asked, 1, 1, &alone, 0) == 0, "tried at once");
    expect(try_calls(&asked, 1, 1, &alone, 90e-4) == 1, "not tried");
    expect(try_calls(&asked, 10, 1, &alone, 7e-4) == 10, "the row has ended");
    expect(!clb_history_tries(&asked, 1, false, &alone) && alone.measured, "nothing is known");
    expect(fabs(alone.device - 7e-4) < 1e-7 && fabs(alone.next - 10.5e-4) < 1e-7,
           "%g and %g s are known", alone.device, alone.next);
    expect(clb_prediction_is_for_device(&alone), "what is faster is left");
    /* It becomes slower than the other side was. */
    for (int i = 0; i < 5; i++)
        clb_history_learn(&asked, CLB_SIDE_DEVICE, 20e-4);
    clb_history_tries(&asked, 1, false, &alone);
    expect(!clb_prediction_is_for_device(&alone), "what has become slower stays");
}

/* Where the first calls of the device mislead, it is tried again when calls have been made eight
 * times as often, whether or not these were asked about. */
static void tried_again(void *unused)
{
    const struct clb_history_key asked = {{1}};
    struct clb_prediction alone = {.device = 9e-4, .next = 10e-4, .measured = true};
    int calls = 0;
    (void)unused;
    spend_what_is_free();
    for (int i = 0; i < 8; i++, calls++) {
        expect(!clb_history_tries(&asked, 1, false, &alone), "call %d is tried", i);
        clb_history_learn(&asked, CLB_SIDE_DEVICE, 12e-4);
    }
    for (int i = 0; i < 12; i++)
        clb_history_learn(&asked, CLB_SIDE_NEXT, 10e-4);
    bool turns = false;
    for (; !turns && calls < 1000; calls += 32) {
        turns = clb_history_tries(&asked, 32, false, &alone);
        clb_history_learn(&asked, turns ? CLB_SIDE_DEVICE : CLB_SIDE_NEXT, 10e-4);
    }
    expect(turns && calls < 400, "%s after %d calls", turns ? "tried" : "not tried", calls);
    expect(try_calls(&asked, 9, 1, &alone, 8e-4) == 9, "the row has ended");
    expect(!clb_history_tries(&asked, 1, false, &alone) && clb_prediction_is_for_device(&alone),
           "%g and %g s are known", alone.device, alone.next);
}

/* Of long calls a row of two says enough, which costs less and so comes earlier. */
static void long_calls(void *unused)
{
    const struct clb_history_key asked = {{1}};
    const struct clb_prediction predicted = {.device = 106e-3, .next = 100e-3, .measured = true};
    struct clb_prediction alone = predicted;
    int turned = 0, first = 0, last = 0;
    (void)unused;
    spend_what_is_free();
    for (int i = 1; i <= 24; i++) {
        const bool turns = clb_history_tries(&asked, 1, false, &alone);
        turned += turns;
        first = turns && first == 0 ? i : first;
        last = turns ? i : last;
        clb_history_learn(&asked, turns ? CLB_SIDE_DEVICE : CLB_SIDE_NEXT, turns ? 91e-3 : 99e-3);
        if (alone.device < predicted.device)
            break;
    }
    expect(turned == 2 && first == 15 && last == 16, "%d calls were tried, %d to %d", turned, first,
           last);
    expect(fabs(alone.device - 91e-3) < 1e-6 && clb_prediction_is_for_device(&alone),
           "what is slower stays");
}

/* A declined call is recalled; some are asked about where predictions are close. */
static void asked_again(void *unused)
{
    const struct clb_history_key close = {{1}}, far = {{2}};
    struct clb_decision declined = {{.device = 1.1e-3, .next = 1e-3}, false, true, 3}, known;
    unsigned calls, recalled = 0, stood_for = 0;
    bool asks;
    (void)unused;
    expect(!clb_history_recall(&close, true, &known, &asks, &calls), "it is known at once");
    clb_history_decide(&close, &declined);
    for (int i = 0; i < 1006; i++) {
        expect(clb_history_recall(&close, true, &known, &asks, &calls), "it is forgotten");
        recalled += !asks;
        stood_for += asks ? calls : 0;
    }
    expect(recalled > 960 && recalled < 980, "%u of 1006 calls were declined", recalled);
    expect(stood_for > 970 && stood_for < 1010, "the others stand for %u", stood_for);
    expect(clb_history_recall(&close, false, &known, &asks, &calls) && !asks && known.reason == 3 &&
               known.alone.device == 1.1e-3,
           "asked about without need");
    declined.alone = (struct clb_prediction){.device = 11e-3, .next = 10e-3};
    clb_history_decide(&close, &declined);
    for (int i = 0; i < 100; i++)
        expect(clb_history_recall(&close, true, &known, &asks, &calls) && asks && calls == 1,
               "call %d, a long one, is not asked about", i);
    declined.alone.device = 20e-3;
    clb_history_decide(&far, &declined);
    for (int i = 0; i < 100; i++)
        expect(clb_history_recall(&far, true, &known, &asks, &calls) && !asks,
               "call %d is asked about", i);
    clb_history_decide(&far, NULL);
    expect(!clb_history_recall(&far, true, &known, &asks, &calls), "it is not forgotten");
}

static double corrected(const struct clb_history_key *key, double work)
{
    struct clb_prediction alone = {.device = 1, .next = 3};
    clb_history_correct(key, work, false, &alone);
    return alone.device;
}

/* What calls take on the device corrects what is predicted for other sizes of about their work, and
 * what was decided by it is decided again. The first calls, and one that takes very long, say
 * little. */
static void corrections(void *unused)
{
    const struct clb_history_key key = {{1}}, same = {{2}}, another = {{3}};
    struct clb_decision decision = {{.device = 1, .next = 3}, true, true, 0}, known;
    bool asks;
    unsigned calls;
    (void)unused;
    expect(corrected(&key, 1e9) == 1, "without a call");
    clb_history_decide(&key, &decision);
    for (int i = 0; i < 2; i++)
        clb_history_learn_work(&key, 9, 1);
    expect(corrected(&key, 1e9) == 1, "first calls count");
    clb_history_learn_work(&key, 1.01, 1);
    expect(clb_history_recall(&key, true, &known, &asks, &calls) && asks,
           "a change of a hundredth counts");
    clb_history_learn_work(&key, 100, 1);
    expect(!clb_history_recall(&key, true, &known, &asks, &calls),
           "a change of an eighth does not");
    const double after = corrected(&key, 1e9);
    expect(after > 1.3 && after < 1.4, "a disturbed second call makes it %g", after);
    expect(corrected(&same, 1.1e9) == after, "calls of about the same work");
    expect(corrected(&another, 8e9) == 1, "calls of another work");
    for (int i = 0; i < 150; i++)
        clb_history_learn_work(&key, 4, 2);
    const double beside = corrected(&key, 1e9);
    expect(beside > 1.8 && beside < 2.1, "calls beside one other make it %g", beside);
    for (int i = 0; i < 150; i++)
        clb_history_learn_work(&key, 1, 1);
    expect(corrected(&key, 1e9) < 1.05, "nothing is forgotten");
}

static atomic_bool stops;

static void *learn_on_and_on(void *unused)
{
    const struct clb_history_key key = {{7}};
    while (!atomic_load(&stops))
        clb_history_learn(&key, CLB_SIDE_NEXT, 1e-3);
    return unused;
}

/* A child that is forked while another thread has the lock. */
static void forks(void *unused)
{
    const struct clb_history_key key = {{7}};
    const struct clb_decision decision = {{.device = 2, .next = 1}, false, true, 3};
    pthread_t thread;
    (void)unused;
    clb_fork_watch();
    expect(pthread_create(&thread, NULL, learn_on_and_on, NULL) == 0, "no thread");
    for (int i = 0; i < 50; i++) {
        int status = 1;
        const pid_t child = fork();
        if (child == 0) {
            struct clb_decision known;
            bool asks;
            unsigned calls;
            alarm(5);
            clb_history_decide(&key, &decision);
            _exit(!clb_history_recall(&key, false, &known, &asks, &calls));
        }
        expect(waitpid(child, &status, 0) == child && status == 0, "child %d: %d", i, status);
    }
    atomic_store(&stops, true);
    pthread_join(thread, NULL);
}

int main(void)
{
    tap_child("calls in flight", 20, loads, NULL);
    tap_child("calls that try the other side", 20, other_side, NULL);
    tap_child("times of both sides", 20, both_sides, NULL);
    tap_child("a side that is tried again", 20, tried_again, NULL);
    tap_child("times of long calls", 20, long_calls, NULL);
    tap_child("declined calls that are asked about", 20, asked_again, NULL);
    tap_child("predictions that are corrected", 20, corrections, NULL);
    tap_child("children that are forked beside a call", 20, forks, NULL);
    return tap_done();
}
