#!/usr/bin/env bash
# make_upgrade_fixtures.sh INGOT COMMIT: makes tests/golden/upgrade/COMMIT: run folders, checkpoints, adapters and
# models written by the executable INGOT, built from COMMIT, and its results on them. tests/e2e/upgrade_test.cpp reads
# them with the current program. Run it only with the executable of a former version: files of an old version must not
# change.
#
# Every run uses the CPU level `plain`, which no machine selects by itself, so that a newer program agrees to rounding.
set -euo pipefail
ingot=$(realpath "$1")
commit=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$root/tests/golden/upgrade/$commit
work=$(mktemp -d)
trap 'status=$?; [ $status = 0 ] || cat log >&2; rm -rf "$work"; exit $status' EXIT
cd "$work" # all paths in what is written are relative
export INGOT_HOME=$work/home INGOT_CPU_ISA=plain

# shape/: a llama without weights and with one token per byte; texts and chats; the recipes.
python3 - <<'PYTHON'
import json
from pathlib import Path

special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
rest = [b for b in range(256) if b not in printable]
letters = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(rest))]  # GPT-2's byte characters
vocabulary = {token: i for i, token in enumerate(special + letters)}
added = [{"id": i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
          "special": True} for i, s in enumerate(special)]
tokenizer = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
              "vocab": vocabulary, "merges": []},
}
config = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": len(vocabulary), "hidden_size": 16,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 8, "max_position_embeddings": 128, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True, "initializer_range": 0.05,
    "bos_token_id": 0, "eos_token_id": 0, "torch_dtype": "float32",
}
template = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
            "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
settings = {"tokenizer_class": "GPT2Tokenizer", "bos_token": special[0], "eos_token": special[0],
            "pad_token": special[0], "chat_template": template}
shape = Path("shape")
shape.mkdir()
for name, content in (("tokenizer", tokenizer), ("config", config), ("tokenizer_config", settings)):
    (shape / f"{name}.json").write_text(json.dumps(content) + "\n")

colours = ["red", "green", "blue", "grey"]
animals = ["horse", "fox", "hen", "goat", "cat"]
texts = [f"The {a} is {colours[(i + n) % 4]}. It has {n + 1} friends and is {i + 2} years old."
         for n in range(4) for i, a in enumerate(animals)]
lines = lambda rows: "".join(json.dumps(row) + "\n" for row in rows)
Path("train.jsonl").write_text(lines({"text": t} for t in texts[:16]))
Path("eval.jsonl").write_text(lines({"text": t} for t in texts[16:]))
Path("chat.jsonl").write_text(lines(
    {"messages": [{"role": "user", "content": f"What does the {a} say?"},
                  {"role": "assistant", "content": f"The {a} says nothing in {c}."}]}
    for a in animals for c in colours[:2]))

Path("pretrain.yaml").write_text("""\
name: pretrain
model: shape
init: random
data: {train: train.jsonl, eval: eval.jsonl, format: text, sequence_length: 96}
optimizer: {lr: 1e-2, betas: [0.9, 0.95], weight_decay: 0.1, clip_grad_norm: 1.0}
schedule: {name: cosine, warmup_steps: 5, min_lr: 1e-3}
steps: 80
batch: {global: 16}
precision: fp32
eval: {every: 10, prompts: ["The horse"], sample_tokens: 8}
checkpoint: {every: 40, keep: 1}
device: cpu
threads: 1
""")
# Two ranks with sharded gradients and optimizer state, in fixed point, with 16-bit moments.
Path("ranks.yaml").write_text("""\
name: ranks
model: shape
init: random
data: {train: train.jsonl, format: text, sequence_length: 96}
optimizer: {lr: 1e-2, state_dtype: bf16}
schedule: {name: constant}
steps: 6
batch: {global: 4}
precision: fp32
determinism: bitwise
parallel: {dp: 2, zero: 2}
checkpoint: {every: 3, keep: 1}
device: cpu
threads: 2
""")
Path("lora.yaml").write_text("""\
name: lora
model: base
adapter: {rank: 2, alpha: 8, targets: [all-linear]}
data: {train: chat.jsonl, format: chat, sequence_length: 96}
optimizer: {lr: 2e-2}
schedule: {name: linear, warmup_steps: 2}
steps: 60
batch: {global: 4}
precision: fp32
checkpoint: {keep: 1}
device: cpu
threads: 1
""")
PYTHON

