#!/usr/bin/env python3
"""Compares the memory that --dry-run plans for each pipeline stage with what others have published for the same model and layout.

  published_memory.py [--report FILE.md]

Published: torch's memory statistics of each stage's ranks, in MiB. Frontier: the log of GPT 175B on 128 dies of MI250X by the authors of
Frontier's study (sajal-vt/Megatron-DeepSpeed-ORNL, run gpt175b_megatron_16N_newcomm; Dash et al. 2023, arXiv 2312.12705). LUMI: the logs
of a model in the shape of BLOOM 176B (spyysalo/lumi-llm-scaling, MIT), medians of a stage. "Held" is what is allocated between steps:
weights, gradients, optimizer. Nothing is trained here; build first: ./run build.
"""
import argparse
import pathlib
import re
import subprocess
import time

from repository import INGOT, ROOT, commit, write_report

UNITS = {"bytes": 2**-20, "KiB": 2**-10, "MiB": 1, "GiB": 2**10}
HELD = ("weights", "master weights", "optimizer state", "gradients")

# By stage: (held, most).
FRONTIER_175B = {0: (25142.4, 33901.5), 1: (23360.9, 31435.5), 4: (23360.9, 30535.5), 8: (23360.9, 29335.5), 12: (23360.9, 28135.5),
                 14: (23360.9, 27535.5), 15: (25468.2, 29137.8)}
# By data-parallel ranks and stage.
LUMI_176B = {(2, 2): (37097.3, 44156.8), (2, 5): (37096.3, 41089.8), (2, 7): (30721.6, 32929.6), (4, 0): (30148.2, 40600.3),
             (4, 1): (29156.3, 37238.3), (4, 4): (29156.3, 34172.3), (4, 7): (24283.1, 26490.1), (8, 0): (26045.1, 36495.7),
             (8, 1): (25191.0, 33271.0), (8, 4): (25190.5, 30205.0), (16, 0): (23996.9, 34446.0), (16, 4): (23203.4, 28218.9),
             (16, 7): (19453.1, 21660.1), (32, 1): (22211.3, 30289.3), (32, 6): (22209.8, 25180.3), (32, 7): (18644.2, 20852.2)}


def planned(recipe, machine, rank, overrides):
    """MiB by kind, of one rank."""
    text = subprocess.run([str(INGOT), "pretrain", str(ROOT / f"recipes/scale/{recipe}.yaml"), "--dry-run", "--machine", machine, "--rank",
                           str(rank), *overrides], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    rows = re.findall(r"^  ([a-z' ]+?) +([0-9.]+) (\w+)$", text, re.MULTILINE)
    return {kind: float(number) * UNITS[unit] for kind, number, unit in rows}


def row(where, rank, recipe, machine, overrides, published):
    held, most = published
    own = planned(recipe, machine, rank, overrides)
    own_held = sum(own[kind] for kind in HELD)
    return (f"| {where} | {held:,.0f} | {own_held:,.0f} | {own_held / held:.2f} | {most - held:,.0f} | {own['total'] - own_held:,.0f} | "
            f"{(own['total'] - own_held) / (most - held):.2f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    head = ["| {} | held, published | planned | ratio | the rest at its peak, published | planned | ratio |", "|---|---|---|---|---|---|---|"]
    lines = [f"# Memory of pipeline stages beside published logs ({time.strftime('%Y-%m-%d')})", "",
             f"`bench/published_memory.py`, commit {commit()}. MiB of one rank.", "",
             "## Frontier: GPT 175B, tp 4, pp 16, dp 2, sequences of 2,048, one at a time, full recomputation", ""]
    lines += [head[0].format("stage"), head[1]]
    for stage, published in FRONTIER_175B.items():
        lines.append(row(stage, stage * 8, "frontier-175b", "frontier", [], published))
    lines += ["", "## LUMI: GPT in the shape of BLOOM 176B, tp 8, pp 8, sequences of 2,048, two at a time, full recomputation", "",
              head[0].format("dp, stage"), head[1]]
    for (dp, stage), published in LUMI_176B.items():
        lines.append(row(f"{dp}, {stage}", stage * dp * 8, "lumi-176b", "lumi", [f"parallel.dp={dp}"], published))
    write_report("\n".join(lines), options.report)


if __name__ == "__main__":
    main()
