#!/usr/bin/env python3
"""Compares the memory that each rank of a run takes with what --dry-run planned for it.

  rank_memory.py [--quick | --large] [--axis dp|pp|tp] [--zero STAGE] [--report FILE.md]

Trains SmolLM2-135M's shape from random weights for two steps of 8 sequences of 256 tokens, as processes that mpirun starts, in
data-parallel and pipeline layouts with every ZeRO stage, schedule and recompute, and GPT-2 124M's in tensor-parallel ones (its 12
heads can be divided by 2 and 4), with --large a shape of 1.1 billion parameters on four ranks (19 GiB), and reads the peak of each process's own memory
(without mapped files and MPI's shared memory). What a process takes besides its plan (the program, MPI, the data) is measured once
with the tiny model and subtracted. Wanted: within 2 % of the plan. Build first: ./run build, ./run mpi. Exit code 1: something is not.
"""
import argparse
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from repository import INGOT, ROOT, commit, write_report

UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
WANTED = 0.02

# Layout, and the settings that it is tried with.
FULL = [
    ({"dp": 4}, [{"zero": 0}, {"zero": 1}, {"zero": 2}, {"zero": 3}, {"zero": 3, "recompute": "full"},
                 {"zero": 3, "determinism": "bitwise"}, {"zero": 3, "adapter": "{rank: 16}"}]),
    ({"dp": 8}, [{"zero": 3}]),
    ({"pp": 4}, [{"schedule": "gpipe"}, {"schedule": "1f1b"}, {"schedule": "zb_h1"}, {"schedule": "interleaved"}, {"schedule": "zb_v"},
                 {"recompute": "selective"}, {"recompute": "full"}, {"schedule": "zb_v", "recompute": "full"},
                 {"adapter": "{rank: 16}"}]),
    ({"dp": 2, "pp": 2}, [{"zero": 0}, {"zero": 1}, {"zero": 1, "schedule": "zb_h1", "determinism": "bitwise"}]),
    ({"dp": 2, "pp": 4}, [{"zero": 1}, {"zero": 1, "schedule": "interleaved"}]),
    ({"tp": 2}, [{"recompute": "none"}, {"recompute": "full"}, {"adapter": "{rank: 16}"}]),
    ({"tp": 2, "dp": 2}, [{"zero": 0}, {"zero": 1}, {"zero": 2}, {"zero": 3}]),
    ({"tp": 2, "pp": 2}, [{"schedule": "1f1b"}, {"schedule": "zb_h1"}]),
]
LARGE = [({"dp": 4}, [{"zero": 3, "recompute": "full", "optimizer.state_dtype": "bf16"}])]
QUICK = [({"dp": 2}, [{"zero": 1}]), ({"pp": 2}, [{"schedule": "zb_v"}])]


def settings(layout, how):
    words = [f"parallel.{key}={value}" for key, value in layout.items()]
    words += [f"{'' if '.' in key or key in ('recompute', 'determinism', 'adapter') else 'parallel.'}{key}={value}" for key, value in how.items()]
    return words


def command(folder, model, words):
    kind = "finetune" if any(word.startswith("adapter=") for word in words) else "pretrain"
    return [str(INGOT), kind, str(folder / "recipe.yaml"), "--quiet", f"model={model}", *words]


def planned(folder, model, words, ranks):
    """Bytes by rank."""
    found = []
    for rank in range(ranks):
        text = subprocess.run([*command(folder, model, words), f"threads={ranks}", "--dry-run", "--rank", str(rank)], cwd=ROOT, check=True,
                              capture_output=True, text=True).stdout
        number, unit = re.search(r"^  total +([0-9.]+) (\w+)$", text, re.MULTILINE).groups()
        found.append(float(number) * UNITS[unit])
    return found


def taken(folder, model, words, ranks):
    """Bytes by rank: the most that each process had of its own."""
    shutil.rmtree(folder / "runs", ignore_errors=True)
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # The number of processes decides parallel.dp.
    words = [word for word in words if not word.startswith("parallel.dp=")]
    wrapped = [sys.executable, __file__, "--watch", str(folder), "--", *command(folder, model, words), f"threads={ranks}"]
    done = subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *wrapped], cwd=ROOT, env=environment,
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return [int((folder / f"peak-{rank}").read_text()) for rank in range(ranks)]


