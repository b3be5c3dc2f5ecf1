#!/usr/bin/env python3
"""Compares token ids and decoded texts with the `tokenizers` and `sentencepiece` packages.

Tokenizers of every kind are trained on the speeches of data/sotu and read as tokenizer.json, tokenizer.model and GGUF
vocabularies. The texts are the committed ones, random ones and sentences. The seed has a fixed default, so that a run of the
oracles is reproducible. Ids and texts must be equal.

Random texts use the characters of Unicode 14, which Debian 12's PCRE2 and Python's unicodedata know: the package's tables are
newer and classify later letters differently. When two segmentations of a unigram model have the same score up to rounding,
releases of SentencePiece choose differently; then the scores are compared instead of the ids.

    INGOT_EXECUTABLE=build/release/ingot python3 tools/reference/check_tokenizers.py [SEED]
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

import gguf
import sentencepiece

from tokenizer_kinds import BYTE_LEVEL, FROM_SENTENCEPIECE, SENTENCEPIECE, proto_of, sentencepiece_model, texts, train

EXECUTABLE = os.environ.get("INGOT_EXECUTABLE", "build/release/ingot")
SEED = 1  # default seed of the random texts
SOTU = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/sotu/train.jsonl")
RANGES = [(0, 0x80)] * 6 + [(0x20, 0x7F)] * 6 + [(0x80, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE80), (0x1100, 0x1200), (0x2000, 0x2070),
          (0x2000, 0x3000), (0x3000, 0x3100), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xE000, 0x10000), (0x1F300, 0x1FB00), (0xE0000, 0xE0080), (0, 0xD800), (0x10000, 0x110000)]
PIECES = [" ", "  ", "\n", "\r\n", "\t", " \n", "'s", "'LL", "'", "\u200d", "\ufe0f", "\ufeff", "\u00a0", "\u3000", "\u2581", "1", "12", "1234", "a", "the", " the", "The", "I'm", "!!", "...", "\u0301", "\U0001F600"]


def random_text(rng, words):
    parts = []
    for _ in range(rng.randint(1, 40)):
        kind = rng.random()
        if kind < 0.35:
            parts.append(rng.choice(PIECES))
        elif kind < 0.7:
            parts.append(rng.choice(("", " ")) + rng.choice(words))
        else:
            low, high = rng.choice(RANGES)
            parts += [chr(rng.randrange(low, high)) for _ in range(rng.randint(1, 6))]
    return "".join(c for c in "".join(parts) if unicodedata.category(c) not in ("Cs", "Cn"))


def ingot(model, lines, special):
    command = [EXECUTABLE, "tokenize", "--json", "--model", model, "--texts", lines] + (["--special"] if special else [])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)["rows"]


def write_lines(path, all_texts):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(text) + "\n" for text in all_texts)


def compare(name, rows, expected, all_texts, scores=None):
    """Returns the number of differing texts and prints the first ones. expected: (ids, decoded or None) of every text; scores: those
    of a unigram model's pieces, where ties may be resolved differently."""
    assert len(rows) == len(expected) == len(all_texts)

    def same_ids(found, wanted):
        if found == wanted or scores is None:
            return found == wanted
        totals = [sum(scores[i] for i in ids) for ids in (found, wanted)]
        return abs(totals[0] - totals[1]) <= 2.0**-22 * len(wanted) * abs(totals[1])

    wrong = [i for i, (ids, decoded) in enumerate(expected)
             if not same_ids(rows[i]["ids"], ids) or (decoded is not None and rows[i]["text"] != decoded)]
    for i in wrong[:3]:
        print(f"{name}: {all_texts[i]!r}\n  ingot    {rows[i]['ids']} {rows[i]['text']!r}\n  expected {expected[i][0]} {expected[i][1]!r}")
    print(f"{name}: {len(all_texts)} texts, {len(wrong)} differ")
    return len(wrong)


