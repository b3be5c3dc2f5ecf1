#!/usr/bin/env python3
"""Fully sharded ranks (parallel.zero 3) beside PyTorch's FSDP2 on this machine: loss, speed and memory of the same job.

  fsdp.py [--model gpt2-124m] [--sequence N] [--each N] [--steps N] [--rounds N] [--report FILE.md]

Both train the same initial weights on the same samples (data.order: megatron) with one rank and one thread on each core, in bf16 with fp32
masters and gradient sums, AdamW without decay, clipping. PyTorch runs transformers' model with SDPA, sharded block by block by
fully_shard over gloo, with parameters gathered in bf16 (MixedPrecisionPolicy); Ingot's ranks are processes of Open MPI. The programs
alternate --rounds times; the median of all steps but each run's first counts. Peak memory is the resident memory of the largest rank
(VmHWM), which for PyTorch has the interpreter and its libraries. Needs ./run build, ./run mpi, and ./run oracles once: it makes
build/oracles, whose Python runs PyTorch. The numbers are meaningful only on an otherwise idle machine.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from repository import INGOT, ROOT, commit, vocabulary, write_report

PYTHON = ROOT / "build/oracles/bin/python"
RANKS = len(os.sched_getaffinity(0))
LEARNING_RATE, BETAS, CLIP = 1e-4, (0.9, 0.95), 1.0


def peak_bytes():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))


def prepare(folder, options):
    """Initial weights, and the tokens of the speeches as one document."""
    text = "\n".join(json.loads(line)["text"] for line in (ROOT / "data/sotu/train.jsonl").read_text().splitlines())
    (folder / "text.jsonl").write_text(json.dumps({"text": text}) + "\n")
    subprocess.run([INGOT, "data", "tokenize", folder / "text.jsonl", "--model", vocabulary(options.tokenizer), "--out", folder / "tokens",
                    "--quiet"], check=True)
    subprocess.run([PYTHON, __file__, "--prepare", folder, "--model", options.model], check=True)


def prepare_weights(folder, model):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(ROOT / "recipes/models" / model)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder / "model")


def words(options, folder):
    return [str(ROOT / f"recipes/pretrain/{options.model}.yaml"), f"model={folder / 'model'}", "init=pretrained", "tokenizer=null",
            f"data.train={folder / 'tokens'}", "data.order=megatron", f"data.sequence_length={options.sequence}",
            f"batch.global={options.each * RANKS}", f"steps={options.steps + 1}"]


def samples(options, folder):
    """Of each step, by number; rank r of n takes the r-th of n equal parts."""
    done = subprocess.run([INGOT, "data", "order", *words(options, folder), "--json"], check=True, capture_output=True, text=True)
    return [step["samples"] for step in json.loads(done.stdout)["steps"]]


def ingot(options, folder):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    peaks = folder / "peaks"
    # Each rank's shell stays its parent, to read what the rank had at most.
    ranks = ["mpirun", "--bind-to", "core", "-n", str(RANKS), "/usr/bin/time", "--append", "-o", str(peaks), "-f", "%M", str(INGOT)]
    done = subprocess.run(
        [*ranks, "pretrain", *words(options, folder), "--quiet", "eval.every=0", "eval.prompts=[]", "checkpoint.every=0",
         "checkpoint.minutes=0", "schedule.name=constant", "schedule.warmup=0", f"optimizer.lr={LEARNING_RATE}", "optimizer.weight_decay=0",
         f"optimizer.betas={list(BETAS)}", f"optimizer.clip_grad_norm={CLIP}", "device=cpu", f"threads={RANKS}", "parallel.zero=3",
         f"batch.micro={options.each}", "recompute=none", "determinism=fast", f"run_dir={folder}", "name=run"],
        capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"ingot: exit code {done.returncode}: {done.stderr}")
    events = [json.loads(line) for line in (folder / "run/events.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["type"] == "step"]
    peak = max(int(line) * 1024 for line in peaks.read_text().split())
    peaks.unlink()
    subprocess.run(["rm", "-r", folder / "run"], check=True)
    return {"losses": [step["loss"] for step in steps], "norms": [step["grad_norm"] for step in steps],
            "seconds": [step["step_s"] for step in steps[1:]], "peak": peak}


def torch_ranks(options, folder):
    job = folder / "job.json"
    job.write_text(json.dumps({"samples": samples(options, folder), "sequence": options.sequence, "folder": str(folder)}))
    done = subprocess.run([PYTHON, __file__, "--torch", job], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"PyTorch: exit code {done.returncode}: {done.stderr}")
    return json.loads((folder / "torch.json").read_text())


def run_torch(rank, job):
    import numpy
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import AutoModelForCausalLM

    os.sched_setaffinity(0, [sorted(os.sched_getaffinity(0))[rank]])
    torch.set_num_threads(1)
    folder = pathlib.Path(job["folder"])
    dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=RANKS)
    network = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="sdpa")
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    mesh = init_device_mesh("cpu", (RANKS,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in network.transformer.h:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(network, mesh=mesh, mp_policy=policy)
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, betas=BETAS, weight_decay=0.0, fused=True)
    tokens = torch.from_numpy(numpy.fromfile(folder / "tokens.bin", dtype=numpy.uint16).astype(numpy.int64))
    length, losses, norms, seconds = job["sequence"], [], [], []
    for step in job["samples"]:
        own = step[rank * len(step) // RANKS:(rank + 1) * len(step) // RANKS]
        began = time.perf_counter()
        rows = torch.stack([tokens[n * length:(n + 1) * length + 1] for n in own])
        logits = network(input_ids=rows[:, :-1], use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP).full_tensor()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        seconds.append(time.perf_counter() - began)
        losses.append(mean.item() / RANKS)
        norms.append(norm.item())
    peak = torch.tensor([float(peak_bytes())])
    dist.all_reduce(peak, dist.ReduceOp.MAX)
    if rank == 0:
        (folder / "torch.json").write_text(json.dumps({"losses": losses, "norms": norms, "seconds": seconds[1:], "peak": peak.item()}))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--tokenizer", default="gpt-2")
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--each", type=int, default=4, help="sequences a step of each rank")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--prepare", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--torch", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        return prepare_weights(options.prepare, options.model)
    if options.torch:
        import torch.multiprocessing
        return torch.multiprocessing.spawn(run_torch, (json.loads(options.torch.read_text()),), RANKS)
    found = {"Ingot": [], "FSDP2": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        prepare(folder, options)
        for _ in range(options.rounds):
            found["Ingot"].append(ingot(options, folder))
            found["FSDP2"].append(torch_ranks(options, folder))
            (folder / "rendezvous").unlink(missing_ok=True)
    # bf16 rounds to 8 bits of mantissa; the mean over many tokens is closer.
    worst = max(abs(a / b - 1) for a, b in zip(found["Ingot"][0]["losses"], found["FSDP2"][0]["losses"]))
    if worst > 2e-3:
        sys.exit(f"the losses differ: {found}")
    seconds = {name: statistics.median(second for run in runs for second in run["seconds"]) for name, runs in found.items()}
    peaks = {name: max(run["peak"] for run in runs) for name, runs in found.items()}
    tokens = options.each * RANKS * options.sequence
    lines = [f"| {name} | {tokens / seconds[name]:.0f} | {seconds[name]:.3f} | {min(s for run in runs for s in run['seconds']):.3f}, "
             f"{max(s for run in runs for s in run['seconds']):.3f} | {peaks[name] / 2**20:.0f} | "
             f"{', '.join(f'{loss:.4f}' for loss in runs[0]['losses'])} | {', '.join(f'{norm:.3f}' for norm in runs[0]['norms'])} |"
             for name, runs in found.items()]
    write_report("\n".join(
        [f"# Fully sharded ranks of {options.model} beside FSDP2", "",
         f"Executable of commit {commit()}. {RANKS} ranks of one thread, {options.sequence} tokens a sequence, {options.each} sequences a step "
         f"for each rank, bf16.", "",
         "| program | tokens/s | s a step (median) | from, to | peak memory of a rank, MiB | loss of each step | gradient norm |",
         "|---|---|---|---|---|---|---|", *lines, "",
         f"Ingot is {seconds['FSDP2'] / seconds['Ingot']:.2f} times as fast, with {peaks['Ingot'] / peaks['FSDP2']:.2f} times the memory; losses "
         f"agree within {worst:.1e}."]), options.report)


if __name__ == "__main__":
    main()
