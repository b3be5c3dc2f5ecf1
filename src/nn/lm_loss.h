// The output head and the loss, computed in chunks so that the full logits never exist. Letters: T tokens, H hidden.
#pragma once

#include "nn/head.h"

namespace ingot::nn {

// losses [T] f32: each token's cross-entropy against targets [T] i32, 0 where the target is -1. normed [T, H]: the
// final norm's output. With pass.training the gradient of the plain sum of losses is computed too: dnormed [T, H] is
// assigned, and the head's gradients go to the accumulator; without it dnormed is absent. A chunk is at most
// spec::loss_chunk tokens of one accumulation unit.
void lm_loss(Pass& pass, const Head& head, const Tensor& losses, const Tensor& dnormed, const Tensor& normed,
             const Tensor& targets);

// Scratch bytes of lm_loss.
size_t lm_loss_bytes(const spec::ModelSpec& model, const PassShape& shape, bool training);

}  // namespace ingot::nn
