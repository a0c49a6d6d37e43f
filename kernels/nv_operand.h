/* Reading operands, for packing kernels. Included where T, the type of a real number, is defined.
 *
 * With CLB_COMPLEX the packing kernels read complex operands, interleaved pairs (re, im), as the
 * real ones whose product is the complex one, interleaved: A, m x k, is 2m x 2k with blocks
 * [re -im; im re], B, k x n, is 2k x n with the rows re and im in turn. Their src_off, ld, w and k
 * count complex elements, and `conj` asks for the conjugates; everything else is the real
 * operand's.
 */

/* 1: the packing kernels read complex operands. */
#ifndef CLB_COMPLEX
#define CLB_COMPLEX 0
#endif

#if CLB_COMPLEX
#define CLB_CONJ_PARAMETER , uint conj
#define CLB_CONJ           conj
#define CLB_PARTS          2
#else
#define CLB_CONJ_PARAMETER
#define CLB_CONJ  0
#define CLB_PARTS 1
#endif

/*
 * Element (i, p) of a w x k operand, zero outside of it; (0, 0) is at src, others at i*di + p*dp,
 * or, of a complex operand, re or im of the pair there with half of the indices that count both.
 */
static inline T element(global const T *src, ulong di, ulong dp, uint w, uint k, uint i, uint p,
                        bool of_a, uint conj)
{
    if (i >= w || p >= k)
        return (T)0;
#if CLB_COMPLEX
    uint half_i = of_a ? i / 2 : i;
    uint part = (of_a ? i ^ p : p) & 1;
    bool negative = part && (of_a ? (i & 1) == conj : conj != 0);
    T x = src[2 * (half_i * di + p / 2 * dp) + part];

    return negative ? -x : x;
#else
    return src[i * di + p * dp];
#endif
}
