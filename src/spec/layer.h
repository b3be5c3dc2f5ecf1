// A transformer block as data: its attention variant, its MLP variant, and how the two are joined.
#pragma once

#include "spec/attention.h"
#include "spec/mlp.h"

namespace ingot::spec {

struct LayerSpec {
  Attention attention;
  Mlp mlp;
  bool parallel_residual = false;  // x + attention(norm(x)) + mlp(norm'(x))
  bool post_norms = false;         // attention's and the MLP's results are normalised before they are added (Gemma 2)
  bool operator==(const LayerSpec&) const = default;

  // As in Attention; the block's norms are added to those of the variants.
  void check() const;
  void add_parameters(TableBuilder& table) const;
  void add_saved(SavedList& list, int64_t hidden) const;
  void check_split(Parts parts) const;
  LayerSpec split(int64_t tp) const;
};

}  // namespace ingot::spec