# A run stopped by SIGTERM: its folder, and the events of the same run after it was resumed to its end.
"$ingot" pretrain pretrain.yaml --quiet >log 2>&1 &
run=$!
until grep -qs '"type":"step","step":45,' runs/pretrain/events.jsonl; do :; done
kill "$run"
status=0
wait "$run" || status=$?
[ $status = 130 ] || { echo "error: the run ended before it was stopped; try again" >&2; exit 1; }
cp -R runs stopped
"$ingot" pretrain pretrain.yaml --quiet --resume >log 2>&1
cp -R runs/pretrain/model base

# Finished runs, then continued by a longer recipe.
"$ingot" pretrain ranks.yaml --quiet >log 2>&1
"$ingot" finetune lora.yaml --quiet >log 2>&1
cp -R runs/ranks runs/lora stopped/
"$ingot" pretrain ranks.yaml --quiet --resume steps=12 >log 2>&1
"$ingot" finetune lora.yaml --quiet --resume steps=72 >log 2>&1
mkdir continued
for name in pretrain ranks lora; do cp "runs/$name/events.jsonl" "continued/$name.jsonl"; done

adapter=stopped/lora/adapter
"$ingot" model merge base merged --adapter "$adapter" >log 2>&1
"$ingot" data pack train.jsonl --out packed --model shape --length 96 --quiet >log 2>&1

# The output of that program for them.
mkdir said
generate() { "$ingot" generate --dtype fp32 --threads 1 --max-tokens 24 --prompt "$1" "${@:2}" --json 2>log; }
generate 'The horse' --model base >said/base.json
generate 'What does the fox say?' --chat --model base --adapter "$adapter" >said/adapter.json
generate 'What does the fox say?' --chat --model merged >said/merged.json
for model in base merged; do "$ingot" model inspect "$model" --json >"said/inspect-$model.json" 2>log; done
for name in pretrain ranks lora; do "$ingot" report "stopped/$name" --json >"said/report-$name.json" 2>log; done
rm -f stopped/*/report.html stopped/*/lock

rm -rf "$out"
mkdir -p "$out"
cp -R shape base merged packed continued said ./*.jsonl ./*.yaml "$out/"
cp -R stopped "$out/runs"
cat >"$out/README.md" <<MARKDOWN
# Files of an earlier version

Written by the executable of commit $commit:

    tools/reference/make_upgrade_fixtures.sh INGOT $commit

| | |
|---|---|
| \`shape/\`, \`*.jsonl\`, \`*.yaml\` | the shape of a tiny llama with a token for each byte, data and recipes (written by the script) |
| \`runs/pretrain\` | a run folder stopped by SIGTERM between two checkpoints |
| \`runs/ranks\` | one of two ranks with \`parallel.zero: 2\`, \`determinism: bitwise\` and bf16 moments |
| \`runs/lora\` | a finished fine-tuning run, with its adapter |
| \`continued/NAME.jsonl\` | the events of these runs after that program continued them |
| \`base/\`, \`merged/\` | the model of \`runs/pretrain\`, continued to its end, and the same with the adapter merged in |
| \`packed/\` | \`train.jsonl\`, packed |
| \`said/\` | what that program generates with them, and what its \`model inspect\` and \`report\` say |

\`tests/e2e/upgrade_test.cpp\` continues, serves and reports them with the present program. Everything was computed at the CPU
level \`plain\`, so that the comparison is to rounding on every machine.
MARKDOWN
du -sh "$out" | cut -f1
