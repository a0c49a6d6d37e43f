# SPDX-License-Identifier: BSD-3-Clause
# small_blocks SOURCE-FOLDER: the parameters with which small matrices walk through every blocked path, of
# those that this version has.
small_blocks()
{
    list=gemm.tile=min
    for value in trsm.nb=4 trsm.part=8 getrf.nb=8 getrf.strip=4 potrf.nb=8 geqrf.nb=8; do
        name=$(echo "${value%=*}" | tr . _)
        grep -qi "[( ]$name," "$1"/src/engine/tuning/*.def && list=$list,$value
    done
    echo "$list"
}