def watch(folder, words):
    """Runs a rank and notes the most memory of its own, in samples; what a plan counts stays until the end."""
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0"))
    program = subprocess.Popen(words)
    most = 0
    while program.poll() is None:
        try:
            fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{program.pid}/status").read_text().splitlines())
        except (FileNotFoundError, ProcessLookupError):
            break
        most = max(most, int(fields["RssAnon"].split()[0]) if "RssAnon" in fields else 0)
        time.sleep(0.02)
    (folder / f"peak-{rank}").write_text(str(most * 1024))
    sys.exit(program.wait())


def main():
    parser = argparse.ArgumentParser()
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--quick", action="store_true")
    chosen.add_argument("--large", action="store_true")
    parser.add_argument("--axis", choices=["dp", "pp", "tp"], help="only layouts with ranks along this axis")
    parser.add_argument("--zero", type=int, help="only this ZeRO stage")
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--watch", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.watch:
        return watch(options.watch, options.words)
    tiny, whole, cut = ROOT / "recipes/models/tiny", ROOT / "bench/models/smollm2-135m", ROOT / "recipes/models/gpt2-124m"
    large = ROOT / "bench/models/llama-1.1b"
    lines = ["| layout | settings | planned, MiB by rank | difference, % by rank |", "|---|---|---|---|"]
    shapes = "SmolLM2-135M's shape, with tp GPT-2 124M's"
    wrong = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "recipe.yaml").write_text(
            f"name: run\nmodel: {tiny}\ninit: random\ntokenizer: {tiny}\nrun_dir: {folder}/runs\n"
            f"data: {{train: {ROOT}/data/sotu/heldout.jsonl, format: text, sequence_length: 256}}\nsteps: 2\n"
            "batch: {global: 8, micro: 1}\ncheckpoint: {minutes: 0}\n")
        for layout, variants in QUICK if options.quick else LARGE if options.large else FULL:
            variants = [how for how in variants if options.zero is None or how.get("zero", 0) == options.zero]
            if not variants or (options.axis and options.axis not in layout):
                continue
            ranks = math.prod(layout.values())
            shape = large if options.large else cut if "tp" in layout else whole
            layouts = settings(layout, {})
            besides = [own - plan for own, plan in zip(taken(folder, tiny, layouts, ranks), planned(folder, tiny, layouts, ranks))]
            for how in variants:
                words = settings(layout, how)
                model = shape
                if "adapter" in how:
                    words, model = [*words, "init=pretrained"], folder / shape.name
                    if not model.exists():  # adapters need weights
                        shutil.rmtree(folder / "runs", ignore_errors=True)
                        subprocess.run([*command(folder, shape, ["steps=1"])], cwd=ROOT, check=True, capture_output=True)
                        shutil.move(folder / "runs/run/model", model)
                plan = planned(folder, model, words, ranks)
                own = [all_of_it - rest for all_of_it, rest in zip(taken(folder, model, words, ranks), besides)]
                differences = [(a / b - 1) for a, b in zip(own, plan)]
                if max(map(abs, differences)) > WANTED:
                    wrong.append(" ".join(words))
                lines.append(f"| {', '.join(f'{key} {value}' for key, value in layout.items())} | "
                             f"{', '.join(f'{key} {value}' for key, value in how.items())} | "
                             f"{', '.join(f'{bytes / 2**20:.0f}' for bytes in plan)} | "
                             f"{', '.join(f'{100 * difference:+.1f}' for difference in differences)} |")
                print(lines[-1], file=sys.stderr)
    head = [f"# Memory of ranks ({time.strftime('%Y-%m-%d')})", "",
            f"`bench/rank_memory.py{' --quick' if options.quick else ' --large' if options.large else ''}{f' --axis {options.axis}' if options.axis else ''}"
            f"{f' --zero {options.zero}' if options.zero is not None else ''}`, commit "
            f"{commit()}. {'A shape of 1.1 billion parameters' if options.large else shapes}, two steps of 8 sequences of "
            "256 tokens, micro-batches of one, processes under mpirun. Wanted: within 2 % of the plan.", ""]
    write_report("\n".join(head + lines), options.report)
    if wrong:
        sys.exit("not within 2 %: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
