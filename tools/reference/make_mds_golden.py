#!/usr/bin/env python3
"""Makes the folders of tests/golden/formats/mds/ with MosaicML Streaming's writer (pip install mosaicml-streaming==0.13.0).

Each has its shards, index.json and values.json: the samples, each a dictionary of columns with, in hexadecimal, the bytes of
Streaming's encoding; arrays also as [dtype, shape, values]. tests/formats/mds_test.cpp compares reading and writing."""
import json
import shutil
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
from streaming.base import MDSWriter
from streaming.base.format.mds.encodings import mds_encode

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "formats" / "mds"


def write(name, columns, samples, **settings):
    folder = GOLDEN / name
    shutil.rmtree(folder, ignore_errors=True)
    with MDSWriter(columns=columns, out=str(folder), **settings) as writer:
        for sample in samples:
            writer.write(sample)
    values = [{key: mds_encode(columns[key], value).hex() for key, value in sample.items()} for sample in samples]
    arrays = [{key: [value.dtype.str[1:], list(value.shape), value.flatten().tolist()] for key, value in sample.items()
               if isinstance(value, np.ndarray)} for sample in samples]
    (folder / "values.json").write_text("[\n" + ",\n".join(json.dumps({"bytes": b, "arrays": a}) for b, a in zip(values, arrays)) + "]\n")


def everything():
    """A column of every encoding but pkl. Image bytes are not decoded, so they need not be images."""
    scalars = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
    columns = {name: name for name in scalars}
    columns |= {"bytes": "bytes", "a text \u00e9 \"": "str", "int": "int", "str_int": "str_int", "str_float": "str_float",
                "str_decimal": "str_decimal", "json": "json", "jpeg": "jpeg", "png": "png", "pil": "pil", "list[jpeg]": "list[jpeg]",
                "list[png]": "list[png]", "list[pil]": "list[pil]", "jpeg_array": "jpeg_array", "jpegarray": "jpegarray",
                "any": "ndarray", "typed": "ndarray:int32", "fixed": "ndarray:uint16:2,3"}
    samples = []
    for i in range(4):
        sample = {name: (7 * i + 3) % 11 for name in scalars}
        sample |= {"bytes": bytes(range(i, 2 * i)), "a text \u00e9 \"": ["", "x", "d\u00e9j\u00e0 vu", "\U0001f600\n"][i], "int": -(10**i),
                   "str_int": 10 ** (20 * i), "str_float": [0.1, -1e-9, float("inf"), 2.5e300][i],
                   "str_decimal": Decimal(["0.10", "-1E+5", "NaN", "12345678901234567890.5"][i]), "json": {"b": [i, None], "a": "\u00e9"}}
        for name in ("jpeg", "png", "pil", "list[jpeg]", "list[png]", "list[pil]", "jpeg_array", "jpegarray"):
            sample[name] = name.encode() * i
        dtypes = ["uint8", "int16", "float16", "float64"]
        sample["any"] = np.arange(i + 1, dtype=dtypes[i]).reshape([(1,), (2, 1), (1, 3), (1, 1, 4)][i])
        sample["typed"] = np.arange([1, 255, 300, 70000][i] if i < 3 else 3, dtype=np.int32)
        sample["fixed"] = np.arange(6, dtype=np.uint16).reshape(2, 3) * i
        samples.append(sample)
    return columns, samples


def main():
    columns, samples = everything()
    hashes = sorted(["md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha3_224", "sha3_256", "sha3_384", "sha3_512", "blake2b", "blake2s",
                     "xxh32", "xxh64", "xxh3_64", "xxh3_128", "xxh128"])
    write("everything", columns, samples, hashes=hashes, size_limit=None)
    random = np.random.default_rng(0)
    texts = [{"text": "once upon a time " * int(n)} for n in random.integers(0, 12, 30)]
    write("text", {"text": "str"}, texts, size_limit=900)
    for compression in ("br", "bz2:3", "gz", "snappy", "zstd:7"):
        write(compression.split(":")[0], {"text": "str"}, texts, size_limit=900, compression=compression, hashes=["sha1", "xxh64"])
    tokens = [random.integers(0, 256, 16) for _ in range(23)]
    write("tokens", {"tokens": "ndarray:int32"}, [{"tokens": t.astype(np.int32)} for t in tokens], size_limit=800, compression="zstd", hashes=["xxh64"])
    write("tokens_bytes", {"tokens": "bytes"}, [{"tokens": t.tobytes()} for t in tokens], size_limit=1500)
    write("numbers_and_words", {"number": "int", "words": "str"}, [{"number": 5, "words": "a"}, {"number": 6, "words": "bc"}])
    return 0


if __name__ == "__main__":
    sys.exit(main())
