#!/usr/bin/env python3
"""Tokenizers that `ingot model convert` writes into GGUF files, compared with llama.cpp. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_llamacpp_text.py

* For tokenizers of every kind that GGUF can represent (those of tests/golden/text) and their texts, `ingot tokenize` gives the
  same ids from Ingot's GGUF file as from the folder, and so does llama.cpp. Exceptions are GAPS (of the file format) and LIMITS
  (of llama.cpp); each must occur.
* For the vocabularies in llama.cpp's source, Ingot gives the ids stored beside them, which are those of the models' own
  tokenizers.

Ids must be equal. The parts that need llama.cpp (tools/llamacpp.sh --build) are left out without it, with a message. Exit status 1 at the
first difference.
"""
import json
import shutil
import sys
import tempfile
import unicodedata
from pathlib import Path

import torch

import llamacpp
from compare_logits import ROOT, ingot
from model_families import Case, new_model, rope, save
from tokenizer_kinds import proto_of

import gguf  # of llama.cpp's package

GOLDEN = ROOT / "tests/golden/text"
KINDS = {
    "gpt2": "byte-level BPE, split as GPT-2's", "llama3": "byte-level BPE, split as Llama 3's, ignore_merges",
    "qwen2": "byte-level BPE, split as Qwen2's, NFC", "smollm2": "byte-level BPE, split as SmolLM2's",
    "cased": "byte-level BPE, split as GPT-4o's", "llama": "BPE with byte fallback, as of Llama 2",
    "mistral": "BPE with byte fallback, as of Mistral, a space in front of a text without one",
    "spm_llama": "BPE model of SentencePiece", "spm_unigram": "unigram model of SentencePiece",
}
# Further pre-tokenizer names (tokenizer.ggml.pre) that Ingot reads.
NAMES = {"gpt2": ("gpt-2", "default", "mpt", "phi-2", "smollm", "starcoder", "refact"),
         "llama3": ("llama-bpe", "llama3", "llama-v3", "falcon3", "dbrx"), "cased": ("gpt-4o", "tekken")}
SPECIAL = ("<s>", "</s>", "<unk>")

# Texts that a GGUF file cannot tokenize like the folder: it always prepends the space.
GAPS = {"mistral": lambda text: text.startswith((" ", "\u2581")) or any(token in text for token in SPECIAL)}
# Texts that llama.cpp tokenizes differently: it does not normalise to NFC, and does not treat U+2581 in a text as a
# space.
LIMITS = {"qwen2": lambda text: unicodedata.normalize("NFC", text) != text,
          "spm_unigram": lambda text: text != "" and text.strip(" \u2581") == "" and "\u2581" in text}


def golden_texts():
    texts = json.loads((GOLDEN / "texts.json").read_text())
    return texts["plain"] + texts["special"]


def make_folder(kind, folder):
    """A model folder with that vocabulary, without added tokens that strip white space or match whole words: GGUF has neither."""
    folder.mkdir()
    original = GOLDEN / f"{kind}.tokenizer.json"
    if original.exists():
        tokenizer = json.loads(original.read_text())
        added = tokenizer["added_tokens"]
        added[:] = [token for token in added if not (token["single_word"] or token["lstrip"] or token["rstrip"])]
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        vocab = 1 + max([*tokenizer["model"]["vocab"].values(), *(token["id"] for token in added)])
    else:
        shutil.copy(GOLDEN / f"{kind}.model", folder / "tokenizer.model")
        vocab = len(proto_of((folder / "tokenizer.model").read_bytes()).pieces)
    case = Case(dict(vocab_size=vocab, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1,
                     num_key_value_heads=1, head_dim=32, max_position_embeddings=64, rope_parameters=rope()),
                [], stored=torch.float32)
    save(new_model("llama", case), folder, "llama", case)


def ingot_ids(model, texts, work):
    """The ids of each text without, and then with, the special tokens that the tokenizer adds."""
    file = work / "texts.jsonl"
    file.write_text("".join(json.dumps(text) + "\n" for text in texts))
    command = ["tokenize", "--json", "--model", model, "--texts", file]
    return [row["ids"] for more in ([], ["--special"]) for row in json.loads(ingot(*command, *more))["rows"]]


