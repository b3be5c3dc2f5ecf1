#!/usr/bin/env python3
"""Ranks beside PyTorch's on this machine: loss, speed and memory of the same job.

  torch_ranks.py fsdp|tp [--model NAME] [--tokenizer NAME] [--sequence N] [--batch N] [--precision P] [--steps N] [--rounds N]
                      [--report FILE.md]

fsdp: fully sharded ranks (parallel.zero 3) of GPT-2 124M beside FSDP2: fully_shard block by block, parameters gathered in bf16
(MixedPrecisionPolicy). tp: tensor-parallel ranks (parallel.tp) of a llama with 134M parameters beside torch.distributed.tensor.parallel,
which cuts the layers as Megatron-LM does: queries, keys, values, gate and up by columns, the layers after them by rows, embedding and
head by vocabulary, with the loss on the cut logits (loss_parallel); weights in bf16, and their masters in fp32 in the optimizer.
Both programs train the same initial weights on the same samples (data.order: megatron) with one rank and one thread on each core, in
bf16 (or fp32) with fp32 masters, AdamW without decay, clipping. PyTorch runs transformers' model with SDPA over gloo; Ingot's ranks are processes of
Open MPI. The programs alternate --rounds times; the median of all steps but each run's first counts. Peak memory is the resident memory
of the largest rank without mapped files, in samples: for Ingot of the whole run, for PyTorch without the time of loading. Needs
./run build, ./run mpi, and a Python with torch and transformers: that of build/oracles, which ./run oracles makes, or INGOT_PYTHON. The
numbers are meaningful only on an otherwise idle machine.
"""
import argparse
import ctypes
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from repository import INGOT, ROOT, commit, processor, vocabulary, write_report

PYTHON = pathlib.Path(os.environ.get("INGOT_PYTHON", ROOT / "build/oracles/bin/python"))
RANKS = len(os.sched_getaffinity(0))
LEARNING_RATE, BETAS, CLIP = 1e-4, (0.9, 0.95), 1.0
TOLERANCE = {"bf16": 2e-3, "fp32": 1e-4}  # relative, of losses: bf16 has 8 bits of mantissa; the mean over many tokens is closer


class PeakMemory(threading.Thread):
    """Samples the memory of its own (without mapped files) that each process started from `program` has, from when `begins` exists."""

    def __init__(self, program, begins=None):
        super().__init__()
        self.program, self.begins, self.peak = program, begins, 0
        self.start()

    def run(self):
        while self.program.poll() is None:
            if self.begins is None or self.begins.exists():
                self.peak = max([self.peak, *map(self.own_bytes, self.started_from(self.program.pid))])
            time.sleep(0.05)

    def started_from(self, process):
        try:
            children = [int(child) for file in pathlib.Path(f"/proc/{process}/task").glob("*/children") for child in file.read_text().split()]
        except OSError:  # it has ended
            children = []
        return [process, *(each for child in children for each in self.started_from(child))]

    @staticmethod
    def own_bytes(process):
        try:
            fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines())
            return int(fields["RssAnon"].split()[0]) * 1024
        except (OSError, KeyError):  # it has ended
            return 0


def run_ranks(name, words, begins=None, environment=None):
    """Runs a program, and returns the most memory that one of its processes had."""
    program = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    memory = PeakMemory(program, begins)
    error = program.communicate()[1]
    memory.join()
    if program.returncode != 0:
        sys.exit(f"{name}: exit code {program.returncode}: {error}")
    return memory.peak


# What is compared: the names of both, what is trained, and how the ranks of Ingot divide it.
PEERS = {
    "fsdp": {"name": "FSDP2", "what": "Fully sharded ranks", "model": "gpt2-124m", "tokenizer": "gpt-2", "settings": ["parallel.zero=3"]},
    "tp": {"name": "torch.distributed.tensor.parallel", "what": "Tensor-parallel ranks", "model": "llama-134m", "tokenizer": "tiny",
           "settings": [f"parallel.tp={RANKS}"]},
}


def prepare(folder, options):
    """Initial weights, and the tokens of the speeches as one document."""
    text = "\n".join(json.loads(line)["text"] for line in (ROOT / "data/sotu/train.jsonl").read_text().splitlines())
    (folder / "text.jsonl").write_text(json.dumps({"text": text}) + "\n")
    subprocess.run([INGOT, "data", "tokenize", folder / "text.jsonl", "--model", vocabulary(options.tokenizer), "--out", folder / "tokens",
                    "--quiet"], check=True)
    subprocess.run([PYTHON, __file__, options.peer, "--prepare", folder, "--model", options.model], check=True)


def prepare_weights(folder, model):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(1)
    path, = (path for path in (ROOT / "recipes/models" / model, ROOT / "bench/models" / model) if path.exists())
    # In bf16, so that both programs begin with equal masters: Ingot's are those of the weights that it computes with.
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path), dtype=torch.bfloat16).save_pretrained(folder / "model")


