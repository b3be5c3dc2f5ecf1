// The model whose hyper-parameters the tests of this folder modify.
#pragma once

#include "spec/model.h"

namespace ingot::spec {

inline ModelSpec small_model(const char* family, int64_t layers) {
  ModelSpec m;
  m.family = family;
  m.vocab = 100;
  m.hidden = 32;
  LayerSpec layer;
  layer.attention.heads = 4;
  layer.attention.kv_heads = 2;
  layer.attention.head_dim = 8;
  layer.mlp = Dense{.features = 48};
  m.layers = repeated(layers, layer);
  m.context = 64;
  return m;
}

// Applies `fn` to every layer.
template <class Fn>
void change_layers(ModelSpec& model, Fn fn) {
  for (LayerSpec& layer : model.layers) fn(layer);
}

inline void set_window(ModelSpec& model, int64_t window) {
  change_layers(model, [&](LayerSpec& layer) { layer.attention.window = window; });
}

inline void set_experts(ModelSpec& model, int64_t count, int64_t per_token) {
  change_layers(model, [&](LayerSpec& layer) { layer.mlp = Experts{count, per_token, dense_of(layer.mlp)}; });
}

}  // namespace ingot::spec
