#!/usr/bin/env python3
"""One long sequence, trained by one rank and by context-parallel ranks: equal losses, gradient norms and weights.

  long_context.py [--tokens N] [--ranks N] [--steps N] [--cp-comm-type a2a|allgather|p2p] [--report FILE.md]

The model is a tiny llama with one head for each rank, the sequence one document, so attention is over all of its tokens. With a2a,
determinism: bitwise and parallel.units = ranks the bits must be equal; with allgather, p2p and determinism: fast losses and gradient norms must
agree to one rounding to bf16. Also compared is the memory of activations that a rank's plan has.
At 131,072 tokens a step is about 6 TFLOP for each layer: minutes on two cores.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from repository import INGOT, ROOT, commit, write_report

HEAD_DIM, LAYERS = 16, 2
BF16_ROUNDING = 2.0**-8


def make_model(folder, options):
    shutil.copytree(ROOT / "recipes/models/tiny", folder)
    config = json.loads((folder / "config.json").read_text())
    width = HEAD_DIM * options.ranks
    config.update(hidden_size=width, head_dim=HEAD_DIM, num_attention_heads=options.ranks, num_key_value_heads=options.ranks,
                  intermediate_size=2 * width, num_hidden_layers=LAYERS, max_position_embeddings=options.tokens)
    (folder / "config.json").write_text(json.dumps(config))


def make_document(path, tokens):
    """One document of more tokens than a sequence has: the sample text, repeated."""
    text = "\n".join(json.loads(line)["text"] for line in (ROOT / "data/sotu/train.jsonl").read_text().splitlines())
    path.write_text(json.dumps({"text": text * (tokens // 180_000 + 1)}) + "\n")


def words(options, folder, ranks):
    return [str(INGOT), "pretrain", str(ROOT / "recipes/tiny.yaml"), "--quiet", f"name=ranks-{ranks}", f"run_dir={folder}",
            f"model={folder / 'model'}", f"data.train={folder / 'train.jsonl'}", "data.eval=[]", "eval.every=0", "eval.prompts=[]",
            f"data.sequence_length={options.tokens}", "batch.global=1", f"steps={options.steps}", "schedule.warmup=0", "checkpoint.minutes=0",
            "device=cpu", *determinism(options), f"parallel.cp={ranks}", f"parallel.cp_comm_type={options.cp_comm_type}",
            f"threads={options.ranks}"]


def determinism(options):
    return ["determinism=bitwise", f"parallel.units={options.ranks}"] if options.cp_comm_type == "a2a" else ["determinism=fast"]


def planned(options, folder, ranks):
    """Saved activations and scratch memory in the plan of a rank, as printed."""
    plan = subprocess.run([*words(options, folder, ranks), "--dry-run"], capture_output=True, text=True, check=True).stdout
    return [next(line.split(kind)[1].strip() for line in plan.splitlines() if kind in line)
            for kind in ("saved activations", "scratch")]


def train(options, folder, ranks):
    begin = time.monotonic()
    result = subprocess.run(words(options, folder, ranks), capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{ranks} ranks: exit code {result.returncode}: {result.stderr}")
    run = folder / f"ranks-{ranks}"
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    steps = [(event["loss"], event["grad_norm"]) for event in events if event["type"] == "step"]
    return steps, (run / "model/model.safetensors").read_bytes(), time.monotonic() - begin


def verdict_of(options, one, several):
    """Whether what train() has returned of one rank and of several is as promised, and a sentence."""
    if options.cp_comm_type == "a2a":
        equal = one[:2] == several[:2]
        return equal, "All losses, gradient norms and weights have the same bits." if equal else "They DIFFER."
    apart = max(abs(b / a - 1) for step, other in zip(one[0], several[0], strict=True) for a, b in zip(step, other, strict=True))
    return apart <= BF16_ROUNDING, f"Losses and gradient norms are at most {apart:.1e} of their size apart."


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=131072)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--cp-comm-type", choices=["a2a", "allgather", "p2p"], default="a2a")
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        make_model(folder / "model", options)
        make_document(folder / "train.jsonl", options.tokens)
        found = {}
        for ranks in (1, options.ranks):
            found[ranks] = train(options, folder, ranks)
            steps, _, seconds = found[ranks]
            lines.append(f"| {ranks} | {', '.join(f'{loss:.6f}' for loss, _ in steps)} | {', '.join(f'{norm:.6f}' for _, norm in steps)} | "
                         f"{' | '.join(planned(options, folder, ranks))} | {seconds:.0f} |")
    as_promised, verdict = verdict_of(options, found[1], found[options.ranks])
    write_report("\n".join(
        [f"# One sequence of {options.tokens} tokens", "", f"Executable of commit {commit()}. A llama with {LAYERS} layers of "
         f"{options.ranks} heads of {HEAD_DIM}, bf16, {options.steps} steps, parallel.cp_comm_type: {options.cp_comm_type}, {' '.join(determinism(options))}.", "",
         "| parallel.cp | loss | gradient norm | saved activations of a rank | scratch of a rank | seconds, of all ranks on this machine |",
         "|---|---|---|---|---|---|",
         *lines, "", verdict]), options.report)
    sys.exit(0 if as_promised else 1)


if __name__ == "__main__":
    main()
