#!/usr/bin/env python3
"""The jobs of tools/gpu_check in PyTorch: transformers models with SDPA and compiled blocks, peft for LoRA.

Random bfloat16 weights and random tokens, as in Ingot's jobs. Prints one JSON object.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch

MODELS = Path(__file__).resolve().parent.parent / "bench" / "models"


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def median_seconds(device, body, calls, batches=5):
    """The median time of one call, over batches of calls with one synchronisation each."""
    body()
    wait(device)
    times = []
    for _ in range(batches):
        start = time.perf_counter()
        for _ in range(calls):
            body()
        wait(device)
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)


def versions():
    import transformers

    found = {"torch": torch.__version__, "transformers": transformers.__version__}
    try:
        import peft

        found["peft"] = peft.__version__
    except ImportError:
        pass
    return found


def memory(device):
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def make_model(folder, device):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    config.use_cache = False
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(before)
    return model, config


def blocks_of(model):
    """The model's list of blocks: its longest list of modules."""
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
    return max(lists, key=len)


def rates(device, _arguments):
    side, elements = (8192, 1 << 28) if device.type == "cuda" else (256, 1 << 20)
    a = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    b = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    product = median_seconds(device, lambda: a @ b.t(), 10)
    source = torch.randn(elements, device=device, dtype=torch.bfloat16)
    target = torch.empty_like(source)
    copy = median_seconds(device, lambda: target.copy_(source), 20)
    return {"gemm_bf16_tflops": 2 * side**3 / product / 1e12, "copy_gb_s": 4 * elements / copy / 1e9}


def train(device, folder, sequence, batch, rank, steps, warmup, checkpointing=False):
    torch.manual_seed(1)
    model, config = make_model(folder, device)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if rank:
        import peft

        lora = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
        model = peft.get_peft_model(model, lora)
        if checkpointing:
            model.enable_input_require_grads()
    model.train()
    if device.type == "cuda":
        for block in blocks_of(model):
            block.compile()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.95), fused=device.type == "cuda")

    def step():
        ids = torch.randint(0, config.vocab_size, (batch, sequence), device=device)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for _ in range(warmup):
        step()
    wait(device)
    times, losses = [], []
    for _ in range(steps):
        start = time.perf_counter()
        loss = step()
        wait(device)
        times.append(time.perf_counter() - start)
        losses.append(float(loss))
    assert all(loss == loss for loss in losses), "a loss is not a number"
    mean = sum(times) / len(times)
    return {
        "tokens_per_s": batch * sequence / mean,
        "step_seconds": mean,
        "steps": times,
        "losses": losses,
        "memory_bytes": memory(device),
        "checkpointing": checkpointing,
        "state": str(next(iter(optimizer.state.values()))["exp_avg"].dtype).removeprefix("torch."),
    }


def train_that_fits(device, *arguments):
    """Trains without activation checkpointing if it fits into memory, else with it."""
    try:
        return train(device, *arguments)
    except torch.cuda.OutOfMemoryError:
        pass
    import gc

    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return train(device, *arguments, checkpointing=True)


def decode(device, folder, prompt, tokens):
    from transformers import StaticCache

    torch.manual_seed(1)
    model, config = make_model(folder, device)
    model.eval()
    config.use_cache = True
    cache = StaticCache(config=config, max_batch_size=1, max_cache_len=prompt + tokens, device=device, dtype=torch.bfloat16)
    ids = torch.randint(0, config.vocab_size, (1, prompt), device=device)

    def forward(ids, positions):
        logits = model(input_ids=ids, cache_position=positions, past_key_values=cache, use_cache=True).logits
        return logits[:, -1:].argmax(-1)

    compiled = torch.compile(forward, mode="reduce-overhead") if device.type == "cuda" else forward
    with torch.no_grad():
        token = forward(ids, torch.arange(prompt, device=device))
        times = []
        for place in range(prompt, prompt + tokens - 1):
            positions = torch.tensor([place], device=device)
            wait(device)
            start = time.perf_counter()
            token = compiled(token, positions).clone()
            wait(device)
            times.append(time.perf_counter() - start)
    timed = times[min(5, len(times) // 2) :]  # the first ones include compilation
    return {
        "ms_per_token": 1e3 * statistics.median(timed),
        "tokens_per_s": 1 / statistics.median(timed),
        "memory_bytes": memory(device),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--model", help="folder with a config.json, of the tiny jobs")
    arguments = parser.parse_args()
    on_gpu = arguments.device.startswith(("cuda", "hip"))
    device = torch.device(arguments.device.replace("hip", "cuda") if on_gpu else "cpu")
    model = arguments.model
    jobs = {
        "rates": lambda: rates(device, arguments),
        "train-llama-3.1-8b-lora": lambda: train_that_fits(device, MODELS / "llama-3.1-8b", 4096, 1, 16, 10, 3),
        "train-gpt2-1558m": lambda: train_that_fits(device, MODELS / "gpt2-1558m", 1024, 16, 0, 10, 3),
        "train-llama-3.1-8b": lambda: train_that_fits(device, MODELS / "llama-3.1-8b", 8192, 1, 0, 8, 3),
        "decode-llama-2-13b": lambda: decode(device, MODELS / "llama-2-13b", 128, 64),
        "train-tiny-lora": lambda: train(device, model, 16, 1, 2, 2, 1),
        "train-tiny": lambda: train(device, model, 16, 2, 0, 2, 1),
        "decode-tiny": lambda: decode(device, model, 8, 8),
    }
    if arguments.job not in jobs:
        sys.exit(f"error: there is no job '{arguments.job}'; there are {', '.join(jobs)}")
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.cuda.reset_peak_memory_stats(device)
    result = jobs[arguments.job]()
    print(json.dumps({"versions": versions(), "device": str(device), **result}))


if __name__ == "__main__":
    main()
