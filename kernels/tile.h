/* What the families have in common whose work-groups compute tiles of C from local memory. Included
 * where CLB_MR and CLB_NR, the tile, are defined. */

/* Tile rows that are walked together, so that their panels of A stay in the device's cache. */
#ifndef CLB_GROUP
#define CLB_GROUP 8
#endif
/* Work-items of a packing kernel's group. */
#ifndef CLB_PACK_WG
#define CLB_PACK_WG 256
#endif

#define CLB_PACK_KERNEL CLB_KERNEL_OF(CLB_PACK_WG)
#define CLB_GEMM_KERNEL CLB_KERNEL_OF(CLB_WG)

/*
 * Tile of this work-group: down CLB_GROUP tile rows, then to the next tile column; the last group
 * of rows may be lower.
 */
static inline uint2 tile_of_group(uint m, uint n)
{
    uint rows = (m - 1) / CLB_MR + 1;
    uint cols = (n - 1) / CLB_NR + 1;
    uint g = get_group_id(0);
    uint first = g / (CLB_GROUP * cols) * CLB_GROUP;
    uint height = min((uint)CLB_GROUP, rows - first);

    g %= CLB_GROUP * cols;
    return (uint2)(first + g % height, g / height);
}
