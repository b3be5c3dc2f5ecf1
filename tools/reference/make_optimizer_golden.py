#!/usr/bin/env python3
"""Makes golden steps of all optimizers except AdamW with torch and bitsandbytes. Run in the oracle environment, after
make_model_golden.py for the same folder.

    make_optimizer_golden.py [--out tests/golden]

Reads OUT/FAMILY/CASE of CASES (model, batch). For ten steps it writes into each, in the form of adamw.safetensors
(make_model_golden.py describes the contents and the errors),

  muon.safetensors        torch.optim.Muon (adjust_lr_fn="match_rms_adamw") on the blocks' matrices, AdamW on the rest. torch
                          iterates in bf16; here it iterates in the model's dtype (KeepType)
  sgd.safetensors         torch.optim.SGD with momentum
  lion.safetensors        Lion by Algorithm 2 of its paper; its error is that of bitsandbytes' fp32 Lion
  adamw_int8.safetensors  bitsandbytes' AdamW8bit on matrices, AdamW on vectors. Quantizing to the nearest of 256 codes has no exact
                          result: weights, losses and norms are those of the first fp32 run, errors the distances of the other
                          runs. bitsandbytes' CPU kernel finds the nearest code with a table that is too coarse for small values
                          (4e-7 becomes 2e-5); `nearest` replaces it. Not for GPT-2, whose matrices torch stores transposed, so that
                          its blocks of 256 contain other elements

and in each lr, momentum, beta1, beta2 [1]: the settings. It also writes OUT/tensor/dynamic_map.safetensors: `signed` and
`unsigned` [256], bitsandbytes' tables of 8-bit values.
"""
import argparse
import re
from pathlib import Path

import bitsandbytes
import bitsandbytes.backends.cpu.ops
import torch
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

from make_model_golden import CLIP, OPTIMIZER, STEPS, Problem, decayed, moved, steps_of, trained
from model_families import FAMILIES, checkpoint_names, load

CASES = ["gpt2/a", "llama/c"]
RUNS_INT8 = 25  # rounding decides between two codes rarely, but then it matters
LION = dict(lr=3e-4, betas=(0.9, 0.99))
SGD = dict(lr=0.1, momentum=0.9)
MUON = dict(lr=1e-3, momentum=0.95)
ADAMW = dict(lr=OPTIMIZER["lr"], betas=tuple(OPTIMIZER["betas"]), eps=OPTIMIZER["eps"])


class KeepType(TorchFunctionMode):
    """bfloat16() copies without a change of type."""

    def __torch_function__(self, function, types, arguments=(), named=None):
        if function is torch.Tensor.bfloat16:
            return arguments[0].clone()
        return function(*arguments, **(named or {}))


class Muon(torch.optim.Muon):
    def step(self):
        with KeepType():
            super().step()


class Lion(torch.optim.Optimizer):
    def __init__(self, groups, lr, betas):
        super().__init__(groups, dict(lr=lr, betas=betas))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                moment = self.state[weight].setdefault("moment", torch.zeros_like(weight))
                first, second = group["betas"]
                update = torch.sign(first * moment + (1 - first) * weight.grad)
                weight -= group["lr"] * (update + group["weight_decay"] * weight)
                moment.copy_(second * moment + (1 - second) * weight.grad)


@torch.no_grad()
def nearest(values, code, absmax_out, codes_out, blocksize):
    """Replaces bitsandbytes' CPU kernel: the nearest code, as in the rest of bitsandbytes."""
    blocks = torch.nn.functional.pad(values.flatten(), (0, -values.numel() % blocksize)).view(-1, blocksize)
    absmax_out.copy_(blocks.abs().amax(1))
    scaled = (blocks / absmax_out[:, None].clamp(min=torch.finfo(torch.float32).tiny)).flatten()[: values.numel()]
    codes_out.copy_((scaled[:, None] - code).abs().argmin(1).to(torch.uint8).view(values.shape))


def is_block_matrix(name, weight):
    return weight.dim() == 2 and re.search(r"\.(layers|h|blocks)\.\d+\.", name)


