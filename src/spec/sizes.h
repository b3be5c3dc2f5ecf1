// Sizes of everything a run allocates, as pure functions. Allocation calls the same functions, so memory predictions
// are exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "spec/lora.h"
#include "spec/model.h"

namespace ingot::spec {

// What backward recomputes instead of keeping: nothing; the cheap element-wise results (norm outputs, the gated
// activation); or everything inside a block except its input.
enum class Recompute { none, selective, full };

const char* name(Recompute recompute);

// A tensor that a block's forward computes and its backward reads, with a fixed number of elements per token.
struct SavedTensor {
  // matrix: [T rows, features / rows] of activations. statistic: [T features] f32. by_feature: [features, T] f32. real,
  // index: [T, features] f32, i32.
  enum class Kind { matrix, statistic, by_feature, real, index };
  const char* name;
  int64_t features;  // elements per token
  int64_t bytes;     // bytes per element
  Kind kind;
  int64_t rows = 1;
};

// All saved tensors, in the order of computation; activations have `activation_bytes` bytes per element. The list
// depends on the family; nn::BlockState explains each tensor.
std::vector<SavedTensor> block_tensors(const ModelSpec& model, int64_t activation_bytes);

// Whether a tensor of that list is kept from forward to backward; the others are recomputed, one block at a time.
bool is_kept(std::string_view tensor, Recompute recompute);

// Bytes of saved activations of a micro-batch of `tokens` when the upper `layers` blocks run backward: the tensors that
// these blocks keep, the residual before each and after the last, its gradient, the final norm's results, and one
// block's worth of recomputed tensors. Every tensor is rounded up as an arena does.
size_t saved_bytes(const ModelSpec& model, Recompute recompute, int64_t activation_bytes, int64_t tokens,
                   int64_t layers);

// Tokens per chunk of the loss, so that logits take at most 2^24 elements (64 MiB in fp32), but at least 64 and at most
// 1024: a function of the vocabulary alone, because it determines the order in which the head's gradient is summed.
int64_t loss_chunk(int64_t vocab);

// Bytes of the paged KV cache: `pages` pages of `page` tokens for every layer.
size_t kv_bytes(const ModelSpec& model, int64_t pages, int64_t page, int64_t element_bytes);

}  // namespace ingot::spec
