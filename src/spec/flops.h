// Floating-point operation counts (the full-square form: Narayanan et al. 2021, arXiv 2104.04473).
#pragma once

#include <cstdint>

#include "spec/lora.h"
#include "spec/model.h"

namespace ingot::spec {

// Parameters of the gemms that every token runs through: the linear layers and the output head, counted once (tied or
// not); the embedding lookup is not counted. In a mixture of experts, experts_per_token of the experts count.
int64_t matmul_parameters(const ModelSpec& model);

// FLOPs of a forward pass over `squares.tokens` tokens; spec/attention.h says what the counts mean.
double forward_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count);

// The FLOPs of attention alone within forward_flops, over all blocks.
double attention_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count);

// FLOPs of a training step, forward and backward, without recompute. Full training: 3 forwards. LoRA: frozen layers
// count their forward and, from the lowest adapted layer upward, the input gradient; adapters count 6 per parameter.
double training_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count);
double lora_training_flops(const ModelSpec& model, std::span<const LoraParam> adapters, AttentionSquares squares,
                           AttentionCount count);

// FLOPs that recompute adds: a forward of the blocks for full; selective adds none that count (no gemm).
double recompute_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count);

}  // namespace ingot::spec
