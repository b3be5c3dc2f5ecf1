#!/usr/bin/env python3
"""Speed of pretraining on this machine's CPU, alternating with PyTorch on the same job.

  pretraining.py [--models gpt2-124m mpt-125m] [--sequence N] [--global N] [--steps N] [--rounds N] [--report FILE.md]

For each model, in bf16 with packed sequences of one document:
  - `ingot bench train`, which first verifies the job on a small model, and PyTorch alternate --rounds times; the best round of
    each counts. PyTorch runs transformers' model with SDPA where available, fp32 weights with autocast to bf16, AdamW (fused) and
    clipping, which is LLM Foundry's precision amp_bf16.
  - `ingot pretrain` runs on tokens of data/sotu with one rank of all threads and with as many ranks of one thread; measured are the
    seconds that steps waited for data, and for a background checkpoint.
Finally, `ingot data tokenize` with one thread and with all. Needs ./run build, and ./run oracles once: it makes build/oracles,
whose Python runs this. The numbers are meaningful only on an otherwise idle machine.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from repository import INGOT, ROOT, commit, write_report, tokens, vocabulary

TOKENIZERS = {"gpt2": "gpt-2", "mpt": "gpt-neox"}
CPUS = len(os.sched_getaffinity(0))


def ingot_job(model, options):
    done = subprocess.run([INGOT, "bench", "train", ROOT / "recipes/models" / model, "--sequence", str(options.sequence),
                           "--global", str(options.batch), "--warmup", "1", "--steps", str(options.steps), "--seconds",
                           "600", "--json"], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def torch_job(model, options):
    """Runs PyTorch in a process of its own, so that neither program keeps memory from the other."""
    done = subprocess.run([sys.executable, __file__, "--torch", model, "--sequence", str(options.sequence), "--global",
                           str(options.batch), "--steps", str(options.steps)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_torch(model, options):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(ROOT / "recipes/models" / model)
    network = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    seconds, losses = [], []
    for _ in range(1 + options.steps):
        began = time.perf_counter()
        ids = torch.randint(0, config.vocab_size, (options.batch, options.sequence))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = network(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - began)
    assert all(loss == loss for loss in losses), losses
    print(json.dumps({"tokens_per_s": options.batch * options.sequence / statistics.mean(seconds[1:]),
                      "version": torch.__version__, "threads": torch.get_num_threads(), "losses": losses}))


def tokens_of(model, folder):
    return tokens(TOKENIZERS[model.split("-")[0]], folder / f"{model}-sotu")


def pretrain(model, ranks, folder, options, checkpoints=0):
    """The median seconds of a step, the longest wait of a step for data, and that for a checkpoint."""
    done = subprocess.run([INGOT, "pretrain", ROOT / f"recipes/pretrain/{model}.yaml", "--quiet", "tokenizer=null",
                           f"data.train={tokens_of(model, folder)}", "data.order=megatron", "device=cpu",
                           f"data.sequence_length={options.sequence}", f"batch.global={options.batch}",
                           "schedule.warmup_steps=0", f"steps={options.steps + 1}", "eval.every=0",
                           f"checkpoint.every={checkpoints}", "checkpoint.minutes=0",
                           f"parallel.dp={ranks}", f"threads={CPUS}", f"run_dir={folder}", f"name={model}-{ranks}"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{model}, {ranks} ranks: exit code {done.returncode}: {done.stderr}")
    events = [json.loads(line) for line in (folder / f"{model}-{ranks}/events.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["type"] == "step"][1:]
    subprocess.run(["rm", "-r", folder / f"{model}-{ranks}"], check=True)
    pauses = [event["paused_s"] for event in events if event["type"] == "checkpoint"][:-1]  # no step follows the last checkpoint
    return (statistics.median(step["step_s"] for step in steps), max(step["data_s"] for step in steps),
            max(pauses, default=None))


def cpu_seconds():
    """The CPU seconds of child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tokenize_rates(folder):
    """(Tokens per second, CPU seconds per second) for a file of 400 copies of the speeches: with one thread, with one thread per CPU,
    and with one single-threaded process per CPU, which is the machine's limit."""
    text = (ROOT / "data/sotu/train.jsonl").read_text()
    many = folder / "many.jsonl"
    many.write_text(text * 400)
    rates = []
    for processes, threads in ((1, 1), (1, CPUS), (CPUS, 1)):
        best = (0, 0)
        for attempt in range(3):
            began, used = time.perf_counter(), cpu_seconds()
            jobs = [subprocess.Popen([INGOT, "data", "tokenize", many, "--model", vocabulary("gpt-2"), "--out",
                                      folder / f"many-{processes}-{threads}-{attempt}-{job}", "--threads", str(threads), "--quiet",
                                      "--json"], stdout=subprocess.PIPE, text=True) for job in range(processes)]
            reported = [json.loads(job.communicate()[0]) for job in jobs]
            seconds, used = time.perf_counter() - began, cpu_seconds() - used
            best = max(best, (sum(one["tokens"] for one in reported) / seconds, used / seconds))
        rates.append(best)
    return rates


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=["gpt2-124m", "mpt-125m"])
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--global", type=int, default=4, dest="batch")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch:
        return run_torch(options.torch, options)
    lines = ["| model | tokens/s | share of measured bf16 peak (causal) | peak | PyTorch tokens/s | ratio |", "|---|---|---|---|---|---|"]
    layouts = ["| model | one rank, {0} threads | {0} ranks, 1 thread each | difference | longest wait for data | pause for a checkpoint |".format(CPUS),
               "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for model in options.models:
            ours, theirs = [], []
            for _ in range(options.rounds):
                ours.append(ingot_job(model, options))
                theirs.append(torch_job(model, options))
            best, peer = max(ours, key=lambda job: job["tokens_per_s"]), max(theirs, key=lambda job: job["tokens_per_s"])
            lines.append(f"| {model} | {best['tokens_per_s']:.0f} | {100 * best['mfu']:.1f} % | {best['peak_tflops']:.3f} TFLOP/s | "
                         f"{peer['tokens_per_s']:.0f} | {best['tokens_per_s'] / peer['tokens_per_s']:.2f} |")
            alone = [pretrain(model, 1, folder, options) for _ in range(options.rounds)]
            together = [pretrain(model, CPUS, folder, options) for _ in range(options.rounds)]
            one, many = min(alone)[0], min(together)[0]
            waited = max(data for _, data, _ in alone + together)
            paused = pretrain(model, 1, folder, options, checkpoints=2)[2]
            pause = "not measured" if paused is None else f"{paused:.3f} s, {100 * paused / one:.1f} % of a step"
            layouts.append(f"| {model} | {one:.3f} s a step | {many:.3f} s | {100 * (many / one - 1):+.1f} % | "
                           f"{1e3 * waited:.2f} ms | {pause} |")
            version = peer["version"]
        single, both, apart = tokenize_rates(folder)
    machine = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    text = "\n".join([
        f"# Pretraining on a CPU ({time.strftime('%Y-%m-%d')})", "",
        f"`bench/pretraining.py --sequence {options.sequence} --global {options.batch} --steps {options.steps} --rounds "
        f"{options.rounds}`, commit {commit()}, {CPUS} CPUs ({machine}), torch {version}. bf16, {options.batch} sequences of "
        f"{options.sequence} tokens a step; the best of {options.rounds} rounds in turns.", "", *lines, "",
        "## Ranks and data", "", *layouts, "", "## Tokenizing", "",
        f"`ingot data tokenize`, GPT-2's tokens: {single[0] / 1e6:.2f} M tokens/s with --threads 1 ({single[1]:.2f} CPUs busy), "
        f"{both[0] / 1e6:.2f} with {CPUS} ({both[1]:.2f} CPUs): {both[0] / single[0]:.2f} times. {CPUS} processes with one thread each, "
        f"at once: {apart[0] / 1e6:.2f}, so {CPUS} threads of one have {100 * both[0] / apart[0]:.0f} % of what the machine gives."])
    write_report(text, options.report)


if __name__ == "__main__":
    main()
