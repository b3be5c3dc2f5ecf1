#!/usr/bin/env python3
"""Writes a report of the times that a step of each job of tools/gpu_budgets.tsv takes on paper: from its launches, bytes and FLOPs,
the registers of tools/device_code.tsv, and published rates of the GPUs. The same model is compared with published times of other
programs first. Nothing in it is measured.

  gpu_paper.py bench/reports/DATE-paper.md    writes the report, and tools/gpu_paper.json for tools/gpu_check
  gpu_paper.py --check                        whether that file is of these tables
  gpu_paper.py --self-test                    tests the model's parts"""
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import device_code

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = ROOT / "tools/gpu_budgets.tsv"
SPEEDS = ROOT / "tools/gpu_paper.json"
T, G, M, K = 1e12, 1e9, 1e6, 1e3


# --- Rates


@dataclass(frozen=True)
class Gpu:
    units: int  # multiprocessors or compute units
    copy: float  # bytes/s that are reached
    bf16: float  # FLOP/s that a library's gemms reach within training
    fp8: float
    peak: float  # FLOP/s, dense bf16, of the data sheet
    fastest: float = 0  # FLOP/s of a library's bf16 gemms by themselves; 0: as bf16


# Share of a data sheet's memory rate that copies reach, where no figure for the GPU is known: an H200's 4.3 of 4.8 TB/s.
COPIES = 4.3 / 4.8
# Share of Hopper's peak that gemms reach within training: one number, fitted to all published times of training below.
HOPPER = 0.60
GPUS = {
    "H200": Gpu(132, 4.3 * T, HOPPER * 989 * T, HOPPER * 1979 * T, 989 * T, 788 * T),
    "H100": Gpu(132, 3.35 * T * COPIES, HOPPER * 989 * T, HOPPER * 1979 * T, 989 * T, 788 * T),
    "A100": Gpu(108, 1.7 * T, 0, 0, 312 * T),
    "MI250": Gpu(104, 1.64 * T * COPIES, 137 * T, 137 * T, 191.5 * T),
    "MI300X": Gpu(304, 5.3 * T * COPIES, 708 * T, 1273 * T, 1307 * T),
    "MI355X": Gpu(256, 8.0 * T * COPIES, 0.54 * 2517 * T, 0.54 * 5033 * T, 2517 * T),
}
ATTENTION = {64: (300 * T, 250 * T), 128: (520 * T, 450 * T)}  # cuDNN on Hopper, by head size: forward, backward
OWN_ATTENTION = {"sm": 0.28, "gf": 0.20}  # of the peak, by the target's first letters
# Of the peak by the same count: the backward pass on Hopper by head size (2026-11-28-attention-sm90.md).
SM90_BACKWARD = {64: 0.37, 128: 0.53}
OWN_TILES = {"sm": 0.45, "gf": 0.35}
BACKWARD_PRODUCTS = 7 / 5  # our backward pass recomputes scores and dP (2026-11-22-gpu-attention-analysis.md)
LAUNCH = 4.2e-6  # seconds
# A unit draws up to this multiple of its share of the memory's rate (assumed).
UNIT_SHARE = 2
RATES = f"""\
| GPU | rate | value | from |
|---|---|---|---|
| H200, H100 | dense bf16, fp8; memory | 989, 1979 TFLOP/s; 4.8, 3.35 TB/s | NVIDIA's data sheets |
| H200 | gemms by themselves; copies | 788 TFLOP/s; 4.3 TB/s | measured on an H200 by others, without a public report |
| H200, H100 | gemms within training | {100 * HOPPER:.0f} % of the peak: {HOPPER * 989:.0f} TFLOP/s in bf16, {HOPPER * 1979:.0f} in fp8 | **fitted** to the four rows of training below; for fp8 the same share is assumed |
| H200, H100 | attention by cuDNN, heads of 128: forward, backward | 520, 450 TFLOP/s | assumed; FlashAttention-3's best is 740 forward (arXiv 2407.08608) |
| H200, H100 | attention by cuDNN, heads of 64 | 300, 250 TFLOP/s | assumed |
| H200 | our attention and gemm tiles (mma.sync) | 28 % and 45 % of the peak, fp8's twice | assumed; shared memory allows 66 % and 50 % at most (2026-11-22-gpu-attention-analysis.md, -gemm-analysis.md) |
| H200 | our attention backward (wgmma), heads of 128 | {100 * SM90_BACKWARD[128]:.0f} % of the peak for its seven products | counted, times the share of such a count that FlashAttention-3 reaches (2026-11-28-attention-sm90.md) |
| H200 | our attention backward (wgmma), heads of 64 | {100 * SM90_BACKWARD[64]:.0f} % of the peak for its seven products | the same |
| A100 | copies | 1.7 TB/s | gpt-fast's README: its 104.9 tokens/s are 82 % of what its authors reach |
| MI250, a die | dense bf16; memory; gemms | 191.5 TFLOP/s; 1.64 TB/s; 137 TFLOP/s | AMD's data sheet; between 127 and 147, which two reports reach on MI250X |
| MI300X | gemms bf16, fp8; memory | 708, 1273 TFLOP/s; 5.3 TB/s | ROCm blog "Measuring max achievable FLOPs, part 2"; AMD's data sheet |
| MI355X | dense bf16, fp8; memory | 2517, 5033 TFLOP/s; 8.0 TB/s | AMD's data sheet; that gemms reach 54 % of it, as on MI300X, is assumed |
| AMD | our attention and gemm tiles | 20 % and 35 % of the peak, fp8's twice | assumed |
| other GPUs | copies | {100 * COPIES:.0f} % of the data sheet | the H200's share |
| all | a launch | {1e6 * LAUNCH:.1f} us | **fitted** to vLLM's row below. 1.3 us of it is what a kernel costs in a CUDA graph (Hazy Research, "Look Ma, No Bubbles!", 2025); the rest is filling and draining the GPU |
"""


