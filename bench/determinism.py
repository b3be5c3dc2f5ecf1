#!/usr/bin/env python3
"""Verifies `determinism: bitwise`: trains the tiny model in every layout and compares loss curves and weights.

  determinism.py [--steps N] [--kills N] [--kill-steps N] [--seed N] [--quick] [--report FILE]

Trains recipes/models/tiny from random weights on the speeches of data/sotu, with 24 sequences of 64 tokens per step,
  (a) with 1, 2, 3, 4 and 6 ranks x micro-batches of 1, 2, 3 and 8 x 1 and 2 threads per rank
  (b) with parallel.zero 0, 1 and 2 x 2, 3 and 4 ranks
  (c) as a run of --kill-steps steps that is killed at random and resumed each time in another layout: ranks, pipeline stages,
      schedule, ZeRO stage and micro-batch
  (d) with recompute none, selective and full
  (e) as pipelines: every schedule x stages x 1 and 2 data-parallel ranks, with ZeRO 0 and 1, micro-batches of 1, 2 and 8 and every
      kind of recompute in turn
  (f) with parallel.units 2 and parallel.tp 1 and 2 x 1 and 2 data-parallel ranks x parallel.zero 0 to 2, and as pipelines
and compares loss, gradient norm and held-out loss of every step and the model's hash with those of one rank, in (f) with the same units. Then it times steps
against `determinism: fast`. The table goes to standard output, or to FILE. Exit code 1: something differs.
--quick runs a small part of each. Build first: ./run build --gpu none.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from repository import INGOT, ROOT, commit

SETTINGS = ["init=random", "device=cpu", "data.sequence_length=64", "batch.global=24", "eval.every=0", "eval.prompts=[]",
            "optimizer.clip_grad_norm=0.5", "schedule.warmup_steps=0"]


# Schedules of pipelines, and the numbers of stages into which they can cut the tiny model's four blocks.
STAGES = {"gpipe": [2, 3, 4], "1f1b": [2, 3, 4], "interleaved": [2], "zb_h1": [2, 3, 4], "zb_v": [2]}


class Runs:
    def __init__(self, folder, steps):
        self.folder = folder
        self.steps = steps
        self.count = 0
        # Part of a speech suffices as held-out data: every run evaluates it twice.
        speech = json.loads((ROOT / "data/sotu/heldout.jsonl").read_text().splitlines()[0])
        self.heldout = folder / "heldout.jsonl"
        self.heldout.write_text(json.dumps({"text": speech["text"][:4000]}) + "\n")

    def command(self, folder, settings, steps=None):
        return [str(INGOT), "pretrain", str(ROOT / "recipes/tiny.yaml"), "--quiet", f"run_dir={folder}", "name=run",
                f"steps={steps or self.steps}", f"data.eval={self.heldout}", *SETTINGS, *settings]

    def new_folder(self):
        self.count += 1
        return self.folder / str(self.count)

    def result(self, folder):
        """The loss curve, and the hash of the model."""
        curve = []
        for line in (folder / "run/events.jsonl").read_text().splitlines():
            event = json.loads(line)
            if event["type"] == "step":
                curve.append((event["step"], event["loss"], event["grad_norm"]))
            elif event["type"] == "eval":
                curve.append(("eval", event["step"], event["loss"]))
        inspected = subprocess.run([str(INGOT), "model", "inspect", "--json", "--hash", str(folder / "run/model")],
                              check=True, capture_output=True, text=True)
        return curve, json.loads(inspected.stdout)["sha256"]

    def run(self, settings, steps=None):
        """Trains, and returns curve, hash, and the median seconds of a step."""
        folder = self.new_folder()
        done = subprocess.run(self.command(folder, settings, steps), cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(settings)}: exit code {done.returncode}: {done.stderr}")
        events = [json.loads(line) for line in (folder / "run/events.jsonl").read_text().splitlines()]
        seconds = [event["step_s"] for event in events if event["type"] == "step"][1:]
        result = self.result(folder)
        shutil.rmtree(folder)
        return result, statistics.median(seconds)

    def saved_activations(self, settings):
        """The bytes of saved activations of rank 0, from --dry-run."""
        done = subprocess.run(self.command(self.new_folder(), [*settings, "--dry-run"]), cwd=ROOT, check=True,
                              capture_output=True, text=True)
        found = re.search(r"saved activations +(.+)", done.stdout)
        return found.group(1).strip() if found else "?"

    def killed(self, steps, kills, draw, most_ranks):
        """Trains, with up to `kills` kills and another layout after each. Returns the result and the layouts."""
        folder = self.new_folder()
        layouts = []
        while True:
            ranks = draw.randint(1, most_ranks)
            schedule = draw.choice([None, *STAGES])
            stages = draw.choice(STAGES[schedule]) if schedule else 1
            layout = (ranks, f"{schedule} {stages}" if schedule else 1, draw.randint(0, 1 if schedule else 2),
                      draw.choice([1, 2, 3, 8]))
            layouts.append(layout)
            settings = ["determinism=bitwise", f"parallel.dp={ranks}", f"parallel.pp={stages}", f"threads={ranks * stages}",
                        f"parallel.zero={layout[2]}", f"batch.micro={layout[3]}", "checkpoint.every=1", "checkpoint.keep=2"]
            settings += [f"parallel.schedule={schedule}"] if schedule else []
            if (folder / "run/events.jsonl").exists():
                kept = [path for path in (folder / "run/checkpoints").glob("step-*") if path.suffix != ".partial"]
                settings.append("--resume" if kept else "--resume=fresh")
            process = subprocess.Popen(self.command(folder, settings, steps), cwd=ROOT, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE)
            try:
                error = process.communicate(timeout=draw.uniform(0.2, 2.5) if len(layouts) <= kills else None)[1]
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                continue
            if process.returncode != 0:
                sys.exit(f"killed and resumed, {layouts}: exit code {process.returncode}: {error.decode()}")
            break
        return self.result(folder), layouts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--kill-steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    if options.quick:
        options.kills, options.kill_steps = min(options.kills, 4), min(options.kill_steps, 20)
    began = time.monotonic()
    lines = []
    differ = []
    with tempfile.TemporaryDirectory() as scratch:
        runs = Runs(pathlib.Path(scratch), options.steps)
        bitwise = ["determinism=bitwise"]
        expected, _ = runs.run([*bitwise, "batch.micro=1", "threads=1"])

        def compare(what, settings, wanted=expected):
            result, seconds = runs.run([*bitwise, *settings])
            if result != wanted:
                differ.append(what)
            return "same" if result == wanted else "**differs**", seconds

        lines += ["## (a) Ranks, micro-batch, threads", "",
                  "| ranks | micro-batch | saved activations a rank | 1 thread a rank | 2 threads a rank |",
                  "|---|---|---|---|---|"]
        for ranks in [1, 3] if options.quick else [1, 2, 3, 4, 6]:
            for micro in [1, 8] if options.quick else [1, 2, 3, 8]:
                cells = []
                for threads in (1, 2):
                    settings = [f"parallel.dp={ranks}", f"batch.micro={micro}", f"threads={threads * ranks}"]
                    cells.append(compare(f"{ranks} ranks, micro-batch {micro}, {threads} threads", settings)[0])
                saved = runs.saved_activations([*bitwise, f"parallel.dp={ranks}", f"batch.micro={micro}",
                                                f"threads={ranks}"])
                lines.append(f"| {ranks} | {micro} | {saved} | {cells[0]} | {cells[1]} |")
        lines += ["", "A rank's share bounds its micro-batch: of 24 sequences, six ranks have 4 each.", "",
                  "## (b) What ranks share", "", "| ranks | zero 0 | zero 1 | zero 2 |", "|---|---|---|---|"]
        for ranks in [2] if options.quick else [2, 3, 4]:
            cells = [compare(f"{ranks} ranks, zero {zero}", [f"parallel.dp={ranks}", f"parallel.zero={zero}",
                                                             "batch.micro=2", f"threads={ranks}"])[0]
                     for zero in (0, 1, 2)]
            lines.append(f"| {ranks} | {' | '.join(cells)} |")
        draw = random.Random(options.seed)
        unbroken, _ = runs.run([*bitwise, "batch.micro=1", "threads=1"], options.kill_steps)
        result, layouts = runs.killed(options.kill_steps, options.kills, draw, 4)
        if result != unbroken:
            differ.append("killed and resumed")
        lines += ["", "## (c) Killed and resumed", "",
                  f"{options.kill_steps} steps, {len(layouts) - 1} kills; data-parallel ranks, schedule and stages of a pipeline, zero "
                  "and micro-batch of each leg: "
                  + ", ".join("/".join(map(str, layout)) for layout in layouts)
                  + f". Result: {'same' if result == unbroken else '**differs**'}.", "",
                  "## (d) Recompute", "", "| none | selective | full |", "|---|---|---|"]
        cells = [compare(f"recompute {kind}", [f"recompute={kind}", "parallel.dp=2", "threads=2", "batch.micro=2"])[0]
                 for kind in ("none", "selective", "full")]
        lines.append(f"| {' | '.join(cells)} |")
        lines += ["", "## (e) Pipelines", "", "| schedule | stages | 1 rank a stage | 2 ranks a stage |", "|---|---|---|---|"]
        turn = 0
        for schedule, numbers in STAGES.items():
            for stages in numbers[:1] if options.quick else numbers:
                cells = []
                for ranks in (1, 2):
                    micro, zero, recompute = [1, 2, 8][turn % 3], turn % 2, ["none", "selective", "full"][turn // 3 % 3]
                    turn += 1
                    same = compare(f"{schedule} of {stages} stages, {ranks} ranks, micro-batch {micro}, zero {zero}, recompute {recompute}",
                                   [f"parallel.schedule={schedule}", f"parallel.pp={stages}", f"parallel.dp={ranks}",
                                    f"parallel.zero={zero}", f"batch.micro={micro}", f"recompute={recompute}",
                                    f"threads={stages * ranks}"])[0]
                    cells.append(f"{same} (micro-batch {micro}, zero {zero}, {recompute})")
                lines.append(f"| {schedule} | {stages} | {' | '.join(cells)} |")
        units = ["parallel.units=2"]
        sliced, _ = runs.run([*bitwise, *units, "batch.micro=1", "threads=1"])
        lines += ["", "## (f) Tensor parallelism, with parallel.units 2", "",
                  "| tp | 1 rank | 2 ranks, zero 0 | 2 ranks, zero 1 | 2 ranks, zero 2 | 2 stages, zero 1 |", "|---|---|---|---|---|---|"]
        for tp in (1, 2):
            cells = []
            for ranks, stages, zero in ((1, 1, 0), (2, 1, 0), (2, 1, 1), (2, 1, 2), (1, 2, 1)):
                settings = [*units, f"parallel.tp={tp}", f"parallel.dp={ranks}", f"parallel.pp={stages}", f"parallel.zero={zero}",
                            "batch.micro=2", f"threads={tp * ranks * stages}"]
                cells.append(compare(f"tp {tp}, {ranks} ranks, {stages} stages, zero {zero}", settings, sliced)[0])
            lines.append(f"| {tp} | {' | '.join(cells)} |")
        lines += ["", "## Cost", "", "Median seconds of a step of 24 x 64 tokens, one rank, micro-batch 8:", "",
                  "| threads | fast | bitwise | cost |", "|---|---|---|---|"]
        for threads in (1, 2):
            settings = ["batch.micro=8", f"threads={threads}"]
            fast = min(runs.run(["determinism=fast", *settings])[1] for _ in range(1 if options.quick else 3))
            slow = min(runs.run([*bitwise, *settings])[1] for _ in range(1 if options.quick else 3))
            lines.append(f"| {threads} | {fast:.4f} | {slow:.4f} | {100 * (slow / fast - 1):+.1f} % |")
    head = [f"# Bitwise determinism ({time.strftime('%Y-%m-%d')})", "",
            f"`bench/determinism.py --steps {options.steps} --kills {options.kills} --kill-steps {options.kill_steps} --seed {options.seed}"
            f"{' --quick' if options.quick else ''}`, commit {commit()}, {os.cpu_count()} CPUs, "
            f"{time.monotonic() - began:.0f} s. 'same': the loss, gradient norm and held-out loss of every step and the "
            "SHA-256 over all weights (`ingot model inspect --hash`) are those of one rank with one thread.", ""]
    text = "\n".join(head + lines) + "\n"
    if options.report:
        options.report.write_text(text)
    else:
        sys.stdout.write(text)
    if len(layouts) - 1 < options.kills:
        sys.exit(f"the run ended after {len(layouts) - 1} kills: give more --kill-steps")
    if differ:
        sys.exit("differs: " + "; ".join(differ))


if __name__ == "__main__":
    main()
