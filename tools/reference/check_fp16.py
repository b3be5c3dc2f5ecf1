#!/usr/bin/env python3
"""fp16 inference compared with transformers in torch.float16, for the golden models of every family, on the CPU. Run by
`./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_fp16.py

For each model, |logits - logits of transformers in fp32| of `ingot score --dtype fp16` may be at most 1.5 times that of
transformers in fp16. Exit status 1 at the first model that exceeds it, and when no model was compared."""
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from compare_logits import ROOT, distance, ingot, torch_logits
from model_families import FAMILIES, load

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 9, 7, 9, 32, 38]


def main():
    compared = 0
    with tempfile.TemporaryDirectory() as work:
        for family in FAMILIES:
            for folder in sorted((ROOT / "tests/golden" / family).glob("*")):
                out = Path(work) / "logits.npy"
                ids = ",".join(map(str, IDS))
                ingot("score", "--model", folder, "--ids", ids, "--dtype", "fp16", "--device", "cpu", "--logits-out", out)
                model = load(folder)
                exact = torch_logits(model, IDS)
                theirs = distance(torch_logits(model.to(torch.float16), IDS).astype(np.float32), exact)
                ours = distance(np.load(out), exact)
                print(f"{family}/{folder.name}: relative error to fp32 {ours:.2e}, of transformers' fp16 {theirs:.2e}")
                if not 0 < ours <= 1.5 * theirs:
                    sys.exit("the error is more than 1.5 times that of transformers")
                compared += 1
    if compared == 0:
        sys.exit("nothing was compared")


if __name__ == "__main__":
    main()
