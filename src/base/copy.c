/* Copies of data that will not be read soon: past the cache, so that the lines written are not
 * fetched first and nothing else is driven out.
 *
 * What is read next is asked for early: the hardware's own prefetchers stop at every page, and
 * short runs lie on a page each. On an Intel Xeon of 2023 a thread copies runs of 3.5 KiB out of a
 * large matrix at 15 GB/s so, at 6 by memcpy (2026-11). */
#include "base.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

/* Bytes ahead that are asked for within a long run; and runs ahead where they are short. */
#define AHEAD      ((size_t)2048)
#define RUNS_AHEAD ((size_t)2)
#define SHORT_RUN  ((size_t)16 << 10)

/* One run; `ahead` is what lies as far in front of the copy everywhere. */
static void copy_run(char *out, const char *in, size_t bytes, const char *ahead)
{
    size_t head = clb_min((64 - (uintptr_t)out % 64) % 64, bytes);
    _mm_prefetch(ahead, _MM_HINT_T0);
    memcpy(out, in, head);
    out += head, in += head, ahead += head, bytes -= head;
    for (; bytes >= 64; out += 64, in += 64, ahead += 64, bytes -= 64) {
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
    memcpy(out, in, bytes);
}

/* The fence is dear: one for all runs. */
void clb_copy_past_cache(void *to, size_t to_step, const void *from, size_t from_step, size_t bytes,
                         size_t runs)
{
    char *out = to;
    const char *in = from;
    bool by_runs = from_step != bytes && bytes <= SHORT_RUN;
    for (size_t j = 0; j < runs; j++, out += to_step, in += from_step) {
        bool last = j + RUNS_AHEAD >= runs;
        copy_run(out, in, bytes, in + (!by_runs ? AHEAD : last ? 0 : RUNS_AHEAD * from_step));
    }
    _mm_sfence();
}
#else
void clb_copy_past_cache(void *to, size_t to_step, const void *from, size_t from_step, size_t bytes,
                         size_t runs)
{
    for (size_t j = 0; j < runs; j++)
        memcpy((char *)to + j * to_step, (const char *)from + j * from_step, bytes);
}
#endif
