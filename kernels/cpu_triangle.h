/* Packing of triangular operands for gemm_cpu.cl, without what is zero. */

/* Kinds: element (i, p) is zero for p > i + diagonal, or for p < i + diagonal; ones on the
 * diagonal. */
#define CLB_TRIANGLE_LOW  1
#define CLB_TRIANGLE_HIGH 2
#define CLB_TRIANGLE_UNIT 4
typedef struct {
    uint kind;
    int diagonal;
} triangle;

/* Element (i, p), which exists; nothing is read where it is not stored. */
CLB_INLINE real triangle_element(global const real *src, size_t ld, uint i, uint p, triangle shape,
                                 const bool by_rows, uint conj)
{
    const int behind = (int)(p / CLB_PARTS) - (int)i - shape.diagonal;
    if (shape.kind & CLB_TRIANGLE_LOW ? behind > 0 : behind < 0)
        return 0;
    if (behind == 0 && shape.kind & CLB_TRIANGLE_UNIT)
        return CLB_PARTS == 1 || p % 2 == 0;
    return element_at(src, by_rows ? 1 : ld, by_rows ? ld : 1, i, p, false, conj);
}

/* A panel over depths p0 ... p1 - 1. */
CLB_INLINE void pack_crossing(global const real *src, size_t ld, uint w, uint k, global real *dst,
                              const uint W, uint q, uint p0, uint p1, triangle shape,
                              const bool by_rows, uint conj)
{
    global real *to = dst + (size_t)q * W * round_up(k, CLB_KU);
    for (uint p = p0; p < p1; p++)
        for (uint i = 0; i < W; i++)
            to[(size_t)p * W + i] = q * W + i < w && p < k ? triangle_element(src, ld, q * W + i, p,
                                                                              shape, by_rows, conj)
                                                           : 0;
}

/* What is not zero, and as much of the zeros beside it as clb_gemm_skip reads: panels up to where
 * they meet the diagonal, in steps of CLB_KU, and where they cross it element by element. */
CLB_INLINE void pack_triangle(global const real *src, size_t ld, uint w, uint k, global real *dst,
                              const uint W, const uint G, const bool by_rows, uint conj,
                              triangle shape)
{
    const pack_share all = get_pack_share(w, k, W);
    const int diagonal = CLB_PARTS * shape.diagonal;
    const int p0 = (int)all.p0, p1 = (int)all.p1;
    const bool low = shape.kind & CLB_TRIANGLE_LOW;
    /* Depths from the first panel's beginning and to the last one's end. */
    const uint first = down_to_step((int)(all.q0 * W) * CLB_PARTS + diagonal, p0, p1);
    const uint last = up_to_step((int)(all.q1 * W) * CLB_PARTS + diagonal, p0, p1);
    /* In the last turn what all panels have, in one go. */
    for (uint q = all.q0; q <= all.q1; q++) {
        const int meets = (int)(q * W) * CLB_PARTS + diagonal;
        const uint near = down_to_step(meets, p0, p1);
        const uint far = up_to_step(meets + (int)W * CLB_PARTS, p0, p1);
        pack_share s = {q, q + 1, low ? first : far, low ? near : last, all.past};
        if (q == all.q1)
            s = (pack_share){all.q0, all.q1, low ? all.p0 : last, low ? first : all.p1, all.past};
        else
            pack_crossing(src, ld, w, k, dst, W, q, near, far, shape, by_rows, conj);
        if (s.p0 < s.p1 && by_rows)
            pack_n(src, ld, w, k, dst, W, conj, s);
        else if (s.p0 < s.p1)
            pack_t(src, ld, w, k, dst, W, G, conj, s);
    }
}
