#!/usr/bin/env python3
"""MDS folders written by `ingot data mds`, compared with MosaicML Streaming.

Random texts and tokens, with every compression and some hashes: Streaming must read equal samples, and without compression the
files must equal those of Streaming's writer byte for byte. Exit code 77 when mosaicml-streaming is not installed."""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np


def import_streaming():
    """Imports streaming without torchvision, which only its image data sets need."""
    for name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
        module = types.ModuleType(name)
        module.__spec__, module.__path__ = ModuleSpec(name, None), []
        module.VisionDataset = module.to_tensor = module.CIFAR10 = object
        sys.modules[name] = module
    from streaming import MDSWriter
    from streaming.base.format.mds.reader import MDSReader
    return MDSWriter, MDSReader


def read(reader_class, folder):
    index = json.loads((folder / "index.json").read_text())
    samples = []
    for shard in index["shards"]:
        if shard["zip_data"]:
            from streaming.base.compression import decompress
            packed = (folder / shard["zip_data"]["basename"]).read_bytes()
            (folder / shard["raw_data"]["basename"]).write_bytes(decompress(shard["compression"], packed))
        reader = reader_class.from_json(str(folder), "", shard)
        samples += [reader[i] for i in range(shard["samples"])]
    return samples


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    source = random.Random(parser.parse_args().seed)
    try:
        writer_class, reader_class = import_streaming()
    except ImportError as error:
        print(f"left out: {error}")
        return 77
    ingot = os.environ.get("INGOT_EXECUTABLE", "build/release/ingot")
    words = ["once", "upon", "a", "time", "d\u00e9j\u00e0", "\U0001f600", "\n", "\u4e2d\u6587"]
    texts = [" ".join(source.choices(words, k=source.randint(1, 60))) or "x" for _ in range(200)]
    rows = np.random.default_rng(source.randint(0, 2**31)).integers(0, 50000, (90, 33))
    problems = 0
    with tempfile.TemporaryDirectory() as root:
        root = Path(root)
        (root / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        np.save(root / "rows.npy", rows.astype(np.int32))
        for compression in ("", "zstd:5", "gz", "bz2", "br:4", "snappy"):
            for kind, data, columns in (("texts", root / "texts.jsonl", {"text": "str"}), ("tokens", root / "rows.npy", {"tokens": "ndarray:int32"})):
                ours, theirs = root / f"ours-{kind}-{compression[:3]}", root / f"theirs-{kind}-{compression[:3]}"
                command = [ingot, "data", "mds", str(data), "--out", str(ours), "--hashes", "sha1,xxh64", "--size-limit", "4000", "--quiet"]
                if compression:
                    command += ["--compression", compression]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                samples = [{"text": text} for text in texts] if kind == "texts" else [{"tokens": row.astype(np.int32)} for row in rows]
                with writer_class(columns=columns, out=str(theirs), hashes=["sha1", "xxh64"], size_limit=4000, compression=compression or None) as writer:
                    for sample in samples:
                        writer.write(sample)
                key = next(iter(columns))
                same_files = compression != "" or all((ours / f.name).read_bytes() == f.read_bytes() for f in theirs.iterdir())
                found = read(reader_class, ours)
                same = len(found) == len(samples) and all(np.array_equal(a[key], b[key]) for a, b in zip(found, samples))
                print(f"{kind} {compression or 'uncompressed'}: {len(found)} samples, {'the same' if same and same_files else 'DIFFERENT'}")
                problems += not (same and same_files)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
