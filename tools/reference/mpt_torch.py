"""MPT as llm-foundry trains it, in plain torch, with the features that transformers' MptForCausalLM lacks: learned positions, biases,
LayerNorm of q and k, grouped-query attention, a logit scale. Written from the meaning of the configuration. Parameter names are
those of llm-foundry's checkpoints, so that PEFT names its targets as for the original.
"""
import json
import math
from types import SimpleNamespace

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import gelu, softmax


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, settings, bias):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.clip, self.scale = settings["clip_qkv"], settings["softmax_scale"] or 1 / math.sqrt(self.size)
        self.Wqkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=bias)
        if settings["qk_ln"]:  # over all heads together
            self.q_ln = nn.LayerNorm(heads * self.size, bias=bias)
            self.k_ln = nn.LayerNorm(kv_heads * self.size, bias=bias)
        self.out_proj = nn.Linear(width, width, bias=bias)

    def forward(self, x, score_bias):  # x [B, T, H], score_bias [Q, T, T]
        batch, tokens, _ = x.shape
        qkv = self.Wqkv(x)
        if self.clip:
            qkv = qkv.clamp(-self.clip, self.clip)
        q, k, v = qkv.split([self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size], dim=-1)
        if hasattr(self, "q_ln"):
            q, k = self.q_ln(q), self.k_ln(k)
        group = self.heads // self.kv_heads
        q = q.view(batch, tokens, self.heads, self.size).transpose(1, 2)
        k = k.view(batch, tokens, self.kv_heads, self.size).transpose(1, 2).repeat_interleave(group, dim=1)
        v = v.view(batch, tokens, self.kv_heads, self.size).transpose(1, 2).repeat_interleave(group, dim=1)
        scores = q @ k.transpose(-1, -2) * self.scale + score_bias
        mixed = softmax(scores.float(), dim=-1).to(v.dtype) @ v
        return self.out_proj(mixed.transpose(1, 2).reshape(batch, tokens, -1))


class FeedForward(nn.Module):
    def __init__(self, width, ratio, bias):
        super().__init__()
        self.up_proj = nn.Linear(width, ratio * width, bias=bias)
        self.down_proj = nn.Linear(ratio * width, width, bias=bias)

    def forward(self, x):
        return self.down_proj(gelu(self.up_proj(x)))


class Block(nn.Module):
    def __init__(self, config, kv_heads, bias):
        super().__init__()
        width, epsilon = config["d_model"], config["norm_eps"]
        self.norm_1 = nn.LayerNorm(width, eps=epsilon, bias=bias)
        self.attn = Attention(width, config["n_heads"], kv_heads, config["attn_config"], bias)
        self.norm_2 = nn.LayerNorm(width, eps=epsilon, bias=bias)
        self.ffn = FeedForward(width, config["expansion_ratio"], bias)

    def forward(self, x, score_bias):
        x = x + self.attn(self.norm_1(x), score_bias)
        return x + self.ffn(self.norm_2(x))


class Body(nn.Module):
    def __init__(self, config, kv_heads, bias, learned):
        super().__init__()
        self.wte = nn.Embedding(config["vocab_size"], config["d_model"])
        if learned:
            self.wpe = nn.Embedding(config["max_seq_len"], config["d_model"])
        self.blocks = nn.ModuleList(Block(config, kv_heads, bias) for _ in range(config["n_layers"]))
        self.norm_f = nn.LayerNorm(config["d_model"], eps=config["norm_eps"], bias=bias)


def alibi_slopes(heads, largest):
    """Press et al. 2022: a geometric series for the next power of two; the additional heads take every second term of a longer one."""
    count = 2 ** math.ceil(math.log2(heads))
    slopes = [2.0 ** (-i * largest / count) for i in range(1, count + 1)]
    return slopes if count == heads else (slopes[1::2] + slopes[0::2])[:heads]


class Mpt(nn.Module):
    """config: a dictionary with the relevant keys of llm-foundry, including `attn_config`."""

    def __init__(self, config):
        super().__init__()
        attention = config["attn_config"]
        kinds = {"multihead_attention": config["n_heads"], "multiquery_attention": 1}
        kv_heads = kinds.get(attention["attn_type"]) or attention["kv_n_heads"]  # the third: grouped_query_attention
        self.settings = config
        self.alibi = attention["alibi"]
        learned = config["learned_pos_emb"] and not self.alibi
        self.transformer = Body(config, kv_heads, not config["no_bias"], learned)
        if not config["tie_word_embeddings"]:
            self.lm_head = nn.Linear(config["d_model"], config["vocab_size"], bias=False)
        scale = config["logit_scale"]
        self.logit_scale = 1 / math.sqrt(config["d_model"]) if scale == "inv_sqrt_d_model" else scale or 1.0

    def score_bias(self, tokens, weight):
        """[Q or 1, T, T]: minus infinity where j > i, otherwise slope * (j - i)."""
        places = torch.arange(tokens)
        distance = places[None, :] - places[:, None]
        bias = torch.zeros(1, tokens, tokens, dtype=weight.dtype)
        if self.alibi:
            slopes = alibi_slopes(self.settings["n_heads"], self.settings["attn_config"]["alibi_bias_max"])
            bias = (torch.tensor(slopes, dtype=torch.float32)[:, None, None] * distance).to(weight.dtype)
        return bias.masked_fill(distance > 0, -math.inf)

    def forward(self, input_ids, use_cache=False):
        body = self.transformer
        tokens = input_ids.shape[1]
        x = body.wte(input_ids)
        if hasattr(body, "wpe"):
            x = x + body.wpe(torch.arange(tokens))
        bias = self.score_bias(tokens, x)
        for block in body.blocks:
            x = block(x, bias)
        head = self.lm_head.weight if hasattr(self, "lm_head") else body.wte.weight
        return SimpleNamespace(logits=body.norm_f(x) @ head.T * self.logit_scale)  # as transformers returns them


def load_mpt(folder, dtype):
    model = Mpt(json.loads((folder / "config.json").read_text()))
    tensors = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors |= load_file(file)
    model.load_state_dict(tensors)
    return model.to(dtype)
