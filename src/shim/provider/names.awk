# SPDX-License-Identifier: BSD-3-Clause
#
# Makes the assembly of a provider library from its names: awk -f names.awk blas.names. The first word of a line
# says what the others stand for:
#
#   sdcz gemm   sgemm_ dgemm_ cgemm_ zgemm_; sd, cz likewise
#   - lsame     lsame_
#   + sdsdot    sdsdot_ cblas_sdsdot; sdcz+ gemm likewise
#   = name      the name as it is
#   data name   a variable, an int
#   need name   one of another library, so that the linker keeps that
BEGIN { print "#include \"shim/provider/trampoline.S\"" }
/^#/ { next }
/^need/ { print "NEED " $2; next }
{
    letters = $1
    in_c = sub(/[+]$/, "", letters)
    if (letters !~ /^[sdcz]+$/)
        letters = ""
    for (i = 2; i <= NF; i++) {
        for (j = 1; j <= length(letters) || j == 1; j++) {
            name = substr(letters, j, 1) $i
            print ($1 == "data" ? "DATA " : "FUNCTION ") name ($1 == "data" || $1 == "=" ? "" : "_")
            if (in_c)
                print "FUNCTION cblas_" name
        }
    }
}
