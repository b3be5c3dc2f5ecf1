#!/usr/bin/env python3
"""Makes tests/golden/megatron/ with Megatron-LM (see megatron_reference.py).

One data set per token type, a multimodal one, and order.json: cases with the indices that Megatron builds for them. The expected
values are in tests/formats and tests/data. `--check` makes the files in a temporary folder and compares instead of writing."""
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from megatron_reference import order, write

GOLDEN = Path(__file__).resolve().parents[2] / "tests/golden/megatron"
# Documents as lists of sequences: one with two sequences, one with an empty sequence, and one without any.
DOCUMENTS = [[[10, 11, 12, 0], [20]], [[]], [], [[30, 31, 127, 33, 34, 0]], [[40, 0]]]
SPECIFICATION = [4, 3, 6, 2]  # the lengths of a hand-computed example


def uneven(count, seed, most=30):
    return np.random.default_rng(seed).integers(1, most, count).tolist()


CASES = [
    {"sources": [{"lengths": SPECIFICATION}], "sequence_length": 4, "seed": 1234, "num_samples": 3, "samples": 3},
    {"sources": [{"lengths": SPECIFICATION}], "sequence_length": 4, "seed": 1234, "num_samples": 8, "samples": 11},
    {"sources": [{"lengths": SPECIFICATION}], "sequence_length": 4, "seed": 1234},
    # The last epoch separate and not; lengths that end at sample boundaries; documents of one token and of none.
    {"sources": [{"lengths": uneven(40, 1)}], "sequence_length": 16, "seed": 0, "num_samples": 50, "samples": 4},
    {"sources": [{"lengths": uneven(40, 1)}], "sequence_length": 16, "seed": 4294967295, "num_samples": 72},
    {"sources": [{"lengths": [8] * 12}], "sequence_length": 8, "seed": 5, "num_samples": 30, "samples": 12},
    {"sources": [{"lengths": [9, 8, 8, 1, 1, 1, 16, 3]}], "sequence_length": 8, "seed": 6, "num_samples": 17, "samples": 17},
    {"sources": [{"lengths": [5, 0, 0, 7, 0, 9]}], "sequence_length": 4, "seed": 7, "num_samples": 21, "samples": 21},
    {"sources": [{"lengths": [200, 3]}], "sequence_length": 10, "seed": 8, "num_samples": 20, "samples": 20},
    # Splits whose borders are rounded to even.
    {"sources": [{"lengths": uneven(101, 2, 12)}], "sequence_length": 8, "seed": 9, "num_samples": 40, "split": "90,8,2"},
    {"sources": [{"lengths": uneven(50, 3, 12)}], "sequence_length": 8, "seed": 10, "num_samples": 70, "split": "90,10"},
    {"sources": [{"lengths": uneven(50, 3, 12)}], "sequence_length": 8, "seed": 10, "split": "90,10", "part": 1},
    {"sources": [{"lengths": uneven(25, 4, 12)}], "sequence_length": 8, "seed": 11, "split": "0.5, .25,.25", "part": 1},
    # Blends by weight, with nine weights (which NumPy sums pairwise), and by size.
    {"sources": [{"lengths": uneven(30, 5), "weight": 0.7}, {"lengths": uneven(30, 6), "weight": 0.3}], "sequence_length": 16,
     "seed": 12, "num_samples": 60, "samples": 6},
    {"sources": [{"lengths": uneven(12, 20 + i, 20), "weight": 0.1 * (i + 1)} for i in range(9)], "sequence_length": 8,
     "seed": 13, "num_samples": 45},
    {"sources": [{"lengths": uneven(30, 7), "weight": 3}, {"lengths": uneven(10, 8), "weight": 1}], "sequence_length": 16,
     "seed": 14, "num_samples": 30, "split": "80,20"},
    {"sources": [{"lengths": uneven(30, 9)}, {"lengths": uneven(10, 10)}, {"lengths": uneven(20, 11)}], "sequence_length": 16,
     "seed": 15, "num_samples": 40, "samples": 6},
    {"sources": [{"lengths": uneven(30, 9)}, {"lengths": uneven(10, 10)}], "sequence_length": 16, "seed": 16},
    {"sources": [{"lengths": uneven(30, 9), "weight": 5}], "sequence_length": 16, "seed": 17, "num_samples": 40},
    # A partial last sample: alone, after others, of two sources, of several epochs; and none.
    {"sources": [{"lengths": uneven(25, 4, 12)}], "sequence_length": 8, "seed": 18, "split": "0.5, .25,.25", "part": 1,
     "drop_last_partial": False, "samples": 9},
    {"sources": [{"lengths": [9, 3, 4]}], "sequence_length": 16, "seed": 19, "split": "1,2", "part": 1,
     "drop_last_partial": False, "samples": 1},
    {"sources": [{"lengths": uneven(20, 12, 9)}, {"lengths": uneven(30, 13, 9)}], "sequence_length": 8, "seed": 20,
     "split": "70,30", "part": 1, "drop_last_partial": False, "samples": 12},
    {"sources": [{"lengths": uneven(20, 14, 9)}], "sequence_length": 8, "seed": 21, "split": "50,50", "part": 1,
     "num_samples": 11, "drop_last_partial": False, "samples": 20},
    {"sources": [{"lengths": [5, 7, 6, 0]}], "sequence_length": 4, "seed": 23, "split": "25,75", "part": 1,
     "drop_last_partial": False, "samples": 4},
    {"sources": [{"lengths": [5, 4, 5]}], "sequence_length": 4, "seed": 23, "split": "34,66", "part": 1,
     "drop_last_partial": False, "samples": 2},
]


def make(folder):
    for dtype in ("uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16"):
        write(folder / dtype, DOCUMENTS, getattr(np, dtype))
    builder = IndexedDatasetBuilder(str(folder / "multimodal.bin"), dtype=np.int32, multimodal=True)
    builder.add_item(torch.tensor([1, 2, 3]), mode=0)
    builder.add_item(torch.tensor([4]), mode=1)
    builder.end_document()
    builder.finalize(str(folder / "multimodal.idx"))
    lines = [json.dumps({**case, "wanted": order(case)}, separators=(",", ":")) for case in CASES]
    (folder / "order.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main():
    if "--check" not in sys.argv[1:]:
        GOLDEN.mkdir(exist_ok=True)
        return make(GOLDEN)
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        for made in sorted(Path(folder).iterdir()):
            if made.read_bytes() != (GOLDEN / made.name).read_bytes():
                sys.exit(f"{made.name} differs")
        print(f"{len(list(Path(folder).iterdir()))} files agree")


if __name__ == "__main__":
    main()
