#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The release checklist: what a script can see, and then what is left to do by hand. `make release-check` in a build folder.
#
#   testing/release.sh              all
#   testing/release.sh --versions   one version everywhere, which docs.test asks for, too
set -u
source=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n 's/^AC_INIT(\[clblas-shim\], \[\([0-9.]*\)\].*/\1/p' "$source/configure.ac")
failed=0

# item NAME COMPLAINTS: passes when there are none.
item()
{
    if [ -z "$2" ]; then
        echo "ok - $1"
    else
        echo "not ok - $1"
        printf '%s\n' "$2" | sed 's/^/# /'
        failed=1
    fi
}

# Files whose version is not configure.ac's.
other_versions()
{
    local file pattern found
    while read -r file pattern; do
        [ -e "$source/$file" ] || continue
        found=$(sed -nE "s/$pattern.*/\1/p" "$source/$file" | head -n 1)
        [ "$found" = "$version" ] || echo "$file has '$found', configure.ac '$version'"
    done <<'END'
NEWS ^([0-9]+[.][0-9.]+) [(]
CITATION.cff ^version: ([0-9.]+)
README.md ^clblas-shim ([0-9.]+), device
docs/report.md .*"version":"([0-9.]+)"
debian/changelog ^clblas-shim [(]([0-9.]+)
END
    found=$(sed -n 's/^#define CLBLAS_SHIM_VERSION_NUMBER //p' "$source/include/clblas_shim.h")
    [ "$found" = "$(awk -F . '{ print 10000 * $1 + 100 * $2 + $3 }' <<<"$version")" ] ||
        echo "include/clblas_shim.h has $found, configure.ac '$version'"
}

# The day of the release, in NEWS and for those who cite.
undated()
{
    local day
    day=$(sed -n "s/^$version (\([0-9-]*\))$/\1/p" "$source/NEWS")
    [ -n "$day" ] || echo "NEWS: $version has no day, as in '$version (2026-12-31)'"
    [ -z "$day" ] || grep -qx "date-released: $day" "$source/CITATION.cff" || echo "CITATION.cff: no 'date-released: $day'"
}

unclean()
{
    git -C "$source" status --short
    [ -z "$(git -C "$source" tag -l "v$version")" ] || echo "there is a tag v$version already"
}

# A log is shown where the command fails.
fails()
{
    local log
    log=$("$@" 2>&1) || printf '%s\n' "$log" | tail -n 30
}

item "one version, $version" "$(other_versions)"
[ "${1-}" != --versions ] || exit $failed
[ -e Makefile ] || { echo "run this in a build folder: make release-check"; exit 2; }
item "the day of the release" "$(undated)"
item "everything is committed, and not tagged yet" "$(unclean)"
item "documents, rooms, licence lines, layout" \
    "$(fails make check TESTS='testing/docs.test testing/layers.test testing/format.test')"
item "make distcheck" "$(fails make distcheck TESTS=testing/docs.test)"
cat <<END

By hand:
  .ci/run passes on Debian's stable and testing releases; last night's runs of netlib's programs and random calls passed
  on a GPU: testing/bench/device-conformance.sh, device-kernels.sh, device-compare.sh against the last release
  docs/abi.md: names were added: raise current and age in Makefile.am; removed or changed: a new SONAME
  README's and docs/measurements' figures are this release's, or say which build's they are
  git tag -s v$version; sign clblas-shim-$version.tar.xz (gpg --detach-sign --armor) and publish both
END
exit $failed
