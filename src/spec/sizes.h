// Sizes of everything a run allocates, as pure functions. Allocation calls the same functions, so memory predictions
// are exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "spec/lora.h"
#include "spec/model.h"
#include "spec/model_shard.h"

namespace ingot::spec {

// All saved tensors of a block, in the order of computation; activations have `activation_bytes` bytes per element.
// row_ranks: ModelShard::row_ranks.
std::vector<SavedTensor> block_tensors(const ModelSpec& model, const LayerSpec& layer, int64_t activation_bytes,
                                       int64_t row_ranks = 1);

// Whether a tensor of that list is saved for backward; the others are recomputed, one block at a time.
bool is_saved(const SavedTensor& tensor, Recompute recompute);

// Bytes of saved activations of a micro-batch of `tokens` when the upper `layers` blocks run backward. Every tensor is
// rounded up as an arena does. For a stage of a pipeline `model` has its sizes.
struct SavedBytes {
  // Of each micro-batch in flight: the tensors that these blocks keep and the residual before each; on a later stage of
  // which not all blocks run backward its input; on the last stage the residual after the last block, its gradient, and
  // the final norm's results.
  size_t own = 0;
  // Of all of them together, since one is computed at a time: the recomputed tensors of the block that has most of
  // them; on earlier stages the residual after the last block and its gradient, which are sent.
  size_t shared = 0;
  size_t total() const { return own + shared; }
};
SavedBytes saved_bytes(const ModelSpec& model, Recompute recompute, int64_t activation_bytes, int64_t tokens,
                       int64_t layers, const ModelShard& shard = {});

// Bytes of copies that nn::DeferredGradients makes in the backward of the upper `layers` blocks: the gradients of the
// outputs of linear layers, except those of experts, and their inputs if `recompute` does not save them all or the
// shard has some of their rows only.
size_t deferred_gradient_bytes(const ModelSpec& model, Recompute recompute, int64_t activation_bytes, int64_t tokens,
                               int64_t layers, const ModelShard& shard = {});

// Max tokens per chunk of the loss, a multiple of 64: a function of the vocabulary and the kind of device alone,
// because it determines the order in which the head's gradient is summed. On devices whose memory the host sees, logits
// take at most 2^24 elements (64 MiB in fp32) and a chunk has at most 1024 tokens. On GPUs 2^28 elements (1 GiB): with
// fewer tokens the gradient of the head's input does not fill the device, and that of its weight is read and written
// too often.
int64_t loss_chunk(int64_t vocab, bool host_visible);

// Bytes of the paged KV cache: `pages` pages of `page` tokens for every layer.
size_t kv_bytes(const ModelSpec& model, int64_t pages, int64_t page, int64_t element_bytes);

// Elements that a token has in the KV caches of all layers.
int64_t cache_elements(const ModelSpec& model);

}  // namespace ingot::spec
