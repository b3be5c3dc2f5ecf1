#!/usr/bin/env bash
# Builds the CPU kernels for aarch64 with clang, and runs every case of the op table on them under qemu (tests/aarch64).
# With --build it builds only. Called by `./run test`. QEMU names another emulator than qemu-aarch64-static; it is empty on an
# aarch64 machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=build/aarch64
emulator=${QEMU-qemu-aarch64-static}
started=$SECONDS
cmake -S tests/aarch64 -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux \
  -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_CXX_COMPILER_TARGET=aarch64-linux-gnu \
  -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld-19 >/dev/null
cmake --build "$folder"
built=$((SECONDS - started))
[ "${1-}" != --build ] || exit 0
status=0
# Two at a time; $emulator is unquoted, as it may be empty.
seq 0 7 | xargs -P 2 -I {} ${emulator:+"$emulator"} "$folder/op_table_aarch64" {} 8 || status=1
echo "aarch64: built in $built s, ran in $((SECONDS - started - built)) s"
exit "$status"
