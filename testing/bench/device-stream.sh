#!/bin/bash
# Settings of the streamed pipeline on a GPU machine, from a built tree: what streams.py measures, in
# less than two minutes, its table last. Options go to streams.py.
#
# usage: device-stream.sh [OPTION...] [BUILD-FOLDER]   (default: the current folder, after `make bench`)
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
. "$here/nvidia-icd.sh" || exit 1
export CLBLAS_SHIM_DEVICE=${CLBLAS_SHIM_DEVICE:-gpu}
register_nvidia
echo "$(uname -sr), $(nproc) CPUs: $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)"
echo "huge pages: $(cat /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null)"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
# Ended early it prints what it has.
exec timeout -k 10 118 python3 -u "$here/streams.py" "$@"
