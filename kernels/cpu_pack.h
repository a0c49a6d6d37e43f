/* Packing of gemm_cpu.cl: panels of an operand, from rows or from depths that are contiguous. */

/* The share of one work-group: panels q0 ... q1 - 1, depths p0 ... p1 - 1 (p1 counts padding).
 * `past`: past the caches, which takes panels of whole vectors. */
typedef struct {
    uint q0, q1, p0, p1;
    bool past;
} pack_share;

CLB_INLINE pack_share get_pack_share(uint w, uint k, uint W)
{
    pack_share s;
    s.q0 = (uint)get_group_id(0) * CLB_PACK_PANELS;
    s.q1 = min(s.q0 + CLB_PACK_PANELS, (w + W - 1) / W);
    s.p0 = (uint)get_group_id(1) * CLB_PACK_K;
    s.p1 = min(s.p0 + CLB_PACK_K, round_up(k, CLB_KU));
    s.past = W % CLB_VP == 0 && (size_t)w * k * sizeof(real) >= CLB_NT_PACK;
    return s;
}

CLB_INLINE void store_panel(vpack x, global real *to, bool past)
{
    if (past)
        stream_pack(x, to);
    else
        store_pack(x, to);
}

CLB_INLINE void zero_row(global real *dst, uint count)
{
    for (uint i = 0; i < count; i++)
        dst[i] = 0;
}

#if CLB_COMPLEX

/* Signs to be changed in a run of pairs, as bits for xor: those of the first and of the second
 * numbers. */
typedef CLB_JOIN(CLB_BITS, CLB_VPN) vbits;
#define CLB_SIGN          ((CLB_BITS)1 << (8 * sizeof(real) - 1))
#define as_vbits(x)       CLB_JOIN(as_, CLB_JOIN(CLB_BITS, CLB_VPN))(x)
#define as_vpack(x)       CLB_JOIN(as_, CLB_JOIN(CLB_REAL, CLB_VPN))(x)
#define CLB_FLIP(x, bits) as_vpack(as_vbits(x) ^ (bits))

#if CLB_VPN == 16
#define CLB_PAIRS(a, b) (vbits)(a, b, a, b, a, b, a, b, a, b, a, b, a, b, a, b)
#elif CLB_VPN == 8
#define CLB_PAIRS(a, b) (vbits)(a, b, a, b, a, b, a, b)
#else
#define CLB_PAIRS(a, b) (vbits)(a, b, a, b)
#endif

/* A run of count pairs: their first numbers at one depth, their second ones at the next, W behind
 * it. */
CLB_INLINE void copy_run(global real *even, const uint W, global const real *src, uint count,
                         uint conj, bool past)
{
    global real *odd = even + W;
    const vbits signs = CLB_PAIRS(0, conj ? CLB_SIGN : 0);
    uint i = 0;
    for (; i + CLB_VP <= count; i += CLB_VP) {
        const vpack x = CLB_FLIP(load_pack(src + 2 * i), signs);
        const vpack y = CLB_FLIP(load_pack(src + 2 * i + CLB_VP), signs);
        store_panel((vpack)(x.even, y.even), even + i, past);
        store_panel((vpack)(x.odd, y.odd), odd + i, past);
    }
    for (; i + CLB_VP / 2 <= count; i += CLB_VP / 2) {
        const vpack x = CLB_FLIP(load_pack(src + 2 * i), signs);
        store_half(x.even, even + i);
        store_half(x.odd, odd + i);
    }
    for (; i < count; i++) {
        even[i] = element_at(src, 1, 0, i, 0, false, conj);
        odd[i] = element_at(src, 1, 0, i, 1, false, conj);
    }
}

#else

/* A run of count numbers at one depth. */
CLB_INLINE void copy_run(global real *dst, const uint W, global const real *src, uint count,
                         uint conj, bool past)
{
    uint i = 0;
    for (; i + CLB_VP <= count; i += CLB_VP)
        store_panel(load_pack(src + i), dst + i, past);
    for (; i + 8 <= count; i += 8)
        vstore8(vload8(0, src + i), 0, dst + i);
    for (; i + 4 <= count; i += 4)
        vstore4(vload4(0, src + i), 0, dst + i);
    for (; i < count; i++)
        dst[i] = src[i];
}

#endif

/* Element (i, p) is src[i + p*ld], where elements are pairs src[2*(i + p*ld)] and the next; k
 * counts both.  The depths of one element after the other, so that a column of the source is read
 * in one go over all panels of the work-group. */
CLB_INLINE void pack_n(global const real *src, size_t ld, uint w, uint k, global real *dst,
                       const uint W, uint conj, pack_share s)
{
    const size_t panel = (size_t)W * round_up(k, CLB_KU);
    const uint full = min(s.q1, w / W);
    const uint rest = w % W;
    const uint width = min(s.q1 * W, w) - s.q0 * W;

    for (uint p = s.p0; p < min(s.p1, k); p += CLB_PARTS) {
        global const real *from = src + p * ld;
        global real *to = dst + (size_t)p * W;
        if (p + CLB_PARTS * CLB_PACK_AHEAD < k)
            prefetch_run(from + CLB_PARTS * (CLB_PACK_AHEAD * ld + (size_t)s.q0 * W),
                         CLB_PARTS * width);
        for (uint q = s.q0; q < full; q++)
            copy_run(to + q * panel, W, from + CLB_PARTS * (size_t)q * W, W, conj, s.past);
        if (full < s.q1) {
            copy_run(to + full * panel, W, from + CLB_PARTS * (size_t)full * W, rest, conj, s.past);
            for (uint depth = 0; depth < CLB_PARTS; depth++)
                zero_row(to + full * panel + depth * W + rest, W - rest);
        }
    }
    for (uint p = max(s.p0, k); p < s.p1; p++)
        for (uint q = s.q0; q < s.q1; q++)
            zero_row(dst + q * panel + (size_t)p * W, W);
    if (s.past)
        order_streams();
}

