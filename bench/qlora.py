#!/usr/bin/env python3
"""Compares LoRA on quantized bases with PyTorch: SmolLM2 with bases in bf16, int8 and int4, trained by Ingot and by peft.

  qlora.py MODEL [--steps N] [--batch N] [--compare N] [--folder FOLDER] [--report FILE.md]

MODEL is a llama with its tokenizer (a Hugging Face folder or a GGUF file of SmolLM2-135M). Adapters have rank 16 on all linear
layers; the data are the speeches of data/sotu in sequences of 256. All computation is in fp32, so that only the base differs. Ingot
quantizes the base at loading (`weights: int8`, `int4`). PyTorch runs transformers and peft on the values of that base: gguf-py,
llama.cpp's package, quantizes MODEL's matrices and returns their values. Both programs start with Ingot's initial A and B = 0, and
train on the samples of Megatron-LM's GPTDataset. With --compare PyTorch, which is slower, runs only the first steps of the same
schedule.

Results in FOLDER (build/qlora) are reused: remove it to repeat. Exit code 1: a loss of a step or of held-out data, or a gradient
norm, of Ingot and PyTorch on the same base differ by more than 0.1 %.
Needs ./run build, and ./run oracles once: it makes build/oracles, whose Python runs this.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

from learning import BETAS, CLIP, EPS, SEED, SEQUENCE, WARMUP, Training, held_out_samples, megatron_samples, train_torch
from repository import INGOT, ROOT, commit, write_report

BASES = {"bf16": "auto", "int8": "int8", "int4": "int4"}  # values of a recipe's `weights`; for a model in bf16, auto is exact
LR = 5e-4
ALLOWED = 0.001
HELD_OUT_CHARACTERS = 16000


def make_model(source, folder):
    """The model in bf16, which both programs read."""
    if not (folder / "model/config.json").exists():
        subprocess.run([INGOT, "model", "convert", source, folder / "model", "--dtype", "bf16"], check=True)
    return folder / "model"


def make_tokens(folder, part):
    """PART.idx and PART.bin; for the held-out part only the beginning of the speeches."""
    prefix = folder / part
    if not prefix.with_suffix(".idx").exists():
        text = ROOT / f"data/sotu/{part}.jsonl"
        if part == "heldout":
            first = json.loads(text.read_text().splitlines()[0])["text"][:HELD_OUT_CHARACTERS]
            text = folder / "heldout.jsonl"
            text.write_text(json.dumps({"text": first}) + "\n")
        subprocess.run([INGOT, "data", "tokenize", text, "--model", folder / "model", "--out", prefix, "--quiet"], check=True)
    return prefix


def finetune(folder, name, weights, steps, batch, lr, held_out):
    """Runs Ingot unless the result exists; returns its run folder."""
    recipe = {
        "name": name, "run_dir": str(folder), "model": str(folder / "model"), "precision": "fp32", "weights": weights,
        "device": "cpu", "steps": steps, "adapter": {"rank": 16, "alpha": 32, "targets": ["all-linear"]},
        "data": {"train": str(make_tokens(folder, "train")), "order": "megatron", "sequence_length": SEQUENCE, "seed": SEED},
        "optimizer": {"lr": lr, "betas": list(BETAS), "eps": EPS, "weight_decay": 0, "clip_grad_norm": CLIP},
        "schedule": {"name": "cosine", "warmup_steps": min(WARMUP, steps - 1), "min_lr": lr / 10},
        "batch": {"global": batch, "micro": "auto"}, "eval": {"every": 0},
    }
    if held_out:
        recipe["data"]["eval"] = str(make_tokens(folder, "heldout"))
        recipe["eval"] = {"every": steps}
    if not (folder / name / "adapter/adapter_config.json").exists():
        file = folder / f"{name}.yaml"
        file.write_text(json.dumps(recipe, indent=1))
        subprocess.run([INGOT, "finetune", file, "--quiet"], check=True)
    return folder / name


def run_ingot(base, folder, steps, batch):
    """The losses and gradient norms of the steps, and the held-out losses before and after them."""
    run = finetune(folder, base, BASES[base], steps, batch, LR, True)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return {"steps": [[e["loss"], e["grad_norm"]] for e in events if e["type"] == "step"],
            "held_out": [e["loss"] for e in events if e["type"] == "eval"]}


def base_values(network, base):
    """Replaces the matrices of a llama by the values of the quantized base."""
    import gguf
    import torch

    if base == "bf16":
        return
    for name, weight in network.named_parameters():
        if weight.dim() != 2:
            continue
        linear = ".layers." in name
        kind = gguf.GGMLQuantizationType.Q4_0 if base == "int4" and linear else gguf.GGMLQuantizationType.Q8_0
        blocks = gguf.quants.quantize(weight.detach().numpy(), kind)
        weight.data = torch.from_numpy(gguf.quants.dequantize(blocks, kind).reshape(weight.shape).copy())


def run_torch(base, folder, steps, batch, compare):
    """Like run_ingot, for the first `compare` of `steps` steps; the final held-out losses only if these are all."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    results = folder / f"torch-{base}.json"
    if results.exists():
        return json.loads(results.read_text())
    network = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    base_values(network, base)
    # A learning rate that changes nothing: A keeps its initial values.
    drawn = finetune(folder, "drawn", "auto", 1, 1, 1e-30, False)
    network = PeftModel.from_pretrained(network, folder / drawn / "adapter", is_trainable=True)
    weights = [w for w in network.parameters() if w.requires_grad]
    for name, weight in network.named_parameters():
        if "lora_B" in name:
            weight.data.zero_()
    samples = megatron_samples(make_tokens(folder, "train"), compare * batch)
    unseen = held_out_samples(make_tokens(folder, "heldout"))
    done, held_out = train_torch(Training(network, [{"params": weights, "weight_decay": 0}], samples, unseen, batch, LR, steps,
                                          compare), {0, steps}, f"torch, {base},")
    found = {"steps": [[step["loss"], step["grad_norm"]] for step in done], "held_out": list(held_out.values())}
    results.write_text(json.dumps(found))
    return found


