#!/usr/bin/env python3
"""Training, prefill, decoding, start-up and memory on this machine's CPU, relative to its peak rates.

  cpu.py [--rounds N] [--steps N] [--parts PART...] [--jobs PATTERN] [--quick] [--report FILE.md]

Jobs with random weights in the shapes of SmolLM2-135M and a llama of 1.1B:
  - training (`ingot bench train`, which first verifies the job on a small model) in bf16 and fp32, of all weights and with LoRA of
    rank 16 on every linear layer, alternating with the same job in PyTorch in each of its modes (MODES): transformers' model with
    SDPA, peft's adapters, AdamW (fused), clipping. The peer is the fastest mode;
  - prefill and decoding (`ingot bench decode`, verified before) as shares of the measured gemm and read rates, with one thread and
    with all, alternating with llama.cpp's llama-bench;
  - the start-up time of `ingot generate`, the memory of a training job compared with its plan, and AVX2 compared with AVX-512.
--jobs: of the training jobs those whose shape and name ("smollm2-135m, LoRA, bf16") have a match of the pattern.
--quick: one short round, to try this script. Needs ./run build, ./run oracles once (it makes build/oracles, whose Python runs
this) and tools/llamacpp.sh --server, which also makes llama-bench. The numbers are meaningful only on an otherwise idle machine.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from repository import INGOT, ROOT, commit, write_report

SHAPES = ROOT / "bench/models"
LLAMA_BENCH = ROOT / "build/llamacpp/server/bin/llama-bench"
CPUS = len(os.sched_getaffinity(0))
PARTS = ["serving", "memory", "levels", "training"]
# Name, shape, sequence length, sequences per step, options of `ingot bench train`, and the target share of the peak.
TRAINING = [("all weights, bf16", "smollm2-135m", 1024, 8, [], 80),
            ("LoRA, bf16", "smollm2-135m", 1024, 8, ["--rank", "16"], 80),
            ("all weights, fp32", "smollm2-135m", 1024, 8, ["--dtype", "fp32"], 60),
            ("LoRA on int8", "smollm2-135m", 1024, 8, ["--rank", "16", "--weights", "int8"], None),
            ("LoRA on int4", "smollm2-135m", 1024, 8, ["--rank", "16", "--weights", "int4"], None),
            ("LoRA, bf16", "llama-1.1b", 512, 4, ["--rank", "16"], 55)]
# PyTorch's modes. A job in bf16 is eager or compiled (torch.compile, which needs a C++ compiler and Python's headers) with autocast
# over fp32 weights (of LoRA: over a frozen base in bf16), or eager with weights and optimizer states in bf16, which is less exact.
MODES = ["eager", "bf16 weights", "compile"]


def ingot(*words, env=None):
    done = subprocess.run([INGOT, *map(str, words), "--json"], capture_output=True, text=True,
                          env=os.environ | (env or {}))
    if done.returncode != 0:
        sys.exit(f"ingot {' '.join(map(str, words))}: exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def train(shape, sequence, batch, options, steps, env=None):
    return ingot("bench", "train", SHAPES / shape, "--sequence", sequence, "--global", batch, "--warmup", 1, "--steps",
                 steps, "--seconds", 600, *options, env=env)


def torch_train(shape, sequence, batch, options, steps, mode):
    """Runs PyTorch in a process of its own, so that neither program keeps memory from the other."""
    done = subprocess.run([sys.executable, __file__, "--torch", json.dumps([shape, sequence, batch, options, steps, mode])],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"PyTorch, {shape} {options}, {mode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def run_torch(shape, sequence, batch, options, steps, mode):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    lora, single = "--rank" in options, "fp32" in options
    config = AutoConfig.from_pretrained(SHAPES / shape)
    stored = torch.bfloat16 if lora or mode == "bf16 weights" else torch.float32
    network = AutoModelForCausalLM.from_config(config, dtype=stored)
    if lora:
        import peft
        network = peft.get_peft_model(network, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear",
                                                               task_type="CAUSAL_LM"),
                                      autocast_adapter_dtype=mode != "bf16 weights")
    network.train()
    trained = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    micro = 2  # micro-batch: larger ones are no faster, and their logits do not fit
    if mode == "compile":
        network.compile()
    autocast = not single and mode != "bf16 weights"
    seconds, losses = [], []
    for _ in range(1 + steps):
        began = time.perf_counter()
        for _ in range(batch // micro):
            ids = torch.randint(0, config.vocab_size, (micro, sequence))
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                loss = network(input_ids=ids, labels=ids, use_cache=False).loss / (batch // micro)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - began)
    assert all(loss == loss for loss in losses), losses
    print(json.dumps({"tokens_per_s": batch * sequence / statistics.mean(seconds[1:]), "version": torch.__version__}))


def prompt_flops(shape, tokens):
    """The FLOPs of a prompt's forward pass: gemms of the layers, causal attention, and the last token's logits."""
    c = json.loads((SHAPES / shape / "config.json").read_text())
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    size = hidden // heads
    layer = hidden * (2 * hidden + 2 * c["num_key_value_heads"] * size) + 3 * hidden * c["intermediate_size"]
    attention = 2 * tokens * tokens * hidden  # two products, half of the full square each
    return c["num_hidden_layers"] * (2 * tokens * layer + attention) + 2 * c["vocab_size"] * hidden


def peak_memory(*words):
    """(Peak of a program's own memory in bytes, without mapped files; its output)."""
    with tempfile.TemporaryFile() as out:
        program = subprocess.Popen([INGOT, *map(str, words), "--json"], stdout=out, stderr=subprocess.DEVNULL)
        most = files = 0
        while program.poll() is None:
            try:
                status = pathlib.Path(f"/proc/{program.pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                break
            fields = dict(line.split(":", 1) for line in status.splitlines())
            if "VmHWM" in fields:
                most, files = int(fields["VmHWM"].split()[0]), max(files, int(fields["RssFile"].split()[0]))
            time.sleep(0.02)
        if program.wait() != 0:
            sys.exit(f"ingot {' '.join(map(str, words))}: exit code {program.returncode}")
        out.seek(0)
        text = out.read().decode()
    return (most - files) * 1024, json.loads(text) if text.strip() else None


def training_lines(options):
    lines = [f"| job | tokens/s at the peak | tokens/s | share of the peak | wanted | {' | '.join(f'PyTorch, {mode}' for mode in MODES)} "
             "| ratio to the fastest |", f"|---|---|---|---|---|{'---|' * len(MODES)}---|"]
    version = ""
    for name, shape, sequence, batch, words, wanted in options.jobs:
        steps = options.steps
        if options.quick:
            sequence, batch = 64, 2
        ours, theirs = [], {}
        for _ in range(options.rounds):
            ours.append(train(shape, sequence, batch, words, steps))
            for mode in MODES:
                if shape == "smollm2-135m" and "--weights" not in words and not (mode == "bf16 weights" and "fp32" in words):
                    theirs.setdefault(mode, []).append(torch_train(shape, sequence, batch, words, steps, mode))
        best = max(ours, key=lambda job: job["tokens_per_s"])
        line = (f"| {shape}, {name}, sequence {sequence}, {sequence * batch} tokens a step | {best['tokens_per_s'] / best['mfu']:.0f} | "
                f"{best['tokens_per_s']:.0f} | "
                f"{100 * best['mfu']:.1f} % of {best['peak_tflops']:.3f} TFLOP/s | "
                f"{f'{wanted} %' if wanted else 'none'} | ")
        if theirs:
            version = next(iter(theirs.values()))[0]["version"]
            peers = {mode: max(job["tokens_per_s"] for job in jobs) for mode, jobs in theirs.items()}
            line += f"{' | '.join(f'{peers[mode]:.0f}' if mode in peers else '' for mode in MODES)} | "
            line += f"{best['tokens_per_s'] / max(peers.values()):.2f} |"
        else:
            line += f"not asked |{' |' * len(MODES)}"
        lines.append(line)
    return lines, version


def read_rate(threads):
    """The current memory read rate of that many threads in GB/s, which other virtual machines on the same host change."""
    with tempfile.TemporaryDirectory() as home:  # where no rate is cached
        devices = ingot("devices", "--seconds", 1, "--threads", threads, env={"INGOT_HOME": home})["devices"]
    return next(d for d in devices if d["name"] == "cpu")["read_gb_s"]


def llama_bench(file, prompt, tokens, threads):
    """llama.cpp's tokens per second in prefill, or in decoding after it."""
    words = [LLAMA_BENCH, "--model", file, "--n-prompt", prompt, "--n-gen", tokens, "--repetitions", 1, "--threads", threads,
             "--output", "json"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"llama-bench {file}: exit code {done.returncode}: {done.stderr[-2000:]}")
    job, = json.loads(done.stdout)
    return job["avg_ts"]


def random_model(folder, shape):
    """A Hugging Face folder of the shape with random weights."""
    made = folder / shape
    subprocess.run([sys.executable, ROOT / "tools/make_random_llama.py", made, "--shape", shape], check=True, capture_output=True)
    return made


def random_files(folder, shape):
    """GGUF files of the shape with random weights, by storage type."""
    made = random_model(folder, shape)
    files = {}
    for weights, dtype in (("bf16", "bf16"), ("int8", "q8_0"), ("int4", "q4_0")):
        files[weights] = folder / f"{shape}-{dtype}.gguf"
        ingot("model", "convert", made, files[weights], "--dtype", dtype)
    shutil.rmtree(made)
    return files


def decode_jobs(weights):
    """How weights are decoded with: the job's name and its --compute. llama.cpp multiplies blocks in integers only."""
    return [(weights, "auto")] + ([] if weights == "bf16" else [(f"{weights}, `--compute int8`", "int8")])


def decoding_lines(options, folder, peak):
    """For both shapes: a long prompt, one stream for each storage type and number of threads, eight streams."""
    prompt, tokens = (64, 8) if options.quick else (1024, 64)
    streams = ["| shape | weights | threads | tokens/s at the read rate | tokens/s | memory read | share of the read rate | llama.cpp, tokens/s | ratio |",
               "|---|---|---|---|---|---|---|---|---|"]
    others = [f"| shape | prompt of {prompt} tokens, at the peak | measured | share of bf16 peak | llama.cpp | ratio | 8 streams, times one |", "|---|---|---|---|---|---|---|"]
    for name, shape in (("smollm2-135m", "135m"), ("llama-1.1b", "1.1b")):
        files = random_files(folder, shape)
        rounds = []
        for _ in range(options.rounds):
            one = {}
            for threads in sorted({1, CPUS}):
                before = read_rate(threads)
                for weights, file in files.items():
                    peer = llama_bench(file, 0, tokens, threads)
                    for job, compute in decode_jobs(weights):
                        one[job, threads] = ingot("bench", "decode", SHAPES / name, "--prompt", 1, "--tokens", tokens,
                                                  "--weights", weights, "--compute", compute, "--threads", threads)
                        one[job, threads]["peer"] = peer
                one["read", threads] = (before + read_rate(threads)) / 2
            one["prompt"] = ingot("bench", "decode", SHAPES / name, "--prompt", prompt, "--tokens", 8)["prompt_seconds"]
            one["prompt peer"] = llama_bench(files["bf16"], prompt, 0, CPUS)
            one["many"] = ingot("bench", "decode", SHAPES / name, "--prompt", 16, "--tokens", 32, "--batch", 8)["ms_per_token"]
            rounds.append(one)

        def middle(value):
            return statistics.median(value(one) for one in rounds)

        for threads in sorted({1, CPUS}):
            for job in [job for weights in files for job, _ in decode_jobs(weights)]:
                def median_of(field):
                    return middle(lambda r: r[job, threads][field])

                streams.append(
                    f"| {name} | {job} | {threads} | "
                    f"{middle(lambda r: r[job, threads]['tokens_per_s'] * r['read', threads] / r[job, threads]['gb_s']):.1f} | "
                    f"{median_of('tokens_per_s'):.1f} | {median_of('gb_s'):.1f} GB/s | "
                    f"{100 * middle(lambda r: r[job, threads]['gb_s'] / r['read', threads]):.0f} % of "
                    f"{middle(lambda r: r['read', threads]):.1f} | {median_of('peer'):.1f} | "
                    f"{middle(lambda r: r[job, threads]['tokens_per_s'] / r[job, threads]['peer']):.2f} |")
        rate = middle(lambda r: prompt / r["prompt"])
        share = 100 * prompt_flops(name, prompt) / peak * middle(lambda r: 1 / r["prompt"])
        others.append(
            f"| {name} | {100 * rate / share:.0f} tokens/s | {rate:.0f} tokens/s | {share:.0f} % | {middle(lambda r: r['prompt peer']):.0f} tokens/s | "
            f"{middle(lambda r: prompt / r['prompt'] / r['prompt peer']):.2f} | {middle(lambda r: 8 * r['bf16', CPUS]['ms_per_token'] / r['many']):.2f} |")
        for file in files.values():
            file.unlink()
    return [*streams, "", *others]


def start_line(folder):
    words = ["generate", "--model", random_model(folder, "135m"), "--ids", "1,2,3,4", "--max-tokens", "1"]
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        ingot(*words)
        seconds.append(time.perf_counter() - began)
    return f"`ingot generate` of one token with 135M parameters, the file in memory: {statistics.median(seconds):.2f} s (wanted: below 0.6)."


def memory_lines(options):
    lines = ["| recompute | weights trained | taken | planned | difference |", "|---|---|---|---|---|"]
    idle, _ = peak_memory("model", "list")
    for recompute in ("none", "selective", "full"):
        for name, words in (("all", []), ("LoRA", ["--rank", "16"])):
            taken, reported = peak_memory("bench", "train", SHAPES / "smollm2-135m", "--sequence", 64 if options.quick else 1024,
                                      "--global", 2, "--micro", 2, "--warmup", 1, "--steps", 2, "--recompute", recompute, *words)
            own, planned = taken - idle, reported["planned_bytes"]
            lines.append(f"| {recompute} | {name} | {own / 2**20:.0f} MiB | {planned / 2**20:.0f} MiB | {100 * (own / planned - 1):+.1f} % |")
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--jobs", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch:
        return run_torch(*json.loads(options.torch))
    if options.quick:
        options.rounds = 1
    if options.steps < 2:
        parser.error("--steps must be at least 2")
    options.jobs = [job for job in TRAINING if re.search(options.jobs, f"{job[1]}, {job[0]}")]
    if not options.jobs:
        parser.error("--jobs has a match with no training job")
    if "serving" in options.parts and not LLAMA_BENCH.exists():
        sys.exit(f"{LLAMA_BENCH} is not there: tools/llamacpp.sh --server makes it")
    device = next(d for d in ingot("devices")["devices"] if d["name"] == "cpu")
    peak = 1e12 * device["peak_tflops"]
    text = [f"# What the CPU gives ({time.strftime('%Y-%m-%d')})", "",
            f"`bench/cpu.py --rounds {options.rounds} --steps {options.steps} --parts {' '.join(options.parts)}`, commit {commit()}, "
            f"{CPUS} CPUs ({device['model']}, {device['arch']}); measured once before: {peak / 1e12:.3f} TFLOP/s in bf16. "
            "Each training job measures its own peak; of it the best of the rounds counts."]
    if "serving" in options.parts:
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            lines = decoding_lines(options, folder, peak)
            text += ["", "## Serving", "", "One stream with a context that begins empty, beside llama.cpp's llama-bench on the same shape, "
                     "weights of the same precision (q8_0, q4_0; where all of llama.cpp's are q4_0, ingot's int4 keeps embedding and head in "
                     "q8_0) and as many threads, llama.cpp built as it is by default. Medians of the rounds; the read rate is measured around each.", "", *lines, "", start_line(folder)]
    if "memory" in options.parts:
        text += ["", "## Memory", "", *memory_lines(options)]
    if "levels" in options.parts and device["arch"].startswith("avx512"):
        levels = {level: max(train("smollm2-135m", 64 if options.quick else 1024, 1, ["--dtype", "fp32"], options.steps,
                                   {"INGOT_CPU_ISA": level})["tokens_per_s"] for _ in range(options.rounds))
                  for level in ("avx2", device["arch"])}
        text += ["", "## Levels", "", f"All weights, fp32: {levels['avx2']:.0f} tokens/s with AVX2, {levels[device['arch']]:.0f} with "
                 f"AVX-512: {levels['avx2'] / levels[device['arch']]:.2f} (wanted: 0.5)."]
    if "training" in options.parts:
        trained, version = training_lines(options)
        text += ["", "## Training", "", f"PyTorch {version}.", "", *trained]
    write_report("\n".join(text), options.report)


if __name__ == "__main__":
    main()
