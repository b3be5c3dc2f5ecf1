"""The tiny random models of the golden states: one or two configurations per family that use the family's special features.

Imported by make_model_golden.py and the check_*.py. All are transformers models, except the MPT variants that transformers does
not support (mpt_torch.py).
"""
import json
from dataclasses import dataclass, field

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from mpt_torch import Mpt, load_mpt


@dataclass(frozen=True)
class Case:
    config: dict  # keys of transformers' class, or of llm-foundry
    targets: list  # linear layers with LoRA, by PEFT's names
    lora: dict = field(default_factory=lambda: dict(r=4, lora_alpha=8))
    stored: torch.dtype = torch.bfloat16  # dtype of model.safetensors
    v4_keys: bool = False  # config.json with rope_theta, rope_scaling and torch_dtype, as in transformers 4
    foundry: bool = False  # MPT by mpt_torch.py
    # Configurations that Ingot refuses: dict(keys=changes of config.json, words=[of the error]); with gguf=True only
    # writing GGUF is refused.
    refused: list = field(default_factory=list)
    experts: tuple = ()  # checkpoint names of a block's mixture of experts, and of an expert's gate, up and down layers


LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
MPT = ["Wqkv", "out_proj", "up_proj", "down_proj"]
MIXTRAL_EXPERTS = ("block_sparse_moe", "w1", "w3", "w2")
QWEN_EXPERTS = ("mlp", "gate_proj", "up_proj", "down_proj")
NEOX = ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]


def rope(theta=10000.0, **more):
    return {"rope_type": "default", "rope_theta": theta} | more


def tiny(**more):
    """Settings that most small models share, under transformers' usual names."""
    return dict(vocab_size=43, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=8, max_position_embeddings=64, rope_parameters=rope()) | more


def foundry(**attention):
    return dict(model_type="mpt", architectures=["MPTForCausalLM"], vocab_size=43, d_model=32, n_heads=4, n_layers=2,
                expansion_ratio=2, max_seq_len=40, learned_pos_emb=True, no_bias=False, norm_type="low_precision_layernorm",
                norm_eps=1e-5, emb_pdrop=0.0, resid_pdrop=0.0, logit_scale=None, tie_word_embeddings=True,
                attn_config=dict(attn_type="multihead_attention", clip_qkv=None, softmax_scale=None, alibi=False,
                                 alibi_bias_max=8, rope=False, qk_ln=False, attn_pdrop=0.0) | attention)


