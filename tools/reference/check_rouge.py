#!/usr/bin/env python3
"""ROUGE-L of `ingot eval` compared with the rouge-score package, without stemming. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_rouge.py [--seed 1] [--pairs 400]

A model is constructed that answers with given texts: each answer is one token, and the head's row of answer k is the embedding of
prompt k, so that greedy decoding of prompt k gives text k. The references are the answers with words dropped, repeated, moved and
replaced (up to three references each), and the hand-written ones below. Scores must agree to 1e-9.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rouge_score import rouge_scorer
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parents[2]
INGOT = os.environ.get("INGOT_EXECUTABLE", str(ROOT / "build/release/ingot"))
HIDDEN = 256
TOLERANCE = 1e-9

# Words that are difficult for lower-casing, digits, combining marks and other scripts.
WORDS = (
    "the The THE of and a peace war state people 1861 7 3rd x1 can't well-known e.g. U.S.A. snake_case na\u00efve NA\u00cfVE "
    "\u0130stanbul \u0131 \u212aelvin \u017ft \u00df \u1e9e \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 \u041c\u0418\u0420 \u05e9\u05dc\u05d5\u05dd "
    "\u0645\u0631\u062d\u0628\u0627 \u6771\u4eac \u3053\u3093 \ud55c\uae00 \U0001f600 \U0001f469\u200d\U0001f680 e\u0301t\u00e9 \uff21\uff22\uff43 \uff11\uff12 "
    "\u0661\u0662 \u2460 \u00bd x\u00b2 \ufb01n \u01c5 \U0001d400 \u2126 \ufeffmark soft\u00adhyphen zero\u200bwidth a\u00a0b tab\tbed line\nfeed \u0000nul "
    "! ... -- ( ) \u201cquoted\u201d").split(" ")
# (answer, references)
BY_HAND = [
    (" ", ["the state"]), ("the state", [" "]), ("...", ["!"]), ("the", ["the"]), ("the", ["THE"]), ("a b c", ["c b a"]),
    ("\u212a", ["k"]), ("\u0130", ["i"]), ("\u0130a", ["i a"]), ("\u6771\u4eac", ["\u6771\u4eac"]), ("x\u00b2y", ["x y"]), ("it's", ["it s"]),
    ("a a a a", ["a"]), ("one two three four", ["one three", "two one four three", "five"]), ("a_b", ["a b"]), ("\u0000", ["\u0000"]),
]


def byte_alphabet():
    """GPT-2's byte-to-character table: printable Latin-1 is unchanged, every other byte is a character from 256 on."""
    own = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    others = [b for b in range(256) if b not in own]
    return {b: chr(b) for b in own} | {b: chr(256 + n) for n, b in enumerate(others)}


def changed(words, rng):
    words = list(words)
    for _ in range(rng.randint(0, max(1, len(words)))):
        what, at = rng.randrange(4), rng.randrange(len(words) + 1)
        if what == 0 and words:
            words.pop(at % len(words))
        elif what == 1:
            words.insert(at, rng.choice(WORDS))
        elif what == 2 and words:
            words.insert(at, words.pop(rng.randrange(len(words))))
        elif words:
            words[at % len(words)] = words[at % len(words)].upper()
    return rng.choice([" ", "  ", ", ", "\n"]).join(words)


def make_pairs(seed, number):
    rng = random.Random(seed)
    pairs, seen = [], set()
    for answer, references in BY_HAND:
        pairs.append((answer, references))
        seen.add(answer)
    while len(pairs) < number:
        words = [rng.choice(WORDS) for _ in range(rng.choice([2, 5, 10, 30, 60]))]
        answer = " ".join(words)
        if answer in seen:
            continue
        seen.add(answer)
        references = [changed(words, rng) or " " for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.1:
            references.append(" ".join(rng.choice(WORDS) for _ in range(30)))
        pairs.append((answer, references))
    return pairs


def make_model(folder, answers, seed):
    """A llama with one block that adds zero to the embedding."""
    folder.mkdir()
    letters = byte_alphabet()
    tokens = [letters[b] for b in range(256)]
    tokens += [text for text in ("".join(letters[b] for b in answer.encode()) for answer in answers) if text not in set(tokens)]
    place = {token: n for n, token in enumerate(tokens)}
    prompts = [f"<|{k}|>" for k in range(len(answers))]
    size = len(tokens) + len(prompts)
    added = [dict(id=len(tokens) + k, content=prompt, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
             for k, prompt in enumerate(prompts)]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                 byte_fallback=False, ignore_merges=False, vocab=place, merges=[])
    (folder / "tokenizer.json").write_text(json.dumps(dict(
        version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=level, post_processor=None,
        decoder=level, model=model)))
    (folder / "config.json").write_text(json.dumps(dict(
        model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=size, hidden_size=HIDDEN, intermediate_size=8,
        num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64, rms_norm_eps=1e-5,
        tie_word_embeddings=False)))
    numbers = np.random.default_rng(seed)
    embedding = numbers.standard_normal((size, HIDDEN), dtype=np.float32)
    head = np.zeros((size, HIDDEN), np.float32)
    for k, answer in enumerate(answers):
        head[place["".join(letters[b] for b in answer.encode())]] += embedding[len(tokens) + k]
    block = "model.layers.0."
    tensors = {"model.embed_tokens.weight": embedding, "lm_head.weight": head, "model.norm.weight": np.ones(HIDDEN, np.float32)}
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{block}{name}.weight"] = np.ones(HIDDEN, np.float32)
    for name in "qkvo":
        tensors[f"{block}self_attn.{name}_proj.weight"] = np.zeros((HIDDEN, HIDDEN), np.float32)
    for name in ("gate", "up"):
        tensors[f"{block}mlp.{name}_proj.weight"] = np.zeros((8, HIDDEN), np.float32)
    tensors[f"{block}mlp.down_proj.weight"] = np.zeros((HIDDEN, 8), np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return prompts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=400)
    args = parser.parse_args()
    pairs = make_pairs(args.seed, args.pairs)
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        prompts = make_model(work / "model", [answer for answer, _ in pairs], args.seed)
        lines = [dict(prompt=prompt, reference=references, max_tokens=1) for prompt, (_, references) in zip(prompts, pairs)]
        (work / "task.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = subprocess.run([INGOT, "eval", "--model", work / "model", "--task", work / "task.jsonl", "--items", work / "items.jsonl",
                               "--dtype", "fp32", "--json"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"ingot eval: exit {done.returncode}\n{done.stderr}")
        items = [json.loads(line)["models"][0] for line in (work / "items.jsonl").read_text().splitlines()]
    assert len(items) == len(pairs)
    scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)
    worst, different = 0.0, 0
    for item, (answer, references) in zip(items, pairs):
        if item["text"] != answer:
            sys.exit(f"the answer is {item['text']!r}, not {answer!r}: the comparison would be of other texts")
        expected = max(scorer.score(reference, answer)["rougeL"].fmeasure for reference in references)
        worst = max(worst, abs(item["rougeL"] - expected))
        if abs(item["rougeL"] - expected) > TOLERANCE:
            different += 1
            print(f"{item['rougeL']} instead of {expected}: {answer!r} with {references!r}")
    between = sum(0 < item["rougeL"] < 1 for item in items)
    print(f"rouge-score: {len(pairs)} answers, {between} of them neither 0 nor 1, largest difference {worst:.1e}")
    if different or between < len(pairs) // 3:
        sys.exit(1)


if __name__ == "__main__":
    main()
