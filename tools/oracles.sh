#!/usr/bin/env bash
# Compares the built executable with other programs: runs every tools/reference/check_*.py in name order, the end-to-end
# story (tests/e2e/story) and the attacks on the server (tests/attack), in a virtual environment with torch,
# transformers, peft, bitsandbytes, rouge-score, tensorboard, jsonschema, openai and megatron-core. Each makes new
# states and compares; random ones have a fixed default seed (see their docstrings). Called by `./run oracles`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
environment=build/oracles
wanted=(torch==2.13.0 transformers peft tokenizers sentencepiece protobuf safetensors gguf numpy rouge-score tensorboard jsonschema
  rfc3339-validator rfc3986-validator fqdn jsonpointer isoduration uri-template webcolors openai)
# Installed without dependencies unless named here: those of mosaicml-streaming include the clients of every object
# store.
alone=(bitsandbytes==0.50.2 megatron-core==0.16.1 mosaicml-streaming==0.13.0 brotli catalogue cramjam filelock pillow python-snappy requests xxhash zstd)

# The environment is made once. Its list of packages is written last, so an incomplete environment is made again.
if [ "$(cat "$environment/wanted" 2>/dev/null)" != "${wanted[*]} ${alone[*]}" ]; then
  rm -rf "$environment"
  python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet "${wanted[@]}"
  "$environment/bin/pip" install --quiet --no-deps "${alone[@]}"
  echo "${wanted[*]} ${alone[*]}" >"$environment/wanted"
fi
"$environment/bin/pip" list 2>/dev/null | grep -iE '^(torch|transformers|peft|tokenizers|safetensors|gguf|numpy|rouge.score|tensorboard|megatron.core|mosaicml.streaming) '

tools/llamacpp.sh --model  # llama.cpp's converter, for check_llamacpp.py, and SmolLM2 for the story

export INGOT_EXECUTABLE=${INGOT_EXECUTABLE:-$PWD/build/release/ingot}
INGOT_HOME=$(mktemp -d) # not the user's models and rates
export INGOT_HOME
trap 'rm -rf "$INGOT_HOME"' EXIT
export TRANSFORMERS_VERBOSITY=error HF_HUB_DISABLE_PROGRESS_BARS=1 TQDM_DISABLE=1 PYTHONWARNINGS=ignore
passed=0
failed=()
left_out=()
for script in tools/reference/check_*.py tests/e2e/story/story.py tests/attack/attack.py; do
  [ -f "$script" ] || continue
  started=$SECONDS status=0
  "$environment/bin/python" "$script" || status=$?
  case $status in
    0) passed=$((passed + 1)) verdict=agrees ;;
    77) left_out+=("$script") verdict="LEFT OUT" ;; # what it needs is not here, as it said
    *) failed+=("$script") verdict=DIFFERS ;;
  esac
  echo "oracle $script: $verdict ($((SECONDS - started)) s)"
done
if [ $((passed + ${#failed[@]})) = 0 ]; then
  echo "error: no tools/reference/check_*.py was found; nothing was compared" >&2
  exit 1
fi
[ ${#failed[@]} = 0 ] || echo "differing oracles: ${failed[*]}" >&2
echo "$passed passed, ${#failed[@]} failed, ${#left_out[@]} left out"
[ ${#failed[@]} = 0 ]
