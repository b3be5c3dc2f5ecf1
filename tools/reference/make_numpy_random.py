#!/usr/bin/env python3
"""Makes tests/golden/base/numpy_random.txt with NumPy (pip install numpy): values that its generators draw.

A line is a generator (`state` for RandomState, `generator` for default_rng), its seed, calls in sequence, ` = ` and their results.
`--check` compares with the file instead of writing it."""
import sys
from pathlib import Path

import numpy as np

FILE = Path(__file__).resolve().parents[2] / "tests/golden/base/numpy_random.txt"
LINES = [
    ("state", 1234, "u32 u32 u32 u64 u32"),
    ("state", 0, "shuffle:10 u32"),
    ("state", 4294967295, "shuffle:1 shuffle:2 shuffle:3 shuffle:257"),
    ("state", 1234, "shuffle:10 shuffle:1500 u64"),
    ("state", 7, "interval:0 interval:1 interval:2 interval:255 interval:256 interval:4294967295 interval:4294967296 "
                 "interval:1000000000000 interval:18446744073709551615 u32"),
    ("generator", 9176, "u64 u64 u64 u32 random u32 u64 u32 u32"),
    ("generator", 0, "shuffle:10 u32 random"),
    ("generator", 12345678901234567, "u32 shuffle:1 shuffle:2 shuffle:500 u64"),
    ("generator", 9177, "integers:0:1 integers:0:2 integers:-5:7 integers:196608:327680 integers:0:4294967295 "
                        "integers:0:4294967296 integers:0:4294967297 integers:-9223372036854775808:9223372036854775807 u32"),
    ("generator", 3, "uniform:-2.5:7.25 uniform:0:0 random"),
    ("generator", 4294967296, "choice:10:0 choice:10:3 choice:1:1 choice:300:299 u32"),
    ("generator", 5, "choice:10001:150 choice:10000:300 u32"),
    ("generator", 6, "choice:10001:201 u32"),
    ("generator", 8, "choice:10001:10001 u64"),
    # Ranges slightly above a half reject often.
    ("state", 11, " ".join(["interval:2147483648"] * 40)),
    ("generator", 12, " ".join(["integers:0:2863311531", "integers:0:6148914691236517206"] * 40)),
]


def draw(source, call):
    name, *arguments = call.split(":")
    numbers = [float(a) if name == "uniform" else int(a) for a in arguments]
    is_state = isinstance(source, np.random.RandomState)
    if name == "shuffle":
        values = np.arange(numbers[0])
        source.shuffle(values)
        return values.tolist()
    if name in ("u32", "u64") and is_state:
        return [int(source.randint(0, 1 << int(name[1:]), dtype=f"uint{name[1:]}"))]
    if name in ("u32", "u64"):
        return [int(source.integers(0, 1 << int(name[1:]), dtype=f"uint{name[1:]}"))]
    if name == "interval":
        return [int(source.randint(0, numbers[0] + 1, dtype="uint64"))]
    if name == "integers":
        return [int(source.integers(*numbers))]
    if name == "choice":
        return source.choice(*numbers, replace=False).tolist()
    return [float(getattr(source, name)(*numbers)).hex()]


def main():
    text = ""
    for kind, seed, calls in LINES:
        source = np.random.RandomState(seed) if kind == "state" else np.random.default_rng(seed)
        drawn = [value for call in calls.split() for value in draw(source, call)]
        text += f"{kind} {seed} {calls} = {' '.join(map(str, drawn))}\n"
    if "--check" in sys.argv[1:]:
        if FILE.read_text() != text:
            sys.exit(f"{FILE}: NumPy {np.__version__} draws other values")
        print(f"NumPy {np.__version__} draws what {FILE.name} says")
    else:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(text)


if __name__ == "__main__":
    main()
