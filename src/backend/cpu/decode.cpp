#include "backend/cpu/decode.h"

#include "tensor/block_quant.h"
#include "tensor/fp8.h"

namespace ingot::cpu {
namespace {

template <class Out>
void decode_row_to(const ElementwiseKernels& kernels, const Weight& weight, int64_t row, Out* out) {
  const int64_t n = weight.in;
  const std::byte* data =
      static_cast<const std::byte*>(weight.data) + static_cast<size_t>(row) * row_bytes(weight.storage, n);
  const auto from = [&]<class X>(const X* x, int64_t begin, int64_t count) {
    scale_kernel<Out, X>(kernels)(out + begin, x, 1.0F, count);
  };
  switch (weight.storage) {
    case StorageType::f32: return from(reinterpret_cast<const float*>(data), 0, n);
    case StorageType::bf16: return from(reinterpret_cast<const Bf16*>(data), 0, n);
    case StorageType::f16: return from(reinterpret_cast<const F16*>(data), 0, n);
    default: break;
  }
  if constexpr (std::is_same_v<Out, Bf16>) {
    if (weight.storage == StorageType::q8_0 && kernels.q8_to_bf16 != nullptr) return kernels.q8_to_bf16(out, data, n);
    if (weight.storage == StorageType::q4_0 && kernels.q4_to_bf16 != nullptr) return kernels.q4_to_bf16(out, data, n);
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
    from(static_cast<const float*>(values), begin, count);
  }
}

}  // namespace

void decode_row(const ElementwiseKernels& kernels, const Weight& weight, int64_t row, void* out, DType dtype) {
  by_type(dtype, [&]<class T>() { decode_row_to(kernels, weight, row, static_cast<T*>(out)); });
}

}  // namespace ingot::cpu