/* CLB_VP depths of row i of an operand, of which element (0, 0) is at src; p, the first, is even
 * where elements are pairs. */
CLB_INLINE vpack load_row(global const real *src, size_t ld, uint i, uint p, uint conj)
{
#if CLB_COMPLEX
    return CLB_FLIP(load_pack(src + i * 2 * ld + p), CLB_PAIRS(0, conj ? CLB_SIGN : 0));
#else
    return load_pack(src + i * ld + p);
#endif
}

/* Element 0 of a, of b, element 1 of a, of b, ...: half a vector of each. */
#if CLB_VPN == 16
#define CLB_INTERLEAVE(a, b) ((vpack)(a, b)).s08192a3b4c5d6e7f
#elif CLB_VPN == 8
#define CLB_INTERLEAVE(a, b) ((vpack)(a, b)).s04152637
#else
#define CLB_INTERLEAVE(a, b) ((vpack)(a, b)).s0213
#endif

/* Turns G rows of CLB_VP depths into CLB_VP depths of G elements, in place.  With the element's
 * row as the high and its depth as the low digits of an address over all of x, every step rotates
 * that address by one bit; log2(G) steps swap row and depth. */
CLB_INLINE void transpose(vpack x[CLB_VP], const uint G)
{
#pragma unroll
    for (uint step = 1; step < CLB_VP; step *= 2) {
        if (step < G) {
            vpack y[CLB_VP];
#pragma unroll
            for (uint i = 0; i < CLB_VP / 2; i++) {
                if (i < G / 2) {
                    y[2 * i] = CLB_INTERLEAVE(x[i].lo, x[i + G / 2].lo);
                    y[2 * i + 1] = CLB_INTERLEAVE(x[i].hi, x[i + G / 2].hi);
                }
            }
#pragma unroll
            for (uint i = 0; i < CLB_VP; i++)
                if (i < G)
                    x[i] = y[i];
        }
    }
}

/* Stores CLB_VP depths of G elements, which begin at `to` and are W apart. */
CLB_INLINE void store_rows(vpack x[CLB_VP], global real *to, const uint W, const uint G, bool past)
{
#pragma unroll
    for (uint i = 0; i < CLB_VP; i++) {
        if (i >= G) {
            continue;
        } else if (G == W) {
            store_panel(x[i], to + i * CLB_VP, past);
        } else if (G == CLB_VP) {
            store_panel(x[i], to + i * W, past);
        } else {
            real t[CLB_VP];
            store_pack(x[i], t);
            for (uint e = 0; e < CLB_VP; e++)
                to[(i * CLB_VP + e) / G * W + e % G] = t[e];
        }
    }
}

/* Packs a panel over depths p0 ... p1 - 1, G rows at a time; `rows` of the panel exist, and k
 * depths are valid. All of the panel before the next depths: lines are written one after the other.
 * A panel with fewer rows is packed element by element: there is one at most in an operand, and
 * code of vectors for it takes as long to compile as all else here. */
CLB_INLINE void pack_rows(global const real *src, size_t ld, uint rows, uint p0, uint p1, uint k,
                          global real *dst, const uint W, const uint G, uint conj, bool past)
{
    uint p = p0;
    for (; rows == W && p + CLB_VP <= min(p1, k); p += CLB_VP) {
        for (uint r = 0; r < W; r += G) {
            vpack x[CLB_VP];
#pragma unroll
            for (uint i = 0; i < CLB_VP; i++)
                if (i < G)
                    x[i] = load_row(src, ld, r + i, p, conj);
            transpose(x, G);
            store_rows(x, dst + (size_t)p * W + r, W, G, past);
        }
    }
    for (; p < p1; p++)
        for (uint i = 0; i < W; i++)
            dst[(size_t)p * W + i] = element(src, ld, 1, rows, k, i, p, false, conj);
}

/* The largest power of two that divides the panel's width, at most a vector. */
#define CLB_PIECE(W)                                                                               \
    ((W) % CLB_VP == 0 ? CLB_VP : (W) % 8 == 0 ? 8 : (W) % 4 == 0 ? 4 : (W) % 2 == 0 ? 2 : 1)

/* Element (i, p) is src[p + i*ld], where elements are pairs src[2*(p + i*ld)] and the next; k
 * counts both. */
CLB_INLINE void pack_t(global const real *src, size_t ld, uint w, uint k, global real *dst,
                       const uint W, const uint G, uint conj, pack_share s)
{
    const size_t panel = (size_t)W * round_up(k, CLB_KU);

    for (uint q = s.q0; q < s.q1; q++) {
        const uint rows = min(w - q * W, W);
        global const real *from = src + (size_t)(q * W) * CLB_PARTS * ld;
        global real *to = dst + q * panel;
        pack_rows(from, ld, rows, s.p0, s.p1, k, to, W, G, conj, s.past);
    }
    if (s.past)
        order_streams();
}