FAMILIES = {
    "llama": {
        # Grouped-query attention, tied head.
        "a": Case(
            dict(vocab_size=131, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, rms_norm_eps=1e-5,
                 max_position_embeddings=256, rope_parameters=rope()),
            LLAMA),
        # Untied, biases everywhere, Llama 3.1 scaling: of the four wavelengths 6.3, 35, 199, 1117 the first is
        # unchanged, the second blended, the others divided.
        "b": Case(
            dict(vocab_size=41, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=4, head_dim=8, tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
                 rms_norm_eps=1e-6, max_position_embeddings=512,
                 rope_parameters=rope(1000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                      original_max_position_embeddings=64)),
            LLAMA, lora=dict(r=4, lora_alpha=8, use_rslora=True), stored=torch.float32, v4_keys=True),
        # head_dim differs from hidden / heads.
        "c": Case(
            dict(vocab_size=53, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=16, tie_word_embeddings=False, rms_norm_eps=1e-5,
                 max_position_embeddings=256, rope_parameters=rope(500000.0)),
            LLAMA),
    },
    "mistral": {
        # A window shorter than both sequences.
        "a": Case(tiny(sliding_window=5, head_dim=12, rms_norm_eps=1e-5, tie_word_embeddings=False), LLAMA, v4_keys=True),
    },
    "qwen2": {
        "a": Case(tiny(rms_norm_eps=1e-6, rope_parameters=rope(1e6), tie_word_embeddings=True), LLAMA),
    },
    "qwen3": {
        # head_dim differs from hidden / heads.
        "a": Case(tiny(head_dim=12, rms_norm_eps=1e-6, rope_parameters=rope(1e6), tie_word_embeddings=True), LLAMA),
    },
    "qwen3_moe": {
        # A block of experts, and one with a dense MLP; head_dim differs from hidden / heads.
        "a": Case(
            tiny(head_dim=12, moe_intermediate_size=24, num_experts=8, num_experts_per_tok=3, norm_topk_prob=True,
                 mlp_only_layers=[1], rms_norm_eps=1e-6, rope_parameters=rope(1e6), tie_word_embeddings=False),
            ["q_proj", "k_proj", "v_proj", "o_proj"], experts=QWEN_EXPERTS,
            refused=[dict(keys=dict(norm_topk_prob=False), words=["norm_topk_prob"]),
                     dict(keys={}, gguf=True, words=["without experts"])]),
    },
    "gemma2": {
        # Block 0 has a window of 5, block 1 full attention; scores and logits are large enough for the soft caps to
        # matter.
        "a": Case(
            tiny(head_dim=12, sliding_window=5, query_pre_attn_scalar=10, attn_logit_softcapping=2.0,
                 final_logit_softcapping=3.0, hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6,
                 pad_token_id=None),  # torch gives the padding row no gradient
            LLAMA),
    },
    "mixtral": {
        "a": Case(
            tiny(intermediate_size=24, num_local_experts=4, num_experts_per_tok=2, rms_norm_eps=1e-5, sliding_window=None,
                 tie_word_embeddings=False),
            ["q_proj", "k_proj", "v_proj", "o_proj"], experts=MIXTRAL_EXPERTS),
    },
    "smollm3": {
        # The second block has no rotary positions (NoPE).
        "a": Case(tiny(no_rope_layers=[1, 0], rms_norm_eps=1e-6, tie_word_embeddings=True, pad_token_id=None), LLAMA,
                  refused=[dict(keys={}, gguf=True, words=["every fourth"])]),
    },
    "gpt2": {
        "a": Case(dict(vocab_size=43, n_positions=40, n_embd=32, n_layer=2, n_head=4), ["c_attn", "c_proj", "c_fc"]),
    },
    "gpt_neox": {
        # Parallel residual: x + attention(norm(x)) + mlp(norm'(x)); 4 of 16 elements of a head are rotated.
        "a": Case(
            dict(vocab_size=43, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                 max_position_embeddings=64, rope_parameters=rope(partial_rotary_factor=0.25), use_parallel_residual=True,
                 hidden_dropout=0.0, attention_dropout=0.0),
            NEOX),
        # Attention and MLP in sequence.
        "b": Case(
            dict(vocab_size=43, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
                 max_position_embeddings=64, rope_parameters=rope(partial_rotary_factor=0.25), use_parallel_residual=False,
                 hidden_dropout=0.0, attention_dropout=0.0),
            NEOX, v4_keys=True),
    },
    "mpt": {
        # By transformers: ALiBi over 6 heads (not a power of two), clipped q, k and v, no biases.
        "a": Case(
            dict(d_model=36, n_heads=6, n_layers=2, expansion_ratio=4, max_seq_len=64, vocab_size=43, no_bias=True,
                 attn_config=dict(clip_qkv=1.5, alibi=True, alibi_bias_max=8)),
            MPT),
        # Learned positions, biases, LayerNorm of q and k, grouped-query attention, a logit scale.
        "b": Case(
            foundry(attn_type="grouped_query_attention", kv_n_heads=2, qk_ln=True) | dict(logit_scale="inv_sqrt_d_model"),
            MPT, foundry=True),
        # One key/value head, ALiBi, a softmax scale.
        "c": Case(
            foundry(attn_type="multiquery_attention", alibi=True, alibi_bias_max=4, clip_qkv=2.0, softmax_scale=0.25)
            | dict(no_bias=True, n_layers=1),
            MPT, foundry=True),
    },
}


