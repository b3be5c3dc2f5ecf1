// The output head and the loss, computed in pieces so that full logits are never held. Letters: T tokens, H hidden.
#pragma once

#include "nn/head.h"

namespace ingot::nn {

// losses [T] f32: each token's cross-entropy against targets [T] i32, 0 where the target is -1. normed [T, H]: the
// final norm's output. With pass.training the gradient of the plain sum of losses flows back: dnormed [T, H] is
// assigned and the head's gradients go into the sink; without it dnormed is absent. Pieces are spec::loss_chunk tokens
// of one unit.
void lm_loss(Pass& pass, const Head& head, const Tensor& losses, const Tensor& dnormed, const Tensor& normed,
             const Tensor& targets);

// Scratch bytes of lm_loss.
size_t lm_loss_bytes(const spec::ModelSpec& model, const PassShape& shape, bool training);

}  // namespace ingot::nn
