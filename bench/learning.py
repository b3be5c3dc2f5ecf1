#!/usr/bin/env python3
"""Does pretraining learn as PyTorch's does? One model, the same initial weights and batches, by Ingot and by PyTorch.

  learning.py gpt2-124m|mpt-125m [--steps N] [--folder FOLDER] [--report FILE.md]

The speeches of data/sotu, in GPT-2's or GPT-NeoX's tokens, 8 sequences of 256 a step, fp32, AdamW with warm-up, cosine,
weight decay and clipping. PyTorch's side is transformers' model on the samples of Megatron-LM's own GPTDataset
(megatron-core); Ingot reads the same .idx and .bin with `data.order: megatron`. Initial weights are transformers'.

What each side leaves in FOLDER (build/learning/MODEL) is not made again: remove it to repeat. The report is a table, and
beside it FILE.tsv with every step and FILE.svg. Exit code 1: the losses of a step differ by more than 0.5 %.
Needs ./run build, and ./run oracles once: it makes build/oracles, whose Python (with matplotlib) runs this.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
INGOT = os.environ.get("INGOT_EXECUTABLE", ROOT / "build/release/ingot")
TOKENIZERS = {"gpt2-124m": "gpt-2", "mpt-125m": "gpt-neox"}
GLOBAL, SEQUENCE, SEED = 8, 256, 1234
LR, MIN_LR, WARMUP, BETAS, EPS, DECAY, CLIP = 6e-4, 6e-5, 20, (0.9, 0.95), 1e-8, 0.1, 1.0
ALLOWED = 0.005


def learning_rate(step, steps):
    """Of the step with this number, from 1: Megatron's and Ingot's warm-up and cosine."""
    if step <= WARMUP:
        return LR * step / (WARMUP + 1)
    t = (step - WARMUP - 1) / max(1, steps - WARMUP - 1)
    return MIN_LR + (LR - MIN_LR) * (1 + math.cos(math.pi * t)) / 2


def make_tokens(model, folder):
    if not (folder / "sotu.idx").exists():
        vocabulary, = (ROOT / "build/llamacpp").glob(f"*/vendor/llama.cpp/models/ggml-vocab-{TOKENIZERS[model]}.gguf")
        subprocess.run([INGOT, "data", "tokenize", ROOT / "data/sotu/train.jsonl", "--model", vocabulary, "--out",
                        folder / "sotu", "--quiet"], check=True)
    return folder / "sotu"


def make_weights(model, folder):
    """transformers' initial weights, as a folder that both sides read."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if not (folder / "initial/config.json").exists():
        torch.manual_seed(SEED)
        config = AutoConfig.from_pretrained(ROOT / "recipes/models" / model)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder / "initial")
    return folder / "initial"


def run_ingot(model, folder, steps):
    recipe = {
        "name": "ingot", "run_dir": str(folder), "model": str(make_weights(model, folder)), "init": "pretrained",
        "tokenizer": None, "precision": "fp32", "device": "cpu", "steps": steps,
        "data": {"train": str(make_tokens(model, folder)), "order": "megatron", "sequence_length": SEQUENCE, "seed": SEED},
        "optimizer": {"lr": LR, "betas": list(BETAS), "eps": EPS, "weight_decay": DECAY, "clip_grad_norm": CLIP},
        "schedule": {"name": "cosine", "warmup_steps": WARMUP, "min_lr": MIN_LR},
        "batch": {"global": GLOBAL, "micro": "auto"},
    }
    events = folder / "ingot/events.jsonl"
    if not events.exists():
        (folder / "recipe.yaml").write_text(json.dumps(recipe, indent=1))
        subprocess.run([INGOT, "pretrain", folder / "recipe.yaml", "--quiet"], check=True)
    found = [json.loads(line) for line in events.read_text().splitlines()]
    return [{"loss": e["loss"], "grad_norm": e["grad_norm"], "lr": e["lr"], "seconds": e["step_s"]}
            for e in found if e["type"] == "step"]


def megatron_samples(prefix, number):
    """Tokens of samples 0 to number - 1, each of SEQUENCE and one more, by megatron-core."""
    sys.path.insert(0, str(ROOT / "tools/reference"))
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron_reference import Tokenizer

    config = GPTDatasetConfig(random_seed=SEED, sequence_length=SEQUENCE, tokenizer=Tokenizer(), reset_position_ids=False,
                              reset_attention_mask=False, eod_mask_loss=False, create_attention_mask=False,
                              blend_per_split=[([str(prefix)], None), None, None])
    data = BlendedMegatronDatasetBuilder(GPTDataset, [number, 0, 0], lambda: True, config).build()[0]
    return [data[n]["tokens"].tolist() + data[n]["labels"].tolist()[-1:] for n in range(number)]


