#!/usr/bin/env python3
"""Compares pretraining with PyTorch: one model with the same initial weights and batches, trained by Ingot and by PyTorch.

  learning.py gpt2-124m|mpt-125m|tiny [--steps N] [--folder FOLDER] [--report FILE.md]

The data are the speeches of data/sotu in GPT-2's, GPT-NeoX's or the tiny model's tokens: 8 sequences of 256 per step, fp32, AdamW
with warm-up, cosine, weight decay and clipping. PyTorch trains transformers' model on the samples of Megatron-LM's GPTDataset
(megatron-core); Ingot reads the same .idx and .bin with `data.order: megatron`. The initial weights are transformers'. tiny has its
recipe's 600 steps and learning rate, and both programs evaluate the held-out speeches, too.

Results in FOLDER (build/learning/MODEL) are reused: remove it to repeat. The report is a table, with FILE.tsv of every step and
FILE.svg; it names Ingot's commit. Exit code 1: the losses of a step, or the held-out ones, differ by more than 0.5 %.
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
from typing import NamedTuple

from repository import INGOT, ROOT, commit, tokens

GLOBAL, SEQUENCE, SEED = 8, 256, 1234
WARMUP, BETAS, EPS, DECAY, CLIP = 20, (0.9, 0.95), 1e-8, 0.1, 1.0
ALLOWED = 0.005


class Job(NamedTuple):
    vocabulary: str  # a name for repository.vocabulary
    steps: int
    lr: float
    eval_every: int  # steps; 0: no evaluation


JOBS = {"gpt2-124m": Job("gpt-2", 200, 6e-4, 0), "mpt-125m": Job("gpt-neox", 200, 6e-4, 0),
        "tiny": Job("tiny", 600, 1.5e-3, 50)}


def learning_rate(step, steps, most):
    """The learning rate of a step (from 1): the warm-up and cosine of Megatron and Ingot, down to a tenth."""
    if step <= WARMUP:
        return most * step / (WARMUP + 1)
    t = (step - WARMUP - 1) / max(1, steps - WARMUP - 1)
    return most / 10 + (most - most / 10) * (1 + math.cos(math.pi * t)) / 2


def make_tokens(model, folder, part="train"):
    return tokens(JOBS[model].vocabulary, folder / part, part)


def make_weights(model, folder):
    """transformers' initial weights, in a folder that both programs read."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if not (folder / "initial/config.json").exists():
        torch.manual_seed(SEED)
        config = AutoConfig.from_pretrained(ROOT / "recipes/models" / model)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder / "initial")
    return folder / "initial"


def run_ingot(model, folder, steps):
    """The results of every step, and the held-out losses by the number of steps before them."""
    job = JOBS[model]
    recipe = {
        "name": "ingot", "run_dir": str(folder), "model": str(make_weights(model, folder)), "init": "pretrained",
        "tokenizer": None, "precision": "fp32", "device": "cpu", "steps": steps,
        "data": {"train": str(make_tokens(model, folder)), "order": "megatron", "sequence_length": SEQUENCE, "seed": SEED},
        "optimizer": {"lr": job.lr, "betas": list(BETAS), "eps": EPS, "weight_decay": DECAY, "clip_grad_norm": CLIP},
        "schedule": {"name": "cosine", "warmup_steps": WARMUP, "min_lr": job.lr / 10},
        "batch": {"global": GLOBAL, "micro": "auto"},
    }
    if job.eval_every:
        recipe["data"]["eval"] = str(make_tokens(model, folder, "heldout"))
        recipe["eval"] = {"every": job.eval_every}
    events = folder / "ingot/events.jsonl"
    if not events.exists():
        (folder / "recipe.yaml").write_text(json.dumps(recipe, indent=1))
        (folder / "commit").write_text(commit())
        subprocess.run([INGOT, "pretrain", folder / "recipe.yaml", "--quiet"], check=True)
    found = [json.loads(line) for line in events.read_text().splitlines()]
    steps = [{"loss": e["loss"], "grad_norm": e["grad_norm"], "lr": e["lr"]} for e in found if e["type"] == "step"]
    return steps, {e["step"]: e["loss"] for e in found if e["type"] == "eval"}


