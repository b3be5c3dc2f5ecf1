#!/usr/bin/env python3
"""GGUF files between Ingot and llama.cpp, for every family. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_llamacpp.py

For a tiny random model of each family, made by transformers:

* `ingot model convert` writes the tensors that llama.cpp's converter writes, byte for byte in F32 and F16, under the same
  names and dimensions, and its keys where the converter writes them too.
* The converter's file, and Ingot's in F32, F16, BF16, Q8_0 and Q4_0, read by `ingot score`, give the logits that
  transformers computes from the weights of that file.
* llama.cpp computes the same from Ingot's files (tools/llamacpp.sh --build; without it this part is left out, and said).

With SMOLLM2_GGUF (a SmolLM2 GGUF file), also: converted to Q8_0 and F16, llama.cpp and Ingot choose the same 24 tokens.

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

ROOT = Path(__file__).resolve().parents[2]
INGOT = os.environ.get("INGOT_EXECUTABLE", str(ROOT / "build/release/ingot"))
FOLDER = ROOT / "build/llamacpp"
SOURCE = next(FOLDER.glob("llama_cpp_python-*/vendor/llama.cpp"), FOLDER)
LOGITS = FOLDER / "llamacpp_logits"
sys.path[:0] = [str(SOURCE / "gguf-py"), str(SOURCE)]

import conversion  # noqa: E402  llama.cpp's
import gguf  # noqa: E402  of the same package
from gguf.quants import dequantize  # noqa: E402

from model_families import Case, new_model, randomise, rope, save  # noqa: E402

IDS = [5, 77, 12, 80, 9, 64, 3, 3, 71, 40, 22, 7]


def tiny(**more):
    return dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=16, max_position_embeddings=64, rope_parameters=rope()) | more


def neox(**more):
    return dict(vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                max_position_embeddings=64, rope_parameters=rope(partial_rotary_factor=0.25), hidden_dropout=0.0,
                attention_dropout=0.0) | more


# Rows are whole blocks of 32, and nothing is used that llama.cpp lacks.
CASES = {
    "llama": tiny(tie_word_embeddings=False, attention_bias=False, rms_norm_eps=1e-5,
                  rope_parameters=rope(1000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                       original_max_position_embeddings=64)),
    "mistral": tiny(head_dim=32, sliding_window=None, rms_norm_eps=1e-5),
    "mixtral": tiny(num_local_experts=4, num_experts_per_tok=2, sliding_window=None, rms_norm_eps=1e-5),
    "qwen2": tiny(rope_parameters=rope(1e6), tie_word_embeddings=True),
    "qwen3": tiny(head_dim=32, rope_parameters=rope(1e6), tie_word_embeddings=True),
    "gemma2": tiny(head_dim=32, query_pre_attn_scalar=32, sliding_window=5, attn_logit_softcapping=2.0,
                   final_logit_softcapping=3.0, tie_word_embeddings=True),
    "gpt2": dict(vocab_size=96, n_positions=64, n_embd=64, n_layer=2, n_head=4),
    "gpt_neox": neox(use_parallel_residual=True),
    "gpt_neox, sequential": neox(use_parallel_residual=False),
    "mpt": dict(d_model=96, n_heads=6, n_layers=2, max_seq_len=64, vocab_size=96, no_bias=True,
                attn_config=dict(clip_qkv=1.5, alibi=True, alibi_bias_max=8)),
}

# llama.cpp multiplies with activations in the type that goes with the weights' (fp16 with F16, bf16 with BF16, 8 bits with
# the block types), and its gelu is a table in fp16. The bound of a type is that rounding times the root of the products
# that follow one another, times a factor of 4 for the depth of the model.
ROUNDING = {"fp32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8, "q8_0": 1 / 254, "q4_0": 1 / 254}
TABLE = 2.0**-11


def ingot(*arguments):
    done = subprocess.run([INGOT, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ingot {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def ingot_logits(model, work):
    out = work / "ingot.npy"
    ingot("score", "--model", model, "--ids", ",".join(map(str, IDS)), "--dtype", "fp32", "--logits-out", out)
    return np.load(out)


def llamacpp_logits(model, work):
    out = work / "llamacpp.f32"
    subprocess.run([LOGITS, model, out, ",".join(map(str, IDS))], check=True)
    return np.fromfile(out, np.float32).reshape(len(IDS), -1)


def distance(found, expected):
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def expect(what, error, bound):
    if not error < bound:
        sys.exit(f"{what}: differs by {error:.2e}, bound {bound:.2e}")
    return f"{error:.1e}"


def by_converter(folder, out, outtype):
    """The folder as llama.cpp's converter writes it, without a tokenizer."""
    hparams = conversion.ModelBase.load_hparams(folder, False)
    if hparams["model_type"] == "mpt":  # the converter knows llm-foundry's name of the class
        hparams["architectures"] = ["MPTForCausalLM"]
    # Keys of transformers 4, which parts of the converter read.
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
        sys.exit(f"{what}: tensors that the converter does not write: {sorted(own)}")
    architecture = field(theirs, "general.architecture")
    keys = 0
    for key in theirs.fields:
        if not key.startswith(architecture + "."):
            continue
        wanted, found = field(theirs, key), field(ours, key)
        same = np.isclose(wanted, found, rtol=1e-6) if isinstance(wanted, float) and found is not None else wanted == found
        if not same:
            sys.exit(f"{what}: {key} is {found}, the converter writes {wanted}")
        keys += 1
    return f"{len(theirs.tensors)} tensors and {keys} keys as the converter's"


