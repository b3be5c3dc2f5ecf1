#!/usr/bin/env python3
"""Makes golden states of tiny random models of every family with torch, transformers and peft. Run in the oracle environment.

    make_model_golden.py [--out tests/golden] [--seed 20] [FAMILY ...]

Writes one folder per case of model_families.py, OUT/FAMILY/CASE, each with

  config.json, model.safetensors     a Hugging Face directory, BF16 or F32 (values exact in bf16)
  state.safetensors                  ids, targets [T] i32 (-100: masked), cu_seqlens [S+1] i32: S packed sequences;
                                     logits [T, V] f32; logits_bf16 [T, V] bf16: the same model run in torch's bf16;
                                     grad.NAME f32: gradient of the mean loss for every parameter, by checkpoint name;
                                     grad_error.NAME [1]: see below
  adamw.safetensors                  ten AdamW steps on the same batch. losses, grad_norms [10] (before clipping): step s
                                     uses the weights before its update; clip_grad_norm [1]: the clipping threshold, less
                                     than the first norm and more than the last; weight.NAME f32: the parameters after them;
                                     losses.error, grad_norms.error [10], error.NAME [1]: see below
  lora/                              a PEFT adapter (adapter_config.json, adapter_model.safetensors), B not zero
  lora.safetensors                   logits [T, V] with the adapter; grad.NAME, grad_error.NAME; and for ten AdamW steps on the
                                     adapter alone the contents of adamw.safetensors; names as in adapter_model.safetensors
  refused.json                       if any: keys of config.json that change the computation and that Ingot refuses, with words
                                     of the error
  golden.json                        loss, lora_loss, counted (loss tokens), the optimizer's settings, the error of torch's bf16
                                     logits relative to the exact ones (max and root mean square), versions

Exact means torch in float64, also where transformers asks for float32 inside (class Exact below), rounded once to f32 when it is
written. The loss is the sum of cross entropies over the loss tokens divided by their number. Weight decay applies to matrices
(embedding and adapter matrices too), not to norms and biases. Clipping is torch's: gradients times
min(1, max_norm / (norm + 1e-6)).

Why ten steps need an error of their own. Adam divides a gradient by its own size plus eps, 1e-8. An element whose gradient is
only rounding error gets an update of up to lr whose sign is that of the error. The bias of keys, for example, has gradient zero
where positions do not rotate it, as softmax does not change when a row of scores is shifted; other gradients are that small by
chance. Two fp32 programs do not agree there, and no bound from dtype and length can say by how much, as it depends on the data.
The error is therefore measured: the same ten steps run in torch's fp32 RUNS times, from weights changed by at most one unit in the
last place, which changes every rounding and moves the exact result by less than the bound. error.NAME is the largest Euclidean
distance of a run's tensor from the exact one, losses.error and grad_norms.error the largest differences. grad_error.NAME is the
same for the first gradient, for biases whose gradient is zero, where no relative bound works. tests/parity allows Ingot, tensor by
tensor, tolerance() of tensor/tolerance.h plus MULTIPLE times that error (tests/parity/golden.h). Where gradients are not rounding
error the measured error is as small as tolerance(), so mistakes in the optimizer are found.
mistake in the optimizer shows.
"""
import argparse
import copy
import json
import shutil
from pathlib import Path

import peft
import torch
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

from model_families import FAMILIES, VERSIONS, checkpoint_names, load, new_model, randomise, save

LENGTHS = [13, 19]
STEPS = 10
RUNS = 4
OPTIMIZER = dict(lr=1e-3, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1)
CLIP = 0.9  # a threshold relative to the first gradient's norm: the first steps are clipped, the last are not


class Exact(TorchFunctionMode):
    """Computes in float64 wherever float32 is requested."""

    def __torch_function__(self, function, types, arguments=(), named=None):
        def wider(value):
            return torch.float64 if value is torch.float32 else value

        if function is torch.Tensor.float:
            return arguments[0].double()
        return function(*map(wider, arguments), **{name: wider(value) for name, value in (named or {}).items()})

    def __enter__(self):
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error):
        torch.set_default_dtype(torch.float32)
        return super().__exit__(*error)


