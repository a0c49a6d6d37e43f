# SPDX-License-Identifier: BSD-3-Clause
# CLB_APPEND_CFLAG(VARIABLE, FLAG)
# Append FLAG when the compiler takes it without a warning.
AC_DEFUN([CLB_APPEND_CFLAG], [
    AS_VAR_PUSHDEF([clb_cache], [clb_cv_cflag_$2])
    AC_CACHE_CHECK([whether $CC takes $2], [clb_cache], [
        clb_saved_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS -Werror $2"
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
            [AS_VAR_SET([clb_cache], [yes])], [AS_VAR_SET([clb_cache], [no])])
        CFLAGS=$clb_saved_CFLAGS])
    AS_VAR_IF([clb_cache], [yes], [AS_VAR_APPEND([$1], [" $2"])])
    AS_VAR_POPDEF([clb_cache])
])

# CLB_COMPILER_FLAGS
# CLB_CFLAGS for our own sources; the user's CFLAGS are not touched.
AC_DEFUN([CLB_COMPILER_FLAGS], [
    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [make compiler warnings errors])],
        [], [enable_werror=no])
    AC_ARG_ENABLE([sanitizers],
        [AS_HELP_STRING([--enable-sanitizers@<:@=LIST@:>@],
            [build with sanitizers: address,undefined, or thread])],
        [], [enable_sanitizers=no])
    CLB_CFLAGS="-std=gnu11 -fvisibility=hidden -fexceptions"
    CLB_APPEND_CFLAG([CLB_CFLAGS], [-fopenmp-simd])
    for clb_flag in -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
        -Wpointer-arith -Wwrite-strings -Wvla; do
        CLB_CFLAGS="$CLB_CFLAGS $clb_flag"
    done
    AS_VAR_IF([enable_werror], [yes], [CLB_CFLAGS="$CLB_CFLAGS -Werror"])
    # Where a build is to be equal in every folder, debugging information names none.
    CLB_PREFIX_MAP=
    AS_IF([test -n "$SOURCE_DATE_EPOCH"], [
        CLB_APPEND_CFLAG([CLB_PREFIX_MAP], [-ffile-prefix-map=`cd "$srcdir" && pwd`=.])
        CLB_APPEND_CFLAG([CLB_PREFIX_MAP], [-ffile-prefix-map=`pwd`=.])])
    CLB_SANITIZE=
    AS_VAR_IF([enable_sanitizers], [yes], [enable_sanitizers=address,undefined])
    AS_VAR_IF([enable_sanitizers], [no], [],
        [CLB_SANITIZE="-fsanitize=$enable_sanitizers -fno-omit-frame-pointer"])
    AC_SUBST([CLB_CFLAGS])
    AC_SUBST([CLB_PREFIX_MAP])
    AC_SUBST([CLB_SANITIZE])
])

# CLB_LINKER_FLAGS
# The library stays loaded once it is, refers to nothing that it does not name, and is bound when it
# is loaded: binding at a call may wait for the dynamic linker's lock.
AC_DEFUN([CLB_LINKER_FLAGS], [
    CLB_LDFLAGS="-Wl,-z,nodelete -Wl,-z,now -Wl,--as-needed -Wl,--no-undefined-version"
    AS_VAR_IF([enable_sanitizers], [no], [CLB_LDFLAGS="$CLB_LDFLAGS -Wl,-z,defs"])
    AC_SUBST([CLB_LDFLAGS])
])