def torch_logits(model, gguf_file, folder, work):
    """transformers' logits, from the weights that `gguf_file` holds, by way of the folder Ingot makes of it."""
    back = work / f"{gguf_file.name}-back"
    ingot("model", "convert", gguf_file, back, "--dtype", "fp32")
    if folder is not None:  # what a GGUF file does not tell
        own = json.loads((back / "config.json").read_text())
        for key in ("architectures", "model_type"):
            own[key] = json.loads((folder / "config.json").read_text())[key]
        (back / "config.json").write_text(json.dumps(own))
    loaded = type(model).from_pretrained(back, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return loaded(input_ids=torch.tensor([IDS])).logits[0].numpy()


def check(name, config, work):
    family = name.partition(",")[0]
    case = Case(config, [], stored=torch.float32)
    model = randomise(new_model(family, case), torch.Generator().manual_seed(7)).eval()
    folder = work / "model"
    save(model, folder, family, case)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([IDS])).logits[0].numpy()

    depth = 14  # products after one another in two blocks
    exact = 8 * (depth * 128) ** 0.5 * 2.0**-24
    told = []
    for outtype, dtype in ((gguf.LlamaFileType.ALL_F32, "fp32"), (gguf.LlamaFileType.MOSTLY_F16, "f16")):
        theirs, ours = work / f"theirs-{dtype}.gguf", work / f"ours-{dtype}.gguf"
        by_converter(folder, theirs, outtype)
        ingot("model", "convert", folder, ours, "--dtype", dtype)
        told.append(f"{dtype}: " + compare_files(f"{name}, {dtype}", ours, theirs))
        expect(f"{name}: the converter's {dtype} file in Ingot", distance(ingot_logits(theirs, work), expected), exact)
    for dtype, rounding in ROUNDING.items():
        file = work / f"ours-{dtype}.gguf"
        if not file.exists():
            ingot("model", "convert", folder, file, "--dtype", dtype)
        wanted = torch_logits(model, file, folder, work)
        found = ingot_logits(file, work)
        line = f"{dtype}: ingot " + expect(f"{name}, {dtype}, Ingot", distance(found, wanted), exact)
        if LOGITS.exists():
            bound = 4 * depth**0.5 * (rounding + (TABLE if "silu" not in str(config) else 0)) + exact
            line += ", llama.cpp " + expect(f"{name}, {dtype}, llama.cpp", distance(llamacpp_logits(file, work), wanted), bound)
            line += f" (bound {bound:.1e})"
        told.append(line)
    print(f"{name}:\n  " + "\n  ".join(told))


def check_smollm2(path, work):
    prompt = "The history of the steam engine begins"
    ids = json.loads(ingot("tokenize", "--model", path, "--text", prompt, "--json"))["ids"]
    for dtype in ("q8_0", "f16"):
        file = work / f"smollm2-{dtype}.gguf"
        ingot("model", "convert", path, file, "--dtype", dtype)
        own = json.loads(ingot("generate", "--model", file, "--prompt", prompt, "--max-tokens", "24", "--temperature", "0",
                               "--dtype", "fp32", "--weights", "stored", "--json"))["ids"]
        done = subprocess.run([LOGITS, file, "-", ",".join(map(str, ids)), "--generate", "24"], check=True,
                              capture_output=True, text=True)
        theirs = [int(word) for word in done.stdout.split(",")]
        if own != theirs[: len(own)]:
            sys.exit(f"SmolLM2 in {dtype}: Ingot goes on with {own}, llama.cpp with {theirs}")
        print(f"SmolLM2 in {dtype}: the same {len(own)} tokens")


def main():
    if SOURCE == FOLDER:
        sys.exit("llama.cpp's source is not there: tools/llamacpp.sh")
    if not LOGITS.exists():
        print("llama.cpp itself is not built (tools/llamacpp.sh --build): compared with its converter only")
    for name, config in CASES.items():
        with tempfile.TemporaryDirectory() as work:
            check(name, config, Path(work))
    smollm2 = os.environ.get("SMOLLM2_GGUF")
    if smollm2 and LOGITS.exists():
        with tempfile.TemporaryDirectory() as work:
            check_smollm2(smollm2, Path(work))


if __name__ == "__main__":
    main()
