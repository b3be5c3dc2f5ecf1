// The model families. Sources: llama (Touvron et al. 2023, arXiv 2302.13971; Grattafiori et al. 2024, arXiv
// 2407.21783), mistral (arXiv 2310.06825), qwen2 (2407.10671), qwen3 and qwen3_moe (2505.09388), gemma2 (2408.00118),
// mixtral (2401.04088), smollm3 (Hugging Face 2025; on layers without rotary positions: 2501.18795), gpt2 (Radford et
// al. 2019, "Language Models are Unsupervised Multitask Learners"), gpt_neox (Black et al. 2022, arXiv 2204.06745;
// Biderman et al. 2023, arXiv 2304.01373), mpt (MosaicML NLP Team 2023, llm-foundry's MPTForCausalLM).
#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "spec/family.h"
#include "spec/model.h"

namespace ingot::spec {

namespace {

constexpr RoleName llama[] = {
    {Role::embedding, "model.embed_tokens"},
    {Role::attention_norm, "input_layernorm"},
    {Role::q, "self_attn.q_proj"},
    {Role::k, "self_attn.k_proj"},
    {Role::v, "self_attn.v_proj"},
    {Role::q_norm, "self_attn.q_norm"},
    {Role::k_norm, "self_attn.k_norm"},
    {Role::attention_out, "self_attn.o_proj"},
    {Role::mlp_norm, "post_attention_layernorm"},
    {Role::gate, "mlp.gate_proj"},
    {Role::up, "mlp.up_proj"},
    {Role::down, "mlp.down_proj"},
    {Role::final_norm, "model.norm"},
    {Role::head, "lm_head"},
};

constexpr RoleName gemma2[] = {
    {Role::post_attention_norm, "post_attention_layernorm"},
    {Role::mlp_norm, "pre_feedforward_layernorm"},
    {Role::post_mlp_norm, "post_feedforward_layernorm"},
};

constexpr RoleName mixtral[] = {
    {Role::router, "block_sparse_moe.gate"},
    {Role::expert_gate, "block_sparse_moe.experts.{}.w1"},
    {Role::expert_up, "block_sparse_moe.experts.{}.w3"},
    {Role::expert_down, "block_sparse_moe.experts.{}.w2"},
};

constexpr RoleName qwen3_moe[] = {
    {Role::router, "mlp.gate"},
    {Role::expert_gate, "mlp.experts.{}.gate_proj"},
    {Role::expert_up, "mlp.experts.{}.up_proj"},
    {Role::expert_down, "mlp.experts.{}.down_proj"},
};

constexpr RoleName gpt2[] = {
    {Role::embedding, "transformer.wte"},
    {Role::position_embedding, "transformer.wpe"},
    {Role::attention_norm, "ln_1"},
    {Role::qkv, "attn.c_attn"},
    {Role::attention_out, "attn.c_proj"},
    {Role::mlp_norm, "ln_2"},
    {Role::up, "mlp.c_fc"},
    {Role::down, "mlp.c_proj"},
    {Role::final_norm, "transformer.ln_f"},
    {Role::head, "lm_head"},
};

constexpr RoleName gpt_neox[] = {
    {Role::embedding, "gpt_neox.embed_in"},
    {Role::attention_norm, "input_layernorm"},
    {Role::mlp_norm, "post_attention_layernorm"},
    {Role::qkv, "attention.query_key_value"},
    {Role::attention_out, "attention.dense"},
    {Role::up, "mlp.dense_h_to_4h"},
    {Role::down, "mlp.dense_4h_to_h"},
    {Role::final_norm, "gpt_neox.final_layer_norm"},
    {Role::head, "embed_out"},
};

constexpr RoleName mpt[] = {
    {Role::embedding, "transformer.wte"},
    {Role::position_embedding, "transformer.wpe"},
    {Role::attention_norm, "norm_1"},
    {Role::qkv, "attn.Wqkv"},
    {Role::q_norm, "attn.q_ln"},
    {Role::k_norm, "attn.k_ln"},
    {Role::attention_out, "attn.out_proj"},
    {Role::mlp_norm, "norm_2"},
    {Role::up, "ffn.up_proj"},
    {Role::down, "ffn.down_proj"},
    {Role::final_norm, "transformer.norm_f"},
    {Role::head, "lm_head"},
};

constexpr std::string_view q_and_v[] = {"q_proj", "v_proj"};
constexpr std::string_view c_attn[] = {"c_attn"};
constexpr std::string_view query_key_value[] = {"query_key_value"};
constexpr std::string_view wqkv[] = {"Wqkv"};
// Causal masks: "h.0.attn.bias", "layers.0.attention.bias".
constexpr std::string_view gpt2_buffers[] = {".attn.bias", ".attn.masked_bias"};
constexpr std::string_view gpt_neox_buffers[] = {".attention.bias", ".attention.masked_bias"};

// A family with llama's names, but for `own_names`.
constexpr Family like_llama(std::string_view name, std::span<const RoleName> own_names, bool interleaved) {
  return {.name = name,
          .names = own_names,
          .shared = llama,
          .block = "model.layers.{}.",
          .lora_targets = q_and_v,
          .interleaved_rope = interleaved};
}

constexpr Family table[] = {
    like_llama("llama", {}, true),
    like_llama("mistral", {}, true),
    like_llama("qwen2", {}, false),
    like_llama("qwen3", {}, false),
    like_llama("qwen3_moe", qwen3_moe, false),
    like_llama("gemma2", gemma2, false),
    like_llama("mixtral", mixtral, true),
    like_llama("smollm3", {}, true),
    {.name = "gpt2",
     .names = gpt2,
     .shared = {},
     .block = "transformer.h.{}.",
     .lora_targets = c_attn,
     .transposed = true,
     .small_residual_init = true,
     .buffers = gpt2_buffers},
    {.name = "gpt_neox",
     .names = gpt_neox,
     .shared = {},
     .block = "gpt_neox.layers.{}.",
     .lora_targets = query_key_value,
     .mlp_norm_first = true,
     .buffers = gpt_neox_buffers},
    {.name = "mpt",
     .names = mpt,
     .shared = {},
     .block = "transformer.blocks.{}.",
     .lora_targets = wqkv,
     .small_residual_init = true},
};

constexpr auto names_of_families = [] {
  std::array<std::string_view, std::size(table)> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = table[i].name;
  return names;
}();

}  // namespace

std::span<const std::string_view> families() { return names_of_families; }

const Family& family_named(std::string_view name) {
  for (const Family& family : table) {
    if (family.name == name) return family;
  }
  throw_hint(ErrorKind::unsupported, fmt::format("supported: {}", fmt::join(names_of_families, ", ")),
             "model family '{}' is not known", name);
}

const char* Family::name_of(Role role) const {
  for (const std::span<const RoleName> list : {names, shared}) {
    for (const RoleName& known : list) {
      if (known.role == role) return known.name;
    }
  }
  throw_error(ErrorKind::unsupported, "models of family '{}' have no {}", name, gguf_name(role));
}

const char* gguf_name(Role role) {
  switch (role) {
    case Role::embedding: return "token_embd";
    case Role::position_embedding: return "position_embd";
    case Role::attention_norm: return "attn_norm";
    case Role::qkv: return "attn_qkv";
    case Role::q: return "attn_q";
    case Role::k: return "attn_k";
    case Role::v: return "attn_v";
    case Role::q_norm: return "attn_q_norm";
    case Role::k_norm: return "attn_k_norm";
    case Role::attention_out: return "attn_output";
    case Role::post_attention_norm: return "post_attention_norm";
    case Role::mlp_norm: return "ffn_norm";
    case Role::gate: return "ffn_gate";
    case Role::up: return "ffn_up";
    case Role::down: return "ffn_down";
    case Role::router: return "ffn_gate_inp";
    case Role::expert_gate: return "ffn_gate_exps";
    case Role::expert_up: return "ffn_up_exps";
    case Role::expert_down: return "ffn_down_exps";
    case Role::post_mlp_norm: return "post_ffw_norm";
    case Role::final_norm: return "output_norm";
    case Role::head: return "output";
  }
  return "?";
}

}  // namespace ingot::spec
