#!/usr/bin/env python3
"""Makes the 8-bit float fixtures of tests/golden/formats/fp8/ with torch.

TYPE.f32: the values of the 256 codes, for the OCP types (e4m3fn, e5m2) and those of AMD's gfx942 (e4m3fnuz, e5m2fnuz).
values.f32 and encode.TYPE: values within the type's range and their codes.
`--check` makes them in memory and compares instead of writing."""
import argparse
import sys
from pathlib import Path

import torch

TYPES = {"e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e4m3fnuz": torch.float8_e4m3fnuz,
         "e5m2fnuz": torch.float8_e5m2fnuz}


def values():
    """Every value of both types, the midpoints between neighbours and values next to these, and random ones."""
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    parts = []
    for name in ("e4m3fn", "e5m2"):
        exact = codes.view(TYPES[name]).to(torch.float64)
        exact = exact[exact.isfinite()].unique()
        middle = (exact[1:] + exact[:-1]) / 2
        parts += [exact, middle, middle * (1 + 2**-20), middle * (1 - 2**-20)]
    random = torch.Generator().manual_seed(8)
    spread = torch.exp2(torch.rand(4096, generator=random, dtype=torch.float64) * 40 - 24)
    parts.append(torch.randn(4096, generator=random, dtype=torch.float64) * spread)
    return torch.cat(parts).to(torch.float32)


def make():
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    files = {f"{name}.f32": codes.view(dtype).to(torch.float32).numpy().tobytes() for name, dtype in TYPES.items()}
    files["values.f32"] = values().numpy().tobytes()
    for name in ("e4m3fn", "e5m2"):
        largest = torch.finfo(TYPES[name]).max
        files[f"encode.{name}"] = values().clamp(-largest, largest).to(TYPES[name]).view(torch.uint8).numpy().tobytes()
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    folder = Path(__file__).resolve().parents[2] / "tests/golden/formats/fp8"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in make().items():
        path = folder / name
        if not check:
            path.write_bytes(data)
        elif path.read_bytes() != data:
            sys.exit(f"{path} differs")


if __name__ == "__main__":
    main()
