#!/usr/bin/env python3
"""Makes the seeds of the fuzz targets tokenizer_json, sentencepiece and vocabulary from the golden tokenizers of tests/text.

    pip install tokenizers sentencepiece protobuf gguf
    python3 tools/reference/make_tokenizer_corpus.py tests/golden/text tests/fuzz/corpus
"""
import json
import os
import struct
import sys

import gguf
from sentencepiece import sentencepiece_model_pb2

REGEX_STEPS = {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}|[^\s\p{L}]+|\s+(?!\S)"}, "behavior": "MergedWithNext", "invert": False},
    {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Whitespace"},
    {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}]}


def json_seeds(golden):
    def read(name):
        with open(os.path.join(golden, f"{name}.tokenizer.json"), encoding="utf-8") as file:
            return json.load(file)

    bpe, unigram = read("llama2"), read("unigram")
    pieces = [text for text, _ in sorted(bpe["model"]["vocab"].items(), key=lambda item: item[1])][:330]
    bpe["model"]["vocab"] = {text: index for index, text in enumerate(pieces)}
    bpe["model"]["merges"] = [merge for merge in bpe["model"]["merges"] if all(p in pieces for p in (*merge.split(" "), merge.replace(" ", "")))]
    for part in ("normalizer", "pre_tokenizer"):
        unigram[part] = None
    unigram["model"]["vocab"] = unigram["model"]["vocab"][:60]
    yield "valid_byte_fallback.json", bpe
    yield "valid_unigram.json", unigram
    unigram["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": kind} for kind in ("NFKC", "NFD", "StripAccents", "Lowercase", "NFC")] + [
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, {"type": "Strip", "strip_left": True, "strip_right": True}]}
    unigram["pre_tokenizer"] = REGEX_STEPS
    yield "valid_steps.json", unigram
    yield "bad_unk.json", {**unigram, "model": {**unigram["model"], "unk_id": 1000}}
    yield "bad_score.json", {**unigram, "model": {**unigram["model"], "vocab": [["a", "b"]]}}
    yield "bad_charsmap.json", {**unigram, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAAD8/wAA"}}
    yield "bad_merge.json", {**bpe, "model": {**bpe["model"], "merges": ["q zz"]}}
    yield "bad_pattern.json", {**unigram, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"}}


def spm_seeds(golden):
    for name, sizes in (("spm_unigram", (3, 100)), ("spm_mistral", (264, 320))):
        proto = sentencepiece_model_pb2.ModelProto()
        with open(os.path.join(golden, f"{name}.model"), "rb") as file:
            proto.ParseFromString(file.read())
        small = sentencepiece_model_pb2.ModelProto()
        small.CopyFrom(proto)
        del small.pieces[sizes[1]:]
        small.trainer_spec.Clear()
        small.trainer_spec.model_type = proto.trainer_spec.model_type
        small.trainer_spec.byte_fallback = proto.trainer_spec.byte_fallback
        charsmap = small.normalizer_spec.precompiled_charsmap
        small.normalizer_spec.precompiled_charsmap = b""
        whole = small.SerializeToString()
        yield f"valid_{name}", whole
        yield f"bad_{name}_cut", whole[:-3]
        small.normalizer_spec.precompiled_charsmap = charsmap[:200]
        yield f"bad_{name}_map", small.SerializeToString() if charsmap else struct.pack("<I", 5) + whole
        small.normalizer_spec.precompiled_charsmap = b""
        small.pieces[7].piece = small.pieces[6].piece
        yield f"bad_{name}_twice", small.SerializeToString()


def vocabulary(path, model, tokens, types, **more):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for key, value in more.items():
        if key == "scores":
            writer.add_token_scores(value)
        elif key == "merges":
            writer.add_token_merges(value)
        elif key == "pre":
            writer.add_tokenizer_pre(value)
        else:
            writer.add_uint32(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def gguf_seeds(folder):
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = ["<unk>", "<s>", "</s>", *bytes_, "\u2581", "a", "b", "ab", "\u2581a", "\u2581ab", "<x>"]
    types = [2, 3, 3, *[6] * 256, 1, 1, 1, 1, 1, 1, 4]
    scores = [0.0] * 259 + [-9.0, -9.0, -9.0, -1.0, -2.0, -3.0, 0.0]
    edges = {"bos_token_id": 1, "eos_token_id": 2}
    vocabulary(f"{folder}/valid_llama", "llama", pieces, types, scores=scores, **edges)
    vocabulary(f"{folder}/valid_t5", "t5", pieces[:3] + pieces[259:-1], types[:3] + types[259:-1], scores=scores[:3] + scores[259:-1], **edges)
    vocabulary(f"{folder}/valid_gpt2", "gpt2", ["a", "b", "\u0120", "ab", "\u0120ab", "<e>"], [1, 1, 1, 1, 1, 3], merges=["a b", "\u0120 ab"], pre="tekken", eos_token_id=5)
    vocabulary(f"{folder}/bad_scores", "llama", pieces, types, scores=scores[:-1])
    vocabulary(f"{folder}/bad_unknown", "t5", pieces[1:3] + pieces[259:], types[1:3] + types[259:], scores=scores[1:3] + scores[259:])
    vocabulary(f"{folder}/bad_bos", "llama", pieces, types, scores=scores, bos_token_id=1 << 30)
    vocabulary(f"{folder}/bad_pre", "gpt2", ["a"], [1], merges=[" a"], pre="klingon")


def main():
    golden, corpus = sys.argv[1:3]
    for target in ("tokenizer_json", "sentencepiece", "vocabulary"):
        os.makedirs(os.path.join(corpus, target), exist_ok=True)
    for name, document in json_seeds(golden):
        with open(os.path.join(corpus, "tokenizer_json", name), "w", encoding="utf-8") as file:
            json.dump(document, file, ensure_ascii=False, separators=(",", ":"))
    for name, model in spm_seeds(golden):
        with open(os.path.join(corpus, "sentencepiece", name), "wb") as file:
            file.write(model)
    gguf_seeds(os.path.join(corpus, "vocabulary"))


if __name__ == "__main__":
    main()
