#!/usr/bin/env python3
"""LoRA adapters between Ingot and peft, both ways. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_peft.py

* An adapter that `ingot finetune` trained loads in peft, and gives the logits of `ingot score --adapter`.
* An adapter that peft made (random A and B, rsLoRA, some layers only) gives the same logits in Ingot.

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


def compare(what, model, folder, adapter, work):
    """Logits of IDS in fp32; the bound is tolerance(f32, length) of src/tensor/tolerance.h over the layers' products."""
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([IDS])).logits[0].numpy()
        plain = base_model(folder)(input_ids=torch.tensor([IDS])).logits[0].numpy()
    out = work / "logits.npy"
    ids = ",".join(map(str, IDS))
    ingot("score", "--model", folder, "--adapter", adapter, "--ids", ids, "--dtype", "fp32", "--logits-out", out)
    found = np.load(out)
    config = json.loads((folder / "config.json").read_text())
    length = 7 * config["num_hidden_layers"] * max(config["vocab_size"], config["hidden_size"], config["intermediate_size"])
    bound = 8 * length**0.5 * 2.0**-24
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    effect = np.linalg.norm(expected - plain) / np.linalg.norm(expected)
    print(f"{what}: error {error:.1e}, bound {bound:.1e}; the adapter changes logits by {effect:.1e}")
    if not error < bound:
        sys.exit(f"{what}: logits differ")
    if not effect > 100 * bound:
        sys.exit(f"{what}: the adapter does nothing, so nothing was compared")


def main():
    work = Path(tempfile.mkdtemp())

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
