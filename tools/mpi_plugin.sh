#!/usr/bin/env bash
# mpi_plugin.sh OUT: builds the MPI plug-in, which lets `mpirun` and `srun` start ingot, with this machine's own MPI.
# MPICC names its compiler (default mpicc). Called by `./run mpi`; a bundle has it too.
set -euo pipefail
out=${1?usage: mpi_plugin.sh OUT}
here=$(dirname "${BASH_SOURCE[0]}")
mpicc=${MPICC:-mpicc}
command -v "$mpicc" >/dev/null || {
  echo "error: there is no $mpicc; load the site's MPI module, install libopenmpi-dev or libmpich-dev, or set MPICC" >&2
  exit 5
}
source=$here/../src/comm/mpi_plugin.c
[ -f "$source" ] || source=$here/mpi_plugin.c # in a bundle
exec "$mpicc" -std=c11 -O2 -Wall -Wextra -Werror -shared -fPIC -o "$out" "$source"
