#!/usr/bin/env python3
"""Golden states of tiny random llama models, by torch, transformers and peft. Run inside the oracle environment.

    make_llama_golden.py [--out tests/golden/llama] [--seed 20]

Writes one folder a shape (a, b, c: see SHAPES), each with

  config.json, model.safetensors     a Hugging Face directory; a and c store BF16, b stores F32 (values exact in bf16)
  state.safetensors                  ids, targets [T] i32 (-100: not counted), cu_seqlens [S+1] i32: S packed sequences;
                                     logits [T, V] f32; logits_bf16 [T, V] bf16: the same model run in torch's bf16;
                                     grad.NAME f32: gradient of the mean loss for every parameter, by checkpoint name
  adamw.safetensors                  losses [10], grad_norms [10] (before clipping) f32: step s uses the weights before
                                     its update; weight.NAME f32: the parameters after ten steps on the same batch
  lora/                              a PEFT adapter (adapter_config.json, adapter_model.safetensors), B not zero
  lora.safetensors                   logits [T, V] with the adapter; grad.NAME; losses, grad_norms [10]; weight.NAME after
                                     ten AdamW steps on the adapter alone; names as in adapter_model.safetensors
  golden.json                        loss, lora_loss, counted, the optimizer's numbers, the error of torch's bf16 logits
                                     against its fp32 ones (max and root mean square), versions

Everything is fp32 on one thread except what says bf16. The loss is the sum of cross entropy over counted targets divided
by their number. Weight decay is on matrices (embedding and adapter matrices too), not on norms and biases. Clipping is
torch's: gradients times min(1, max_norm / (norm + 1e-6)).
"""
import argparse
import json
import shutil
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