def muon(model):
    named = trained(model)
    blocks = [p for name, p in named.items() if is_block_matrix(name, p)]
    rest = [p for name, p in named.items() if not is_block_matrix(name, p)]
    assert blocks and rest
    return [Muon(blocks, weight_decay=OPTIMIZER["weight_decay"], adjust_lr_fn="match_rms_adamw", **MUON),
            torch.optim.AdamW(decayed(rest), **ADAMW)]


def sgd(model):
    return [torch.optim.SGD(decayed(list(trained(model).values())), **SGD)]


def lion(model):
    return [Lion(decayed(list(trained(model).values())), **LION)]


def lion_of_bitsandbytes(model):
    return [bitsandbytes.optim.Lion(decayed(list(trained(model).values())), **LION)]


def adamw_int8(model):
    matrices, vectors = decayed(list(trained(model).values()))
    return [bitsandbytes.optim.AdamW8bit([matrices], min_8bit_size=1, **ADAMW), torch.optim.AdamW([vectors], **ADAMW)]


def steps_in_fp32(problem, model, gradients, names, optimizers):
    """Like steps_of, but the result is that of the first run."""
    clip = CLIP * torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
    runs = []
    for run in range(RUNS_INT8):
        found = moved(model, run)
        losses, norms = problem.ten_steps(found, clip.item(), optimizers)
        runs.append((losses, norms, {name: weight.detach().clone() for name, weight in names(trained(found)).items()}))
    losses, norms, weights = runs[0]

    def farthest(difference):
        return torch.stack([difference(run) for run in runs[1:]]).amax(0).float()

    return (
        {"clip_grad_norm": clip[None].float()}
        | {"losses": losses.float(), "losses.error": farthest(lambda run: (run[0] - losses).abs())}
        | {"grad_norms": norms.float(), "grad_norms.error": farthest(lambda run: (run[1] - norms).abs())}
        | {"weight." + name: weight for name, weight in weights.items()}
        | {"error." + name: farthest(lambda run, name=name: (run[2][name] - weights[name]).norm()[None]) for name in weights}
    )


def settings(lr, momentum=0.0, betas=(0.0, 0.0), eps=None):
    values = dict(lr=lr, momentum=momentum, beta1=betas[0], beta2=betas[1])
    return {name: torch.tensor([value], dtype=torch.float32) for name, value in values.items()}


def make(case, out):
    folder = out / case
    family, name = case.split("/")
    by_checkpoint_name = checkpoint_names(FAMILIES[family][name])
    state = load_file(folder / "state.safetensors")
    problem = Problem(state["ids"].long(), state["targets"].long(), state["cu_seqlens"].long())
    model = load(folder)
    gradients = {name: state["grad." + name].double() for name in by_checkpoint_name(trained(model))}
    for name, exact, in_fp32, values in (
        ("muon", muon, muon, settings(MUON["lr"], MUON["momentum"], ADAMW["betas"])),
        ("sgd", sgd, sgd, settings(**SGD)),
        ("lion", lion, lion_of_bitsandbytes, settings(**LION)),
    ):
        steps = steps_of(problem, model, gradients, by_checkpoint_name, exact, in_fp32)
        steps["clip_grad_norm"] = steps["clip_grad_norm"].float()
        save_file(steps | values, folder / f"{name}.safetensors")
        print(f"{case} {name}: loss {steps['losses'][0]:.6f} to {steps['losses'][-1]:.6f} in {STEPS} steps", flush=True)
    if case.startswith("gpt2/"):
        return
    steps = steps_in_fp32(problem, model, gradients, by_checkpoint_name, adamw_int8)
    save_file(steps | settings(**ADAMW), folder / "adamw_int8.safetensors")
    print(f"{case} adamw_int8: loss {steps['losses'][0]:.6f} to {steps['losses'][-1]:.6f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    bitsandbytes.backends.cpu.ops._quant_blockwise_fp32_direct = nearest
    for case in CASES:
        if (arguments.out / case).is_dir():
            make(case, arguments.out)
    maps = arguments.out / "tensor"
    maps.mkdir(exist_ok=True)
    create = bitsandbytes.functional.create_dynamic_map
    save_file({"signed": create(signed=True), "unsigned": create(signed=False)}, maps / "dynamic_map.safetensors")


if __name__ == "__main__":
    main()
