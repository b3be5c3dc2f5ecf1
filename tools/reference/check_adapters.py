#!/usr/bin/env python3
"""PEFT adapters of every kind, read by Ingot, compared with peft. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_adapters.py

For tiny random models of several families, peft writes an adapter with random values: rsLoRA, DoRA, rank and alpha patterns,
targets by regular expression, excluded modules, selected layers, modules_to_save, trained biases, transposed layers (GPT-2).
The logits of `ingot score --adapter`, of Ingot on the model that `ingot model merge` writes, and of transformers on that model
are compared with peft's: |difference| / |expected| must be below 8 sqrt(n) 2^-24, with n = 903 terms on the longest chain of
sums. Settings that Ingot does not support must be refused with a message that names them. Exit status 1 at the first difference.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model

from compare_logits import INGOT, distance, ingot, ingot_logits, torch_logits
from model_families import FAMILIES, Case, load, new_model, randomise, rope, save

IDS = [5, 31, 12, 40, 9, 24, 3, 3, 41, 40, 22, 7]

LLAMA = dict(vocab_size=43, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=64, rope_parameters=rope(), attention_bias=True,
             tie_word_embeddings=False)
MODELS = {
    "llama": LLAMA,
    "gpt2": dict(vocab_size=43, n_positions=40, n_embd=32, n_layer=2, n_head=4),
    "gpt_neox": dict(vocab_size=43, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
                     max_position_embeddings=64, rope_parameters=rope(partial_rotary_factor=0.25), hidden_dropout=0.0,
                     attention_dropout=0.0),
    "mixtral": {key: value for key, value in LLAMA.items() if key != "attention_bias"}
    | dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
    "mpt": dict(d_model=36, n_heads=6, n_layers=2, max_seq_len=64, vocab_size=43, no_bias=True,
                attn_config=dict(alibi=True)),
}
ADAPTERS = [
    ("llama", "rsLoRA", dict(r=4, lora_alpha=3, use_rslora=True, target_modules="all-linear")),
    ("llama", "DoRA", dict(r=4, lora_alpha=6, use_dora=True, target_modules=["q_proj", "down_proj"])),
    ("llama", "patterns", dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "up_proj"],
                               rank_pattern={"layers.1.self_attn.q_proj": 2, "up_proj": 3},
                               alpha_pattern={"v_proj": 9, r".*\.2\.mlp\.up_proj": 5}, use_rslora=True)),
    ("llama", "regular expression", dict(r=2, lora_alpha=4, target_modules=r".*\.(0|2)\..*\.(q|gate)_proj")),
    ("llama", "excluded and layers", dict(r=2, lora_alpha=4, target_modules=["k_proj", "o_proj", "down_proj"],
                                          exclude_modules=r".*\.1\.mlp.*", layers_to_transform=[0, 1])),
    ("llama", "modules_to_save", dict(r=2, lora_alpha=4, target_modules=["q_proj"],
                                      modules_to_save=["lm_head", "input_layernorm", "up_proj"])),
    ("llama", "bias all", dict(r=2, lora_alpha=4, target_modules=["q_proj"], bias="all")),
    ("gpt2", "all linear", dict(r=4, lora_alpha=6, target_modules="all-linear")),
    ("gpt2", "DoRA", dict(r=4, lora_alpha=6, use_dora=True, target_modules=["c_attn", "c_proj"])),
    ("gpt2", "modules_to_save", dict(r=2, lora_alpha=4, target_modules=["c_attn"], modules_to_save=["c_fc"])),
    ("gpt2", "what peft targets by itself", dict(r=2, lora_alpha=4)),
    ("gpt_neox", "fused", dict(r=4, lora_alpha=6, target_modules=["query_key_value", "dense"])),
    ("gpt_neox", "DoRA", dict(r=4, lora_alpha=6, use_dora=True, target_modules="all-linear")),
    ("mixtral", "attention", dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "o_proj"])),
    ("mpt", "fused", dict(r=4, lora_alpha=6, target_modules=["Wqkv", "down_proj"])),
]
# Settings that peft supports and Ingot does not, with a word of the error message. With transformers 5, peft cannot
# target an expert's layers, only the stacked parameters; check_peft.py tests adapters of the layers.
REFUSED = [
    ("llama", dict(r=4, target_modules=["q_proj"], lora_bias=True), '"lora_bias"'),
    ("mixtral", dict(r=4, target_modules=["w1", "w2", "w3"]), '"target_parameters"'),
]


def make_base(family, base):
    case = Case(MODELS[family], [], stored=torch.float32, experts=FAMILIES[family]["a"].experts)
    save(randomise(new_model(family, case), torch.Generator().manual_seed(3)), base, family, case)


def check_refusal(family, settings, word, work):
    make_base(family, work / "base")
    get_peft_model(load(work / "base"), LoraConfig(task_type="CAUSAL_LM", **settings)).save_pretrained(work / "adapter")
    for command in (["score", "--model", work / "base", "--ids", "1,2"], ["model", "merge", work / "base", work / "merged"]):
        done = subprocess.run([INGOT, *map(str, command), "--adapter", work / "adapter"], capture_output=True, text=True)
        if done.returncode == 0 or word not in done.stderr or "is not supported" not in done.stderr:
            sys.exit(f"{family}: an adapter with {word} is not refused by name: exit {done.returncode}, {done.stderr}")
    print(f"{family}: refused: {done.stderr[done.stderr.index(word):].strip()}")


def check(family, what, settings, work):
    base = work / "base"
    make_base(family, base)
    model = get_peft_model(load(base), LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings))
    random = torch.Generator().manual_seed(4)
    with torch.no_grad():  # trained tensors get values other than their initial ones
        for name, weight in model.named_parameters():
            if weight.requires_grad and "lora_A" not in name and "lora_B" not in name:
                weight.mul_(1 + 0.3 * torch.randn(weight.shape, generator=random)).add_(
                    0.05 * torch.randn(weight.shape, generator=random))
    model.save_pretrained(work / "adapter")
    expected = torch_logits(model.eval(), IDS)

    products = 7 * 3 * 43
    bound = 8 * products**0.5 * 2.0**-24
    effect = distance(torch_logits(load(base), IDS), expected)
    if not effect > 1000 * bound:
        sys.exit(f"{family}, {what}: the adapter has no effect, so nothing was compared")
    ingot("model", "merge", base, "--adapter", work / "adapter", work / "merged", "--dtype", "fp32")
    errors = {"beside the base": distance(ingot_logits(base, IDS, work, "--adapter", work / "adapter"), expected),
              "merged, by ingot": distance(ingot_logits(work / "merged", IDS, work), expected),
              "merged, by transformers": distance(torch_logits(load(work / "merged"), IDS), expected)}
    print(f"{family}, {what}: " + ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
          + f"; bound {bound:.1e}; the adapter changes logits by {effect:.1e}")
    for name, error in errors.items():
        if not error < bound:
            sys.exit(f"{family}, {what}, {name}: logits differ by {error:.1e}")


def main():
    for family, what, settings in ADAPTERS:
        with tempfile.TemporaryDirectory() as work:
            check(family, what, settings, Path(work))
    for family, settings, word in REFUSED:
        with tempfile.TemporaryDirectory() as work:
            check_refusal(family, settings, word, Path(work))


if __name__ == "__main__":
    main()
