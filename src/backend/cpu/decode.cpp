#include "backend/cpu/decode.h"

#include "tensor/block_quant.h"
#include "tensor/fp8.h"

namespace ingot::cpu {
namespace {

template <class Out, class FromFloat, class FromBf16, class FromF16>
void decode_row_to(const Weight& weight, int64_t row, Out* out, FromFloat from_float, FromBf16 from_bf16,
                   FromF16 from_f16) {
  const int64_t n = weight.in;
  const std::byte* data =
      static_cast<const std::byte*>(weight.data) + static_cast<size_t>(row) * row_bytes(weight.storage, n);
  switch (weight.storage) {
    case Storage::f32: return from_float(out, reinterpret_cast<const float*>(data), 1.0F, n);
    case Storage::bf16: return from_bf16(out, reinterpret_cast<const Bf16*>(data), 1.0F, n);
    case Storage::f16: return from_f16(out, reinterpret_cast<const F16*>(data), 1.0F, n);
    default: break;
  }
  const BlockCodec* codec = is_fp8(weight.storage) ? nullptr : &block_codec(weight.storage);
  constexpr int64_t most = 1024;  // a multiple of every block length
  float values[most];
  for (int64_t begin = 0; begin < n; begin += most) {
    const int64_t count = std::min(most, n - begin);
    if (codec != nullptr) {
      codec->decode(data + row_bytes(weight.storage, begin), count, values);
    } else {
      decode_fp8(weight.storage, data, n, begin, count, values);
    }
    from_float(out + begin, values, 1.0F, count);
  }
}

}  // namespace

void decode_row(const ElementwiseKernels& kernels, const Weight& weight, int64_t row, void* out, DType dtype) {
  if (dtype == DType::f32) {
    decode_row_to(weight, row, static_cast<float*>(out), kernels.scale_f32_f32, kernels.scale_f32_bf16,
                  kernels.scale_f32_f16);
  } else {
    decode_row_to(weight, row, static_cast<Bf16*>(out), kernels.scale_bf16_f32, kernels.scale_bf16_bf16,
                  kernels.scale_bf16_f16);
  }
}

}  // namespace ingot::cpu
