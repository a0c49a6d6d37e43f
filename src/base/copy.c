/* Copies of data that will not be read soon: past the cache, so that the lines written are not
 * fetched first and nothing else is driven out. */
#include "base.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

void clb_copy_past_cache(void *to, const void *from, size_t bytes)
{
    char *out = to;
    const char *in = from;
    size_t head = clb_min((64 - (uintptr_t)out % 64) % 64, bytes);
    memcpy(out, in, head);
    out += head;
    in += head;
    bytes -= head;
    for (; bytes >= 64; out += 64, in += 64, bytes -= 64) {
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
    _mm_sfence();
}
#else
void clb_copy_past_cache(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
#endif