def traffic_seconds(gpu, size, blocks):
    """Of `size` bytes, moved by `blocks` thread blocks."""
    return size / (gpu.copy * min(1.0, UNIT_SHARE * blocks / gpu.units))


def gemm_seconds(gpu, m, n, k, rate, size):
    """A library's gemm, in tiles of up to 128 x 128: with fewer tiles than units only these compute."""
    tiles = math.ceil(m / 128) * math.ceil(n / 128)
    padded = math.ceil(m / 64) * 64 * math.ceil(n / 64) * 64 * k * 2
    return max(padded / (rate * min(1.0, tiles / gpu.units)), traffic_seconds(gpu, size, tiles))


# --- The budgets


@dataclass
class Row:
    op: str
    kernel: str
    shape: str
    threads: int
    shared: int
    launches: int
    bytes: float
    flops: float

    def is_copy(self):
        return self.kernel.startswith("copy ")

    def is_gemm(self):
        return "BLASLt" in self.kernel.split(" ")[0]

    def blocks(self):
        return math.prod(int(part) for part in self.shape.split("x")) if self.threads else 0


@dataclass
class Job:
    name: str
    gpu: str
    target: str
    tokens: int
    memory: float
    rows: list


def read_budgets(text):
    jobs = []
    for line in text.splitlines():
        fields = line.split("\t")
        if fields[0] == "job":
            jobs.append(Job(*fields[1:4], int(fields[4]), float(fields[5]), []))
        elif line and line[0] != "#" and fields[0] != "op":
            jobs[-1].rows.append(Row(*fields[:3], *map(int, fields[3:6]), *map(float, fields[6:])))
    return jobs


def waves(job, row, code):
    """(blocks on a unit at once, waves of blocks on the GPU) of a kernel of ours; None for others."""
    numbers = code.get((row.kernel, job.target))
    if numbers is None:
        return None
    fit = device_code.blocks_a_unit(job.target, {**numbers, "threads": row.threads}, row.shared)
    return fit, row.blocks() / (fit * GPUS[job.gpu].units)


