// Quantization of rows to fp8 and back; one block per row.
#include "backend/gpu/gemm/fp8.h"

namespace ingot::gpu {

struct Fp8RowsArgs {
  void* codes;     // [rows, n], fp8
  void* values;    // [rows, n]
  const void* by;  // [n, by_width], fp8: element k is multiplied by the scale of its row k; may be null
  int64_t by_width;
  int64_t n;
  bool e5m2;  // else e4m3
};

struct Fp8ScalesArgs {
  float* scales;      // [rows]
  const void* codes;  // [rows, n], fp8
  int64_t rows, n;
};

}  // namespace ingot::gpu

GPU_KERNEL_PACKS(quantize_fp8, Fp8RowsArgs, 256)
GPU_KERNEL_FORWARD_PACKS(dequantize_fp8, Fp8RowsArgs, 256)
GPU_KERNEL(fp8_scales, Fp8ScalesArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int threads = 256;

struct SharedStorage {
  float largest[threads / 32];
};

template <int V>
GPU_FN Floats<V> scales_by(const Fp8RowsArgs& a, int64_t first) {
  Floats<V> scales;
  for (int i = 0; i < V; ++i) scales.at[i] = a.by == nullptr ? 1.0F : fp8_row_scale(a.by, a.by_width, first + i);
  return scales;
}

template <class F, class T, int V>
GPU_FN void quantize_row(const Fp8RowsArgs& a, float* shared) {
  const T* x = static_cast<const T*>(a.values) + static_cast<int64_t>(block_index()) * a.n;
  uint8_t* codes = static_cast<uint8_t*>(a.codes) + static_cast<int64_t>(block_index()) * fp8_row_bytes(a.n);
  // The maximum is taken over the bits of the magnitudes, which sort like the values, with NaN above all. NaN is
  // replaced by infinity, because block_max ignores NaN.
  uint32_t max_bits = 0;
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    const auto values = load_floats<V>(x + j);
    const auto scales = scales_by<V>(a, j);
    for (int i = 0; i < V; ++i) {
      const uint32_t magnitude = bits_of<uint32_t>(values.at[i] * scales.at[i]) & 0x7fffffffU;
      max_bits = magnitude > max_bits ? magnitude : max_bits;
    }
  }
  max_bits = max_bits < 0x7f800000U ? max_bits : 0x7f800000U;
  const float scale = fp8_scale<F>(block_max<threads>(bits_of<float>(max_bits), shared));
  const bool finite = scale > 0;
  const float inverse = 1.0F / scale;
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    const auto values = load_floats<V>(x + j);
    const auto scales = scales_by<V>(a, j);
    Pack<uint8_t, V> pack;
    for (int i = 0; i < V; ++i) {
      pack.at[i] = finite ? fp8_code<F>(values.at[i] * scales.at[i] * inverse) : uint8_t{0};
    }
    store_pack<uint8_t, V>(codes + j, pack);
  }
  const int64_t tail = fp8_scale_offset(a.n);
  for (int64_t j = a.n + thread_index(); j < tail; j += threads) codes[j] = 0;
  if (thread_index() < 4) {
    reinterpret_cast<float*>(codes + tail)[thread_index()] = thread_index() == 0 ? scale : 0.0F;
  }
}

template <class T, int V>
GPU_FN void quantize(const Fp8RowsArgs& a) {
  GPU_SHARED(SharedStorage, shared);
  if (a.e5m2) {
    quantize_row<E5m2, T, V>(a, shared.largest);
  } else {
    quantize_row<E4m3, T, V>(a, shared.largest);
  }
}

template <class T, int V>
GPU_FN void dequantize(const Fp8RowsArgs& a) {
  const int64_t row = block_index();
  T* x = static_cast<T*>(a.values) + row * a.n;
  const uint8_t* codes = static_cast<const uint8_t*>(a.codes) + row * fp8_row_bytes(a.n);
  const float scale = fp8_row_scale(a.codes, a.n, row);
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    const auto pack = load_pack<uint8_t, V>(codes + j);
    const auto scales = scales_by<V>(a, j);
    Floats<V> values;
    for (int i = 0; i < V; ++i) {
      const float value = a.e5m2 ? fp8_value<E5m2>(pack.at[i]) : fp8_value<E4m3>(pack.at[i]);
      values.at[i] = value * scale * (1.0F / scales.at[i]);
    }
    store_floats(x + j, values);
  }
}

}  // namespace

GPU_KERNEL_BODY_PACKS(quantize_fp8, Fp8RowsArgs, quantize)
GPU_KERNEL_BODY_FORWARD_PACKS(dequantize_fp8, Fp8RowsArgs, dequantize)
GPU_KERNEL_BODY(fp8_scales, Fp8ScalesArgs) {
  const int64_t row = static_cast<int64_t>(block_index()) * threads + thread_index();
  if (row < a.rows) a.scales[row] = fp8_row_scale(a.codes, a.n, row);
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/linear_fp8.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void launch_rows(Context& context, const KernelPacks<Fp8RowsArgs>& kernels, const Weight& q, const Tensor& x,
                 const Weight& by) {
  const Fp8RowsArgs args{const_cast<void*>(q.data), x.data, by.data, by.in, q.in, q.storage == StorageType::fp8_e5m2};
  launch(context, of_rows(kernels, q.in, {x}), {q.out}, args);
}

void quantize(Context& context, const Weight& q, const Tensor& x, const Weight& by) {
  launch_rows(context, quantize_fp8, q, x, by);
}

void dequantize(Context& context, const Tensor& x, const Weight& q, const Weight& by) {
  launch_rows(context, dequantize_fp8, q, x, by);
}

void copy_scales(Context& context, const Tensor& scales, const Weight& q) {
  launch(context, fp8_scales, {blocks_of(q.out, 256)}, {scales.as<float>(), q.data, q.out, q.in});
}

void decode(Context& context, const Tensor& out, const Weight& weight) {
  launch_rows(context, dequantize_fp8, weight, out, {});
}

bool only_fp8(const Context&, const Tensor&, const Weight& weight, ops::Refusal refuse) {
  return !is_fp8(weight.storage) && refuse("supports fp8 only");
}

}  // namespace

void register_quantize_fp8(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::QuantizeFp8>(kind, "simt", quantize);
  registry.add<ops::DequantizeFp8>(kind, "simt", dequantize);
  registry.add<ops::Fp8Scales>(kind, "simt", copy_scales);
}

void register_dequantize_fp8(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Dequantize>(kind, "fp8", decode, only_fp8);
}

}  // namespace ingot::gpu
#endif
