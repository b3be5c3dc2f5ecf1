// GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners").
#include <fmt/format.h>

#include <cmath>

#include "spec/table.h"

namespace ingot::spec {

std::vector<ParamSpec> gpt2_parameters(const ModelSpec& model) {
  const int64_t h = model.hidden;
  const int64_t f = model.ffn;
  // Layers that add to the residual have a smaller initial std, divided by sqrt(number of additions).
  const double residual = model.initializer_range / std::sqrt(2.0 * static_cast<double>(model.layers));
  TableBuilder table(model);
  table.embedding(Role::embedding, {"transformer.wte", "token_embd"}, model.vocab);
  table.embedding(Role::position_embedding, {"transformer.wpe", "position_embd"}, model.context);
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    table.enter(layer, fmt::format("transformer.h.{}.", layer), fmt::format("blk.{}.", layer));
    table.norm(Role::attention_norm, {"ln_1", "attn_norm"}, h);
    table.linear(Role::qkv, {"attn.c_attn", "attn_qkv"}, {.out = 3 * h, .in = h, .bias = true, .transposed = true});
    table.linear(Role::attention_out, {"attn.c_proj", "attn_output"},
                 {.out = h, .in = h, .bias = true, .split = Split::columns, .std = residual, .transposed = true});
    table.norm(Role::mlp_norm, {"ln_2", "ffn_norm"}, h);
    table.linear(Role::up, {"mlp.c_fc", "ffn_up"}, {.out = f, .in = h, .bias = true, .transposed = true});
    table.linear(Role::down, {"mlp.c_proj", "ffn_down"},
                 {.out = h, .in = f, .bias = true, .split = Split::columns, .std = residual, .transposed = true});
  }
  table.enter(-1, "", "");
  table.norm(Role::final_norm, {"transformer.ln_f", "output_norm"}, h);
  if (!model.tied_head) table.linear(Role::head, {"lm_head", "output"}, {.out = model.vocab, .in = h});
  return table.take();
}

}  // namespace ingot::spec
