// The model whose hyper-parameters the tests of this folder change.
#pragma once

#include "spec/model.h"

namespace ingot::spec {

inline ModelSpec small_model(const char* family, int64_t layers) {
  ModelSpec m;
  m.family = family;
  m.vocab = 100;
  m.hidden = 32;
  m.layers = layers;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 8;
  m.ffn = 48;
  m.context = 64;
  return m;
}

}  // namespace ingot::spec
