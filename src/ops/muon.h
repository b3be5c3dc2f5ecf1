// Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): the update of a matrix is its momentum, orthogonalised
// by a Newton-Schulz iteration, times 0.2 sqrt(max(R, C)), so that its root mean square is about that of AdamW's update
// and both can have the same learning rate and weight decay (Moonlight, arXiv 2502.16982). The formulas are those of
// torch.optim.Muon with nesterov=True and adjust_lr_fn="match_rms_adamw". Letters: R rows, C columns, m = min(R, C).
#pragma once

#include <array>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

struct MuonAttributes {
  float lr = 0;
  float momentum = 0.95F;
  float weight_decay = 0;
  float gradient_scale = 1;    // multiplies the gradient first: 1 / loss tokens, times the clipping factor
  DType iterate = DType::f32;  // of the iterated matrices, f32 or bf16; products are summed in fp32
  // [3] f64, the result of decide_update (ops/adamw.h); may be absent. When present, decision[1] replaces
  // `gradient_scale`, and the update is skipped when decision[2] is not 0.
  Tensor decision{};
};

// The state of one matrix.
struct MuonState {
  Tensor master;    // [R, C] f32 or bf16: the weight that is updated
  Tensor momentum;  // [R, C] f32, bf16 or u8
  Tensor weight;    // [R, C] bf16 copy that the model computes with; absent when the model uses `master` itself
  Tensor momentum_scales{};  // [ceil(R C / 256)] f32, with a momentum of u8 codes, in row-major order
};

// g = gradient_scale * gradient; m = momentum * m + (1 - momentum) g; u = momentum * m + (1 - momentum) g;
// master -= lr * weight_decay * master; master -= lr * 0.2 sqrt(max(R, C)) * newton_schulz(u). gradient [R, C] f32.
// Composed of matmul and the ops below; the bits depend on the shape alone. Scratch: muon_bytes (ops/muon_bytes.h).
void muon(Context& context, const MuonState& state, const Tensor& gradient, MuonAttributes attributes);

// x [R, C] f32 becomes U S' V^T, where x = U S V^T and the singular values S' are between about 0.7 and 1.2: five
// iterations of X = a X + (b A + c A^2) X, A = X X^T, a = 3.4445, b = -4.7750, c = 2.0315, from x / max(|x|, 1e-7)
// (Frobenius norm). The iterated X and A have type `iterate`, f32 or bf16; a matrix with more rows than columns is
// iterated from the other side, so that A is [m, m]. Scratch: newton_schulz_bytes.
void newton_schulz(Context& context, const Tensor& x, DType iterate);

struct MuonMomentumAttributes {
  float momentum = 0;
  float gradient_scale = 1;
  Tensor decision{};  // as MuonAttributes; when the update is skipped, `momentum` stays and `update` becomes 0
};

// Assigns m = momentum * m + (1 - momentum) g to `momentum` [n], where g = gradient_scale * gradient, and
// momentum * m + (1 - momentum) g, with the new m before rounding, to `update` [n] f32. gradient [n] f32. `momentum` is
// f32 or bf16 and `scales` absent, or it is u8 codes (ops/blockwise.h) with `scales` [ceil(n / 256)] f32, which are
// decoded, updated and encoded again, a block at a time.
void muon_momentum(Context& context, const Tensor& update, const Tensor& momentum, const Tensor& scales,
                   const Tensor& gradient, MuonMomentumAttributes attributes);

struct MuonMomentum {
  static constexpr const char* name = "muon_momentum";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, MuonMomentumAttributes);
};

// y [n] f32 or bf16 = x / max(sqrt(squares), 1e-7): x [n] f32, squares [1] f64 on the device.
void muon_normalize(Context& context, const Tensor& y, const Tensor& x, const Tensor& squares);

struct MuonNormalize {
  static constexpr const char* name = "muon_normalize";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&);
};

struct MuonCombineAttributes {
  float a = 1;
  float b = 1;
};

// y [n] = a x + b p, computed in fp32 and rounded once: y and x f32 or bf16, p f32. y may be x or p.
void muon_combine(Context& context, const Tensor& y, const Tensor& x, const Tensor& p,
                  MuonCombineAttributes attributes);

struct MuonCombine {
  static constexpr const char* name = "muon_combine";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, MuonCombineAttributes);
};

struct MuonApplyAttributes {
  float lr = 0;
  float weight_decay = 0;
  float scale = 1;    // of the update, on top of lr
  Tensor decision{};  // as MuonAttributes
};

// master -= lr * weight_decay * master, then master -= lr * scale * update; `weight` [n] bf16, which may be absent,
// becomes a copy. master [n] f32 or bf16, update [n] f32.
void muon_apply(Context& context, const Tensor& master, const Tensor& weight, const Tensor& update,
                MuonApplyAttributes attributes);

struct MuonApply {
  static constexpr const char* name = "muon_apply";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, MuonApplyAttributes);
};

}  // namespace ingot::ops
