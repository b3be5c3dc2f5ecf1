#!/usr/bin/env python3
"""LoRA adapters between Ingot and peft, both ways. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_peft.py

* An adapter that `ingot finetune` trained loads in peft, and gives the logits of `ingot score --adapter`.
* An adapter that peft made (random A and B, rsLoRA, some layers only) gives the same logits in Ingot.
* Each of them merged by `ingot model merge`, read by transformers and by `ingot score`, gives the logits of peft's
  merge_and_unload.

Exit status 1 at the first difference.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2]
INGOT = os.environ.get("INGOT_EXECUTABLE", str(ROOT / "build/release/ingot"))
IDS = [5, 77, 12, 130, 9, 64, 3, 3, 101, 40, 22, 7]


def ingot(*arguments):
    done = subprocess.run([INGOT, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        sys.exit(f"ingot {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")


def base_model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def torch_logits(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor([IDS])).logits[0].numpy()


def ingot_logits(folder, work, *more):
    out = work / "logits.npy"
    ingot("score", "--model", folder, *more, "--ids", ",".join(map(str, IDS)), "--dtype", "fp32", "--logits-out", out)
    return np.load(out)


def distance(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def compare(what, model, folder, adapter, work):
    """Logits of IDS in fp32; the bound is tolerance(f32, length) of src/tensor/tolerance.h over the layers' products."""
    expected = torch_logits(model)
    config = json.loads((folder / "config.json").read_text())
    length = 7 * config["num_hidden_layers"] * max(config["vocab_size"], config["hidden_size"], config["intermediate_size"])
    bound = 8 * length**0.5 * 2.0**-24
    effect = distance(torch_logits(base_model(folder)), expected)
    if not effect > 100 * bound:
        sys.exit(f"{what}: the adapter does nothing, so nothing was compared")

    merged = work / f"{adapter.name}-merged"
    ingot("model", "merge", folder, "--adapter", adapter, merged, "--dtype", "fp32")
    unloaded = torch_logits(model.merge_and_unload())  # changes the model: after `expected`
    errors = {
        "adapter": distance(ingot_logits(folder, work, "--adapter", adapter), expected),
        "merged, by transformers": distance(torch_logits(base_model(merged)), unloaded),
        "merged, by ingot": distance(ingot_logits(merged, work), unloaded),
    }
    told = ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
    print(f"{what}: errors: {told}; bound {bound:.1e}; the adapter changes logits by {effect:.1e}")
    for name, error in errors.items():
        if not error < bound:
            sys.exit(f"{what}, {name}: logits differ")


def main():
    with tempfile.TemporaryDirectory() as work:
        check(Path(work))


def check(work):
    tiny = ROOT / "recipes/models/tiny"
    data = work / "train.jsonl"
    data.write_text("".join(json.dumps({"text": f"Sentence {i} is about {i * i}."}) + "\n" for i in range(64)))
    recipe = work / "recipe.yaml"
    recipe.write_text(
        f"name: base\nmodel: {tiny}\ninit: random\nprecision: fp32\nsteps: 5\nbatch: {{global: 2}}\n"
        f"data: {{train: {data}, sequence_length: 64}}\noptimizer: {{lr: 1e-3}}\nrun_dir: {work}\n"
    )
    ingot("pretrain", recipe)
    base = work / "base/model"
    ingot("finetune", recipe, f"model={base}", "init=pretrained", "name=lora", "steps=20", "optimizer.lr=1e-2",
          "adapter.rank=4", "adapter.alpha=16", "adapter.dropout=0.1")
    adapter = work / "lora/adapter"
    compare("trained by ingot", PeftModel.from_pretrained(base_model(base), adapter).eval(), base, adapter, work)

    torch.manual_seed(3)
    for name, settings in {
        "peft, all linear": dict(r=4, lora_alpha=8, target_modules="all-linear"),
        "peft, rsLoRA on q and down": dict(r=8, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "down_proj"]),
    }.items():
        folder = ROOT / "tests/golden/llama/a"
        model = get_peft_model(base_model(folder), LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings))
        saved = work / name.replace(" ", "-").replace(",", "")
        model.save_pretrained(saved)
        compare(name, model.eval(), folder, saved, work)


if __name__ == "__main__":
    main()