def wide(config, **more):
    """A case for llama.cpp: row sizes are multiples of 32, most of them of 256. fp32 weights."""
    return Case(config, [], stored=torch.float32, **more)


def wide_llama(**more):
    return dict(vocab_size=96, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=64, max_position_embeddings=64, rope_parameters=rope()) | more


def wide_neox(**more):
    return dict(vocab_size=96, hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512,
                max_position_embeddings=64, rope_parameters=rope(partial_rotary_factor=0.25), hidden_dropout=0.0,
                attention_dropout=0.0) | more


LLAMA3 = rope(1000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
WIDE_MPT = dict(d_model=256, expansion_ratio=4, vocab_size=96)  # llm-foundry's keys

# Compared with llama.cpp by check_llamacpp.py. They use only features that it supports (docs/formats.md lists the
# others).
LLAMACPP = {
    "llama": wide(wide_llama(tie_word_embeddings=False, rms_norm_eps=1e-5, rope_parameters=LLAMA3)),
    "llama, tied, biases, linear scaling": wide(wide_llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                                                           rope_parameters=rope(rope_type="linear", factor=4.0))),
    "mistral": wide(wide_llama(head_dim=32, sliding_window=None, rms_norm_eps=1e-5)),
    "mixtral": wide(wide_llama(num_local_experts=4, num_experts_per_tok=2, sliding_window=None, rms_norm_eps=1e-5),
                    experts=MIXTRAL_EXPERTS),
    "qwen2": wide(wide_llama(rope_parameters=rope(1e6), tie_word_embeddings=True)),
    "qwen3": wide(wide_llama(head_dim=32, rope_parameters=rope(1e6), tie_word_embeddings=True)),
    "qwen3_moe": wide(wide_llama(head_dim=32, intermediate_size=32, moe_intermediate_size=32, num_experts=128,
                                 num_experts_per_tok=8, norm_topk_prob=True, tie_word_embeddings=False),
                      experts=QWEN_EXPERTS),
    "gemma2": wide(wide_llama(head_dim=32, query_pre_attn_scalar=32, sliding_window=5, attn_logit_softcapping=2.0,
                              final_logit_softcapping=3.0, tie_word_embeddings=True)),
    "smollm3": wide(wide_llama(num_hidden_layers=4, tie_word_embeddings=True, pad_token_id=None)),
    "gpt2": wide(dict(vocab_size=96, n_positions=64, n_embd=256, n_layer=2, n_head=4)),
    "gpt_neox": wide(wide_neox(use_parallel_residual=True)),
    "gpt_neox, sequential": wide(wide_neox(use_parallel_residual=False)),
    "mpt": wide(dict(d_model=192, n_heads=6, n_layers=2, max_seq_len=64, vocab_size=96, no_bias=True,
                     attn_config=dict(clip_qkv=1.5, alibi=True, alibi_bias_max=8))),
    "mpt, learned positions and biases": wide(foundry() | WIDE_MPT, foundry=True),
    "mpt, norms of q and k": wide(foundry(qk_ln=True) | WIDE_MPT, foundry=True),
}

# llama.cpp declares the tensors of these and then aborts with this message: only its converter is compared.
LLAMACPP_STOPS = {"mpt, norms of q and k": "GGML_ASSERT(ggml_is_contiguous(a)) failed"}

# Plain torch implementations, which run in float64 as in float32.
EAGER = dict(attn_implementation="eager", experts_implementation="eager")


def new_model(family, case):
    """The model with default weights, fp32, eager attention."""
    if case.foundry:
        return Mpt(case.config)
    config = AutoConfig.for_model(family, **case.config, bos_token_id=1, eos_token_id=2)
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_first_dropout"):
        if hasattr(config, name):
            setattr(config, name, 0.0)
    return AutoModelForCausalLM.from_config(config, **EAGER).float()


