#!/usr/bin/env python3
"""Weak scaling on this machine: ranks that train one model together, against as many independent runs side by side.

  scaling.py [--model gpt2-124m] [--sequence N] [--each N] [--steps N] [--rounds N] [--only LAYOUT]... [--report FILE.md]

Independent runs share the machine's memory, caches and cores as ranks do, so the ratio shows what the ranks' communication and waiting
cost. Each independent run has one thread on a core of its own and --each sequences a step; the ranks together have one thread on each of
these cores and --each sequences for each of them. The jobs alternate --rounds times; the median step of all rounds counts, without the
first step of a run. Before it is timed, each layout's losses of the first two steps are compared with one rank's. Meaningful only on an
otherwise idle machine.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from repository import INGOT, ROOT, commit, processor, tokens, write_report

CPUS = sorted(os.sched_getaffinity(0))
MICRO_BATCHES = 4  # of a pipeline's stage
LAYOUTS = [("dp", ["parallel.dp={n}"]), ("dp, zero 1", ["parallel.dp={n}", "parallel.zero=1"]),
           ("dp, zero 3", ["parallel.dp={n}", "parallel.zero=3"]), ("tp", ["parallel.tp={n}"]),
           ("tp, sequence parallel", ["parallel.tp={n}", "parallel.sequence_parallel=true"]),
           ("pp, 1f1b", ["parallel.pp={n}", "parallel.schedule=1f1b"]),
           ("pp, zb_h1", ["parallel.pp={n}", "parallel.schedule=zb_h1"])]


def start(name, words, cpus, batch, options, folder, steps):
    """A run in the background; `words`: its layout."""
    return subprocess.Popen(
        ["taskset", "-c", ",".join(map(str, cpus)), str(INGOT), "pretrain", str(ROOT / f"recipes/pretrain/{options.model}.yaml"), "--quiet",
         "tokenizer=null", f"data.train={options.data}", "data.order=megatron", "device=cpu", f"data.sequence_length={options.sequence}",
         f"batch.global={batch}", "batch.micro=1", "schedule.warmup_steps=0", f"steps={steps}", "eval.every=0", "checkpoint.every=0",
         "checkpoint.minutes=0", f"threads={len(cpus)}", "determinism=fast", f"run_dir={folder}", f"name={name}", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def steps_of(process, name, folder):
    """The step events of a run that has ended."""
    error = process.communicate()[1]
    if process.returncode != 0:
        sys.exit(f"{name}: exit code {process.returncode}: {error}")
    events = [json.loads(line) for line in (folder / name / "events.jsonl").read_text().splitlines()]
    subprocess.run(["rm", "-r", folder / name], check=True)
    return [event for event in events if event["type"] == "step"]


def together(layout, options, folder, steps):
    words = [word.format(n=len(CPUS)) for word in layout]
    process = start("together", words, CPUS, options.each * len(CPUS), options, folder, steps)
    return steps_of(process, "together", folder)


def apart(options, folder):
    """Steps of independent runs side by side; each run's rates begin after its first step."""
    runs = [start(f"apart-{cpu}", [], [cpu], options.each, options, folder, options.steps + 1) for cpu in CPUS]
    return [step for cpu, run in zip(CPUS, runs) for step in steps_of(run, f"apart-{cpu}", folder)[1:]]


def seconds(steps):
    return [step["step_s"] for step in steps]


def expected(name, options):
    """The share that the schedule's formula allows; 1 for other layouts."""
    if not name.startswith("pp"):
        return 1.0
    micro_batches, stages = options.each * len(CPUS), len(CPUS)
    bubble = (stages - 1) / micro_batches / (3 if "zb_h1" in name else 1)
    return 1 / (1 + bubble)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--tokenizer", default="gpt-2")
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--each", type=int, default=MICRO_BATCHES)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", action="append", choices=[layout for layout, _ in LAYOUTS])
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    layouts = [(layout, words) for layout, words in LAYOUTS if not options.only or layout in options.only]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        options.data = tokens(options.tokenizer, folder / "sotu")
        one = steps_of(start("one", [], CPUS, options.each * len(CPUS), options, folder, 2), "one", folder)
        for layout, words in layouts:
            for found, wanted in zip(together(words, options, folder, 2), one):
                assert abs(found["loss"] - wanted["loss"]) < 0.02 * wanted["loss"], (layout, found["loss"], wanted["loss"])
        independent, joint = [], {layout: [] for layout, _ in layouts}
        for _ in range(options.rounds):
            independent += seconds(apart(options, folder))
            for layout, words in layouts:
                joint[layout] += seconds(together(words, options, folder, options.steps + 1)[1:])
        independent += seconds(apart(options, folder))
    base = statistics.median(independent)
    lines = [f"# Weak scaling of {options.model}", "",
             f"Commit {commit()}, {processor()}. {options.sequence} tokens a sequence, {options.each} sequences "
             f"a step for each rank, bf16. {len(CPUS)} independent runs side by side need {base:.3f} s a step (median; from "
             f"{min(independent):.3f} to {max(independent):.3f}).", "",
             "| ranks together | s a step (median) | from, to | share of independent runs | of what the schedule allows |", "|---|---|---|---|---|"]
    for layout, _ in layouts:
        each = statistics.median(joint[layout])
        share = base / each
        allowed = share / expected(layout, options)
        lines.append(f"| {layout} {len(CPUS)} | {each:.3f} | {min(joint[layout]):.3f}, {max(joint[layout]):.3f} | {100 * share:.1f} % | "
                     f"{100 * allowed:.1f} % |")
    write_report("\n".join(lines), options.report)


if __name__ == "__main__":
    main()
