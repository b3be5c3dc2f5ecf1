#!/usr/bin/env python3
"""Fresh golden states of tiny llamas against the parity tests. Run by `./run oracles`.

    INGOT_BUILD=build/release check_llama.py

make_llama_golden.py writes random models, logits, gradients and ten AdamW and LoRA steps by the installed torch,
transformers and peft; the program tests/parity compares Ingot with them instead of with the committed ones. Twice:

* everything, with the seed of the committed states;
* with a seed from the clock everything but the ten steps. Adam divides by the root of the second moment plus eps, 1e-8:
  where a gradient happens to be that small (in 9 of 40 seeds tried) its sign is rounding, torch in fp32 itself is off
  torch in fp64 by more than the bound, and there is nothing to compare with.

Exit status 1 when any differs.
"""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("INGOT_BUILD", ROOT / "build/release"))


def compare(program, seed, tests):
    print(f"seed {seed}: {tests}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        make = [sys.executable, ROOT / "tools/reference/make_llama_golden.py", "--out", folder, "--seed", str(seed)]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run(
            [program, f"--gtest_filter={tests}", "--gtest_brief=1"], env=os.environ | {"INGOT_GOLDEN": folder}
        )
    if done.returncode != 0:
        sys.exit(f"seed {seed}: Ingot differs")


def main():
    program = BUILD / "tests/test_parity"
    if not program.exists():
        sys.exit(f"{program} is not built")
    compare(program, 20, "*Llama*")
    compare(program, int(time.time()) % 100000, "*Llama*:-*Ten*")


if __name__ == "__main__":
    main()
