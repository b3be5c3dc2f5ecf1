#!/usr/bin/env bash
# loss_compare.sh BASE [CHANGED]: verifies that a change does not change the computation. Builds the two commits
# (CHANGED: HEAD), trains each on the same recipe with the same seed, and compares the losses and gradient norms of
# every step as text, to the last digit. LOSS_COMMAND (pretrain, or finetune), LOSS_RECIPE (recipes/tiny.yaml),
# LOSS_STEPS (20) and LOSS_SETTINGS (overrides, such as "model=/path/to/model data.sequence_length=128") choose the run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "usage: tools/loss_compare.sh BASE [CHANGED]" >&2
  exit 2
fi
command=${LOSS_COMMAND:-pretrain}
recipe=${LOSS_RECIPE:-recipes/tiny.yaml}
read -r -a settings <<<"${LOSS_SETTINGS-}"
steps=${LOSS_STEPS:-20}
work=$PWD/build/loss_compare
mkdir -p "$work"
git worktree prune # build/ may have been removed since the last run

# curve COMMIT: the lines "step loss grad_norm" of the commit's run.
curve() {
  local commit tree
  commit=$(git rev-parse --verify "$1^{commit}")
  tree=$work/$commit
  [ -d "$tree" ] || git worktree add --quiet --detach "$tree" "$commit"
  (
    cd "$tree"
    cmake --preset release -DCMAKE_CXX_COMPILER=clang++-19 -DINGOT_TESTS=OFF
    cmake --build build/release --target ingot
    rm -rf runs/loss_compare
    build/release/ingot "$command" "$recipe" steps="$steps" schedule.warmup_steps=$((steps / 4)) name=loss_compare run_dir=runs \
      ${settings[@]+"${settings[@]}"}
  ) >"$work/$commit.log" 2>&1 || { tail -n 20 "$work/$commit.log" >&2; return 1; }
  python3 - "$tree/runs/loss_compare/events.jsonl" <<'PYTHON'
import json, sys
for line in open(sys.argv[1], encoding="utf-8"):
    event = json.loads(line, parse_float=str)
    if event["type"] == "step":
        print(event["step"], event["loss"], event["grad_norm"])
PYTHON
}

curve "$1" >"$work/base.txt"
curve "${2:-HEAD}" >"$work/changed.txt"
if [ ! -s "$work/base.txt" ]; then
  echo "error: the run of $1 has no step event; see $work" >&2
  exit 1
fi
if diff "$work/base.txt" "$work/changed.txt"; then
  echo "identical: $(wc -l <"$work/base.txt") steps, last loss $(tail -n 1 "$work/base.txt" | cut -d' ' -f2)"
else
  echo "the loss curves differ (above: < $1, > ${2:-HEAD}; columns step, loss, grad_norm)" >&2
  exit 1
fi
