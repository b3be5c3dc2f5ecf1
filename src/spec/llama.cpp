// llama (Touvron et al. 2023, arXiv 2302.13971; Grattafiori et al. 2024, arXiv 2407.21783) and the families that use
// its parameter names: mistral (arXiv 2310.06825), qwen2 (2407.10671), qwen3 (2505.09388), gemma2 (2408.00118) and
// mixtral (2401.04088).
#include <fmt/format.h>

#include "spec/table.h"

namespace ingot::spec {

namespace {

void attention(TableBuilder& table, const ModelSpec& model) {
  const int64_t q = model.heads * model.head_dim;
  const int64_t kv = model.kv_heads * model.head_dim;
  const int64_t h = model.hidden;
  // llama.cpp's architecture "llama", which mistral and mixtral have too, stores rotary rows interleaved.
  const bool interleaved = model.family == "llama" || model.family == "mistral" || model.family == "mixtral";
  const auto row = [&](int64_t out, int64_t in, bool bias, Split split, int64_t rope_heads) {
    return TableBuilder::LinearRow{.out = out, .in = in, .bias = bias, .split = split, .rope_heads = rope_heads};
  };
  const bool bias = model.attention_bias;
  table.linear(Role::q, {"self_attn.q_proj", "attn_q"}, row(q, h, bias, Split::rows, interleaved ? model.heads : 0));
  table.linear(Role::k, {"self_attn.k_proj", "attn_k"},
               row(kv, h, bias, Split::rows, interleaved ? model.kv_heads : 0));
  table.linear(Role::v, {"self_attn.v_proj", "attn_v"}, row(kv, h, bias, Split::rows, 0));
  if (model.qk_norm == QkNorm::head) {
    table.norm(Role::q_norm, {"self_attn.q_norm", "attn_q_norm"}, model.head_dim);
    table.norm(Role::k_norm, {"self_attn.k_norm", "attn_k_norm"}, model.head_dim);
  }
  table.linear(Role::attention_out, {"self_attn.o_proj", "attn_output"},
               row(h, q, model.attention_out_bias, Split::columns, 0));
}

void mlp(TableBuilder& table, const ModelSpec& model) {
  const int64_t h = model.hidden;
  const int64_t f = model.ffn;
  const bool bias = model.mlp_bias;
  table.linear(Role::gate, {"mlp.gate_proj", "ffn_gate"}, {.out = f, .in = h, .bias = bias});
  table.linear(Role::up, {"mlp.up_proj", "ffn_up"}, {.out = f, .in = h, .bias = bias});
  table.linear(Role::down, {"mlp.down_proj", "ffn_down"}, {.out = h, .in = f, .bias = bias, .split = Split::columns});
}

// GGUF stores a block's experts as one tensor; the part of `expert` is the slice with that index.
void experts(TableBuilder& table, const ModelSpec& model) {
  const int64_t h = model.hidden;
  const int64_t f = model.ffn;
  table.linear(Role::router, {"block_sparse_moe.gate", "ffn_gate_inp"},
               {.out = model.experts, .in = h, .split = Split::none});
  for (int64_t e = 0; e < model.experts; ++e) {
    const std::string prefix = fmt::format("block_sparse_moe.experts.{}.", e);
    const std::string gate = prefix + "w1";
    const std::string up = prefix + "w3";
    const std::string down = prefix + "w2";
    table.linear(Role::gate, {gate.c_str(), "ffn_gate_exps"}, {.out = f, .in = h, .expert = e});
    table.linear(Role::up, {up.c_str(), "ffn_up_exps"}, {.out = f, .in = h, .expert = e});
    table.linear(Role::down, {down.c_str(), "ffn_down_exps"},
                 {.out = h, .in = f, .split = Split::columns, .expert = e});
  }
}

}  // namespace

std::vector<ParamSpec> llama_parameters(const ModelSpec& model) {
  TableBuilder table(model);
  table.embedding(Role::embedding, {"model.embed_tokens", "token_embd"}, model.vocab);
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    table.enter(layer, fmt::format("model.layers.{}.", layer), fmt::format("blk.{}.", layer));
    table.norm(Role::attention_norm, {"input_layernorm", "attn_norm"}, model.hidden);
    attention(table, model);
    if (model.post_norms) {
      table.norm(Role::post_attention_norm, {"post_attention_layernorm", "post_attention_norm"}, model.hidden);
      table.norm(Role::mlp_norm, {"pre_feedforward_layernorm", "ffn_norm"}, model.hidden);
    } else {
      table.norm(Role::mlp_norm, {"post_attention_layernorm", "ffn_norm"}, model.hidden);
    }
    if (model.experts > 0) {
      experts(table, model);
    } else {
      mlp(table, model);
    }
    if (model.post_norms) {
      table.norm(Role::post_mlp_norm, {"post_feedforward_layernorm", "post_ffw_norm"}, model.hidden);
    }
  }
  table.enter(-1, "", "");
  table.norm(Role::final_norm, {"model.norm", "output_norm"}, model.hidden);
  if (!model.tied_head) table.linear(Role::head, {"lm_head", "output"}, {.out = model.vocab, .in = model.hidden});
  return table.take();
}

}  // namespace ingot::spec
