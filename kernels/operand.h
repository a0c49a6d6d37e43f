/* How packing kernels read the elements of operands. Included behind common.h.
 *
 * Complex operands are packed as the real ones whose product is the complex one, interleaved: A,
 * m x k, as 2m x 2k with a block [re -im; im re] for each element, B, k x n, as 2k x n with the
 * rows re and im in turn. The caller's offsets, leading dimension and sizes count complex elements;
 * the packed operand's, and clb_gemm's m and k, are those of the real one.
 * SPDX-License-Identifier: BSD-3-Clause */

/*
 * Element (i, p) of an operand of which (0, 0) is at src: at i*di + p*dp. Of a complex operand, re
 * or im of the pair there with half of the indices that count both.
 */
static inline real element_at(global const real *src, ulong di, ulong dp, uint i, uint p, bool of_a,
                              uint conj)
{
#if CLB_COMPLEX
    uint half_i = of_a ? i / 2 : i;
    uint part = (of_a ? i ^ p : p) & 1;
    bool negative = part && (of_a ? (i & 1) == conj : conj != 0);
    real x = src[2 * (half_i * di + p / 2 * dp) + part];

    return negative ? -x : x;
#else
    return src[i * di + p * dp];
#endif
}

/* The same of a w x k operand, zero outside of it. */
static inline real element(global const real *src, ulong di, ulong dp, uint w, uint k, uint i,
                           uint p, bool of_a, uint conj)
{
    return i < w && p < k ? element_at(src, di, dp, i, p, of_a, conj) : 0;
}
