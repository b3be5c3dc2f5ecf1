#!/usr/bin/env python3
"""Compares Ingot's sample orders with Megatron-LM's: check_megatron.py [SEED] [CASES].

Megatron's writer makes random data sets, with random splits and blends. The orders of its BlendedMegatronDatasetBuilder and of
`ingot data order --indices` must be equal index for index, for training and for held-out data, with and without a partial last
sample. Exit code 77 when megatron-core is not installed."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

try:
    from megatron_reference import order
except ImportError as error:
    print(f"left out: {error}")
    sys.exit(77)

INGOT = os.environ.get("INGOT_EXECUTABLE", "build/release/ingot")


def draw(random):
    number = int(random.choice([1, 1, 1, 2, 3, 9]))
    weighted = number > 1 and bool(random.integers(2))
    sources = []
    for _ in range(number):
        most = int(random.choice([3, 12, 60]))
        lengths = random.integers(1, most, int(random.integers(30, 90)))
        if random.integers(4) == 0:
            lengths[:10] *= random.integers(2, size=10)  # empty documents; Megatron hangs when a whole part is empty
        lengths = lengths.tolist()
        sources.append({"lengths": lengths, **({"weight": float(random.integers(1, 1000)) / 64} if weighted else {})})
    length = int(random.choice([2, 3, 8, 16]))
    samples = [(sum(source["lengths"]) * 7 // 10 - 1) // length for source in sources]
    most = max(1, min(samples)) if number > 1 and not weighted else max(1, sum(samples) * 4)
    case = {"sources": sources, "sequence_length": length, "seed": int(random.integers(1 << 32)),
            "num_samples": int(random.integers(1, most + 1))}
    if random.integers(2):
        case["split"] = str(random.choice(["80,20", "90,8,2", "0.75,0.125,0.125"]))
        case["drop_last_partial"] = bool(random.integers(2))
    return case


def held_out(case):
    """Megatron's samples of the held-out part, each once; None when a source has none."""
    sources = [{"lengths": source["lengths"]} for source in case["sources"]]
    try:
        return order({**case, "sources": sources, "num_samples": None, "part": 1})
    except (AssertionError, IndexError, ValueError):
        return None


def compare(wanted, found, what, case):
    """Exits at the first difference; returns the number of samples."""
    size = 0
    for index, member in enumerate(wanted["sources"]):
        for key, value in member.items():
            if found["sources"][index][key] != value:
                sys.exit(f"{what}: {key} of source {index} differs: {json.dumps(case)}")
        size += len(member["shuffle_index"])
    for key in ("dataset_index", "dataset_sample_index"):
        if found.get(key) != wanted.get(key):
            sys.exit(f"{what}: {key} differs: {json.dumps(case)}")
    return size


def ours(case, folder):
    """The output of `ingot data order` for the files that order() wrote to the folder."""
    sources = [{"path": str(folder / f"source{number}"), **({"weight": source["weight"]} if "weight" in source else {})}
               for number, source in enumerate(case["sources"])]
    recipe = {"name": "order", "model": "none", "steps": case["num_samples"], "batch": {"global": 1},
              "data": {"train": sources, "order": "megatron", "sequence_length": case["sequence_length"], "seed": case["seed"],
                       **{key: case[key] for key in ("split", "drop_last_partial") if key in case}}}
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    run = subprocess.run([INGOT, "data", "order", str(folder / "recipe.yaml"), "--indices", "--json"], capture_output=True,
                         text=True)
    if run.returncode != 0:
        sys.exit(f"{run.stderr}\n{json.dumps(case)}")
    return json.loads(run.stdout)


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    cases = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    random = np.random.default_rng(seed)
    compared = samples = partial = 0
    while compared < cases:
        case = draw(random)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            try:
                wanted = order(case, folder)
            except (AssertionError, IndexError, ValueError):  # a part has no data, or a blend requests too much
                continue
            found = ours(case, folder)
        samples += compare(wanted, found, "training", case)
        compared += 1
        wanted = held_out(case) if "split" in case else None
        if wanted is None or len(wanted["sources"]) != len(found.get("held_out", {}).get("sources", [])):
            continue
        samples += compare(wanted, found["held_out"], "held out", case)
        compared += 1
        partial += not case["drop_last_partial"]
    print(f"{compared} orders of {samples} samples in all, {partial} of them with partial samples, are Megatron's, index for "
          f"index (seed {seed})")


if __name__ == "__main__":
    main()
