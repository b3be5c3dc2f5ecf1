#!/usr/bin/env python3
"""Writes GGUF files of the golden llama models with the gguf package. Run in the oracle environment.

    make_checkpoint_golden.py [--models tests/golden/llama] [--out tests/golden/checkpoint]

The layout is that of llama.cpp's converter: q and k rows interleaved, vectors F32, rope_freqs.weight for Llama 3 scaling.

  a.q4_1.gguf    model a, matrices in Q4_1 and the q and k ones in Q8_0, tied head
  b.f16.gguf     model b, matrices in F16, biases, Llama 3 scaling, untied head
  golden.json    for each: {"values": {HF name: sha256 of the fp32 bytes, dequantized, in Hugging Face's row order},
                 "first": {HF name: the first four values}}
"""
import argparse
import hashlib
import json
import math
import re
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file

Q = gguf.GGMLQuantizationType
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}
WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}


def gguf_name(name):
    if name in WHOLE:
        return WHOLE[name]
    layer, module, kind = re.fullmatch(r"model\.layers\.(\d+)\.(.*)\.(weight|bias)", name).groups()
    return f"blk.{layer}.{NAMES[module]}.{kind}"


def rope_heads(name, config):
    if "q_proj" in name:
        return config["num_attention_heads"]
    return config["num_key_value_heads"] if "k_proj" in name else 0


def interleave(array, heads):
    rows = array.shape[0]
    return array.reshape(heads, 2, rows // heads // 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def separate(array, heads):
    rows = array.shape[0]
    return array.reshape(heads, rows // heads // 2, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def rope_divisors(config, scaling):
    dim, base = config["head_dim"], config["rope_theta"]
    old = scaling["original_max_position_embeddings"]
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    divisors = []
    for freq in 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)):
        wavelength = 2 * math.pi / freq
        if wavelength < old / high:
            divisors.append(1)
        elif wavelength > old / low:
            divisors.append(factor)
        else:
            smooth = (old / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, dtype=np.float32)


def write(path, folder, type_of):
    config = json.loads((folder / "config.json").read_text())
    rope = config.get("rope_parameters") or {**config["rope_scaling"], "rope_theta": config["rope_theta"]}
    config["rope_theta"] = rope["rope_theta"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(folder.name)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    values = {}
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_divisors(config, rope))
    for name, tensor in load_file(folder / "model.safetensors").items():
        array = tensor.float().numpy()
        heads = rope_heads(name, config)
        stored = interleave(array, heads) if heads else array
        kind = Q.F32 if array.ndim == 1 else type_of(name)
        data = quantize(np.ascontiguousarray(stored), kind)
        writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
        back = dequantize(data, kind).reshape(array.shape).astype(np.float32)
        values[name] = np.ascontiguousarray(separate(back, heads) if heads else back)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {
        "values": {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in sorted(values.items())},
        "first": {name: [float(x) for x in array.reshape(-1)[:4]] for name, array in sorted(values.items())},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=Path("tests/golden/llama"))
    parser.add_argument("--out", type=Path, default=Path("tests/golden/checkpoint"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    golden = {
        "a.q4_1": write(arguments.out / "a.q4_1.gguf", arguments.models / "a",
                        lambda name: Q.Q8_0 if "q_proj" in name or "k_proj" in name else Q.Q4_1),
        "b.f16": write(arguments.out / "b.f16.gguf", arguments.models / "b", lambda name: Q.F16),
    }
    (arguments.out / "golden.json").write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
