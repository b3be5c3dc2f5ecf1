// Sizes of everything a run allocates, as pure functions. Allocation itself calls these, so a prediction is what is
// taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "spec/lora.h"
#include "spec/model.h"

namespace ingot::spec {

// What backward recomputes instead of keeping: nothing; the cheap element-wise results (norm outputs, the gated
// activation); or everything inside a block but its input.
enum class Recompute { none, selective, full };

const char* name(Recompute recompute);

// A tensor that a block's forward makes and its backward reads, of a fixed number of elements a token.
struct SavedTensor {
  // matrix: [T rows, features / rows] of activations. statistic: [T features] f32. by_feature: [features, T] f32.
  // real, index: [T, features] f32, i32.
  enum class Kind { matrix, statistic, by_feature, real, index };
  const char* name;
  int64_t features;  // elements a token
  int64_t bytes;     // an element
  Kind kind;
  int64_t rows = 1;
};

// All of them, in the order they are made; activations take `activation_bytes` an element. Which there are depends on
// the family; nn::BlockState says what each is.
std::vector<SavedTensor> block_tensors(const ModelSpec& model, int64_t activation_bytes);

// Whether a tensor of that list is kept from forward to backward; the others are filled again, one block at a time.
bool is_kept(std::string_view tensor, Recompute recompute);

// Bytes of saved activations of a micro-batch of `tokens` when the upper `layers` blocks run backward: what those keep,
// the residual stream before each and after the last, the final norm's results, and one block's worth of what is
// refilled. Every tensor is rounded up as an arena does.
size_t saved_bytes(const ModelSpec& model, Recompute recompute, int64_t activation_bytes, int64_t tokens,
                   int64_t layers);

// Tokens a piece of the loss is computed in, so that logits take at most 2^24 elements (64 MiB in fp32): a function of
// the vocabulary alone, since it decides the order in which the head's gradient is summed.
int64_t loss_chunk(int64_t vocab);

// Bytes of the paged KV cache: `pages` pages of `page` tokens for every layer.
size_t kv_bytes(const ModelSpec& model, int64_t pages, int64_t page, int64_t element_bytes);

}  // namespace ingot::spec