def packed_batch(vocab, generator):
    """ids, targets [T] and cu_seqlens. The prompt part of each sequence and one position in the middle are masked."""
    ids = torch.randint(0, vocab, (sum(LENGTHS),), generator=generator)
    targets = torch.full_like(ids, -100)
    bounds = [0]
    for length in LENGTHS:
        start, end = bounds[-1], bounds[-1] + length
        targets[start : end - 1] = ids[start + 1 : end]
        targets[start : start + 3] = -100
        targets[start + length // 2] = -100
        bounds.append(end)
    return ids, targets, torch.tensor(bounds)


class Problem:
    """A batch, and computations on it."""

    def __init__(self, ids, targets, bounds):
        self.ids, self.targets, self.bounds = ids, targets, bounds
        sequences = [self.ids[start:end] for start, end in zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist())]
        # Each sequence on its own, with positions from zero. The padding of short sequences comes after their tokens,
        # so that these do not attend to it.
        self.rows = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
        self.real = torch.nn.utils.rnn.pad_sequence([torch.ones_like(s) for s in sequences], batch_first=True).bool()

    def logits(self, model):
        """[T, V]"""
        return model(input_ids=self.rows, use_cache=False).logits[self.real]

    def loss(self, logits):
        total = torch.nn.functional.cross_entropy(logits.float(), self.targets, ignore_index=-100, reduction="sum")
        return total / (self.targets != -100).sum()

    def ten_steps(self, model, clip, optimizers):
        """Losses and norms [STEPS] in the model's dtype; trains the model's parameters."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimizers = optimizers(model)
        losses, norms = [], []
        for _ in range(STEPS):
            model.zero_grad()
            loss = self.loss(self.logits(model))
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(parameters, clip).item())
            losses.append(loss.item())
            for optimizer in optimizers:
                optimizer.step()
        return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def decayed(parameters):
    """Parameter groups: weight decay on matrices only."""
    return [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": OPTIMIZER["weight_decay"]},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}]


def adamw(model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [torch.optim.AdamW(decayed(parameters), lr=OPTIMIZER["lr"], betas=tuple(OPTIMIZER["betas"]), eps=OPTIMIZER["eps"])]


def trained(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def moved(model, run):
    """A copy of the model whose weights are changed by -1, 0 or 1 unit in the last place, except in run 0."""
    copied = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(run)
    with torch.no_grad():
        for weight in copied.parameters() if run else []:
            weight += weight * (torch.randint(-1, 2, weight.shape, generator=generator) * 2.0**-23)
    return copied


def steps_of(problem, model, gradients, names, optimizers=adamw, in_fp32=None):
    """Ten steps from `model` (fp32): the exact result and the error of torch's fp32. `optimizers` returns a model's list of
    optimizers, `in_fp32` that of the fp32 runs."""
    clip = CLIP * torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
    exact = copy.deepcopy(model).double()
    with Exact():
        losses, norms = problem.ten_steps(exact, clip.item(), optimizers)
    weights = names({name: p for name, p in trained(exact).items()})
    errors = {name: torch.zeros(1) for name in weights}
    losses_error, norms_error = torch.zeros(STEPS), torch.zeros(STEPS)
    for run in range(RUNS):
        found = moved(model, run)
        run_losses, run_norms = problem.ten_steps(found, clip.item(), in_fp32 or optimizers)
        losses_error = torch.maximum(losses_error, (run_losses - losses).abs().float())
        norms_error = torch.maximum(norms_error, (run_norms - norms).abs().float())
        for name, weight in names(trained(found)).items():
            errors[name] = torch.maximum(errors[name], (weight.double() - weights[name].double()).norm().float()[None])
    return (
        {"clip_grad_norm": clip[None]}
        | {"losses": losses.float(), "losses.error": losses_error, "grad_norms": norms.float(), "grad_norms.error": norms_error}
        | {"weight." + name: weight.float() for name, weight in weights.items()}
        | {"error." + name: error for name, error in errors.items()}
    )


def backward(problem, model, names):
    """Logits, loss and gradients in the model's dtype."""
    logits = problem.logits(model)
    loss = problem.loss(logits)
    loss.backward()
    return logits.detach(), loss.item(), names({name: p.grad for name, p in trained(model).items()})


def gradients_of(problem, model, names):
    """Exact logits, loss and gradients, and the error of torch's fp32 gradients."""
    with Exact():
        logits, loss, gradients = backward(problem, copy.deepcopy(model).double(), names)
    errors = dict.fromkeys(gradients, torch.zeros(1))
    for run in range(RUNS):
        for name, gradient in backward(problem, moved(model, run), names)[2].items():
            off = (gradient.double() - gradients[name]).norm().float()[None]
            errors[name] = torch.maximum(errors[name], off)
    tensors = {"grad." + name: gradient.float() for name, gradient in gradients.items()}
    return logits, loss, tensors, {"grad_error." + name: error for name, error in errors.items()}