def apart(ours, theirs):
    return [abs(mine / other - 1) for mine, other in zip(ours, theirs)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--compare", type=int)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/qlora")
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    steps, folder = options.steps, options.folder.resolve()
    compare = min(options.compare or steps, steps)
    if steps <= WARMUP:
        sys.exit(f"--steps {steps}: more than the {WARMUP} of warm-up")
    import gguf  # noqa: F401 (a missing package is reported before hours of computing)
    import peft
    import torch
    import transformers

    # Results in the folder are reused only for the same job and commit.
    folder.mkdir(parents=True, exist_ok=True)
    job = json.dumps([str(pathlib.Path(options.model).resolve()), os.stat(options.model).st_size, steps, options.batch, compare,
                      LR, commit()])
    if (folder / "job").exists() and (folder / "job").read_text() != job:
        sys.exit(f"{folder} is of another job: remove it, or name another --folder")
    (folder / "job").write_text(job)
    make_model(options.model, folder)
    ours = {base: run_ingot(base, folder, steps, options.batch) for base in BASES}
    theirs = {base: run_torch(base, folder, steps, options.batch, compare) for base in BASES}
    for sides, done in ((ours, steps), (theirs, compare)):
        for found in sides.values():
            if len(found["steps"]) != done or len(found["held_out"]) != (2 if done == steps else 1):
                sys.exit(f"{folder} is of another number of steps than {done}, or of an interrupted run: remove it")
    worst = {}
    for base in BASES:
        losses = [[step[0] for step in found["steps"]] for found in (ours[base], theirs[base])]
        norms = [[step[1] for step in found["steps"]] for found in (ours[base], theirs[base])]
        worst[base] = (max(apart(*losses)), max(apart(*norms)),
                       max(apart(ours[base]["held_out"], theirs[base]["held_out"])))
    span = "" if compare == steps else f": the first {compare} steps"
    lines = [f"# LoRA on a quantised base beside PyTorch{span} ({time.strftime('%Y-%m-%d')})", "",
             f"`bench/qlora.py {pathlib.Path(options.model).name} --steps {steps} --batch {options.batch} --compare {compare}`, commit "
             f"{commit()}, torch {torch.__version__}, transformers {transformers.__version__}, peft "
             f"{peft.__version__}, {os.cpu_count()} CPUs. Rank 16, alpha 32, all linear layers; {options.batch} sequences of "
             f"{SEQUENCE} tokens of data/sotu a step, fp32; AdamW (lr {LR}, {WARMUP} steps of warm-up, cosine to a tenth, betas "
             f"{BETAS}, clipping at {CLIP}). PyTorch computes with the base's values as gguf-py quantises and decodes them.", "",
             f"Ingot and PyTorch on the same base, largest relative difference over steps 1 to {compare}, and of the held-out "
             f"losses before{' and after' if compare == steps else ''}:", "",
             "| base | loss of a step | gradient norm of a step | held-out loss |", "|---|---|---|---|",
             *(f"| {base} | {loss:.1e} | {norm:.1e} | {held:.1e} |" for base, (loss, norm, held) in worst.items()), "",
             f"{ALLOWED} was allowed. What the base's rounding does, by Ingot:", "",
             "| base | held-out loss before | after | beside bf16's, after | training loss, last 10 steps |", "|---|---|---|---|---|"]
    for base in BASES:
        before, after = ours[base]["held_out"]
        last = [step[0] for step in ours[base]["steps"][-10:]]
        lines.append(f"| {base} | {before:.4f} | {after:.4f} | {after - ours['bf16']['held_out'][1]:+.4f} | "
                     f"{sum(last) / len(last):.4f} |")
    lines += ["", "| step | " + " | ".join(f"{base}, Ingot | PyTorch" for base in BASES) + " |", "|---" * 7 + "|"]
    for number in sorted({1, *range(5, steps + 1, 5), compare, steps}):
        pairs = [f"{found[base]['steps'][number - 1][0]:.6f}" if number <= len(found[base]["steps"]) else ""
                 for base in BASES for found in (ours, theirs)]
        lines.append(f"| {number} | " + " | ".join(pairs) + " |")
    write_report("\n".join(lines), options.report)
    # NaN never counts as within the bound.
    for base, found in worst.items():
        if not all(one <= ALLOWED for one in found):
            sys.exit(f"{base}: Ingot's and PyTorch's losses or gradient norms differ by {max(found):.2%}")


if __name__ == "__main__":
    main()
