// Counting floating-point operations (specs: flops.md; Narayanan et al. 2021, arXiv 2104.04473, for the full-square
// form).
#pragma once

#include <cstdint>

#include "spec/lora.h"
#include "spec/model.h"

namespace ingot::spec {

// Elements of matrices that take part in a product for every token: the linear layers and the output head once (tied or
// not); the embedding look-up is not counted. Of a mixture's experts, those that a token passes.
int64_t matmul_parameters(const ModelSpec& model);

// Work of attention alone for sequences of these lengths: sum of squared lengths is all that matters.
struct AttentionSquares {
  double tokens = 0;
  double squared = 0;  // sum over sub-sequences of length^2
};

enum class AttentionCount { causal, full_square };

// FLOPs of a forward pass over `squares.tokens` tokens. Causal counts half the square, and of a block with a sliding
// window at most `window` keys a token (flops.md is silent on windows); the full square is the whole one with a window
// too.
double forward_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count);

// Of these its attention's, over all blocks.
double attention_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count);

// FLOPs of a training step, forward and backward, without recompute. Full training: 3 forwards. LoRA: frozen layers
// count the forward and, above the lowest layer that needs a gradient, the input gradient; adapters 6 a parameter.
double training_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count);
double lora_training_flops(const ModelSpec& model, std::span<const LoraParam> adapters, AttentionSquares squares,
                           AttentionCount count);

// What recomputing adds: a forward of the blocks for full; nothing that counts (no matrix product) for selective.
double recompute_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count);

}  // namespace ingot::spec