def make_adapter(base, case, folder, generator):
    task = None if case.foundry else "CAUSAL_LM"
    config = peft.LoraConfig(target_modules=case.targets, lora_dropout=0.0, bias="none", task_type=task, **case.lora)
    tuned = peft.get_peft_model(base, config)
    with torch.no_grad():
        for name, parameter in trained(tuned).items():
            if "lora_B" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    tuned.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config_file = folder / "adapter_config.json"
    saved = json.loads(config_file.read_text())
    saved["base_model_name_or_path"] = None
    saved["target_modules"] = case.targets
    config_file.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")
    return tuned


def adapter_names(tensors):
    return {name.replace(".default", ""): t.detach().clone().contiguous() for name, t in tensors.items()}


def smallest_margin(model, problem):
    """The smallest margin of the router: the logit of the last chosen expert minus that of the first one not chosen. Infinite for a
    model without experts."""
    margins = []
    hooks = []
    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):
            def look(gate, inputs, _):
                best = torch.nn.functional.linear(inputs[0].flatten(0, -2), gate.weight).sort(descending=True).values
                count = model.config.num_experts_per_tok
                margins.append((best[:, count - 1] - best[:, count]).min().item())
            hooks.append(module.register_forward_hook(look))
    with torch.no_grad():
        problem.logits(model)
    for hook in hooks:
        hook.remove()
    return min(margins, default=float("inf"))


def make(family, name, out, seed):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)  # peft initialises A from the global generator
    case = FAMILIES[family][name]
    folder = out / family / name
    shutil.rmtree(folder, ignore_errors=True)
    model = randomise(new_model(family, case), generator)
    save(model, folder, family, case)
    problem = Problem(*packed_batch(case.config["vocab_size"], generator))
    # In bf16 an expert choice with a small margin may differ, and the logits could not be compared.
    while smallest_margin(model, problem) < 0.1:
        problem = Problem(*packed_batch(case.config["vocab_size"], generator))

    model = load(folder)
    by_checkpoint_name = checkpoint_names(case)
    logits, loss, gradients, errors = gradients_of(problem, model, by_checkpoint_name)
    half = load(folder, torch.bfloat16)
    with torch.no_grad():
        logits_bf16 = problem.logits(half)
    error = (logits_bf16.double() - logits).abs()
    save_file(
        {
            "ids": problem.ids.int(), "targets": problem.targets.int(), "cu_seqlens": problem.bounds.int(),
            "logits": logits.float(), "logits_bf16": logits_bf16.contiguous(),
        } | gradients | errors,
        folder / "state.safetensors",
    )
    save_file(steps_of(problem, model, gradients, by_checkpoint_name), folder / "adamw.safetensors")

    tuned = make_adapter(load(folder), case, folder / "lora", generator)
    tuned_logits, tuned_loss, tuned_gradients, errors = gradients_of(problem, tuned, adapter_names)
    steps = steps_of(problem, tuned, tuned_gradients, adapter_names)
    wanted = load_file(folder / "lora/adapter_model.safetensors").keys()
    assert {name.removeprefix("weight.") for name in steps if name.startswith("weight.")} == wanted
    save_file({"logits": tuned_logits.float()} | tuned_gradients | errors | steps, folder / "lora.safetensors")

    facts = {
        "loss": loss,
        "lora_loss": tuned_loss,
        "counted": int((problem.targets != -100).sum()),
        "steps": STEPS,
        "optimizer": OPTIMIZER,
        "lora": case.lora,
        "bf16_max_error": error.max().item(),
        "bf16_rms_error": error.square().mean().sqrt().item(),
        "seed": seed,
        "versions": {n: m.__version__.split("+")[0] for n, m in (VERSIONS | {"peft": peft}).items()},
    }
    if case.refused:
        (folder / "refused.json").write_text(json.dumps(case.refused, indent=2) + "\n")
    (folder / "golden.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")
    print(
        f"{family}/{name}: loss {loss:.6f}, lora {tuned_loss:.6f}, logits std {logits.std().item():.3f}, "
        f"bf16 rms error {facts['bf16_rms_error']:.2e}", flush=True
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("families", nargs="*", metavar="FAMILY", default=list(FAMILIES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for family in arguments.families:
        for name in FAMILIES[family]:
            make(family, name, arguments.out, arguments.seed)


if __name__ == "__main__":
    main()
