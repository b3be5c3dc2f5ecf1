#!/usr/bin/env python3
"""A random llama of a given shape as a Hugging Face folder of sharded bf16 safetensors, for memory and speed tests.

    make_random_llama.py OUT [--shape 7b|1.1b|135m] [--seed 1] [--shard-gb 4] [--tokenizer FOLDER]

Needs numpy alone. Matrices are normal with standard deviation 0.02, norms are ones. --tokenizer copies tokenizer files.
"""
import argparse
import json
import shutil
import struct
from pathlib import Path

import numpy as np

SHAPES = {
    "7b": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32,
               intermediate_size=11008, vocab_size=32000, max_position_embeddings=4096, tie_word_embeddings=False),
    "1.1b": dict(hidden_size=2048, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
                 intermediate_size=5632, vocab_size=32000, max_position_embeddings=2048, tie_word_embeddings=False),
    "135m": dict(hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                 intermediate_size=1536, vocab_size=49152, max_position_embeddings=8192, tie_word_embeddings=True),
}


def tensors_of(c):
    head = c["hidden_size"] // c["num_attention_heads"]
    kv = head * c["num_key_value_heads"]
    h, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    yield "model.embed_tokens.weight", (v, h)
    for n in range(c["num_hidden_layers"]):
        p = f"model.layers.{n}."
        yield p + "input_layernorm.weight", (h,)
        yield p + "self_attn.q_proj.weight", (h, h)
        yield p + "self_attn.k_proj.weight", (kv, h)
        yield p + "self_attn.v_proj.weight", (kv, h)
        yield p + "self_attn.o_proj.weight", (h, h)
        yield p + "post_attention_layernorm.weight", (h,)
        yield p + "mlp.gate_proj.weight", (f, h)
        yield p + "mlp.up_proj.weight", (f, h)
        yield p + "mlp.down_proj.weight", (h, f)
    yield "model.norm.weight", (h,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (v, h)


def bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_shard(path, tensors, rng):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)))
        out.write(text)
        for _, shape in tensors:
            if len(shape) == 1:
                out.write(bf16(np.ones(shape, np.float32)).tobytes())
                continue
            left = int(np.prod(shape))
            while left:
                n = min(left, 1 << 24)
                out.write(bf16(rng.standard_normal(n, np.float32) * 0.02).tobytes())
                left -= n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="7b")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shard-gb", type=float, default=4)
    parser.add_argument("--tokenizer", type=Path)
    args = parser.parse_args()
    config = dict(SHAPES[args.shape], model_type="llama", architectures=["LlamaForCausalLM"], torch_dtype="bfloat16",
                  rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu", bos_token_id=1, eos_token_id=2)
    args.out.mkdir(parents=True)
    shards, size = [[]], 0
    for name, shape in tensors_of(config):
        nbytes = 2 * int(np.prod(shape))
        if size + nbytes > args.shard_gb * 1e9 and shards[-1]:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += nbytes
    rng = np.random.default_rng(args.seed)
    weight_map, total = {}, 0
    for i, tensors in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(args.out / file, tensors, rng)
        weight_map.update({name: file for name, _ in tensors})
        total += sum(2 * int(np.prod(shape)) for _, shape in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (args.out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    if args.tokenizer:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(args.tokenizer / name, args.out / name)
    (args.out / "config.json").write_text(json.dumps(config, indent=2))


if __name__ == "__main__":
    main()
