#!/usr/bin/env python3
"""Models written by Ingot, read by transformers and compared with the originals. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_checkpoint.py

For each golden model of every family:
* `ingot model convert` writes a Hugging Face folder. transformers (mpt_torch.py for MPT variants that it does not support) loads
  weights and logits equal to the original's, bit for bit.
* `ingot model inspect --hash` gives the same hash for one file and for two shards.
* `ingot model merge` is compared with PEFT's merge_and_unload: each element within 2^-22 (fp32) or 2^-8 (bf16) of the tensor's
  largest element.
GGUF files are compared by check_llamacpp.py. Exit status 1 at the first difference.
"""
import json
import sys
import tempfile
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from compare_logits import ROOT, ingot
from model_families import FAMILIES, load

GOLDEN = ROOT / "tests/golden"


def logits(model, folder):
    ids = load_file(folder / "state.safetensors")["ids"].long()[None]
    with torch.no_grad():
        return {"logits": model(input_ids=ids).logits}


def compare(what, wanted, found, tolerance=0.0):
    if wanted.keys() != found.keys():
        sys.exit(f"{what}: the tensor names differ: {sorted(wanted.keys() ^ found.keys())}")
    for name, tensor in wanted.items():
        error = (tensor - found[name]).abs().max().item()
        if error > tolerance * tensor.abs().max().item():
            sys.exit(f"{what}: {name} differs by {error}")
    print(f"{what}: {len(wanted)} tensors agree")


def digest(path):
    return json.loads(ingot("model", "inspect", path, "--hash", "--json"))["sha256"]


def split_in_two(folder, out):
    """Writes the tensors of a folder as two shards with an index."""
    tensors = load_file(folder / "model.safetensors")
    out.mkdir()
    (out / "config.json").write_text((folder / "config.json").read_text())
    names = sorted(tensors)
    weight_map = {}
    for shard, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-{shard:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, out / file, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(part, file))
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (out / "model.safetensors.index.json").write_text(json.dumps(index))


def check(family, name, out):
    folder = GOLDEN / family / name
    label = f"{family}-{name}"
    model = load(folder)
    original = model.state_dict()
    ingot("model", "convert", folder, out / f"{label}-hf", "--to", "hf")
    written = load(out / f"{label}-hf")
    compare(f"{label} as a folder", original, written.state_dict())
    compare(f"{label} as a folder, logits", logits(model, folder), logits(written, folder))
    split_in_two(folder, out / f"{label}-shards")
    if digest(folder) != digest(out / f"{label}-shards"):
        sys.exit(f"{label}: the hash depends on the sharding")
    print(f"{label}: one hash for any sharding")
    ingot("model", "merge", folder, "--adapter", folder / "lora", out / f"{label}-merged")
    merged = PeftModel.from_pretrained(load(folder), folder / "lora").merge_and_unload().state_dict()
    config = json.loads((out / f"{label}-merged/config.json").read_text())
    roundoff = {"float32": 2.0**-22, "bfloat16": 2.0**-8}[config.get("torch_dtype") or config["dtype"]]
    compare(f"{label} merged", merged, load(out / f"{label}-merged").state_dict(), roundoff)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        for family, cases in FAMILIES.items():
            for name in cases if (GOLDEN / family).is_dir() else []:
                check(family, name, Path(scratch))


if __name__ == "__main__":
    main()
