# SPDX-License-Identifier: BSD-3-Clause
# CLB_OPENCL_HEADERS
# The OpenCL headers, by pkg-config where it knows them. Nothing is linked: the ICD loader is opened
# at the first call that is worth offloading.
AC_DEFUN([CLB_OPENCL_HEADERS], [
    PKG_CHECK_MODULES([OPENCL], [OpenCL-Headers], [], [
        PKG_CHECK_MODULES([OPENCL], [OpenCL], [], [OPENCL_CFLAGS=])])
    clb_saved_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $OPENCL_CFLAGS"
    AC_MSG_CHECKING([for OpenCL headers])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
        #define CL_TARGET_OPENCL_VERSION 120
        #include <CL/cl.h>
        ]], [[cl_device_id device = 0; (void)device;]])],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         AC_MSG_ERROR([CL/cl.h is missing: install the OpenCL headers (Debian: opencl-headers)])])
    CPPFLAGS=$clb_saved_CPPFLAGS
])
