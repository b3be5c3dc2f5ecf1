// A block's MLP as data: one dense MLP, or a mixture of experts. Each variant owns its parameters and how they split,
// and the tensors that backward reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>

#include "spec/limits.h"
#include "spec/saved.h"

namespace ingot::spec {

class TableBuilder;

enum class Activation { silu, gelu, gelu_tanh };  // gelu: exact, with erf; gelu_tanh: the tanh approximation

struct Dense {
  int64_t features = 0;  // F, between the two linear layers
  Activation activation = Activation::silu;
  bool gated = true;  // down(act(gate) up), otherwise down(act(up))
  bool bias = false;  // on every linear layer
  bool operator==(const Dense&) const = default;

  // As in Attention.
  void check() const;
  void add_parameters(TableBuilder& table) const;
  void add_saved(SavedList& list, int64_t hidden) const;
  void check_split(Parts parts) const;
  Dense split(int64_t tp) const;
};

// A router selects `per_token` of `count` MLPs for every token; their results are weighted by the softmax over the
// selected experts' logits, and added.
struct Experts {
  int64_t count = 0;
  int64_t per_token = 0;
  Dense expert;
  int64_t ranks = 1;  // expert-parallel ones, each with an equal share of the experts (ModelShard::ep)
  // Sizes are for tokens that select all experts equally often, rather than for any selection: for estimates alone.
  bool balanced = false;
  bool operator==(const Experts&) const = default;

  int64_t own() const { return count / ranks; }  // of one rank
  // The most rows that a rank's experts can get, for each token that each of the ranks has: all of their tokens select
  // as many of these experts as they can.
  int64_t max_rows() const { return balanced ? per_token : ranks * std::min(per_token, own()); }
  // The most rows that one expert can get, where each of the ranks has so many tokens.
  int64_t max_rows_of_one(int64_t tokens) const {
    return balanced ? (ranks * tokens * per_token + count - 1) / count : ranks * tokens;
  }

  void check() const;
  void add_parameters(TableBuilder& table) const;
  void add_saved(SavedList& list, int64_t hidden) const;
  void check_split(Parts parts) const;
  Experts split(int64_t tp) const;
};

using Mlp = std::variant<Dense, Experts>;

// The MLP, or that of every expert.
const Dense& dense_of(const Mlp& mlp);
Dense& dense_of(Mlp& mlp);

// Null for a dense MLP.
inline const Experts* experts_of(const Mlp& mlp) { return std::get_if<Experts>(&mlp); }

}  // namespace ingot::spec
