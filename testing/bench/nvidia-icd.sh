# SPDX-License-Identifier: BSD-3-Clause
# Sourced: NVIDIA's OpenCL for the loader, where a GPU machine came without that.
register_nvidia()
{
    ls /etc/OpenCL/vendors/*nvidia*.icd >/dev/null 2>&1 && return
    local library
    library=$(ldconfig -p | awk '/libnvidia-opencl\.so\.1/ { print $NF; exit }')
    [ -n "$library" ] || return
    if [ "$(id -u)" = 0 ]; then
        mkdir -p /etc/OpenCL/vendors && echo libnvidia-opencl.so.1 >/etc/OpenCL/vendors/nvidia.icd
        echo "Registered NVIDIA's OpenCL in /etc/OpenCL/vendors/nvidia.icd"
    else
        echo "NVIDIA's OpenCL is not registered in /etc/OpenCL/vendors; run as root to do that"
    fi
}
