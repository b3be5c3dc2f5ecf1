#!/usr/bin/env python3
"""GGUF files exchanged between Ingot and llama.cpp, for every family. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_llamacpp.py

For tiny random models of each family, made by transformers:

* `ingot model convert` writes the tensors of llama.cpp's converter byte for byte in F32, F16, BF16 and Q8_0, with the same names
  and dimensions, and the same values of all keys that both write.
* `ingot score` on these files gives the logits that transformers computes from the file's weights, within EXACT (fp32 rounding).
* llama.cpp's logits from Ingot's F32, F16, BF16, Q8_0 and Q4_0 files, and from files that llama.cpp quantizes to Q4_0 (the same
  bytes as Ingot's), Q4_1, Q5_0, Q5_1, Q4_K and Q6_K, agree within the rounding of llama.cpp's activations (see ROUNDING). Ingot's
  logits from these files agree within EXACT.

The last part needs llama.cpp (tools/llamacpp.sh --build); without it the script says that the part is left out. All differences
are |difference| / |expected|. Exit status 1 at the first that exceeds its bound.
"""
import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import llamacpp
from compare_logits import distance, ingot, ingot_logits, torch_logits
from model_families import LLAMACPP, LLAMACPP_STOPS, load, new_model, randomise, save

import conversion  # llama.cpp's
import gguf  # of the same package
from gguf.quants import dequantize

IDS = [5, 77, 12, 80, 9, 64, 3, 3, 71, 40, 22, 7]


