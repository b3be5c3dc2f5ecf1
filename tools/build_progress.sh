#!/usr/bin/env bash
# build_progress.sh LOG COMMAND...: runs a build with its output in LOG. On a terminal, one line of standard error shows
# the share of finished ninja steps. When the build fails, it prints the last 30 lines of LOG and exits with the build's
# code.
set -uo pipefail
log=$1
shift
"$@" 2>&1 | while IFS= read -r line; do
  printf '%s\n' "$line"
  if [ -t 2 ] && [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
    printf '\r   %d %% ' $((100 * BASH_REMATCH[1] / BASH_REMATCH[2])) >&2
  fi
done >>"$log"
status=${PIPESTATUS[0]}
[ ! -t 2 ] || printf '\r         \r' >&2
if [ "$status" != 0 ]; then
  tail -n 30 "$log" >&2
  printf 'error: the build failed; all of its output is in %s\n' "$log" >&2
fi
exit "$status"
