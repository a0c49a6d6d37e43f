/* Which tile of C a work-group computes; for kernels with a one-dimensional grid. Included where
 * CLB_MR, CLB_NR (the tile) and CLB_GROUP (tile rows that are walked together) are defined. */

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
