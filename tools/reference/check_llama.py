#!/usr/bin/env python3
"""Fresh golden states of tiny llamas, from a seed of the day, against the parity tests. Run by `./run oracles`.

    INGOT_BUILD=build/release check_llama.py

make_llama_golden.py writes new random models, logits, gradients and ten AdamW and LoRA steps by torch, transformers and
peft; the program tests/parity compares Ingot with them instead of with the committed ones. Exit status 1 when any
differs.
"""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("INGOT_BUILD", ROOT / "build/release"))


def main():
    program = BUILD / "tests/test_parity"
    if not program.exists():
        sys.exit(f"{program} is not built")
    seed = int(time.time()) % 100000
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        make = [sys.executable, ROOT / "tools/reference/make_llama_golden.py", "--out", folder, "--seed", str(seed)]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run(
            [program, "--gtest_filter=*Llama*", "--gtest_brief=1"], env=os.environ | {"INGOT_GOLDEN": folder}
        )
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