SHAPES = {
    # Grouped-query attention, tied head.
    "a": dict(
        vocab_size=131, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, rms_norm_eps=1e-5, max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    # Untied, biases everywhere, Llama 3.1 scaling: of the four wavelengths 6.3, 35, 199, 1117 the first is kept, the
    # second blended, the others divided.
    "b": dict(
        vocab_size=41, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, head_dim=8, tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
        rms_norm_eps=1e-6, max_position_embeddings=512,
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 1000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    # head_dim is not hidden / heads.
    "c": dict(
        vocab_size=53, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, tie_word_embeddings=False, rms_norm_eps=1e-5, max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    ),
}
STORED = {"a": torch.bfloat16, "b": torch.float32, "c": torch.bfloat16}
LENGTHS = [13, 19]
STEPS = 10
OPTIMIZER = dict(lr=1e-3, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1, clip_grad_norm=1.0)
LORA = {  # alpha / r, or alpha / sqrt(r) for b
    "a": dict(r=4, lora_alpha=8),
    "b": dict(r=4, lora_alpha=8, use_rslora=True),
    "c": dict(r=4, lora_alpha=8),
}
LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def random_model(shape, generator):
    """Weights of a size that makes logits about one, norms not all one, every value exact in bf16."""
    model = LlamaForCausalLM(LlamaConfig(**shape, attn_implementation="eager", bos_token_id=1, eos_token_id=2)).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if name.endswith("norm.weight"):
                value = 1 + 0.2 * noise
            elif weight.dim() == 1:
                value = 0.2 * noise
            elif "embed_tokens" in name:
                value = noise * (1.25 / shape["hidden_size"] ** 0.5 if shape["tie_word_embeddings"] else 0.5)
            else:
                value = noise / weight.shape[1] ** 0.5
            weight.copy_(value.bfloat16().float())
    return model


def save_checkpoint(model, folder, stored, v4_keys):
    model.save_pretrained(folder)
    tensors = {name: t.to(stored).contiguous() for name, t in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    dtype = str(stored).removeprefix("torch.")
    config["dtype"] = dtype
    if v4_keys:  # the older spelling of the same configuration
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope
        config["torch_dtype"] = config.pop("dtype")
    config.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for extra in folder.glob("generation_config.json"):
        extra.unlink()
    back = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    for name, weight in back.named_parameters():
        assert torch.equal(weight, model.get_parameter(name)), name


def packed_batch(vocab, generator):
    """ids, targets [T] and cu_seqlens; the prompt part of each sequence and one place in the middle are not counted."""
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


def logits_of(model, ids, bounds):
    """[T, V]: each sequence on its own, positions from zero."""
    pieces = [model(input_ids=ids[s:e][None]).logits[0] for s, e in zip(bounds[:-1].tolist(), bounds[1:].tolist())]
    return torch.cat(pieces)


def mean_loss(logits, targets):
    total = torch.nn.functional.cross_entropy(logits.float(), targets, ignore_index=-100, reduction="sum")
    return total / (targets != -100).sum()


def ten_steps(model, parameters, ids, targets, bounds):
    decayed = [p for p in parameters if p.dim() == 2]
    others = [p for p in parameters if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": OPTIMIZER["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=OPTIMIZER["lr"], betas=tuple(OPTIMIZER["betas"]), eps=OPTIMIZER["eps"],
    )
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = mean_loss(logits_of(model, ids, bounds), targets)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, OPTIMIZER["clip_grad_norm"]).item())
        losses.append(loss.item())
        optimizer.step()
    return torch.tensor(losses), torch.tensor(norms)


def tensors_of(prefix, named):
    return {prefix + name: t.detach().float().clone().contiguous() for name, t in named}


def lora_name(name):
    return name.replace(".default", "")


def make(name, out, seed):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)  # peft initialises A from the global generator
    shape = SHAPES[name]
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = random_model(shape, generator)
    save_checkpoint(model, folder, STORED[name], v4_keys=name == "b")
    ids, targets, bounds = packed_batch(shape["vocab_size"], generator)

    logits = logits_of(model, ids, bounds)
    loss = mean_loss(logits, targets)
    loss.backward()
    half = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager")
    with torch.no_grad():
        logits_bf16 = logits_of(half, ids, bounds)
    error = (logits_bf16.float() - logits.detach()).abs()
    save_file(
        {
            "ids": ids.int(), "targets": targets.int(), "cu_seqlens": bounds.int(),
            "logits": logits.detach().contiguous(), "logits_bf16": logits_bf16.contiguous(),
        }
        | tensors_of("grad.", ((n, p.grad) for n, p in model.named_parameters())),
        folder / "state.safetensors",
    )

    losses, norms = ten_steps(model, list(model.parameters()), ids, targets, bounds)
    save_file(
        {"losses": losses, "grad_norms": norms} | tensors_of("weight.", model.named_parameters()),
        folder / "adamw.safetensors",
    )

    base = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    config = peft.LoraConfig(target_modules=LORA_TARGETS, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM", **LORA[name])
    tuned = peft.get_peft_model(base, config)
    adapter = [(n, p) for n, p in tuned.named_parameters() if p.requires_grad]
    with torch.no_grad():
        for parameter_name, parameter in adapter:
            if "lora_B" in parameter_name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    tuned.save_pretrained(folder / "lora")
    (folder / "lora/README.md").unlink(missing_ok=True)
    config_file = folder / "lora/adapter_config.json"
    saved = json.loads(config_file.read_text())
    saved["base_model_name_or_path"] = None
    saved["target_modules"] = LORA_TARGETS
    config_file.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")
    tuned_logits = logits_of(tuned, ids, bounds)
    tuned_loss = mean_loss(tuned_logits, targets)
    tuned_loss.backward()
    state = {"logits": tuned_logits.detach().contiguous()} | tensors_of("grad.", ((lora_name(n), p.grad) for n, p in adapter))
    losses, norms = ten_steps(tuned, [p for _, p in adapter], ids, targets, bounds)
    state |= {"losses": losses, "grad_norms": norms} | tensors_of("weight.", ((lora_name(n), p) for n, p in adapter))
    assert {k.removeprefix("weight.") for k in state if k.startswith("weight.")} == set(
        load_file(folder / "lora/adapter_model.safetensors")
    )
    save_file(state, folder / "lora.safetensors")

    facts = {
        "loss": loss.item(),
        "lora_loss": tuned_loss.item(),
        "counted": int((targets != -100).sum()),
        "steps": STEPS,
        "optimizer": OPTIMIZER,
        "lora": LORA[name],
        "bf16_max_error": error.max().item(),
        "bf16_rms_error": error.square().mean().sqrt().item(),
        "seed": seed,
        "versions": {m.__name__: m.__version__.split("+")[0] for m in (torch, transformers, peft)},
    }
    (folder / "golden.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")
    print(
        f"{name}: loss {loss.item():.6f}, lora {tuned_loss.item():.6f}, logits std {logits.std().item():.3f}, "
        f"bf16 rms error {facts['bf16_rms_error']:.2e}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/llama")
    parser.add_argument("--seed", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in SHAPES:
        make(name, arguments.out, arguments.seed)


if __name__ == "__main__":
    main()
