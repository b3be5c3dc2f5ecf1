#!/usr/bin/env python3
"""Compares Ingot with newly made golden states of tiny models of every family. Run by `./run oracles`.

    INGOT_BUILD=build/release check_models.py [--seed N] [--seeds COUNT] [FAMILY ...]

make_model_golden.py makes random models, logits, gradients and ten AdamW and LoRA steps with the installed torch, transformers and
peft; make_optimizer_golden.py makes ten steps of the other optimizers for some of them. The tests of tests/parity then compare
Ingot with these states instead of the committed ones, with the tolerances of tests/parity/golden.h, for seed N or for COUNT seeds
from N on. N has a fixed default, so that a run is reproducible. Without names: every family with committed states. Exit status 1
after all seeds when any differs.
"""
import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from model_families import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("INGOT_BUILD", ROOT / "build/release"))


def agrees(program, seed, families):
    with tempfile.TemporaryDirectory() as folder:
        make = [sys.executable, ROOT / "tools/reference/make_model_golden.py", "--out", folder, "--seed", str(seed)]
        subprocess.run([*make, *families], check=True, stdout=subprocess.DEVNULL)
        optimizers = [sys.executable, ROOT / "tools/reference/make_optimizer_golden.py", "--out", folder]
        subprocess.run(optimizers, check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run(
            [program, "--gtest_filter=*Golden*", "--gtest_brief=1"], env=os.environ | {"INGOT_GOLDEN": folder}
        )
    print(f"seed {seed}, {' '.join(families)}: {'agrees' if done.returncode == 0 else 'Ingot differs'}", flush=True)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    arguments = parser.parse_args()
    families = arguments.families or [name for name in FAMILIES if (ROOT / "tests/golden" / name).is_dir()]
    program = BUILD / "tests/test_parity"
    if not program.exists():
        sys.exit(f"{program} is not built")
    passed = sum(agrees(program, arguments.seed + i, families) for i in range(arguments.seeds))
    print(f"{passed} of {arguments.seeds} seeds agree")
    sys.exit(passed != arguments.seeds)


if __name__ == "__main__":
    main()