def gguf_vocabulary(path, model, tokens, types, pre="default", merges=None, proto=None):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if merges is not None:
        writer.add_token_merges(merges)
    if proto is not None:
        writer.add_token_scores([piece.score for piece in proto.pieces])
        writer.add_add_space_prefix(proto.normalizer_spec.add_dummy_prefix)
        writer.add_remove_extra_whitespaces(proto.normalizer_spec.remove_extra_whitespaces)
        if proto.normalizer_spec.precompiled_charsmap:
            writer.add_precompiled_charsmap(proto.normalizer_spec.precompiled_charsmap)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def gguf_of_json(path, tokenizer, pre):
    """A byte-level GGUF vocabulary without added tokens, not all of which GGUF can represent."""
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"].items(), key=lambda item: item[1])
    names = [f"[PAD{i}]" for i in range(tokens[-1][1] + 1)]
    types = [5] * len(names)
    for text, i in tokens:
        names[i], types[i] = text, 1
    gguf_vocabulary(path, "gpt2", names, types, pre, [m if isinstance(m, str) else " ".join(m) for m in model["merges"]])


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else SEED
    print(f"seed {seed}")
    rng = random.Random(seed)
    with open(SOTU, encoding="utf-8") as file:
        speeches = [json.loads(line)["text"] for line in file][-8:]
    lines = [line for text in speeches for line in text.split(". ") if line]
    words = sorted({word for line in lines for word in line.split()})
    plain, special = texts()
    generated = [random_text(rng, words) for _ in range(500)] + rng.sample(lines, 100)
    spm = {name: sentencepiece_model(name, lines + plain, 3000) for name in SENTENCEPIECE}
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        with_special, without = os.path.join(folder, "all.jsonl"), os.path.join(folder, "plain.jsonl")
        write_lines(with_special, plain + special + generated)
        write_lines(without, plain + generated)
        for name in BYTE_LEVEL + ("llama2", "nfkc", "words") + tuple(FROM_SENTENCEPIECE):
            tokenizer = train(name, lines + plain, 3000, spm)
            place = os.path.join(folder, name)
            os.mkdir(place)
            tokenizer.save(os.path.join(place, "tokenizer.json"))
            for add in (False, True):
                expected = [tokenizer.encode(text, add_special_tokens=add).ids for text in plain + special + generated]
                expected = [(ids, tokenizer.decode(ids, skip_special_tokens=False)) for ids in expected]
                wrong += compare(f"{name}, {'with' if add else 'without'} special tokens", ingot(place, with_special, add), expected, plain + special + generated)
            pre = {"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen2": "qwen2", "smollm2": "smollm", "cased": "gpt-4o"}.get(name)
            if pre:
                path = os.path.join(folder, f"{name}.gguf")
                gguf_of_json(path, tokenizer, pre)
                added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
                apart = [text for text in plain + generated if not any(content in text for content in added)]
                write_lines(os.path.join(folder, "apart.jsonl"), apart)
                expected = [(tokenizer.encode(text, add_special_tokens=False).ids, None) for text in apart]
                wrong += compare(f"{name} in GGUF", ingot(path, os.path.join(folder, "apart.jsonl"), False), expected, apart)
        for name, model in spm.items():
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            unk = processor.unk_id()
            expected = [processor.encode(text) for text in plain + generated]
            # The library decodes an unknown token to U+2047, Ingot to the token's name.
            expected = [(ids, None if unk in ids else processor.decode(ids)) for ids in expected]
            place = os.path.join(folder, name)
            os.mkdir(place)
            with open(os.path.join(place, "tokenizer.model"), "wb") as file:
                file.write(model)
            proto = proto_of(model)
            scores = [piece.score for piece in proto.pieces] if name == "spm_unigram" else None
            wrong += compare(f"{name}, tokenizer.model", ingot(place, without, False), expected, plain + generated, scores)
            if name == "spm_mistral":
                continue  # in GGUF files user-defined tokens split the text
            path = os.path.join(folder, f"{name}.gguf")
            gguf_vocabulary(path, "t5" if name == "spm_unigram" else "llama", [p.piece for p in proto.pieces], [p.type for p in proto.pieces], proto=proto)
            wrong += compare(f"{name} in GGUF", ingot(path, without, False), expected, plain + generated, scores)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
