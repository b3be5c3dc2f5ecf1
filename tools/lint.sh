#!/usr/bin/env bash
# All checks that do not run the program. Called by `./run lint`, which builds first. LINT_BASE names the commit that
# clang-tidy compares with; by default the commit where this branch left main or, on main itself, the last commit older
# than four hours (or the first of all). TIDY_SECONDS (default 240) limits clang-tidy; the number of unchecked files is
# printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failures=()
started=$SECONDS

check() {
  local name=$1
  shift
  if ! "$@"; then failures+=("$name"); fi
}

format() { git ls-files -z '*.h' '*.cpp' '*.cu' '*.inc' | xargs -0 -r clang-format-19 --dry-run -Werror; }

python_compiles() {
  local cache status=0
  cache=$(mktemp -d)
  git ls-files -z '*.py' | PYTHONPYCACHEPREFIX=$cache xargs -0 -r python3 -m py_compile || status=$?
  rm -rf "$cache"
  return "$status"
}

shell() {
  local scripts
  mapfile -t scripts < <(git ls-files run .ci/run tools/gpu_check '*.sh')
  shellcheck "${scripts[@]}"
}

base_commit() {
  local base
  if [ -n "${LINT_BASE-}" ]; then
    git rev-parse --verify "$LINT_BASE^{commit}"
    return
  fi
  base=$(git merge-base main HEAD 2>/dev/null || true)
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then # on main
    base=$(git rev-list -1 --before='4 hours ago' HEAD)
  fi
  echo "${base:-$(git rev-list --max-parents=0 HEAD | tail -n 1)}"
}

# tidy_one FILE: prints findings; does nothing after the deadline. Appends FILE to $TIDY_DONE when it was checked.
tidy_one() {
  local left=$((TIDY_DEADLINE - $(date +%s))) findings status=0
  [ "$left" -gt 0 ] || return 0
  findings=$(timeout "$left" clang-tidy-19 -p build/release --quiet --warnings-as-errors='*' "$1" 2>/dev/null) || status=$?
  [ "$status" != 124 ] || return 0
  echo "$1" >>"$TIDY_DONE"
  [ "$status" = 0 ] || printf '%s\n' "$findings"
  return "$status"
}

# Two at a time over the changed files that the release build compiles; files of the newest commit first.
tidy() {
  local base status=0
  local -a files
  base=$(base_commit)
  mapfile -t files < <({ git diff --name-only HEAD; git log --name-only --format= "$base"..HEAD; } |
    grep -E '^(src|tests)/.*\.cpp$' | awk '!seen[$0]++' |
    while read -r file; do
      if [ -f "$file" ] && grep -qF "$PWD/$file\"" build/release/compile_commands.json; then echo "$file"; fi
    done)
  TIDY_DONE=$(mktemp)
  TIDY_DEADLINE=$(($(date +%s) + ${TIDY_SECONDS:-240}))
  export TIDY_DONE TIDY_DEADLINE
  export -f tidy_one
  if [ ${#files[@]} -gt 0 ]; then
    # shellcheck disable=SC2016
    printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P 2 bash -c 'tidy_one "$1"' tidy || status=$?
  fi
  echo "clang-tidy: checked $(wc -l <"$TIDY_DONE") of ${#files[@]} files changed since ${base:0:9}"
  rm -f "$TIDY_DONE"
  return "$status"
}

check clang-format format
check include-edges python3 tools/check_includes.py --self-test
check include-edges python3 tools/check_includes.py
check banned-symbols python3 tools/check_symbols.py --self-test
check banned-symbols python3 tools/check_symbols.py
check tracked-files python3 tools/check_files.py --self-test
check tracked-files python3 tools/check_files.py
check device-code python3 tools/device_code.py --self-test
check gpu-paper python3 tools/gpu_paper.py --self-test
check device-runs python3 tools/device_runs.py --self-test
check python python_compiles
if command -v shellcheck >/dev/null; then check shellcheck shell; fi
check clang-tidy tidy

if [ ${#failures[@]} -gt 0 ]; then
  printf 'lint failed: %s (%s s)\n' "$(printf '%s\n' "${failures[@]}" | sort -u | paste -sd' ')" "$((SECONDS - started))"
  exit 1
fi
echo "lint passed in $((SECONDS - started)) s"
