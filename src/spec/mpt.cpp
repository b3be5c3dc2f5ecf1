// MPT (MosaicML NLP Team 2023, llm-foundry's MPTForCausalLM).
#include <fmt/format.h>

#include <cmath>

#include "spec/table.h"

namespace ingot::spec {

std::vector<ParamSpec> mpt_parameters(const ModelSpec& model) {
  const int64_t h = model.hidden;
  const int64_t f = model.ffn;
  const int64_t q = model.heads * model.head_dim;
  const int64_t kv = model.kv_heads * model.head_dim;
  const double residual = model.initializer_range / std::sqrt(2.0 * static_cast<double>(model.layers));
  const bool bias = model.attention_bias;
  TableBuilder table(model);
  table.embedding(Role::embedding, {"transformer.wte", "token_embd"}, model.vocab);
  if (model.positions == Positions::learned) {
    table.embedding(Role::position_embedding, {"transformer.wpe", "position_embd"}, model.context);
  }
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    table.enter(layer, fmt::format("transformer.blocks.{}.", layer), fmt::format("blk.{}.", layer));
    table.norm(Role::attention_norm, {"norm_1", "attn_norm"}, h);
    table.linear(Role::qkv, {"attn.Wqkv", "attn_qkv"}, {.out = q + 2 * kv, .in = h, .bias = bias});
    if (model.qk_norm == QkNorm::all_heads) {
      table.norm(Role::q_norm, {"attn.q_ln", "attn_q_norm"}, q);
      table.norm(Role::k_norm, {"attn.k_ln", "attn_k_norm"}, kv);
    }
    table.linear(Role::attention_out, {"attn.out_proj", "attn_output"},
                 {.out = h, .in = q, .bias = model.attention_out_bias, .split = Split::columns, .std = residual});
    table.norm(Role::mlp_norm, {"norm_2", "ffn_norm"}, h);
    table.linear(Role::up, {"ffn.up_proj", "ffn_up"}, {.out = f, .in = h, .bias = model.mlp_bias});
    table.linear(Role::down, {"ffn.down_proj", "ffn_down"},
                 {.out = h, .in = f, .bias = model.mlp_bias, .split = Split::columns, .std = residual});
  }
  table.enter(-1, "", "");
  table.norm(Role::final_norm, {"transformer.norm_f", "output_norm"}, h);
  if (!model.tied_head) table.linear(Role::head, {"lm_head", "output"}, {.out = model.vocab, .in = h});
  return table.take();
}

}  // namespace ingot::spec