def run_torch(model, folder, steps):
    import torch
    from transformers import AutoModelForCausalLM

    results = folder / "torch.json"
    if results.exists():
        return json.loads(results.read_text())
    samples = torch.tensor(megatron_samples(make_tokens(model, folder), steps * GLOBAL))
    network = AutoModelForCausalLM.from_pretrained(make_weights(model, folder), dtype=torch.float32)
    network.train()
    weights = list(network.parameters())
    optimizer = torch.optim.AdamW([{"params": [w for w in weights if w.dim() > 1], "weight_decay": DECAY},
                                   {"params": [w for w in weights if w.dim() == 1], "weight_decay": 0}],
                                  betas=BETAS, eps=EPS)
    done = []
    for step in range(1, steps + 1):
        began = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        batch = samples[(step - 1) * GLOBAL:step * GLOBAL]
        logits = network(input_ids=batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(weights, CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        done.append({"loss": loss.item(), "grad_norm": norm.item(), "lr": learning_rate(step, steps),
                     "seconds": time.perf_counter() - began})
        print(f"torch step {step}: {done[-1]}", file=sys.stderr, flush=True)
    results.write_text(json.dumps(done))
    return done


def plot(path, model, ours, theirs):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (loss, difference) = pyplot.subplots(2, 1, figsize=(8, 6), sharex=True, height_ratios=[2, 1])
    numbers = range(1, len(ours) + 1)
    loss.plot(numbers, [step["loss"] for step in theirs], label="PyTorch", linewidth=3, color="#bbbbbb")
    loss.plot(numbers, [step["loss"] for step in ours], label="Ingot", linewidth=1, color="#b04a00")
    loss.set_ylabel("loss")
    loss.set_title(f"{model}, the same weights and batches, fp32")
    loss.legend()
    difference.plot(numbers, [abs(a["loss"] / b["loss"] - 1) for a, b in zip(ours, theirs)], linewidth=1, color="#b04a00")
    difference.axhline(ALLOWED, linestyle="--", linewidth=1, color="#888888")
    difference.set_yscale("log")
    difference.set_ylabel("relative difference")
    difference.set_xlabel("step")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=TOKENIZERS)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    folder = (options.folder or ROOT / "build/learning" / options.model).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    ours = run_ingot(options.model, folder, options.steps)
    theirs = run_torch(options.model, folder, options.steps)
    if not len(ours) == len(theirs) == options.steps:
        sys.exit(f"{len(ours)} steps of Ingot and {len(theirs)} of PyTorch are there, not {options.steps}: {folder}")
    for number, (a, b) in enumerate(zip(ours, theirs), 1):
        if abs(a["lr"] - b["lr"]) > 1e-12:
            sys.exit(f"step {number}: learning rates {a['lr']} and {b['lr']} differ: the runs are not the same job")
    apart = [abs(a["loss"] / b["loss"] - 1) for a, b in zip(ours, theirs)]
    worst = max(range(len(apart)), key=apart.__getitem__)
    import torch
    import transformers

    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    lines = [f"# {options.model} learns as in PyTorch ({time.strftime('%Y-%m-%d')})", "",
             f"`bench/learning.py {options.model} --steps {options.steps}`, commit {commit}, torch {torch.__version__}, "
             f"transformers {transformers.__version__}, {os.cpu_count()} CPUs. {GLOBAL} sequences of {SEQUENCE} tokens a step of "
             f"data/sotu in {TOKENIZERS[options.model]}'s tokens, fp32, from transformers' initial weights; AdamW "
             f"(lr {LR}, {WARMUP} steps of warm-up, cosine to {MIN_LR}, betas {BETAS}, weight decay {DECAY} of matrices, clipping at "
             f"{CLIP}). PyTorch's batches come from megatron-core's GPTDataset.", "",
             f"**Largest relative difference of the loss: {max(apart):.2e} (step {worst + 1}); {ALLOWED} was allowed.** Mean "
             f"{sum(apart) / len(apart):.2e}.", "",
             "| step | Ingot | PyTorch | relative difference | gradient norm, Ingot | PyTorch |", "|---|---|---|---|---|---|"]
    shown = [1, *range(10, options.steps + 1, 10)]
    for number in shown:
        a, b = ours[number - 1], theirs[number - 1]
        lines.append(f"| {number} | {a['loss']:.6f} | {b['loss']:.6f} | {apart[number - 1]:.1e} | {a['grad_norm']:.5f} | "
                     f"{b['grad_norm']:.5f} |")
    if options.report:
        lines[4:4] = [f"![losses]({options.report.with_suffix('.svg').name})", ""]
        plot(options.report.with_suffix(".svg"), options.model, ours, theirs)
        with open(options.report.with_suffix(".tsv"), "w", newline="") as file:
            rows = csv.writer(file, delimiter="\t", lineterminator="\n")
            rows.writerow(["step", "ingot_loss", "torch_loss", "ingot_grad_norm", "torch_grad_norm", "lr"])
            for number, (a, b) in enumerate(zip(ours, theirs), 1):
                rows.writerow([number, a["loss"], b["loss"], a["grad_norm"], b["grad_norm"], a["lr"]])
        options.report.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    if max(apart) > ALLOWED:
        sys.exit(f"step {worst + 1}: the losses differ by {max(apart):.2%}")


if __name__ == "__main__":
    main()
