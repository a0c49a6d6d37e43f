#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The shim next to its peers on a GPU machine, from a built tree: everything that peers.py measures, a
# short table of ratios next to this project's own limits last. Options go to peers.py.
#
# usage: peers.sh [OPTION...] [BUILD-FOLDER]           (default: the current folder, after `make bench`)
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
. "$here/nvidia-icd.sh" || exit 1
export CLBLAS_SHIM_DEVICE=${CLBLAS_SHIM_DEVICE:-gpu}
register_nvidia
uname -srm
echo "$(nproc) CPUs: $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
exec python3 "$here/peers.py" "$@"