def own_attention(job, row):
    """Share of the peak that an attention kernel of ours reaches."""
    if row.kernel.startswith(("flash_sm90_dq_", "flash_sm90_dkv_")):
        return SM90_BACKWARD[int(row.kernel.split("_")[-1])]
    return OWN_ATTENTION[job.target[:2]]


def seconds(job, row, code, fast=False):
    """Of all launches of a row. `fast`: a library's gemms as fast as by themselves."""
    gpu = GPUS[job.gpu]
    n = row.launches
    if row.is_copy():
        return 0  # pinned, beside the step; what the host waits for is counted in launches
    if row.is_gemm():
        types = row.kernel.split(" ")
        rate = gpu.fp8 if types[1] == "fp8" else (fast and gpu.fastest) or gpu.bf16
        if types[1] == "f32":
            rate = gpu.peak / 16  # ordinary cores (H200: 67 TFLOP/s)
        return n * (gemm_seconds(gpu, *map(int, row.shape.split("x")), rate, row.bytes / n) + LAUNCH)
    if row.kernel == "cuDNN attention":
        return row.flops / ATTENTION[int(row.shape.split("x")[2])][0] + n * LAUNCH
    traffic = traffic_seconds(gpu, row.bytes, row.blocks() if row.threads else gpu.units)
    arithmetic = 0
    if row.flops and "paged" not in row.kernel:
        attention = row.op.startswith("attention")
        share = own_attention(job, row) if attention else OWN_TILES[job.target[:2]]
        rate = gpu.peak * share * (2 if "fp8" in row.kernel else 1)
        work = row.flops * (BACKWARD_PRODUCTS if row.op == "attention_backward" else 1)
        found = waves(job, row, code)
        filled = 1.0
        if found is not None:  # attention's blocks differ in length, so that they fill a last wave; those of gemms do not
            filled = min(1.0, found[1]) if attention else found[1] / math.ceil(found[1])
        few = row.kernel.startswith("skinny_gemm")  # of up to 16 rows: bound by the weights' bytes
        arithmetic = 0 if few else work / (rate * filled)
    return max(traffic, arithmetic) + n * LAUNCH


# --- Published times of other programs, from their own lists of kernels


@dataclass
class Published:
    name: str
    value: float
    unit: str  # "tokens/s" or "ms"
    source: str
    fitted: bool
    compute: object  # () -> value


class Step:
    """Adds up the kernels of a program that is not ours, per micro-batch."""

    def __init__(self, gpu, tokens):
        self.gpu, self.tokens, self.time, self.element = GPUS[gpu], tokens, 0.0, 2

    def gemm(self, n, k, times=1, extra=0, rate=None):
        size = self.element * (self.tokens * n + self.tokens * k + n * k) + extra
        self.time += times * (gemm_seconds(self.gpu, self.tokens, n, k, rate or self.gpu.bf16, size) + LAUNCH)

    def memory(self, size, times=1):
        self.time += times * (size / self.gpu.copy + LAUNCH)

    def attention(self, heads, size, length, backward=True):
        flops = 2 * self.tokens * length * heads * size  # causal
        forward, back = ATTENTION[size]
        self.time += flops / forward + LAUNCH
        if backward:
            self.time += 2.5 * flops / back + LAUNCH


