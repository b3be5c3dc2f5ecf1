#!/usr/bin/env bash
# mpi.sh INGOT SOURCE MPIRUN PLUGIN: runs of several processes started by MPIRUN, data-parallel and as pipelines, have the
# weights and losses of a run of one process and are resumed in another layout; they generate the same text; invalid settings are
# refused.
set -euo pipefail
ingot=$1 source=$2 mpirun=$3 plugin=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Rates of the machine are those of the other tests (tests/e2e/process.h).
export INGOT_HOME=$folder/home
mkdir -p "$INGOT_HOME" "$(dirname "$ingot")/tests/rates"
ln -s "$(dirname "$ingot")/tests/rates" "$INGOT_HOME/rates"

for i in $(seq 40); do
  printf '{"text": "Document %s speaks of the number %s and of nothing else at all."}\n' "$i" "$((i * i))"
done >"$folder/train.jsonl"
cat >"$folder/recipe.yaml" <<END
name: run
model: $source/recipes/models/tiny
init: random
data: {train: $folder/train.jsonl, eval: $folder/train.jsonl, sequence_length: 64}
optimizer: {lr: 1e-3, weight_decay: 0.1, clip_grad_norm: 0.5}
steps: 8
batch: {global: 6}
determinism: bitwise
eval: {every: 4}
checkpoint: {every: 4, keep: 4}
END

fail() {
  printf '%s\n' "$*" >&2
  cat "$folder/log" >&2
  exit 1
}
run() { # NAME [SETTING...], started by the words in $launch
  "${launch[@]}" "$ingot" pretrain "$folder/recipe.yaml" "run_dir=$folder/$1" "${@:2}" >"$folder/log" 2>&1
}
ranks() { launch=(env "INGOT_MPI=$plugin" "$mpirun" -n "$1"); }
curve() { grep -hE '"type":"(step|eval)"' "$folder/$1/run/events.jsonl" | grep -oE '"(step|loss|grad_norm)":[^,}]*'; }
same_as() { # ONE OTHER
  cmp "$folder/$1/run/model/model.safetensors" "$folder/$2/run/model/model.safetensors" || fail "$2: the weights differ"
  [ "$(curve "$1")" = "$(curve "$2")" ] || fail "$2: the curves differ"
}

launch=(env)
run one threads=1 || fail "one process failed"
[ "$(curve one | wc -l)" -gt 20 ] || fail "the curve has too few lines"

ranks 3
run three threads=3 parallel.zero=2 batch.micro=1 || fail "three processes failed"
same_as one three

# Resumed from the checkpoint before the last by two processes that hold whole weights and optimizer states (ZeRO 0).
rm -rf "$folder/three/run/checkpoints/step-8"
ranks 2
run three --resume threads=2 parallel.zero=0 || fail "two processes did not continue"
same_as one three

# Shares of the weights.
ranks 3
run shares threads=3 parallel.zero=3 batch.micro=1 || fail "three processes failed with parallel.zero=3"
same_as one shares
status=0
run samples threads=3 parallel.zero=3 'eval.prompts=[a]' || status=$?
[ "$status" = 2 ] || fail "eval.prompts with parallel.zero=3 ended with $status"
grep -q 'eval.prompts with parallel.zero 3 and 3 ranks' "$folder/log" || fail "the message does not name eval.prompts"

# Two pipelines of two stages; its last checkpoint is continued by one pipeline, with another schedule.
ranks 4
run pipeline threads=4 parallel.pp=2 parallel.zero=1 batch.micro=1 || fail "two pipelines failed"
same_as one pipeline
rm -rf "$folder/pipeline/run/checkpoints/step-8"
ranks 2
run pipeline --resume threads=2 parallel.pp=2 parallel.schedule=zb_v || fail "one pipeline did not continue"
same_as one pipeline
status=0
ranks 3
run odd threads=3 parallel.pp=2 || status=$?
[ "$status" = 2 ] || fail "parallel.pp=2 in three processes ended with $status"
grep -q 'parallel.cp is 1, parallel.pp is 2 and parallel.tp is 1, and mpirun has started 3 processes' "$folder/log" || fail "the message does not name the number of processes"

# Layers cut over processes: the bits of ranks that are threads, and one of four processes has the whole model's weights.
launch=(env)
run cut-threads threads=4 parallel.tp=2 parallel.pp=2 determinism=fast || fail "four threads failed with parallel.tp"
ranks 4
run cut-processes threads=4 parallel.tp=2 parallel.pp=2 determinism=fast || fail "four processes failed with parallel.tp"
same_as cut-threads cut-processes

# Tokens shared by processes, likewise.
launch=(env)
run context-threads threads=2 parallel.cp=2 determinism=fast || fail "two threads failed with parallel.cp"
ranks 2
run context-processes threads=2 parallel.cp=2 determinism=fast || fail "two processes failed with parallel.cp"
same_as context-threads context-processes

# Inference.
generate() { # [OPTION...], started by the words in $launch
  "${launch[@]}" "$ingot" generate --model "$source/tests/golden/llama/a" --ids 1,5,9,3 --dtype fp32 "$@" 2>"$folder/log"
}
launch=(env)
ids=$(generate --threads 1)
ranks 2
for layout in --tp --pp; do
  [ "$(generate $layout 2 --threads 2)" = "$ids" ] || fail "two processes with $layout 2 generate another text"
done
status=0
generate || status=$?
[ "$status" = 2 ] || fail "a whole model in each of two processes ended with $status"
status=0
generate --tp 3 || status=$?
[ "$status" = 2 ] || fail "--tp 3 in two processes ended with $status"
grep -q -- '--tp is 3 and --pp 1, and mpirun has started 2 processes' "$folder/log" || fail "the message does not name the number of processes"

# Muon: each matrix is on one rank as a whole.
launch=(env)
run muon optimizer.name=muon threads=1 || fail "one process failed with muon"
ranks 3
run muon-three optimizer.name=muon threads=3 parallel.zero=2 batch.micro=1 || fail "three processes failed with muon"
same_as muon muon-three

ranks 2
status=0
run other threads=2 parallel.dp=3 || status=$?
[ "$status" = 2 ] || fail "parallel.dp=3 in two processes ended with $status"
grep -q 'parallel.dp is 3, parallel.cp is 1, parallel.pp is 1 and parallel.tp is 1, but mpirun has started 2 processes' "$folder/log" || fail "the message does not name the number of processes"

status=0
launch=(env "INGOT_MPI=$folder/nowhere.so" "$mpirun" -n 2)
run other threads=2 || status=$?
[ "$status" = 5 ] || fail "without a plug-in it ended with $status"
grep -q './run mpi' "$folder/log" || fail "the message does not say how to build the plug-in"
