"""Shared by the model oracles: runs Ingot as a command, and computes logits with Ingot and with torch."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
INGOT = os.environ.get("INGOT_EXECUTABLE", str(ROOT / "build/release/ingot"))


def ingot(*arguments):
    done = subprocess.run([INGOT, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        sys.exit(f"ingot {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def torch_logits(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0].numpy()


def ingot_logits(model, ids, work, *more):
    out = work / "logits.npy"
    ingot("score", "--model", model, *more, "--ids", ",".join(map(str, ids)), "--dtype", "fp32", "--logits-out", out)
    return np.load(out)


def distance(found, expected):
    """|found - expected| / |expected| in the Euclidean norm."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
