#!/usr/bin/env python3
"""TensorBoard event files of a run with `log.tensorboard: true`, read by the PyPI package tensorboard and compared with events.jsonl.

The run is resumed from an older checkpoint, so that TensorBoard must drop the repeated steps. Every scalar must equal the event's
value rounded to f32. Exit code 77 when the package is not installed."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
TAGS = {"train/loss": ("step", "loss"), "train/lr": ("step", "lr"), "train/grad_norm": ("step", "grad_norm"),
        "train/tokens": ("step", "tokens"), "speed/tokens_per_s": ("step", "tokens_per_s"), "speed/tflops": ("step", "tflops"),
        "speed/step_s": ("step", "step_s"), "speed/data_s": ("step", "data_s"), "speed/mfu": ("step", "mfu"),
        "memory/bytes": ("step", "memory_bytes"), "eval/loss": ("eval", "loss"), "eval/perplexity": ("eval", "perplexity")}


def train(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")


def main():
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        print(f"left out: {error}")
        return 77
    ingot = os.environ.get("INGOT_EXECUTABLE", str(ROOT / "build/release/ingot"))
    problems = []
    with tempfile.TemporaryDirectory() as root:
        root = Path(root)
        text = root / "train.jsonl"
        text.write_text("".join(json.dumps({"text": f"Document {i} speaks of {i * i}."}) + "\n" for i in range(80)))
        command = [ingot, "pretrain", str(ROOT / "recipes/tiny.yaml"), "name=run", f"run_dir={root}", f"data.train={text}",
                   f"data.eval={text}", "data.sequence_length=64", "batch.global=2", "schedule.warmup_steps=2", "eval.every=3",
                   "eval.prompts=[]", "checkpoint.every=4", "checkpoint.keep=9", "log.tensorboard=true", "--quiet"]
        train(command + ["steps=9"])
        for step in (8, 9):
            shutil.rmtree(root / f"run/checkpoints/step-{step}")
        train(command + ["steps=12", "--resume"])

        files = sorted((root / "run/tensorboard").iterdir())
        if len(files) != 2:
            problems.append(f"two processes have left {len(files)} files")
        read = EventAccumulator(str(root / "run/tensorboard"), size_guidance={"scalars": 0})
        read.Reload()
        found = {tag: {e.step: e.value for e in read.Scalars(tag)} for tag in read.Tags()["scalars"]}
        counts = {tag: len(read.Scalars(tag)) for tag in found}
        events = [json.loads(line) for line in (root / "run/events.jsonl").read_text().splitlines()]
        for tag, (kind, key) in TAGS.items():
            expected = {e["step"]: float(np.float32(e[key])) for e in events if e["type"] == kind and e[key] is not None}
            if found.get(tag, {}) != expected:
                problems.append(f"{tag}: TensorBoard reads {found.get(tag)}, the events are {expected}")
            elif counts.get(tag, 0) != len(expected):
                problems.append(f"{tag}: {counts[tag]} values for {len(expected)} steps")
        if set(found) - set(TAGS) - {"speed/energy_j"}:
            problems.append(f"other tags: {set(found) - set(TAGS)}")
        steps = sum(e["type"] == "step" for e in events)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(TAGS)} scalars over {steps} steps, read by tensorboard: {len(problems)} problems")
    return 1 if problems or steps != 12 else 0


if __name__ == "__main__":
    sys.exit(main())
