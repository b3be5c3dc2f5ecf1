#include "spec/attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "spec/limits.h"
#include "spec/table.h"

namespace ingot::spec {

void Attention::check() const {
  check_positive("number of heads", heads);
  check_positive("number of key/value heads", kv_heads);
  check_positive("head size", head_dim);
  if (heads % kv_heads != 0) {
    throw_error(ErrorKind::corrupt, "{} heads cannot share {} key/value heads evenly", heads, kv_heads);
  }
  if (rope) {
    const int64_t rotated = rope->dim > 0 ? rope->dim : head_dim;
    if (rotated % 2 != 0) {
      throw_error(ErrorKind::corrupt, "rotary embedding of {} elements of a head; the number must be even", rotated);
    }
    if (rope->dim < 0 || rope->dim > head_dim) {
      throw_error(ErrorKind::corrupt, "rotary embedding of {} of {} elements of a head is not possible", rope->dim,
                  head_dim);
    }
    if (!(rope->theta > 0 && std::isfinite(rope->theta))) {
      throw_error(ErrorKind::corrupt, "rope_theta is {}", rope->theta);
    }
  }
  if (qkv_by_head && kv_heads != heads) {
    throw_error(ErrorKind::corrupt, "{} key/value heads for {} heads; this layout of q, k and v needs equal numbers",
                kv_heads, heads);
  }
  check_together(clip_qkv > 0 && !fused_qkv, "clamped q, k and v", "separate projections for them");
  if (window < 0) throw_error(ErrorKind::corrupt, "the attention window is {}; it must not be negative", window);
  check_not_negative("clip_qkv", clip_qkv);
  check_not_negative("the scale of attention scores", scale);
  check_not_negative("the soft cap of attention scores", softcap);
  check_not_negative("alibi_bias_max", alibi_bias_max);
}

void Attention::add_parameters(TableBuilder& table) const {
  const int64_t hidden = table.hidden();
  const int64_t q = query_width();
  const int64_t kv = key_width();
  if (fused_qkv) {
    TableBuilder::LinearRow row{.out = q + 2 * kv, .in = hidden, .bias = bias};
    if (qkv_by_head) {
      row.fused_heads = heads;
    } else {
      row.row_groups = {q, kv, kv};
      row.kv_heads = kv_heads;
    }
    table.linear(Role::qkv, row);
  } else {
    table.linear(Role::q, {.out = q, .in = hidden, .bias = bias, .rope_heads = heads});
    table.linear(Role::k, {.out = kv, .in = hidden, .bias = bias, .rope_heads = kv_heads, .kv_heads = kv_heads});
    table.linear(Role::v, {.out = kv, .in = hidden, .bias = bias, .kv_heads = kv_heads});
  }
  if (qk_norm != QkNorm::none) {
    table.norm(Role::q_norm, qk_norm == QkNorm::head ? head_dim : q);
    table.norm(Role::k_norm, qk_norm == QkNorm::head ? head_dim : kv);
  }
  table.linear(Role::attention_out,
               {.out = hidden, .in = q, .bias = out_bias, .split = Split::columns, .residual = true});
}

void Attention::add_saved(SavedList& list) const {
  const int64_t q = query_width();
  const int64_t kv = key_width();
  if (clip_qkv > 0) list.matrix(Saved::qkv, q + 2 * kv);
  if (qk_norm != QkNorm::none) {
    const bool by_head = qk_norm == QkNorm::head;
    list.matrix(Saved::q_input, q);
    list.matrix(Saved::k_input, kv);
    list.statistics(Saved::q_rstd, Saved::q_mean, by_head ? heads : 1);
    list.statistics(Saved::k_rstd, Saved::k_mean, by_head ? kv_heads : 1);
  }
  list.matrix(Saved::q, q);
  list.matrix(Saved::k, kv);
  list.matrix(Saved::v, kv);
  list.matrix(Saved::attention_context, q);
  list.numbers(Saved::lse, heads, SavedTensor::Kind::by_feature);
}

void Attention::check_split(Parts parts) const {
  check_divides(parts, "attention heads", heads);
  if (!parts.copies || parts.count % kv_heads != 0) check_divides(parts, "key/value heads", kv_heads);
  if (parts.count > 1 && qk_norm == QkNorm::all_heads) {
    throw_error(ErrorKind::unsupported,
                "{} is {}, but the norms of this model's queries and keys are over all heads together", parts.setting,
                parts.count);
  }
}

Attention Attention::split(int64_t tp) const {
  Attention part = *this;
  part.heads /= tp;
  part.kv_heads = std::max<int64_t>(1, kv_heads / tp);
  return part;
}

// Two gemms (scores, values) of 2 D FLOPs per head and pair of tokens.
double Attention::flops(AttentionSquares squares, AttentionCount count) const {
  double pairs = squares.squared;
  if (count == AttentionCount::causal) {
    pairs /= 2;
    if (window > 0) pairs = std::min(pairs, squares.tokens * static_cast<double>(window));
  }
  return 4.0 * static_cast<double>(query_width()) * pairs;
}

std::vector<float> rope_frequencies(const Rope& rope, int64_t head_dim) {
  const int64_t rotated = rope.dim > 0 ? rope.dim : head_dim;
  const int64_t pairs = rotated / 2;
  const RopeScaling& scaling = rope.scaling;
  std::vector<float> frequencies(static_cast<size_t>(pairs));
  for (int64_t i = 0; i < pairs; ++i) {
    double f = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotated));
    switch (scaling.kind) {
      case RopeScaling::Kind::none: break;
      case RopeScaling::Kind::linear: f /= scaling.factor; break;
      case RopeScaling::Kind::llama3: {
        const double length = static_cast<double>(scaling.original_context);
        const double wavelength = 2 * std::numbers::pi / f;
        if (wavelength > length / scaling.low_freq_factor) {
          f /= scaling.factor;
        } else if (wavelength >= length / scaling.high_freq_factor) {
          const double smooth =
              (length / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
          f = (1 - smooth) * f / scaling.factor + smooth * f;
        }
        break;
      }
    }
    frequencies[static_cast<size_t>(i)] = static_cast<float>(f);
  }
  return frequencies;
}

std::vector<float> alibi_slopes(const Attention& attention) {
  const int64_t heads = attention.heads;
  int64_t power = 1;
  while (power < heads) power *= 2;
  std::vector<float> slopes;
  // Of the slopes of the next power of two, first those with even i, then those with odd i.
  const bool whole = power == heads;
  for (int64_t h = 0; h < heads; ++h) {
    int64_t i = h + 1;
    if (!whole) i = h < power / 2 ? 2 * h + 2 : 2 * (h - power / 2) + 1;
    slopes.push_back(
        static_cast<float>(std::exp2(-static_cast<double>(i) * attention.alibi_bias_max / static_cast<double>(power))));
  }
  return slopes;
}

}  // namespace ingot::spec
