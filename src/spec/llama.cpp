// The llama family (Touvron et al. 2023, arXiv 2302.13971; Grattafiori et al. 2024, arXiv 2407.21783).
#include "spec/llama.h"

#include <fmt/format.h>

namespace ingot::spec {

namespace {

struct LinearRow {
  const char* module;  // below "model.layers.N."
  const char* gguf;    // below "blk.N."
  int64_t out, in;
  bool bias;
  Split split;
  int64_t rope_heads;
};

}  // namespace

std::vector<ParamSpec> llama_parameters(const ModelSpec& model) {
  const int64_t q = model.heads * model.head_dim;
  const int64_t kv = model.kv_heads * model.head_dim;
  const double std = model.initializer_range;
  std::vector<ParamSpec> table;

  const auto norm = [&](std::string name, std::string gguf, int64_t layer) {
    ParamSpec p;
    p.name = std::move(name);
    p.shape = {model.hidden};
    p.init = Init::ones;
    p.layer = layer;
    p.gguf_name = std::move(gguf);
    table.push_back(std::move(p));
  };
  const auto matrix = [&](std::string name, std::string gguf, int64_t out, int64_t in, Split split, int64_t layer) {
    ParamSpec p;
    p.name = std::move(name);
    p.shape = {out, in};
    p.init_std = std;
    p.decay = true;
    p.split = split;
    p.layer = layer;
    p.gguf_name = std::move(gguf);
    table.push_back(std::move(p));
  };

  matrix("model.embed_tokens.weight", "token_embd.weight", model.vocab, model.hidden, Split::rows, -1);
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string hf = fmt::format("model.layers.{}.", layer);
    const std::string gguf = fmt::format("blk.{}.", layer);
    const bool ab = model.attention_bias;
    const bool mb = model.mlp_bias;
    const LinearRow attention[] = {{"self_attn.q_proj", "attn_q", q, model.hidden, ab, Split::rows, model.heads},
                                   {"self_attn.k_proj", "attn_k", kv, model.hidden, ab, Split::rows, model.kv_heads},
                                   {"self_attn.v_proj", "attn_v", kv, model.hidden, ab, Split::rows, 0},
                                   {"self_attn.o_proj", "attn_output", model.hidden, q, ab, Split::columns, 0}};
    const LinearRow mlp[] = {{"mlp.gate_proj", "ffn_gate", model.ffn, model.hidden, mb, Split::rows, 0},
                             {"mlp.up_proj", "ffn_up", model.ffn, model.hidden, mb, Split::rows, 0},
                             {"mlp.down_proj", "ffn_down", model.hidden, model.ffn, mb, Split::columns, 0}};
    const auto linear = [&](const LinearRow& row) {
      matrix(hf + row.module + ".weight", gguf + row.gguf + ".weight", row.out, row.in, row.split, layer);
      table.back().linear = true;
      table.back().rope_heads = row.rope_heads;
      if (!row.bias) return;
      ParamSpec p;
      p.name = hf + row.module + ".bias";
      p.shape = {row.out};
      p.init = Init::zeros;
      p.split = row.split == Split::rows ? Split::rows : Split::none;
      p.layer = layer;
      p.gguf_name = gguf + row.gguf + ".bias";
      p.rope_heads = row.rope_heads;
      table.push_back(std::move(p));
    };
    norm(hf + "input_layernorm.weight", gguf + "attn_norm.weight", layer);
    for (const LinearRow& row : attention) linear(row);
    norm(hf + "post_attention_layernorm.weight", gguf + "ffn_norm.weight", layer);
    for (const LinearRow& row : mlp) linear(row);
  }
  norm("model.norm.weight", "output_norm.weight", -1);
  if (!model.tied_head) {
    matrix("lm_head.weight", "output.weight", model.vocab, model.hidden, Split::rows, -1);
    table.back().linear = true;
    table.back().head = true;
  }
  return table;
}

}  // namespace ingot::spec