def load(folder, dtype=torch.float32):
    """Loads the model of a folder that save() or Ingot wrote."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] == "mpt" and needs_foundry(config):
        return load_mpt(folder, dtype).eval()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **EAGER).eval()


def needs_foundry(config):
    attention = config["attn_config"]
    return (attention.get("qk_ln") or not attention.get("alibi") or not config.get("no_bias")
            or attention.get("attn_type", "multihead_attention") != "multihead_attention")


def is_norm(name):
    return "norm" in name or "ln_" in name or "_ln." in name


def randomise(model, generator):
    """Random weights with logits of about one, norm weights that differ from one, and every value exact in bf16."""
    tied = {p.data_ptr() for n, p in model.named_parameters() if "embed" in n or "wte" in n}
    head = [p for n, p in model.named_parameters() if "lm_head" in n or "embed_out" in n]
    one = 0.0 if "Gemma" in type(model).__name__ else 1.0  # Gemma's norms multiply by 1 + weight
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if is_norm(name) and name.endswith("weight"):
                value = one + 0.2 * noise
            elif weight.dim() == 1:
                value = 0.2 * noise
            elif weight.data_ptr() in tied:
                value = noise * (0.5 if head else 1.25 / weight.shape[1] ** 0.5)
            elif "wpe" in name:
                value = 0.2 * noise
            elif "Conv1D" in type(model.get_submodule(name.rpartition(".")[0])).__name__:
                value = noise / weight.shape[0] ** 0.5
            elif "router" in name or "mlp.gate." in name or "block_sparse_moe.gate." in name:
                value = 3 * noise / weight.shape[1] ** 0.5  # so that the router's choices have a margin
            else:
                value = noise / weight.shape[-1] ** 0.5
            weight.copy_(value.bfloat16().float())
    return model


def checkpoint_names(case):
    """Returns a function that renames {parameter name: tensor} to checkpoint names. transformers 5 stores a block's experts as two
    tensors and calls every head lm_head."""

    def renamed(tensors):
        neox = any(name.startswith("gpt_neox.") for name in tensors)
        found = {}
        for name, tensor in tensors.items():
            if ".mlp.experts." in name and tensor.dim() == 3:
                mixture, gate, up, down = case.experts
                block = f"{name.partition('.mlp.')[0]}.{mixture}.experts."
                for e, one in enumerate(tensor):
                    if name.endswith("gate_up_proj"):
                        found[f"{block}{e}.{gate}.weight"], found[f"{block}{e}.{up}.weight"] = one.chunk(2)
                    else:
                        found[f"{block}{e}.{down}.weight"] = one
            else:
                name = name.replace("lm_head", "embed_out") if neox else name
                found[name.replace(".mlp.gate.", f".{case.experts[0]}.gate.") if case.experts else name] = tensor
        return {name: tensor.detach().clone().contiguous() for name, tensor in found.items()}

    return renamed


def save(model, folder, family, case):
    """Writes a Hugging Face directory with tensors of case.stored and reads it back to check that nothing was rounded."""
    folder.mkdir(parents=True, exist_ok=True)
    if case.foundry:
        config = dict(case.config)
        tensors = dict(model.named_parameters())
    else:
        model.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        tensors = load_file(folder / "model.safetensors")
    tensors = {name: t.detach().to(case.stored).contiguous() for name, t in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config["dtype"] = str(case.stored).removeprefix("torch.")
    if case.v4_keys:  # the configuration in transformers 4's spelling
        spelled = config.pop("rope_parameters")
        config["rope_theta"] = spelled.pop("rope_theta")
        if "partial_rotary_factor" in spelled:
            config["rotary_pct"] = spelled.pop("partial_rotary_factor")
            config["rotary_emb_base"] = config.pop("rope_theta")
        config["rope_scaling"] = spelled if spelled["rope_type"] != "default" else None
        config["torch_dtype"] = config.pop("dtype")
    config.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    names = checkpoint_names(case)(dict(model.named_parameters())).keys()
    assert names == tensors.keys(), names ^ tensors.keys()
    back = load(folder)
    for name, weight in back.named_parameters():
        assert torch.equal(weight, model.get_parameter(name)), name


VERSIONS = {"torch": torch, "transformers": transformers}