def words(options, folder):
    return [str(ROOT / "recipes/pretrain/gpt2-124m.yaml"), f"model={folder / 'model'}", "init=pretrained", "tokenizer=null",
            f"data.train={folder / 'tokens'}", "data.order=megatron", f"data.sequence_length={options.sequence}",
            f"batch.global={options.batch}", f"steps={options.steps + 1}"]


def samples(options, folder):
    """Of each step, by number."""
    done = subprocess.run([INGOT, "data", "order", *words(options, folder), "--json"], check=True, capture_output=True, text=True)
    return [step["samples"] for step in json.loads(done.stdout)["steps"]]


def ingot(options, folder):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    peak = run_ranks(
        "ingot",
        ["mpirun", "--bind-to", "core", "-n", str(RANKS), str(INGOT), "pretrain", *words(options, folder), "--quiet", "eval.every=0",
         "eval.prompts=[]", "checkpoint.every=0", "checkpoint.minutes=0", "schedule.name=constant", "schedule.warmup=0",
         f"optimizer.lr={LEARNING_RATE}", "optimizer.weight_decay=0", f"optimizer.betas={list(BETAS)}", f"optimizer.clip_grad_norm={CLIP}",
         "device=cpu", f"precision={options.precision}", f"threads={RANKS}", *PEERS[options.peer]["settings"],
         f"batch.micro={options.batch // RANKS if options.peer == 'fsdp' else options.batch}", "recompute=none", "determinism=fast",
         f"run_dir={folder}", "name=run"], environment=environment)
    events = [json.loads(line) for line in (folder / "run/events.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["type"] == "step"]
    subprocess.run(["rm", "-r", folder / "run"], check=True)
    return {"losses": [step["loss"] for step in steps], "norms": [step["grad_norm"] for step in steps],
            "seconds": [step["step_s"] for step in steps[1:]], "peak": peak}


def torch_ranks(options, folder):
    job = folder / "job.json"
    job.write_text(json.dumps({"samples": samples(options, folder), "sequence": options.sequence, "folder": str(folder),
                               "precision": options.precision}))
    peak = run_ranks("PyTorch", [PYTHON, __file__, options.peer, "--torch", job], begins=folder / "loaded")
    for name in ("rendezvous", "loaded"):
        (folder / name).unlink(missing_ok=True)
    return json.loads((folder / "torch.json").read_text()) | {"peak": peak}


class FullyShardedModel:
    """A rank's shares, and the sequences of a step that are its own."""

    def __init__(self, network, mesh, dtype):
        import torch
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        for block in network.transformer.h:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(network, mesh=mesh, mp_policy=policy)
        self.network = network
        self.optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, betas=BETAS, weight_decay=0.0, fused=True)

    def step(self, rows):
        """Trains on the rows [sequences, length + 1] and returns mean loss and gradient norm."""
        import torch
        import torch.distributed as dist
        rank = dist.get_rank()
        rows = rows[rank * len(rows) // RANKS:(rank + 1) * len(rows) // RANKS]
        logits = self.network(input_ids=rows[:, :-1], use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), CLIP).full_tensor()
        self.optimizer.step()
        self.optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        return mean.item() / RANKS, norm.item()


class TensorParallelModel:
    """A rank's parts, with fp32 masters."""

    def __init__(self, network, mesh, dtype):
        import torch
        from torch.distributed.tensor import DTensor, Replicate, Shard
        from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
        parallelize_module(network, mesh, {
            "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
            "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
        # Attention and MLP get their input as a replicated DTensor, so that its gradient is summed over ranks once.
        plan = {"self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": Replicate()},
                                                desired_input_kwarg_layouts={"hidden_states": Replicate()}),
                "mlp": PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),)),
                "self_attn.o_proj": RowwiseParallel(), "mlp.down_proj": RowwiseParallel()}
        plan |= {name: ColwiseParallel() for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")}
        for block in network.model.layers:
            parallelize_module(block, mesh, plan)
        self.network = network
        self.masters = [self.local(weight.detach()).float().clone() for weight in network.parameters()]
        for module in network.modules():
            for name, weight in list(module.named_parameters(recurse=False)):
                setattr(module, name, torch.nn.Parameter(weight.detach().to(dtype)))
        self.weights = list(network.parameters())
        self.is_cut = [isinstance(weight, DTensor) for weight in self.weights]
        self.optimizer = torch.optim.AdamW(self.masters, lr=LEARNING_RATE, betas=BETAS, weight_decay=0.0, fused=True)

    @staticmethod
    def local(tensor):
        return tensor.to_local() if hasattr(tensor, "to_local") else tensor

    def step(self, rows):
        """As FullyShardedModel's; each rank has all rows."""
        import torch
        import torch.distributed as dist
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor.parallel import loss_parallel
        with loss_parallel():
            logits = self.network(input_ids=rows[:, :-1], use_cache=False).logits.float()
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
        for master, weight in zip(self.masters, self.weights):
            grad = weight.grad
            if isinstance(grad, DTensor):  # the embedding's is of all rows
                grad = grad.redistribute(placements=weight.placements).to_local()
            master.grad = grad.float()
            weight.grad = None
        squares = torch.zeros(2)  # of gradients that every rank has, and of parts
        for master, is_cut in zip(self.masters, self.is_cut):
            squares[int(is_cut)] += master.grad.square().sum()
        dist.all_reduce(squares[1:])
        norm = squares.sum().sqrt()
        torch._foreach_mul_([master.grad for master in self.masters], torch.clamp(CLIP / norm, max=1.0))
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_([self.local(weight) for weight in self.weights], self.masters)
        return self.local(loss.detach()).item(), norm.item()


def run_torch(rank, peer, job):
    import numpy
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from transformers import AutoModelForCausalLM

    os.sched_setaffinity(0, [sorted(os.sched_getaffinity(0))[rank]])
    torch.set_num_threads(1)
    folder = pathlib.Path(job["folder"])
    dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=RANKS)
    network = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="sdpa")
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    network.train()
    model = {"fsdp": FullyShardedModel, "tp": TensorParallelModel}[peer](
        network, init_device_mesh("cpu", (RANKS,)), {"bf16": torch.bfloat16, "fp32": torch.float32}[job["precision"]])
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    dist.barrier()
    (folder / "loaded").touch()
    tokens = torch.from_numpy(numpy.fromfile(folder / "tokens.bin", dtype=numpy.uint16).astype(numpy.int64))
    length, results, seconds = job["sequence"], [], []
    for step in job["samples"]:
        began = time.perf_counter()
        results.append(model.step(torch.stack([tokens[n * length:(n + 1) * length + 1] for n in step])))
        seconds.append(time.perf_counter() - began)
    if rank == 0:
        losses, norms = zip(*results)
        (folder / "torch.json").write_text(json.dumps({"losses": losses, "norms": norms, "seconds": seconds[1:]}))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--model", help="of recipes/models or bench/models; for tp a llama")
    parser.add_argument("--tokenizer")
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--batch", type=int, default=8, help="sequences a step")
    parser.add_argument("--precision", choices=TOLERANCE, default="bf16")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--prepare", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--torch", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    peer = PEERS[options.peer]
    options.model = options.model or peer["model"]
    options.tokenizer = options.tokenizer or peer["tokenizer"]
    if options.prepare:
        return prepare_weights(options.prepare, options.model)
    if options.torch:
        import torch.multiprocessing
        return torch.multiprocessing.spawn(run_torch, (options.peer, json.loads(options.torch.read_text())), RANKS)
    name = peer["name"]
    found = {"Ingot": [], name: []}
    load, built = os.getloadavg()[0], commit()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        prepare(folder, options)
        for _ in range(options.rounds):
            found["Ingot"].append(ingot(options, folder))
            found[name].append(torch_ranks(options, folder))
    worst = max(abs(a / b - 1) for a, b in zip(found["Ingot"][0]["losses"], found[name][0]["losses"]))
    if worst > TOLERANCE[options.precision]:
        sys.exit(f"the losses differ: {found}")
    seconds = {each: statistics.median(second for run in runs for second in run["seconds"]) for each, runs in found.items()}
    peaks = {each: max(run["peak"] for run in runs) for each, runs in found.items()}
    tokens = options.batch * options.sequence
    lines = [f"| {each} | {tokens / seconds[each]:.0f} | {seconds[each]:.3f} | {min(s for run in runs for s in run['seconds']):.3f}, "
             f"{max(s for run in runs for s in run['seconds']):.3f} | {peaks[each] / 2**20:.0f} | "
             f"{', '.join(f'{loss:.4f}' for loss in runs[0]['losses'])} | {', '.join(f'{norm:.3f}' for norm in runs[0]['norms'])} |"
             for each, runs in found.items()]
    write_report("\n".join(
        [f"# {peer['what']} of {options.model} beside {name}", "",
         f"`bench/torch_ranks.py {options.peer} --sequence {options.sequence} --batch {options.batch} --precision {options.precision} "
         f"--steps {options.steps} --rounds {options.rounds}`, commit {built}, {time.strftime('%Y-%m-%d')}, {processor()}; "
         f"load average {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end. {RANKS} ranks of one thread, {options.sequence} tokens "
         f"a sequence, {options.batch} sequences a step, {options.precision}.", "",
         "| program | tokens/s | s a step (median) | from, to | peak memory of a rank, MiB | loss of each step | gradient norm |",
         "|---|---|---|---|---|---|---|", *lines, "",
         f"Ingot is {seconds[name] / seconds['Ingot']:.2f} times as fast, with {peaks['Ingot'] / peaks[name]:.2f} times the memory; losses "
         f"agree within {worst:.1e}."]), options.report)


if __name__ == "__main__":
    main()