def llm_c(gpu, layers, width, heads, batch, gpus, micro_steps):
    """Tokens/s of llm.c, whose train_gpt2.cu (commit 00247dc) lists these kernels: gelu fused into the gemms, recompute 0, cuDNN."""
    vocabulary, length = 50304, 1024
    step = Step(gpu, batch * length)
    row = 2 * step.tokens * width  # bytes of activations
    for _ in range(layers):
        for n, k, extra in ((3, 1, 0), (1, 1, 0), (4, 1, 4 * row), (1, 4, 0)):
            step.gemm(n * width, k * width, extra=extra)  # forward
            step.gemm(k * width, n * width)  # the input's gradient
            step.time += gemm_seconds(step.gpu, n * width, k * width, step.tokens, step.gpu.bf16, 0) + LAUNCH
            step.memory(n * row)  # the bias's gradient
        step.attention(heads, width // heads, length)
        step.memory(4 * row, 2)  # residual and norm
        step.memory(4 * row, 2)  # the norms' gradients
    step.gemm(vocabulary, width, times=2)
    step.time += gemm_seconds(step.gpu, vocabulary, width, step.tokens, step.gpu.bf16, 0) + LAUNCH
    step.memory(2 * 2 * step.tokens * vocabulary)  # the classifier
    step.memory(2 * row, 3)  # embedding, its gradient, clearing
    parameters = layers * 12 * width**2 + vocabulary * width
    update = 28 * parameters / gpus / step.gpu.copy  # gradient, weight, two moments and master
    # Gradients are reduced behind the last micro-batch's backward pass; weights are gathered at NVLink's 450 GB/s.
    gather = 2 * parameters / (450 * G) if gpus > 1 else 0
    return step.tokens * micro_steps / (step.time * micro_steps + update + gather)


def llama(gpu, length, micro_steps, gpus, lora=False, tokens=None, mean=None):
    """Tokens/s of Llama 3 8B by Megatron-Core with Transformer Engine: gemms of q/k/v and gate/up joined, fused norms, SwiGLU and
    rotary positions, cuDNN attention, distributed AdamW. LoRA as in Megatron-Bridge's recipe for these figures: rank 16 on q/k/v
    alone. `mean`: the mean length of packed sub-sequences."""
    width, features, layers, kv, vocabulary = 4096, 14336, 32, 1024, 128256
    step = Step(gpu, tokens or length)
    row = 2 * step.tokens * width
    gemms = ((width + 2 * kv, width), (width, width), (2 * features, width), (width, features))
    for _ in range(layers):
        for n, k in gemms:
            step.gemm(n, k)
            step.gemm(k, n)
            if lora and n == width + 2 * kv:  # target_modules is linear_qkv: two thin gemms forward and four backward
                step.gemm(16, k, times=3)
                step.gemm(n, 16, times=3)
                step.memory(2 * step.tokens * 3 * n)
                step.memory(2 * step.tokens * 3 * k)
            if not lora:
                step.time += gemm_seconds(step.gpu, n, k, step.tokens, step.gpu.bf16, 0) + LAUNCH
        step.attention(32, 128, mean or length)
        step.memory(2 * row, 2)  # norms
        step.memory(4 * row, 2)  # their gradients
        step.memory(3 * row, 4)  # residuals, forward and backward
        step.memory(2 * row * 1.5, 2)  # rotary positions
        step.memory(3 * 2 * step.tokens * features)  # SwiGLU
        step.memory(5 * 2 * step.tokens * features)
    step.gemm(vocabulary, width, times=2)
    if not lora:
        step.time += gemm_seconds(step.gpu, vocabulary, width, step.tokens, step.gpu.bf16, 0) + LAUNCH
    step.memory(4 * 2 * step.tokens * vocabulary, 3)  # cross-entropy in fp32
    parameters = 8.03 * G
    update = 0.0 if lora else 28 * parameters / gpus / step.gpu.copy
    # The first layer's weights are gathered, and the last layer's gradients reduced, with nothing beside them.
    exposed = 0.0 if lora else 2 * 2 * parameters / layers / (450 * G)
    return step.tokens * micro_steps / (step.time * micro_steps + update + exposed)


def decode(gpu, read, layers, kernels):
    """Milliseconds a token of one stream: `read` bytes of weights, `kernels` launches a layer and five more."""
    return 1e3 * (read / GPUS[gpu].copy + (layers * kernels + 5) * LAUNCH)


DGX = "NVIDIA dgxc-benchmarking @741c886 (25.04)"
PUBLISHED = [
    Published(
        "llm.c, GPT-2 1558M, 8 H100, 16 x 1024",
        47.6 * K,
        "tokens/s",
        "run_gpt2_1558M.sh: 2.7 to 2.8 s a step of 2^20 tokens",
        True,
        lambda: llm_c("H100", 48, 1600, 25, 16, 8, 8),
    ),
    Published(
        "NeMo, Llama-3.1-8B, 8 H100, bf16, S 8192",
        10682,
        "tokens/s",
        f"{DGX}: llama3.1/README.md",
        True,
        lambda: llama("H100", 8192, 16, 8),
    ),
    Published(
        "NeMo, Llama-3-8B SFT, 8 H100, bf16, packed 4096",
        12412,
        "tokens/s",
        f"{DGX}: ft_llama3/README_8b.md",
        True,
        lambda: llama("H100", 4096, 4, 8, mean=512),
    ),
    Published(
        "NeMo, Llama-3-8B LoRA, 8 H100, bf16, packed 4096",
        17809,
        "tokens/s",
        f"{DGX}: ft_llama3/README_8b.md",
        True,
        lambda: llama("H100", 4096, 4, 8, lora=True, mean=512),
    ),
    Published(
        "vLLM, Llama-3.1-8B bf16, one stream, H100",
        6.44,
        "ms",
        "vLLM blog 2026: 6.44 ms + 4.37e-5 ms a token of context",
        True,
        lambda: decode("H100", 15.0 * G, 32, 10.5),
    ),
    Published(
        "gpt-fast, Llama-2-7B fp16, one stream, A100",
        1e3 / 104.9,
        "ms",
        "gpt-fast README: 104.9 tokens/s",
        False,
        lambda: decode("A100", 13.2 * G, 32, 8),
    ),
]


# --- The report


@dataclass
class Target:
    value: float
    unit: str
    best: str  # the best published figure


TARGETS = {
    "train-llama-3.1-8b-lora": Target(17000, "tokens/s", "17,809 a H100 (NeMo, 8 GPUs)"),
    "train-llama-3.1-8b": Target(11500, "tokens/s", "10,682 a H100 (NeMo, 8 GPUs)"),
    "train-gpt2-1558m": Target(50000, "tokens/s", "46,800 to 48,500 a H100 (llm.c, 8 GPUs)"),
    "decode-llama-2-13b": Target(6.5, "ms", "5.4 ms: the weights' bytes at 4.8 TB/s"),
    "decode-llama-3.1-8b-streams-256": Target(8, "ms", "46,000 tokens/s: bytes at 4.3 TB/s"),
    "train-llama-2-70b-lora-fp8": Target(2000, "tokens/s", "2,647 a H200 (MLPerf v5.0, 8 GPUs)"),
    "train-mpt-7b-mi250": Target(0, "tokens/s", "1,930 a die (MosaicML, 4 GPUs: 166 TFLOP/s a MI250 of two dies, at 43.1 GFLOP a token)"),
    "train-llama-2-70b-lora-fp8-mi300x": Target(0, "tokens/s", "2,159 (MLPerf v5.1, 8 GPUs)"),
    "train-llama-2-70b-lora-fp8-mi355x": Target(0, "tokens/s", "6,019 (MLPerf v5.1, 8 GPUs)"),
    "train-llama-3.1-8b-mi355x": Target(0, "tokens/s", "31,391 in fp8 (MLPerf v5.1, 8 GPUs)"),
}


def speed(job, time):
    return f"{1e3 * time:.2f} ms" if job.name.startswith("decode") else f"{job.tokens / time:,.0f} tokens/s"


def missed(job, time):
    target = TARGETS[job.name]
    if not target.value:
        return "none"
    good = 1e3 * time <= target.value if target.unit == "ms" else job.tokens / time >= target.value
    return f"{target.value:,g} {target.unit}: {'met' if good else 'missed'}"


def job_lines(jobs, code):
    lines = ["| job | GPU | launches | copies | GB moved | TFLOP | GB of memory | time | tokens/s or ms | with gemms at their fastest | target | best published |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for job in jobs:
        time = sum(seconds(job, row, code) for row in job.rows)
        fast = sum(seconds(job, row, code, fast=True) for row in job.rows)
        launches = sum(row.launches for row in job.rows if not row.is_copy())
        copies = sum(row.launches for row in job.rows if row.is_copy())
        numbers = (
            f"{launches:,} | {copies} | {sum(row.bytes for row in job.rows) / G:,.1f} | "
            f"{sum(row.flops for row in job.rows) / T:,.2f} | {job.memory / G:,.1f}"
        )
        lines.append(
            f"| {job.name} | {job.gpu} | {numbers} | {1e3 * time:,.1f} ms | {speed(job, time)} | {speed(job, fast)} | "
            f"{missed(job, time)} | {TARGETS[job.name].best} |"
        )
    return lines


def floors(job, row):
    """Seconds of a row's bytes at the rate of copies, and of its FLOPs at the rate of a library's gemms."""
    gpu = GPUS[job.gpu]
    fp8 = row.op.startswith("linear_fp8") or " fp8 " in row.kernel
    return (0, 0) if row.is_copy() else (row.bytes / gpu.copy, row.flops / (gpu.fp8 if fp8 else gpu.bf16))


def cause(job, code, most=4):
    """Where a job's time is above its floors."""
    above = {}
    for row in job.rows:
        above[row.op] = above.get(row.op, 0) + seconds(job, row, code) - max(floors(job, row))
    total = sum(seconds(job, row, code) for row in job.rows)
    ops = sorted(above, key=lambda op: -above[op])[:most]
    text = ", ".join(f"`{op}` {1e3 * above[op]:,.1f}" for op in ops)
    arithmetic = sum(floors(job, row)[1] for row in job.rows)
    return (
        f"- {job.name} on {job.gpu}: {1e3 * sum(above.values()):,.1f} of {1e3 * total:,.1f} ms; {text}. Its FLOPs alone take "
        f"{1e3 * arithmetic:,.1f} ms."
    )


def hot_rows(job, code, most=12):
    return sorted(job.rows, key=lambda row: -seconds(job, row, code))[:most]


def fit_lines(jobs, code):
    """Blocks of the jobs' hot kernels that fit on a unit of each target, with the dynamic shared memory of a target of its vendor."""
    targets = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950")
    hot = {}
    for job in jobs:
        for row in hot_rows(job, code):
            if (row.kernel, job.target) in code:
                key = row.kernel, job.target[:2]
                hot[key] = max(hot.get(key, 0), row.shared)
    lines = ["| kernel | " + " | ".join(targets) + " |", "|---|" + "---|" * len(targets)]
    for kernel in sorted({kernel for kernel, _ in hot}):
        fits = []
        for target in targets:
            shared, numbers = hot.get((kernel, target[:2])), code.get((kernel, target))
            absent = shared is None or not numbers or target not in device_code.ONLY_ON.get(kernel, targets)
            fits.append("-" if absent else str(device_code.blocks_a_unit(target, numbers, shared)))
        lines.append(f"| {kernel} | " + " | ".join(fits) + " |")
    return lines


def hot_lines(job, code):
    total = sum(seconds(job, row, code) for row in job.rows)
    rows = hot_rows(job, code)
    lines = ["| share | op | kernel | blocks, or M x N x K | launches | MB each | GFLOP each | us each | blocks a unit | waves |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        time = seconds(job, row, code)
        found = waves(job, row, code)
        place = f"{found[0]} | {found[1]:.2f}" if found else "- | -"
        n = row.launches
        lines.append(
            f"| {100 * time / total:.1f} % | {row.op} | {row.kernel} | {row.shape} | {n} | {row.bytes / n / M:,.2f} | "
            f"{row.flops / n / G:,.2f} | {1e6 * time / n:,.1f} | {place} |"
        )
    return lines


def kinds(job, code):
    """Seconds by what bounds them."""
    sums = {"library gemms": 0.0, "attention": 0.0, "gemms of ours": 0.0, "memory": 0.0, "launches": 0.0}
    for row in job.rows:
        if row.is_copy():
            continue
        time = seconds(job, row, code) - row.launches * LAUNCH
        sums["launches"] += row.launches * LAUNCH
        if row.is_gemm():
            sums["library gemms"] += time
        elif "attention" in row.op:
            sums["attention"] += time
        elif row.flops:
            sums["gemms of ours"] += time
        else:
            sums["memory"] += time
    return sums


FALSIFIES = {
    "library gemms": "`ingot bench op matmul` or ncu shows another rate than {bf16:.0f} TFLOP/s (bf16) for these shapes under training's power",
    "attention": "`ingot bench op attention attention_backward` differs by more than a fifth from the us in the job's table",
    "gemms of ours": "a tile kernel reaches another share of the peak than assumed (ncu: sm__inst_executed_pipe_tensor)",
    "memory": "the sum of these ops in `bench train --profile` differs by more than a fifth: bytes are moved more often than once",
    "launches": "nsys shows another number of kernels, or gaps and ramps of other than 4.2 us a kernel",
}


def report(jobs, code):
    lines = [
        "# Times on paper of the jobs of tools/gpu_check",
        "",
        "**Nothing here is measured.** Launches, bytes and FLOPs are facts about the code (`tools/gpu_budgets.tsv`, recorded on a device",
        "that computes nothing); registers and shared memory are the compilers' (`tools/device_code.tsv`). Times follow from them by",
        "`tools/gpu_paper.py`, which wrote this file. Its rates are published ones, and where none is published, assumed: the table says which.",
        "",
        "## Rates",
        "",
        RATES,
        "## The model",
        "",
        "A launch takes the longer one of its arithmetic and its traffic, and 4.2 us. Bytes are those of each operand once. A library's gemm",
        "works in tiles of at most 128 x 128; with fewer tiles than multiprocessors only these compute. A kernel with fewer blocks than",
        "multiprocessors gets twice their share of the memory's rate. Tiles of our gemms take whole waves of the blocks that fit at once.",
        "Launches follow one another; the host is never late (graphs, or steps in flight). Clocks do not fall but where the fitted rate has it.",
        "",
        "Against published times of other programs, from their own lists of kernels:",
        "",
        "| program | published | on paper | difference | used to fit | from |",
        "|---|---|---|---|---|---|",
    ]
    for each in PUBLISHED:
        value = each.compute()
        lines.append(
            f"| {each.name} | {each.value:,.5g} {each.unit} | {value:,.5g} | {100 * (value / each.value - 1):+.1f} % | "
            f"{'yes' if each.fitted else 'no'} | {each.source} |"
        )
    lines += [
        "",
        "Two numbers are fitted: the share of Hopper's peak that gemms reach within training, and the time of a launch. At the rate that",
        "gemms reach by themselves (788 TFLOP/s) the rows of training would be 17 to 34 % too fast: no program holds that rate in a step.",
        "The lists are what the programs' sources say; Megatron-Core's is simplified (no communication but what is exposed). NeMo's figures",
        "of LoRA adapt q/k/v alone; our jobs adapt all linear layers. Nothing published was found to test the rates of AMD's GPUs and of fp8",
        "in this way: their rows have no such support.",
        "",
        "## The jobs",
        "",
        "Copies: between host and device. GB moved: each operand once. Time, and speed from it, with gemms as within training; beside it",
        "with gemms at the 788 TFLOP/s that they reach by themselves on an H200.",
        "",
        *job_lines(jobs, code),
        "",
        "What bounds them, in ms a step:",
        "",
        "| job | " + " | ".join(FALSIFIES) + " |",
        "|---|" + "---|" * len(FALSIFIES),
    ]
    for job in jobs:
        lines.append(f"| {job.name} | " + " | ".join(f"{1e3 * time:,.2f}" for time in kinds(job, code).values()) + " |")
    lines += [
        "",
        "Above the floors: the time beyond that of each launch's bytes at the rate of copies, or of its FLOPs at the rate of gemms where that",
        "takes longer, and the ops that have most of it, in ms a step. A missed target comes from this, and from floors by bytes.",
        "",
        *(cause(job, code) for job in jobs),
    ]
    lines += ["", "What would falsify a column:", ""]
    lines += [f"- *{kind}*: {text.format(bf16=GPUS['H200'].bf16 / T)}." for kind, text in FALSIFIES.items()]
    lines += ["", "And a line: a measured step that differs by more than 15 % where each of its columns holds.", ""]
    lines += [
        "## Blocks that fit on a multiprocessor",
        "",
        "Of the kernels below, by registers, waves and shared memory. `-`: no job of that vendor has it among its longest, or the target does not run it.",
        "",
        *fit_lines(jobs, code),
        "",
        "## The launches that take the most time",
        "",
        "Blocks a unit: that fit on a multiprocessor at once. Waves: the grid, as a multiple of what fits on the whole GPU.",
        "",
    ]
    for job in jobs:
        lines += [f"### {job.name}, {job.gpu}", "", *hot_lines(job, code), ""]
    return "\n".join(lines)


def self_test():
    gpu = Gpu(100, 1 * T, 100 * T, 200 * T, 200 * T)
    assert traffic_seconds(gpu, T, 100) == 1 and traffic_seconds(gpu, T, 25) == 2
    assert gemm_seconds(gpu, 12800, 1280, 4096, 100 * T, 0) == 2 * 12800 * 1280 * 4096 / (100 * T)
    assert gemm_seconds(gpu, 128, 128, 4096, 100 * T, 0) == 2 * 128 * 128 * 4096 / T, "one tile, one unit"
    assert gemm_seconds(gpu, 12800, 1, 64, 100 * T, 0) == gemm_seconds(gpu, 12800, 64, 64, 100 * T, 0)
    text = "# t\nop\tkernel\njob\tj\tH200\tsm_90\t8\t9\nadd\tk\t264x2\t256\t0\t3\t300\t0\n-\tcopy to host\t-\t0\t0\t1\t4\t0\n"
    (job,) = read_budgets(text)
    assert (job.name, job.tokens, len(job.rows), job.rows[0].blocks()) == ("j", 8, 2, 528)
    numbers = {"registers": 64, "shared": 0, "threads": 256}
    assert waves(job, job.rows[0], {("k", "sm_90"): numbers}) == (4, 1.0)
    backward = Row("attention_backward", "flash_sm90_dkv_128", "264", 256, 0, 1, 0, 989 * T)
    assert abs(seconds(job, backward, {}) - LAUNCH - BACKWARD_PRODUCTS / SM90_BACKWARD[128]) < 1e-12
    assert waves(job, job.rows[0], {}) is None and seconds(job, job.rows[1], {}) == 0
    assert abs(seconds(job, job.rows[0], {}) - 3 * LAUNCH - 300 / GPUS["H200"].copy) < 1e-12
    for each in PUBLISHED:
        assert abs(each.compute() / each.value - 1) <= 0.10, f"{each.name}: {each.compute()} is not {each.value}"


# What tools/gpu_check shows beside its measurements.
def speeds(jobs, code):
    found = {}
    for job in jobs:
        time = sum(seconds(job, row, code) for row in job.rows)
        speed_of = {"ms_per_token": round(1e3 * time, 3)} if job.name.startswith("decode") else {"tokens_per_s": round(job.tokens / time)}
        found[job.name] = {"gpu": job.gpu, **speed_of}
    return json.dumps({"jobs": found}, indent=1) + "\n"


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2 or (sys.argv[1].startswith("-") and sys.argv[1] != "--check"):
        sys.exit(__doc__)
    table, _ = device_code.read_table(device_code.TABLE.read_text(encoding="utf-8"))
    code = {key[1:]: numbers for key, numbers in table.items()}
    jobs = read_budgets(BUDGETS.read_text(encoding="utf-8"))
    order = list(TARGETS)
    jobs.sort(key=lambda job: order.index(job.name))
    if sys.argv[1] == "--check":
        if SPEEDS.read_text(encoding="utf-8") == speeds(jobs, code):
            return 0
        sys.exit(f"{SPEEDS.name} is not of the tables as they are: write the report anew")
    Path(sys.argv[1]).write_text(report(jobs, code), encoding="utf-8")
    SPEEDS.write_text(speeds(jobs, code), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
