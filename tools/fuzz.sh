#!/usr/bin/env bash
# fuzz.sh [TARGET] [SECONDS]: builds tests/fuzz/*_fuzz.cpp with libFuzzer and the address and undefined-behaviour
# sanitizers, and runs each (or only TARGET) for SECONDS (60). New inputs are stored in build/fuzz/corpus; the committed
# ones in tests/fuzz/corpus/TARGET are only read. A crash stores its input in build/fuzz and fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t known < <(find tests/fuzz -name '*_fuzz.cpp' -printf '%f\n' 2>/dev/null | sed 's/_fuzz\.cpp$//' | sort)
if [[ ${1-} =~ ^[0-9]+$ ]]; then set -- "" "$1"; fi
target=${1-}
seconds=${2:-60}
if [ ${#known[@]} = 0 ]; then
  echo "error: there is no fuzz target under tests/fuzz" >&2
  exit 2
fi
targets=("${known[@]}")
if [ -n "$target" ]; then
  if ! printf '%s\n' "${known[@]}" | grep -qx "$target"; then
    echo "error: no fuzz target '$target'; there are: ${known[*]}" >&2
    exit 2
  fi
  targets=("$target")
fi

cmake --preset fuzz -DCMAKE_CXX_COMPILER=clang++-19
cmake --build build/fuzz --target "${targets[@]/%/_fuzz}"
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/corpus/$target"
  corpus=("build/fuzz/corpus/$target")
  if [ -d "tests/fuzz/corpus/$target" ]; then corpus+=("tests/fuzz/corpus/$target"); fi
  echo "fuzz $target: $seconds s"
  "build/fuzz/${target}_fuzz" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=10 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$target-" "${corpus[@]}" 2>&1 | grep -vE '^#[0-9]+\s+(NEW|REDUCE|pulse|RELOAD)|Uses: |Recommended dictionary|recommended dictionary'
done
