#!/usr/bin/env python3
"""Makes the golden files of tests/text and tests/checkpoint: tiny tokenizers with ids of the `tokenizers` and `sentencepiece` packages.

    pip install tokenizers sentencepiece protobuf
    python3 tools/reference/make_tokenizer_golden.py tests/golden/text
"""
import json
import os
import sys

import sentencepiece
from tokenizers import Tokenizer

from tokenizer_kinds import BYTE_LEVEL, CORPUS, FROM_SENTENCEPIECE, SENTENCEPIECE, few_rules, sentencepiece_model, texts, train


def compact(state):
    if state["model"]["type"] == "BPE":
        state["model"]["merges"] = [" ".join(m) if isinstance(m, list) else m for m in state["model"]["merges"]]
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"))


def without_repeats(row, defaults):
    """Drops keys that have the same value as an earlier one."""
    return {key: value for key, value in row.items() if key not in defaults or value != defaults[key]}


def write_golden(path, rows, decode):
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"texts": rows, "decode": decode}, file, separators=(",", ":"))
    assert os.path.getsize(path) < 200_000, path


def some_ids(size):
    """Every single id, and lists of ids that start and end anywhere."""
    return [[(k * 7919 + j * j * 104729 + 13 * j) % size for j in range(1 + k % 9)] for k in range(60)]


def write_tokenizer(folder, name, tokenizer, all_texts):
    path = os.path.join(folder, f"{name}.tokenizer.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(compact(json.loads(tokenizer.to_str())))
    tokenizer = Tokenizer.from_file(path)
    rows = []
    for text in all_texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        row = {"ids": ids, "with_special": tokenizer.encode(text).ids}
        tokenizer.encode_special_tokens = True
        row["as_text"] = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        row["decoded"] = tokenizer.decode(ids, skip_special_tokens=False)
        row["skipped"] = tokenizer.decode(ids, skip_special_tokens=True)
        rows.append(without_repeats(row, {"with_special": ids, "as_text": ids, "decoded": text, "skipped": row["decoded"]}))
    decode = [{"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)} for ids in some_ids(tokenizer.get_vocab_size())]
    write_golden(os.path.join(folder, f"{name}.golden.json"), rows, decode)


def write_sentencepiece(folder, name, model, plain_texts):
    with open(os.path.join(folder, f"{name}.model"), "wb") as file:
        file.write(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    rows = []
    for text in plain_texts:
        ids = processor.encode(text)
        rows.append(without_repeats({"ids": ids, "decoded": processor.decode(ids)}, {"decoded": text}))
    write_golden(os.path.join(folder, f"{name}.golden.json"), rows, [])


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    plain, special = texts()
    assert len(plain + special) >= 300
    with open(os.path.join(folder, "texts.json"), "w", encoding="utf-8") as file:
        json.dump({"plain": plain, "special": special}, file, ensure_ascii=True, indent=0)
    sotu = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/sotu/heldout.jsonl")
    with open(sotu, encoding="utf-8") as file:
        speech = json.loads(next(file))["text"]
    lines = speech.split(". ") + CORPUS.split("\n")
    with few_rules() as rules:
        spm = {name: sentencepiece_model(name, lines, 900, rules) for name in SENTENCEPIECE}
    for name, model in spm.items():
        write_sentencepiece(folder, name, model, plain)
    for name in BYTE_LEVEL + ("llama2", "nfkc", "words") + tuple(FROM_SENTENCEPIECE):
        write_tokenizer(folder, name, train(name, [CORPUS], 620, spm), plain + special)


if __name__ == "__main__":
    main()