# llama.cpp rounds activations to a type that depends on the weights' (fp16 for F16, bf16 for BF16, 8 bits for block
# types), and computes gelu with an fp16 table. The bound is that rounding times the root of the number of gemms in
# sequence, times 4 for the depth of the model.
ROUNDING = {"fp32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8} | dict.fromkeys(llamacpp.FILE_TYPES, 1 / 254)
TABLE = 2.0**-11
DEPTH = 14  # gemms in sequence in two blocks
EXACT = 8 * (DEPTH * 512) ** 0.5 * 2.0**-24
WRITTEN = {"fp32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16, "bf16": gguf.LlamaFileType.MOSTLY_BF16,
           "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "q4_0": None}  # the converter has no Q4_0


def expect(what, error, bound):
    if not error < bound:
        sys.exit(f"{what}: differs by {error:.2e}, bound {bound:.2e}")
    return f"{error:.1e}"


def by_converter(folder, out, outtype):
    """The folder converted by llama.cpp's converter, without a tokenizer."""
    hparams = conversion.ModelBase.load_hparams(folder, False)
    if hparams["model_type"] == "mpt":  # the converter uses llm-foundry's class name
        hparams["architectures"] = ["MPTForCausalLM"]
    # Keys of transformers 4, which the converter reads in places.
    if "rope_parameters" in hparams and hparams["model_type"] == "gpt_neox":
        hparams["rotary_pct"] = hparams["rope_parameters"]["partial_rotary_factor"]
    if hparams["model_type"] == "gpt2":
        hparams["n_ctx"] = hparams["n_positions"]
    kind = conversion.get_model_class(hparams["architectures"][0])
    kind = type(kind.__name__, (kind,), {"set_vocab": lambda self: self.gguf_writer.add_tokenizer_model("none"),
                                         "model_arch": kind.model_arch})
    with torch.inference_mode():
        kind(folder, outtype, out, hparams=hparams).write()


def field(reader, key):
    return reader.fields[key].contents() if key in reader.fields else None


def compare_files(what, ours, theirs):
    ours, theirs = gguf.GGUFReader(ours), gguf.GGUFReader(theirs)
    own = {t.name: t for t in ours.tensors}
    for tensor in theirs.tensors:
        if tensor.name not in own:
            sys.exit(f"{what}: tensor {tensor.name} is missing")
        found = own.pop(tensor.name)
        if found.tensor_type != tensor.tensor_type or list(found.shape) != list(tensor.shape):
            sys.exit(f"{what}: {tensor.name}: {found.tensor_type} {found.shape}, not {tensor.tensor_type} {tensor.shape}")
        if tensor.name == "rope_freqs.weight":  # computed in fp32 there
            if not np.allclose(found.data, tensor.data, rtol=1e-6, atol=0):
                sys.exit(f"{what}: {tensor.name} differs")
        elif not np.array_equal(found.data, tensor.data):
            sys.exit(f"{what}: {tensor.name} differs")
    if own:
        sys.exit(f"{what}: tensors that it does not have: {sorted(own)}")
    architecture = field(theirs, "general.architecture")
    keys = 0
    for key in theirs.fields:
        if not key.startswith(architecture + "."):
            continue
        wanted, found = field(theirs, key), field(ours, key)
        same = np.isclose(wanted, found, rtol=1e-6) if isinstance(wanted, float) and found is not None else wanted == found
        if not same:
            sys.exit(f"{what}: {key} is {found}, not {wanted}")
        keys += 1
    return f"{len(theirs.tensors)} tensors and {keys} keys the same"


def check_values(what, file, work):
    """Ingot's values of a file's tensors must equal the gguf package's."""
    values = work / "values.gguf"
    ingot("model", "convert", file, values, "--dtype", "fp32")
    found = {t.name: t.data for t in gguf.GGUFReader(values).tensors}
    for tensor in gguf.GGUFReader(file).tensors:
        wanted = dequantize(tensor.data, tensor.tensor_type)
        if not np.allclose(found[tensor.name].reshape(wanted.shape), wanted, rtol=1e-6, atol=0):
            sys.exit(f"{what}: the values of {tensor.name} differ")
    values.unlink()


def check_logits(what, file, work, approximate=None):
    """Compares Ingot's logits of a GGUF file, and with a bound also llama.cpp's, with those of transformers on the file's weights.
    transformers reads them from a folder that Ingot converts from the file."""
    back = work / f"{file.name}-back"
    ingot("model", "convert", file, back, "--dtype", "fp32")
    wanted = torch_logits(load(back), IDS)
    summary = "Ingot " + expect(f"{what}, Ingot", distance(ingot_logits(file, IDS, work), wanted), EXACT)
    if approximate is not None:
        error = distance(llamacpp.logits(file, IDS, work), wanted)
        summary += ", llama.cpp " + expect(f"{what}, llama.cpp", error, approximate) + f" (bound {approximate:.1e})"
    return summary


def check(name, case, work):
    family = name.partition(",")[0]
    model = randomise(new_model(family, case), torch.Generator().manual_seed(7)).eval()
    folder = work / "model"
    save(model, folder, family, case)
    gelu = TABLE if family.startswith("gpt") or family in ("mpt", "gemma2") else 0
    bounds = {dtype: 4 * DEPTH**0.5 * (rounding + gelu) + EXACT for dtype, rounding in ROUNDING.items()}
    if not llamacpp.PROGRAM.exists() or name in LLAMACPP_STOPS:
        bounds = {}
    for dtype, outtype in WRITTEN.items():
        summary, what = [], f"{name}, {dtype}"
        theirs, ours = work / f"theirs-{dtype}.gguf", work / f"ours-{dtype}.gguf"
        ingot("model", "convert", folder, ours, "--dtype", dtype)
        if outtype is not None:
            by_converter(folder, theirs, outtype)
            summary.append(compare_files(f"{what} against the converter's", ours, theirs))
            same = np.array_equal(ingot_logits(ours, IDS, work), ingot_logits(theirs, IDS, work))
            same or sys.exit(f"{what}: Ingot's logits of the converter's file differ")
        elif bounds:
            llamacpp.quantize(work / "ours-fp32.gguf", theirs, dtype)
            summary.append(compare_files(f"{what} against llama.cpp's", ours, theirs))
        check_values(what, ours, work)
        summary.append(check_logits(what, ours, work, bounds.get(dtype)))
        print(f"{what}: " + "; ".join(summary))
    original = torch_logits(model, IDS)
    expect(f"{name}, fp32", distance(ingot_logits(work / "ours-fp32.gguf", IDS, work), original), EXACT)
    if name in LLAMACPP_STOPS and llamacpp.PROGRAM.exists():
        words = llamacpp.try_to_run("logits", work / "ours-fp32.gguf", llamacpp.comma(IDS), work / "none").stderr
        LLAMACPP_STOPS[name] in words or sys.exit(f"{name}: llama.cpp no longer stops with {LLAMACPP_STOPS[name]}: {words}")
        print(f"{name}: llama.cpp itself stops: {LLAMACPP_STOPS[name]}")
    for dtype in [dtype for dtype in bounds if dtype not in WRITTEN]:
        what, file = f"{name}, {dtype}", work / f"theirs-{dtype}.gguf"
        llamacpp.quantize(work / "ours-fp32.gguf", file, dtype)
        assert dtype.upper() in {t.tensor_type.name for t in gguf.GGUFReader(file).tensors}, what
        check_values(what, file, work)
        print(f"{what}, by llama.cpp: " + check_logits(what, file, work, bounds[dtype]))


def main():
    logging.disable(logging.WARNING)  # of the converter
    if llamacpp.is_built():
        print(f"with {llamacpp.VERSION}")
    for name, case in LLAMACPP.items():
        with tempfile.TemporaryDirectory() as work:
            check(name, case, Path(work))


if __name__ == "__main__":
    main()