def megatron_samples(prefix, number):
    """The tokens of samples 0 to number - 1, SEQUENCE + 1 each, by megatron-core."""
    sys.path.insert(0, str(ROOT / "tools/reference"))
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron_reference import Tokenizer

    config = GPTDatasetConfig(random_seed=SEED, sequence_length=SEQUENCE, tokenizer=Tokenizer(), reset_position_ids=False,
                              reset_attention_mask=False, eod_mask_loss=False, create_attention_mask=False,
                              blend_per_split=[([str(prefix)], None), None, None])
    data = BlendedMegatronDatasetBuilder(GPTDataset, [number, 0, 0], lambda: True, config).build()[0]
    return [data[n]["tokens"].tolist() + data[n]["labels"].tolist()[-1:] for n in range(number)]


def held_out_samples(prefix):
    """All complete samples of a small data set."""
    return megatron_samples(prefix, (prefix.with_suffix(".bin").stat().st_size // 2 - 1) // SEQUENCE)


class Training(NamedTuple):
    """The arguments of train_torch."""
    network: object  # a transformers model
    groups: list  # the optimizer's parameter groups: {"params": [...], "weight_decay": 0.1}
    samples: list  # for all steps, SEQUENCE + 1 tokens each
    unseen: list  # held-out samples, or none
    batch: int
    lr: float  # peak
    schedule: int  # steps of the schedule
    steps: int  # steps to run


def train_torch(job, evaluated_after, label):
    """Every step's loss, gradient norm and learning rate, and the held-out losses by the number of steps before them."""
    import torch

    job.network.train()
    optimizer = torch.optim.AdamW(job.groups, betas=BETAS, eps=EPS)
    weights = [w for group in optimizer.param_groups for w in group["params"]]
    samples, unseen = torch.tensor(job.samples), torch.tensor(job.unseen)
    steps, held_out = [], {}

    def mean_loss(rows):
        logits = job.network(input_ids=rows[:, :-1], use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())

    def evaluate(step):
        if step in evaluated_after:
            with torch.no_grad():
                held_out[step] = sum(mean_loss(part).item() * len(part) for part in unseen.split(job.batch)) / len(unseen)

    evaluate(0)
    for step in range(1, job.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, job.schedule, job.lr)
        loss = mean_loss(samples[(step - 1) * job.batch:step * job.batch])
        loss.backward()
        # torch's clip_grad_norm_ sums squares in fp32: the norm of 10^8 gradients comes out 0.1 % too small.
        norm = torch.stack([w.grad.double().norm() for w in weights]).norm()
        torch.nn.utils.clip_grads_with_norm_(weights, CLIP, norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps.append({"loss": loss.item(), "grad_norm": norm.item(), "lr": learning_rate(step, job.schedule, job.lr)})
        print(f"{label} step {step}: {steps[-1]}", file=sys.stderr, flush=True)
        evaluate(step)
    return steps, held_out


def run_torch(model, folder, steps):
    """Like run_ingot."""
    import torch
    from transformers import AutoModelForCausalLM

    job = JOBS[model]
    results = folder / "torch.json"
    if results.exists():
        kept = json.loads(results.read_text())
        return kept["steps"], {int(step): loss for step, loss in kept["held_out"].items()}
    network = AutoModelForCausalLM.from_pretrained(make_weights(model, folder), dtype=torch.float32)
    weights = list(network.parameters())
    groups = [{"params": [w for w in weights if w.dim() > 1], "weight_decay": DECAY},
              {"params": [w for w in weights if w.dim() == 1], "weight_decay": 0}]
    samples = megatron_samples(make_tokens(model, folder), steps * GLOBAL)
    unseen = held_out_samples(make_tokens(model, folder, "heldout")) if job.eval_every else []
    evaluated_after = {*range(0, steps, job.eval_every), steps} if job.eval_every else set()
    done, held_out = train_torch(Training(network, groups, samples, unseen, GLOBAL, job.lr, steps, steps), evaluated_after,
                                 "torch")
    results.write_text(json.dumps({"steps": done, "held_out": held_out}))
    return done, held_out


def plot(path, model, ours, theirs, held_out):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (loss, difference) = pyplot.subplots(2, 1, figsize=(8, 6), sharex=True, height_ratios=[2, 1])
    numbers = range(1, len(ours) + 1)
    loss.plot(numbers, [step["loss"] for step in theirs], label="PyTorch", linewidth=3, color="#bbbbbb")
    loss.plot(numbers, [step["loss"] for step in ours], label="Ingot", linewidth=1, color="#b04a00")
    if held_out:
        steps, mine, other = zip(*held_out)
        loss.plot(steps, other, "o", label="PyTorch, held out", markersize=8, color="#bbbbbb")
        loss.plot(steps, mine, ".-", label="Ingot, held out", linewidth=1, color="#00508a")
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
    parser.add_argument("model", choices=JOBS)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    model, job = options.model, JOBS[options.model]
    steps = options.steps or job.steps
    folder = (options.folder or ROOT / "build/learning" / model).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    ours, our_held_out = run_ingot(model, folder, steps)
    theirs, their_held_out = run_torch(model, folder, steps)
    if not len(ours) == len(theirs) == steps:
        sys.exit(f"{len(ours)} steps of Ingot and {len(theirs)} of PyTorch are there, not {steps}: {folder}")
    if our_held_out.keys() != their_held_out.keys():
        sys.exit(f"held-out data were evaluated after steps {list(our_held_out)} and {list(their_held_out)}")
    for number, (a, b) in enumerate(zip(ours, theirs), 1):
        if abs(a["lr"] - b["lr"]) > 1e-12:
            sys.exit(f"step {number}: learning rates {a['lr']} and {b['lr']} differ: the runs are not the same job")
    held_out = [(step, our_held_out[step], their_held_out[step]) for step in sorted(our_held_out)]
    apart = [abs(a["loss"] / b["loss"] - 1) for a, b in zip(ours, theirs)]
    worst = max(range(len(apart)), key=apart.__getitem__)
    worst_held_out = max((abs(mine / other - 1) for _, mine, other in held_out), default=0)
    import torch
    import transformers

    lines = [f"# {model} learns as in PyTorch ({time.strftime('%Y-%m-%d')})", "",
             f"`bench/learning.py {model} --steps {steps}`, commit {(folder / 'commit').read_text()}, torch {torch.__version__}, "
             f"transformers {transformers.__version__}, {os.cpu_count()} CPUs. {GLOBAL} sequences of {SEQUENCE} tokens a step of "
             f"data/sotu in {job.vocabulary}'s tokens, fp32, from transformers' initial weights; AdamW "
             f"(lr {job.lr}, {WARMUP} steps of warm-up, cosine to a tenth, betas {BETAS}, weight decay {DECAY} of matrices, "
             f"clipping at {CLIP}). PyTorch's batches come from megatron-core's GPTDataset.", "",
             f"**Largest relative difference of the loss: {max(apart):.2e} (step {worst + 1}); {ALLOWED} was allowed.** Mean "
             f"{sum(apart) / len(apart):.2e}.", ""]
    if held_out:
        lines += [f"**Largest relative difference of the held-out loss: {worst_held_out:.2e}.**", "",
                  "| after step | held-out loss, Ingot | PyTorch |", "|---|---|---|",
                  *(f"| {step} | {mine:.6f} | {other:.6f} |" for step, mine, other in held_out), ""]
    lines += ["| step | Ingot | PyTorch | relative difference | gradient norm, Ingot | PyTorch |", "|---|---|---|---|---|---|"]
    for number in [1, *range(10, steps + 1, 10)]:
        a, b = ours[number - 1], theirs[number - 1]
        lines.append(f"| {number} | {a['loss']:.6f} | {b['loss']:.6f} | {apart[number - 1]:.1e} | {a['grad_norm']:.5f} | "
                     f"{b['grad_norm']:.5f} |")
    if options.report:
        lines[4:4] = [f"![losses]({options.report.with_suffix('.svg').name})", ""]
        plot(options.report.with_suffix(".svg"), model, ours, theirs, held_out)
        with open(options.report.with_suffix(".tsv"), "w", newline="") as file:
            rows = csv.writer(file, delimiter="\t", lineterminator="\n")
            rows.writerow(["step", "ingot_loss", "torch_loss", "ingot_grad_norm", "torch_grad_norm", "lr"])
            for number, (a, b) in enumerate(zip(ours, theirs), 1):
                rows.writerow([number, a["loss"], b["loss"], a["grad_norm"], b["grad_norm"], a["lr"]])
        options.report.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    # NaN never counts as within the bound.
    if not all(difference <= ALLOWED for difference in apart):
        sys.exit(f"step {worst + 1}: the losses differ by {max(apart):.2%}")
    if not all(abs(mine / other - 1) <= ALLOWED for _, mine, other in held_out):
        sys.exit(f"the held-out losses differ by {worst_held_out:.2%}")


if __name__ == "__main__":
    main()
