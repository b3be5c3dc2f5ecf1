// GPT-NeoX and Pythia (Black et al. 2022, arXiv 2204.06745; Biderman et al. 2023, arXiv 2304.01373).
#include <fmt/format.h>

#include "spec/table.h"

namespace ingot::spec {

std::vector<ParamSpec> gpt_neox_parameters(const ModelSpec& model) {
  const int64_t h = model.hidden;
  const int64_t f = model.ffn;
  const bool bias = model.attention_bias;
  TableBuilder table(model);
  table.embedding(Role::embedding, {"gpt_neox.embed_in", "token_embd"}, model.vocab);
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    table.enter(layer, fmt::format("gpt_neox.layers.{}.", layer), fmt::format("blk.{}.", layer));
    table.norm(Role::attention_norm, {"input_layernorm", "attn_norm"}, h);
    table.norm(Role::mlp_norm, {"post_attention_layernorm", "ffn_norm"}, h);
    table.linear(Role::qkv, {"attention.query_key_value", "attn_qkv"}, {.out = 3 * h, .in = h, .bias = bias});
    table.linear(Role::attention_out, {"attention.dense", "attn_output"},
                 {.out = h, .in = h, .bias = model.attention_out_bias, .split = Split::columns});
    table.linear(Role::up, {"mlp.dense_h_to_4h", "ffn_up"}, {.out = f, .in = h, .bias = model.mlp_bias});
    table.linear(Role::down, {"mlp.dense_4h_to_h", "ffn_down"},
                 {.out = h, .in = f, .bias = model.mlp_bias, .split = Split::columns});
  }
  table.enter(-1, "", "");
  table.norm(Role::final_norm, {"gpt_neox.final_layer_norm", "output_norm"}, h);
  if (!model.tied_head) table.linear(Role::head, {"embed_out", "output"}, {.out = model.vocab, .in = h});
  return table.take();
}

}  // namespace ingot::spec
