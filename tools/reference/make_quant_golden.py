#!/usr/bin/env python3
"""Makes the block-quantization fixtures of tests/golden/formats/quant/ with the gguf package's numpy code (pip install gguf numpy).

TYPE.blocks and TYPE.f32: blocks of random bits and their values. encode.f32 and encode.TYPE: values and their blocks.
`--check` makes them in memory and compares instead of writing."""
import argparse
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

# Byte positions of the half-precision scales in a block: random bits there would often be infinite or NaN.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q6_K": [208]}


def encoder_input(random):
    ramp = np.arange(-16, 16)
    rows = [
        ramp,
        np.zeros(32),
        np.full(32, 1.5),
        np.full(32, -0.25),
        random.standard_normal(32),
        random.standard_normal(32) * 1e-3,
        random.standard_normal(32) * 1e3,
        ramp * 127.0 / 2,  # many quotients are at or near one half
        np.abs(random.standard_normal(32)),
        -np.abs(random.standard_normal(32)),
        np.where(ramp == 3, 100.0, random.standard_normal(32)),
        np.where(np.abs(ramp) == 5, np.sign(ramp) * 7.0, 1.0),  # the largest magnitude twice, with both signs
        random.standard_normal(32) * 1e-7,  # scales below the normal halves
    ]
    rows += [random.standard_normal(32) * random.uniform(0.01, 10) for _ in range(19)]
    return np.stack(rows).astype(np.float32)


def make():
    random = np.random.default_rng(20)
    files = {}
    for name, positions in SCALES.items():
        elements, size = GGML_QUANT_SIZES[Type[name]]
        count = 512 // elements
        blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
        for position in positions:
            scales = (random.standard_normal(count) * 0.05).astype(np.float16)
            blocks[:, position : position + 2] = scales.view(np.uint8).reshape(count, 2)
        files[f"{name.lower()}.blocks"] = blocks.tobytes()
        files[f"{name.lower()}.f32"] = dequantize(blocks, Type[name]).astype("<f4").tobytes()
    values = encoder_input(random)
    files["encode.f32"] = values.tobytes()
    for name in ("Q8_0", "Q4_0", "Q4_1"):
        files[f"encode.{name.lower()}"] = quantize(values, Type[name]).tobytes()
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    folder = Path(__file__).resolve().parents[2] / "tests/golden/formats/quant"
    folder.mkdir(parents=True, exist_ok=True)
    different = []
    for name, data in make().items():
        if not args.check:
            (folder / name).write_bytes(data)
        elif (folder / name).read_bytes() != data:
            different.append(name)
    if different:
        sys.exit(f"differ from what is committed: {', '.join(different)}")


if __name__ == "__main__":
    main()