def llamacpp_ids(model, texts, work):
    return [ids for special in (False, True) for ids in llamacpp.tokenize(model, texts, special, work)]


def compare(what, texts, found, wanted, excused=None):
    """Texts may differ only if they are excused. An excuse that no text needs is an error."""
    assert 2 * len(texts) == len(found) == len(wanted)
    different = set()
    for i, text in enumerate(2 * texts):
        if found[i] == wanted[i]:
            continue
        if excused is None or not excused(text):
            sys.exit(f"{what}: {text!a}: {found[i]}, not {wanted[i]}")
        different.add(text)
    if excused is not None and not different:
        sys.exit(f"{what}: no text differs, so its excuse must be removed")
    return f"{len(texts) - len(different)} of {len(texts)} texts the same" if different else f"{len(texts)} texts the same"


def check(kind, texts, work):
    folder, file = work / "model", work / "model.gguf"
    make_folder(kind, folder)
    ingot("model", "convert", folder, file, "--dtype", "f16")
    own = ingot_ids(file, texts, work)
    summary = ["Ingot " + compare(f"{kind}, Ingot", texts, own, ingot_ids(folder, texts, work), GAPS.get(kind))]
    if llamacpp.PROGRAM.exists():
        found = llamacpp_ids(file, texts, work)
        summary.append("llama.cpp " + compare(f"{kind}, llama.cpp", texts, found, own, LIMITS.get(kind)))
        if kind == "qwen2":  # equal except for normalisation
            texts = [unicodedata.normalize("NFC", text) for text in texts]
            summary.append("of normalised ones " + compare(f"{kind}, normalised", texts, llamacpp_ids(file, texts, work),
                                                        ingot_ids(file, texts, work)))
    print(f"{kind} ({KINDS[kind]}): " + "; ".join(summary))


def with_splitting(file, out, name):
    """Copies a GGUF vocabulary with another pre-tokenizer name."""
    writer = gguf.GGUFWriter(out, "llama")
    for field in gguf.GGUFReader(file).fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = name if field.name == "tokenizer.ggml.pre" else field.contents()
        writer.add_key_value(field.name, value, field.types[0], field.types[-1] if len(field.types) > 1 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def check_names(kind, texts, work):
    make_folder(kind, work / "model")
    ingot("model", "convert", work / "model", work / "model.gguf", "--dtype", "f16")
    for name in NAMES[kind]:
        file = work / f"{name}.gguf"
        with_splitting(work / "model.gguf", file, name)
        summary = compare(f"splitting {name}", texts, llamacpp_ids(file, texts, work), ingot_ids(file, texts, work))
        print(f"splitting {name}: llama.cpp {summary}")


# The names of llama.cpp's models/ggml-vocab-*.gguf.
PUBLIC = ("bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2",
          "refact", "starcoder")


def check_public(name, work):
    model = llamacpp.SOURCE / f"models/ggml-vocab-{name}.gguf"
    texts = Path(f"{model}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    wanted = [[int(word) for word in line.split()] for line in Path(f"{model}.out").read_text().split("\n")]
    assert len(texts) == len(wanted)
    file = work / "public.jsonl"
    file.write_text("".join(json.dumps(text) + "\n" for text in texts))
    rows = json.loads(ingot("tokenize", "--json", "--model", model, "--texts", file))["rows"]
    for text, row, ids in zip(texts, rows, wanted):
        if row["ids"] != ids:
            sys.exit(f"{name}: {text!a}: {row['ids']}, not {ids}")
    print(f"{name}: Ingot {len(texts)} texts of llama.cpp's the same")


def main():
    if llamacpp.is_built():
        print(f"with {llamacpp.VERSION}")
    texts = golden_texts()
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as work:
            check(kind, texts, Path(work))
    for kind in NAMES if llamacpp.PROGRAM.exists() else []:
        with tempfile.TemporaryDirectory() as work:
            check_names(kind, texts, Path(work))
    for name in PUBLIC:
        with tempfile.TemporaryDirectory() as work:
            check_public(name, Path(work))


if __name__ == "__main__":
    main()
