#!/usr/bin/env python3
"""LoRA adapters exchanged between Ingot and peft in both directions. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_peft.py

* An adapter trained by `ingot finetune` loads in peft, whose logits equal those of `ingot score --adapter`: on a llama that
  `ingot pretrain` made, and on a random model of every other family.
* An adapter written by peft (random A and B, rsLoRA, selected layers) gives peft's logits in Ingot, and so does the adapter of
  each golden model of every family.
* Each of them merged by `ingot model merge` and read by transformers and by `ingot score` gives the logits of peft's
  merge_and_unload.

Logits are fp32; |difference| / |expected| must be below tolerance(f32, n) of src/tensor/tolerance.h, with n the terms on the
longest chain of sums. Exit status 1 at the first difference.
"""
import dataclasses
import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model

from compare_logits import ROOT, distance, ingot, ingot_logits, torch_logits
from model_families import FAMILIES, load, new_model, randomise, save

# Layers of Mixtral in transformers 4. peft converts an adapter of them to the stacked parameters of transformers 5, for
# which it has no dropout.
EXPERTS = ["q_proj", "w1", "w2", "w3"]

IDS = [5, 37, 12, 30, 9, 24, 3, 3, 11, 40, 22, 7]


def compare(what, model, folder, adapter, work):
    """Logits of IDS in fp32; the bound is tolerance(f32, length) of src/tensor/tolerance.h over the layers' products."""
    expected = torch_logits(model, IDS)
    matrices = [p for p in load(folder).parameters() if p.dim() > 1]
    layers = json.loads((folder / "config.json").read_text())
    layers = next(layers[key] for key in ("num_hidden_layers", "n_layer", "n_layers") if key in layers)
    length = 7 * layers * max(max(p.shape[-2:]) for p in matrices)
    bound = 8 * length**0.5 * 2.0**-24
    effect = distance(torch_logits(load(folder), IDS), expected)
    if not effect > 100 * bound:
        sys.exit(f"{what}: the adapter has no effect, so nothing was compared")

    work.mkdir(parents=True, exist_ok=True)
    merged = work / f"{folder.name}-{adapter.name}-merged"
    ingot("model", "merge", folder, "--adapter", adapter, merged, "--dtype", "fp32")
    unloaded = torch_logits(model.merge_and_unload(), IDS)  # changes the model: after `expected`
    errors = {
        "adapter": distance(ingot_logits(folder, IDS, work, "--adapter", adapter), expected),
        "merged, by transformers": distance(torch_logits(load(merged), IDS), unloaded),
        "merged, by ingot": distance(ingot_logits(merged, IDS, work), unloaded),
    }
    summary = ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
    print(f"{what}: errors: {summary}; bound {bound:.1e}; the adapter changes logits by {effect:.1e}")
    for name, error in errors.items():
        if not error < bound:
            sys.exit(f"{what}, {name}: logits differ")


def families():
    return [family for family in FAMILIES if (ROOT / "tests/golden" / family).is_dir()]


def random_base(family, folder):
    """The family's first golden shape with the vocabulary and the tokenizer of recipes/models/tiny."""
    tiny = ROOT / "recipes/models/tiny"
    case = FAMILIES[family]["a"]
    vocab = json.loads((tiny / "config.json").read_text())["vocab_size"]
    case = dataclasses.replace(case, config=case.config | {"vocab_size": vocab})
    model = randomise(new_model(family, case), torch.Generator().manual_seed(4))
    save(model, folder, family, case)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny / file, folder)
    return folder


def tuned_by_ingot(name, targets, work, recipe, base, dropout=0.1):
    ingot("finetune", recipe, f"model={base}", "init=pretrained", f"name={name}", "steps=20", "optimizer.lr=1e-2",
          "data.sequence_length=32", "adapter.rank=4", "adapter.alpha=16", f"adapter.dropout={dropout}",
          f"adapter.targets=[{', '.join(targets)}]")
    run = work / name
    model = PeftModel.from_pretrained(load(base), run / "adapter").eval()
    compare(f"{name}, trained by ingot", model, base, run / "adapter", run)


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
    tuned_by_ingot("llama", FAMILIES["llama"]["a"].targets, work, recipe, base)
    for family in families():
        if family != "llama":
            tuned_by_ingot(family, FAMILIES[family]["a"].targets, work, recipe, random_base(family, work / f"{family}-base"))
    tuned_by_ingot("mixtral-experts", EXPERTS, work, recipe, work / "mixtral-base", dropout=0)

    torch.manual_seed(3)
    for name, settings in {
        "peft, all linear": dict(r=4, lora_alpha=8, target_modules="all-linear"),
        "peft, rsLoRA on q and down": dict(r=8, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "down_proj"]),
    }.items():
        folder = ROOT / "tests/golden/llama/a"
        model = get_peft_model(load(folder), LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings))
        saved = work / name.replace(" ", "-").replace(",", "")
        model.save_pretrained(saved)
        compare(name, model.eval(), folder, saved, work)

    for family in families():
        for name in FAMILIES[family]:
            folder = ROOT / "tests/golden" / family / name
            adapter = PeftModel.from_pretrained(load(folder), folder / "lora").eval()
            compare(f"{family}/{name}", adapter, folder, folder / "lora", work / family / name)


if __name__ == "__main__":
    main()
