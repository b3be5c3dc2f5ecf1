#!/usr/bin/env python3
"""Exports of the built program, read by transformers and the gguf package. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_checkpoint.py

For each golden model of every family: `ingot model convert` to a Hugging Face folder, which transformers loads (for the
MPT that it cannot run, mpt_torch.py) and whose weights and logits must be those of the original; `ingot model inspect
--hash` over one file and over shards; the adapter merged by `ingot model merge` against PEFT's merge_and_unload. For llama
also a GGUF file. Exit status 1 at the first difference.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from peft import PeftModel
from safetensors.torch import load_file, save_file

from model_families import FAMILIES, load

ROOT = Path(__file__).resolve().parents[2]
INGOT = os.environ.get("INGOT_EXECUTABLE", str(ROOT / "build/release/ingot"))
GOLDEN = ROOT / "tests/golden"


def ingot(*arguments):
    done = subprocess.run([INGOT, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ingot {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def logits(model, folder):
    ids = load_file(folder / "state.safetensors")["ids"].long()[None]
    with torch.no_grad():
        return {"logits": model(input_ids=ids).logits}


def compare(what, wanted, found, tolerance=0.0):
    if wanted.keys() != found.keys():
        sys.exit(f"{what}: other tensors: {sorted(wanted.keys() ^ found.keys())}")
    for name, tensor in wanted.items():
        error = (tensor - found[name]).abs().max().item()
        if error > tolerance * tensor.abs().max().item():
            sys.exit(f"{what}: {name} differs by {error}")
    print(f"{what}: {len(wanted)} tensors agree")


def digest(path):
    return json.loads(ingot("model", "inspect", path, "--hash", "--json"))["sha256"]


def split_in_two(folder, out):
    """The same tensors in two shards with an index."""
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


def separate(array, heads):
    rows = array.shape[0]
    return array.reshape(heads, rows // heads // 2, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def check_gguf(path, config, original):
    """The gguf package's values of q and k with their rows put back."""
    tensors = {t.name: dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
    for layer in range(config.num_hidden_layers):
        for ours, theirs, heads in (("q", "attn_q", config.num_attention_heads),
                                    ("k", "attn_k", config.num_key_value_heads)):
            wanted = original[f"model.layers.{layer}.self_attn.{ours}_proj.weight"].numpy()
            found = separate(tensors[f"blk.{layer}.{theirs}.weight"], heads)
            if np.abs(found - wanted).max() > 2.0**-11 * np.abs(wanted).max():  # at most a rounding to f16
                sys.exit(f"{path}: blk.{layer}.{theirs}.weight differs")
    print(f"{path.name}: q and k rows are where llama.cpp has them")


def check(family, name, out):
    folder = GOLDEN / family / name
    label = f"{family}-{name}"
    model = load(folder)
    original = model.state_dict()
    ingot("model", "convert", folder, out / f"{label}-hf", "--to", "hf")
    written = load(out / f"{label}-hf")
    compare(f"{label} as a folder", original, written.state_dict())
    compare(f"{label} as a folder, logits", logits(model, folder), logits(written, folder))
    if family == "llama":
        ingot("model", "convert", folder, out / f"{label}.gguf", "--to", "gguf")
        check_gguf(out / f"{label}.gguf", model.config, original)
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
