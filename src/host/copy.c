/* SPDX-License-Identifier: BSD-3-Clause
 * Non-temporal copies of data that will not be read soon: the written cache lines are not fetched
 * first, and no other data is evicted. The source is prefetched by instructions, because the
 * hardware prefetchers stop at each page and short runs are on a page each. */
#include "host.h"

#include <string.h>

#ifdef __SSE2__
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>

/* Prefetch distance: bytes within a long run, number of runs where they are short. */
#define AHEAD      ((size_t)2048)
#define RUNS_AHEAD ((size_t)2)
#define SHORT_RUN  ((size_t)16 << 10)

/* Copies whole lines of 64 bytes to the aligned `out`, and prefetches as many lines at `ahead`. */
typedef void copy_lines(char *out, const char *in, const char *ahead, size_t lines);

/* With one store for a whole line: a tenth faster when memory is busy. */
__attribute__((target("avx512f"))) static void copy_lines_512(char *out, const char *in,
                                                              const char *ahead, size_t lines)
{
    for (; lines > 0; out += 64, in += 64, ahead += 64, lines--) {
        _mm_prefetch(ahead, _MM_HINT_T0);
        _mm512_stream_si512((void *)out, _mm512_loadu_si512((const void *)in));
    }
}

static void copy_lines_128(char *out, const char *in, const char *ahead, size_t lines)
{
    for (; lines > 0; out += 64, in += 64, ahead += 64, lines--) {
        _mm_prefetch(ahead, _MM_HINT_T0);
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)in);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(in + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(in + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(in + 48));
        _mm_stream_si128((__m128i *)(void *)out, a);
        _mm_stream_si128((__m128i *)(void *)(out + 16), b);
        _mm_stream_si128((__m128i *)(void *)(out + 32), c);
        _mm_stream_si128((__m128i *)(void *)(out + 48), d);
    }
}

/* With registers that the system saves. GCC's __builtin_cpu_supports would add a constructor. */
static bool has_avx512(void)
{
    unsigned a, b, c, d, low, high;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0)
        return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 0xe6) == 0xe6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
           (b & bit_AVX512F) != 0;
}

static copy_lines *copy_choose(void)
{
    static _Atomic(copy_lines *) chosen; /* CPUID in a virtual machine is as slow as a page copy */
    copy_lines *copy = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (copy == NULL) {
        copy = has_avx512() ? copy_lines_512 : copy_lines_128;
        atomic_store_explicit(&chosen, copy, memory_order_relaxed);
    }
    return copy;
}

static void copy_run(copy_lines *copy, char *out, const char *in, size_t bytes, const char *ahead)
{
    size_t head = clb_min((64 - (uintptr_t)out % 64) % 64, bytes);
    size_t lines = (bytes - head) / 64, middle = head + lines * 64;
    _mm_prefetch(ahead, _MM_HINT_T0);
    memcpy(out, in, head);
    copy(out + head, in + head, ahead + head, lines);
    memcpy(out + middle, in + middle, bytes - middle);
}

/* One fence for all runs, because it is expensive. */
void clb_copy_nontemporal(void *to, size_t to_step, const void *from, size_t from_step,
                          size_t bytes, size_t runs)
{
    char *out = to;
    const char *in = from;
    copy_lines *copy = copy_choose();
    bool by_runs = from_step != bytes && bytes <= SHORT_RUN;
    for (size_t j = 0; j < runs; j++, out += to_step, in += from_step) {
        bool last = j + RUNS_AHEAD >= runs;
        copy_run(copy, out, in, bytes, in + (!by_runs ? AHEAD : last ? 0 : RUNS_AHEAD * from_step));
    }
    _mm_sfence();
}
#else
void clb_copy_nontemporal(void *to, size_t to_step, const void *from, size_t from_step,
                          size_t bytes, size_t runs)
{
    for (size_t j = 0; j < runs; j++)
        memcpy((char *)to + j * to_step, (const char *)from + j * from_step, bytes);
}
#endif
