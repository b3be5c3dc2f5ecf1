#include "checkpoint/spec_difference.h"

#include <fmt/format.h>

namespace ingot::checkpoint {

namespace {

// Remembers the first member that differs.
class Difference {
 public:
  template <class Value>
  Difference& add(const char* member, const Value& a, const Value& b) {
    if (first_.empty() && !(a == b)) first_ = member;
    return *this;
  }
  Difference& add(const char* member, const std::string& inside) {
    if (first_.empty() && !inside.empty()) first_ = fmt::format("{}.{}", member, inside);
    return *this;
  }
  const std::string& first() const { return first_; }

 private:
  std::string first_;
};

std::string difference(const spec::Attention& a, const spec::Attention& b) {
  return Difference()
      .add("heads", a.heads, b.heads)
      .add("kv_heads", a.kv_heads, b.kv_heads)
      .add("head_dim", a.head_dim, b.head_dim)
      .add("rope", a.rope, b.rope)
      .add("alibi", a.alibi, b.alibi)
      .add("alibi_bias_max", a.alibi_bias_max, b.alibi_bias_max)
      .add("window", a.window, b.window)
      .add("bias", a.bias, b.bias)
      .add("out_bias", a.out_bias, b.out_bias)
      .add("fused_qkv", a.fused_qkv, b.fused_qkv)
      .add("qkv_by_head", a.qkv_by_head, b.qkv_by_head)
      .add("qk_norm", a.qk_norm, b.qk_norm)
      .add("clip_qkv", a.clip_qkv, b.clip_qkv)
      .add("scale", a.scale, b.scale)
      .add("softcap", a.softcap, b.softcap)
      .first();
}

std::string difference(const spec::Dense& a, const spec::Dense& b) {
  return Difference()
      .add("features", a.features, b.features)
      .add("activation", a.activation, b.activation)
      .add("gated", a.gated, b.gated)
      .add("bias", a.bias, b.bias)
      .first();
}

std::string difference(const spec::Mlp& a, const spec::Mlp& b) {
  Difference found;
  const spec::Experts *one = spec::experts_of(a), *other = spec::experts_of(b);
  found.add("experts", one != nullptr, other != nullptr);
  if (one != nullptr && other != nullptr) {
    found.add("count", one->count, other->count).add("per_token", one->per_token, other->per_token);
  }
  return found.first().empty() ? difference(spec::dense_of(a), spec::dense_of(b)) : found.first();
}

std::string difference(const spec::LayerSpec& a, const spec::LayerSpec& b) {
  return Difference()
      .add("attention", difference(a.attention, b.attention))
      .add("mlp", difference(a.mlp, b.mlp))
      .add("parallel_residual", a.parallel_residual, b.parallel_residual)
      .add("post_norms", a.post_norms, b.post_norms)
      .first();
}

}  // namespace

std::string first_difference(const spec::ModelSpec& a, const spec::ModelSpec& b) {
  if (a == b) return "";
  const std::string member = Difference()
                                 .add("family", a.family, b.family)
                                 .add("vocab", a.vocab, b.vocab)
                                 .add("hidden", a.hidden, b.hidden)
                                 .add("context", a.context, b.context)
                                 .add("norm_epsilon", a.norm_epsilon, b.norm_epsilon)
                                 .add("tied_head", a.tied_head, b.tied_head)
                                 .add("initializer_range", a.initializer_range, b.initializer_range)
                                 .add("learned_positions", a.learned_positions, b.learned_positions)
                                 .add("norm", a.norm, b.norm)
                                 .add("norm_bias", a.norm_bias, b.norm_bias)
                                 .add("norm_weight_offset", a.norm_weight_offset, b.norm_weight_offset)
                                 .add("embedding_scale", a.embedding_scale, b.embedding_scale)
                                 .add("logit_scale", a.logit_scale, b.logit_scale)
                                 .add("final_softcap", a.final_softcap, b.final_softcap)
                                 .add("num_layers", a.num_layers(), b.num_layers())
                                 .first();
  if (!member.empty()) return member;
  for (int64_t i = 0; i < a.num_layers(); ++i) {
    const std::string inside = difference(a.layer(i), b.layer(i));
    if (!inside.empty()) return fmt::format("layer {}: {}", i, inside);
  }
  return "other hyper-parameters";
}

}  // namespace ingot::checkpoint
