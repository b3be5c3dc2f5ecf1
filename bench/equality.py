#!/usr/bin/env python3
"""Compares training in every layout of ranks with training on one rank, for every family of models.

  equality.py [--family NAME]... [--jobs N] [--report FILE.md]

The grid (tests/train/layout_grid.h): ten steps of a tiny model of each family in each layout, in fp32 and bf16, full training and
adapters, with `determinism: bitwise` and `fast`. Compared are the loss and gradient norm of every step, the loss of an evaluation, all
gradients of the first step, and all weights after the last. With `bitwise` they have to be equal in bits, with `fast` to rounding. What
the program refuses is listed with its reason. Then a mixtral is trained by the executable in all these layouts in turn, each for one
step, from the checkpoint of the layout before: curve and weights have to be those of one rank. Each family is a process of its own.
Build first: cmake --build build/release --target layout_grid ingot. Exit code 1: something differs.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from repository import INGOT, ROOT, commit, processor, write_report

GRID = ROOT / "build/release/tests/layout_grid"
KINDS = 4  # of combinations in a cell: fp32 and bf16, full training and adapters


def families():
    if not GRID.exists():
        sys.exit(f"{GRID} is missing; build it first: cmake --build build/release --target layout_grid ingot")
    return subprocess.run([GRID], check=True, capture_output=True, text=True).stdout.split()


def combinations(family):
    """Of a family, those tried before the process ended, and what it printed if it failed."""
    done = subprocess.run([GRID, family], capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    print(f"{family}: {len(found)} combinations, exit code {done.returncode}", file=sys.stderr)
    return found, "" if done.returncode == 0 else f"{family}: exit code {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"


class Tour:
    """Runs of a mixtral whose heads, blocks and experts can be divided in every way of the grid."""

    def __init__(self, folder):
        self.folder = folder
        self.model = folder / "mixtral"
        shutil.copytree(ROOT / "recipes/models/tiny", self.model)
        config = json.loads((self.model / "config.json").read_text())
        config.update({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2})
        config.update({"hidden_size": 64, "head_dim": 16, "intermediate_size": 96, "num_hidden_layers": 8, "num_key_value_heads": 4})
        (self.model / "config.json").write_text(json.dumps(config))

    def train(self, name, settings):
        start = [f"model={self.model}", "init=random"]
        if any(word.startswith("adapter=") for word in settings):
            start = [f"model={self.folder / 'base/model'}", "init=pretrained"]
        done = subprocess.run(
            [INGOT, "finetune" if "init=pretrained" in start else "pretrain", ROOT / "recipes/tiny.yaml", "--quiet", *start,
             f"run_dir={self.folder}", f"name={name}", "device=cpu", "data.sequence_length=64", "batch.global=8", "batch.micro=1",
             "data.eval=[]", "eval.every=0", "eval.prompts=[]", "schedule.name=constant", "schedule.warmup=0", "checkpoint.every=1",
             "determinism=bitwise", *settings], cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{name}, {settings}: exit code {done.returncode}: {done.stderr}")

    def result(self, name):
        """Loss and gradient norm of every step, and the hash of the model or the adapter's bytes."""
        events = [json.loads(line) for line in (self.folder / name / "events.jsonl").read_text().splitlines()]
        curve = [(event["step"], event["loss"], event["grad_norm"]) for event in events if event["type"] == "step"]
        adapter = self.folder / name / "adapter/adapter_model.safetensors"
        if adapter.exists():
            return curve, adapter.read_bytes()
        done = subprocess.run([INGOT, "model", "inspect", "--json", "--hash", self.folder / name / "model"], check=True,
                              capture_output=True, text=True)
        return curve, json.loads(done.stdout)["sha256"]

    def equals_one_rank(self, name, layouts, more):
        units = "parallel.units=4"
        self.train(f"{name}-one", [*more, units, f"steps={len(layouts)}", "threads=1"])
        for step, layout in enumerate(layouts, 1):
            ranks = 1
            for axis, value in (setting.split(": ") for setting in layout.split(", ")):
                ranks *= int(value) if axis in ("dp", "tp", "pp", "cp") else 1
            self.train(f"{name}-tour", [*more, f"parallel={{{layout}}}", units, f"steps={step}", f"threads={ranks}",
                                        *(["--resume"] if step > 1 else [])])
        return self.result(f"{name}-tour") == self.result(f"{name}-one")


def table(names, layouts, cell):
    return ["| `parallel` | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|",
            *(f"| {layout} | " + " | ".join(cell(name, layout) for name in names) + " |" for layout in layouts), ""]


def number(value):
    return f"{value:.0e}" if value else "0"


def largest(found, what):
    return max((each[what] for each in found), default=0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", action="append")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    began, built, load = time.monotonic(), commit(), os.getloadavg()[0]
    names = [name for name in families() if not options.family or name in options.family]
    if options.family and set(names) != set(options.family):
        parser.error(f"families are {', '.join(families())}")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(combinations, names))
    found = [each for one, _ in results for each in one]
    failures = [text for _, text in results if text]
    layouts = list(dict.fromkeys(each["layout"] for each in found))
    wrong = [each for each in found if "failed" in each or not (each["refused"] or each["equal"])]
    refused = [each for each in found if each.get("refused")]
    tried = [each for each in found if "failed" not in each and not each["refused"]]
    by_cell = collections.defaultdict(list)
    for each in found:
        by_cell[each["family"], each["layout"], each["bitwise"]].append(each)
    for each in refused:  # without the path of a recipe
        each["refused"] = each["refused"].rpartition("recipe.yaml: ")[2]
    reasons = list(dict.fromkeys(each["refused"] for each in refused))
    letter = {reason: f"r{number}" for number, reason in enumerate(reasons, 1)}

    def bits(family, layout):
        cell = by_cell[family, layout, True]
        if cell and all(each.get("refused") for each in cell):
            return letter[cell[0]["refused"]]
        equal = sum(each.get("bits", False) for each in cell)
        return str(equal) if equal == KINDS else f"**{equal} of {KINDS}**"

    def rounded(precision):
        def text(family, layout):
            cell = [each for each in by_cell[family, layout, False] if each["precision"] == precision]
            if cell and all(each.get("refused") for each in cell):
                return letter[cell[0]["refused"]]
            if any(each in wrong for each in cell):
                return "**differs**"
            return "=" if all(each["bits"] for each in cell) else number(largest(cell, "loss"))
        return text

    def summary(layout):
        fast = {precision: [each for each in tried if each["layout"] == layout and not each["bitwise"] and each["precision"] == precision]
                for precision in ("fp32", "bf16")}
        exact = [each for each in tried if each["layout"] == layout and each["bitwise"]]
        differences = [" | ".join(number(largest(fast[precision], what)) for what in ("loss", "gradient", "weight"))
                       for precision in fast]
        seconds = sum(each["seconds"] for each in tried if each["layout"] == layout)
        return (f"| {layout} | {sum(each['bits'] for each in exact)} of {len(exact)} | {len(fast['fp32']) + len(fast['bf16'])} | "
                f"{' | '.join(differences)} | {seconds:.0f} |")

    with tempfile.TemporaryDirectory() as temporary:
        tour = Tour(pathlib.Path(temporary))
        tour.train("base", ["steps=1", "threads=1"])
        exact = [layout for layout in layouts if any(not each.get("refused") for name in names for each in by_cell[name, layout, True])]
        toured = {what: tour.equals_one_rank(name, exact, more)
                  for what, name, more in (("full training", "full", []), ("an adapter", "adapter", ["adapter={rank: 4}"]))}
    differs = [what for what, same in toured.items() if not same]
    lines = [
        f"# Equality of layouts ({time.strftime('%Y-%m-%d')})", "",
        f"`bench/equality.py{''.join(f' --family {name}' for name in options.family or [])}`, commit {built}, {processor()}, load average "
        f"at the start {load:.1f}; {time.monotonic() - began:.0f} s.", "",
        f"{len(found)} combinations: {len(tried)} were trained, of which {len(wrong)} differ from one rank; {len(refused)} are refused by "
        f"the program. Each is ten steps of six sequences of 24 tokens by a model of three or four blocks, or of as many as there are "
        "virtual stages. Families are those of src/models/testing, with options of a family as lines of their own.", "",
        "## `determinism: bitwise`", "",
        f"How many of {KINDS} combinations (fp32 and bf16, full training and an adapter; AdamW) have the bits of one rank: the loss and "
        "gradient norm of each step, an evaluation, all gradients of the first step, all weights after ten. With tp or cp, "
        "`parallel.units` is 4 where the family's heads allow it, else 2. `rN`: refused, below.", "",
        *table(names, layouts, bits),
        "## `determinism: fast`", "",
        "Largest relative difference of a loss from one rank's, in fp32 (full training and an adapter; SGD, whose updates are proportional "
        "to gradients); =: all has the same bits.", "",
        *table(names, layouts, rounded("fp32")), "In bf16:", "", *table(names, layouts, rounded("bf16")),
        "## Of all families", "",
        "Combinations with equal bits; with `fast`, their number, and the largest differences: of a loss (relative), of a gradient of the "
        "first step (relative to the largest of all gradients), of a weight after ten steps (relative to the largest weight); seconds of all "
        "runs in the layout.", "",
        "| `parallel` | bits | fast | fp32: loss | gradient | weight | bf16: loss | gradient | weight | s |", "|---" * 10 + "|",
        *map(summary, layouts), "",
        "## Refused", "", *(f"- {letter[reason]}: {reason}" for reason in reasons), "",
        "## Continued in another layout at each checkpoint", "",
        f"A mixtral of 8 blocks, 4 heads and 4 experts, bf16, trained by the executable for {len(exact)} steps, each in another of the layouts "
        "with equal bits above, from the checkpoint of the one before, has the curve and the weights of one rank in bits: "
        + ", ".join(f"{what} {'yes' if same else '**no**'}" for what, same in toured.items()) + "."]
    write_report("\n".join(lines), options.report)
    problems = [*failures, *(json.dumps(each) for each in wrong), *(f"the tour of {what} differs" for what in differs)]
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
