#include "ops/elementwise.h"

#include "backend/cpu/decode.h"
#include "backend/cpu/glue.h"
#include "backend/cpu/grouped_rows.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/elementwise.h"
#include "base/philox.h"

namespace ingot::cpu {
namespace {

using ops::Context;

template <const ElementwiseKernels& K>
void run_add(Context& context, const Tensor& y, const Tensor& a, const Tensor& b) {
  by_type(y.dtype, [&]<class T>() {
    context.threads->parallel_for(0, y.elements(), element_grain, [&](int64_t lo, int64_t hi) {
      of_type<T>(K.add)(elements<T>(y) + lo, elements<T>(a) + lo, elements<T>(b) + lo, hi - lo);
    });
  });
}

template <const ElementwiseKernels& K>
void run_scale(Context& context, const Tensor& y, const Tensor& x, float factor) {
  by_type(y.dtype, [&]<class Y>() {
    by_type(x.dtype, [&]<class X>() {
      context.threads->parallel_for(0, y.elements(), element_grain, [&](int64_t lo, int64_t hi) {
        scale_kernel<Y, X>(K)(elements<Y>(y) + lo, elements<X>(x) + lo, factor, hi - lo);
      });
    });
  });
}

template <const ElementwiseKernels& K>
void run_clamp(Context& context, const Tensor& y, const Tensor& x, float limit) {
  by_type(y.dtype, [&]<class T>() {
    context.threads->parallel_for(0, y.elements(), element_grain, [&](int64_t lo, int64_t hi) {
      of_type<T>(K.clamp)(elements<T>(y) + lo, elements<T>(x) + lo, limit, hi - lo);
    });
  });
}

template <const ElementwiseKernels& K>
void run_clamp_backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& x, float limit) {
  context.threads->parallel_for(0, dx.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    if (dx.dtype == DType::f32) {
      K.clamp_backward_f32(dx.as<float>() + lo, dy.as<float>() + lo, x.as<float>() + lo, limit, hi - lo);
    } else {
      K.clamp_backward_bf16(bf16(dx) + lo, bf16(dy) + lo, bf16(x) + lo, limit, hi - lo);
    }
  });
}

template <const ElementwiseKernels& K>
void run_softcap(Context& context, const Tensor& y, const Tensor& x, float cap) {
  by_type(y.dtype, [&]<class T>() {
    context.threads->parallel_for(0, y.elements(), element_grain, [&](int64_t lo, int64_t hi) {
      of_type<T>(K.softcap)(elements<T>(y) + lo, elements<T>(x) + lo, cap, hi - lo);
    });
  });
}

template <const ElementwiseKernels& K>
void run_softcap_backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& y, float cap) {
  context.threads->parallel_for(0, dx.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    if (dx.dtype == DType::f32) {
      K.softcap_backward_f32(dx.as<float>() + lo, dy.as<float>() + lo, y.as<float>() + lo, cap, hi - lo);
    } else {
      K.softcap_backward_bf16(bf16(dx) + lo, bf16(dy) + lo, bf16(y) + lo, cap, hi - lo);
    }
  });
}

template <const ElementwiseKernels& K>
void run_add_bias(Context& context, const Tensor& y, const Tensor& bias) {
  const int64_t width = y.shape[1];
  by_type(y.dtype, [&]<class T>() {
    context.threads->parallel_for(0, y.shape[0], row_grain(width), [&](int64_t lo, int64_t hi) {
      for (int64_t row = lo; row < hi; ++row) {
        of_type<T>(K.add_bias)(elements<T>(y) + row * width, bias.as<float>(), width);
      }
    });
  });
}

// Each thread owns a range of columns; every column is summed over all rows in order.
template <const ElementwiseKernels& K>
void run_add_bias_backward(Context& context, const Tensor& dbias, const Tensor& dy, bool accumulate) {
  const int64_t rows = dy.shape[0];
  const int64_t width = dy.shape[1];
  context.threads->parallel_for(0, width, 128, [&](int64_t lo, int64_t hi) {
    if (dy.dtype == DType::f32) {
      K.sum_rows_f32(dbias.as<float>() + lo, dy.as<float>() + lo, rows, hi - lo, width, accumulate);
    } else {
      K.sum_rows_bf16(dbias.as<float>() + lo, bf16(dy) + lo, rows, hi - lo, width, accumulate);
    }
  });
}

std::array<uint32_t, 2> dropout_key(const ops::DropoutAttributes& attributes) {
  return {static_cast<uint32_t>(attributes.seed),
          static_cast<uint32_t>(attributes.seed >> 32) ^ static_cast<uint32_t>(attributes.stream >> 32)};
}

template <const ElementwiseKernels& K>
void run_dropout(Context& context, const Tensor& y, const Tensor& x, const Tensor& rows,
                 ops::DropoutAttributes attributes) {
  const int64_t width = x.shape[1];
  const auto key = dropout_key(attributes);
  DropoutRow row{};
  row.key[0] = key[0];
  row.key[1] = key[1];
  row.counter[2] = static_cast<uint32_t>(attributes.stream);
  row.first_block = static_cast<uint32_t>(attributes.first_column / 4);
  // Keep if uniform >= p. uniform is a multiple of 2^-24, so p is rounded up to one.
  row.drop_below = static_cast<uint32_t>(std::ceil(static_cast<double>(attributes.probability) * 0x1p24));
  row.factor = static_cast<float>(1.0 / (1.0 - static_cast<double>(attributes.probability)));
  context.threads->parallel_for(0, x.shape[0], row_grain(width), [&](int64_t lo, int64_t hi) {
    DropoutRow mine = row;
    for (int64_t t = lo; t < hi; ++t) {
      const uint64_t id = static_cast<uint64_t>(rows.as<int64_t>()[t]);
      mine.counter[0] = static_cast<uint32_t>(id);
      mine.counter[1] = static_cast<uint32_t>(id >> 32);
      if (x.dtype == DType::f32) {
        K.dropout_f32(y.as<float>() + t * width, x.as<float>() + t * width, width, mine);
      } else {
        K.dropout_bf16(bf16(y) + t * width, bf16(x) + t * width, width, mine);
      }
    }
  });
}

// One expert after another.
void run_grouped_dropout(Context& context, const Tensor& y, const Tensor& x, const Tensor& rows,
                         const Tensor& token_of_row, const Tensor& offsets, ops::DropoutAttributes attributes,
                         int64_t stream_step) {
  constexpr const char* op = ops::GroupedDropout::name;
  const int32_t* begin = checked_offsets(op, offsets, x.shape[0]);
  std::vector<int64_t> own;
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    own.push_back(rows.as<int64_t>()[index_of(op, "token_of_row", token_of_row, n, rows.shape[0])]);
  }
  const Tensor by_row{own.data(), DType::i64, token_of_row.shape, &context.device};
  const uint64_t first = attributes.stream;
  for (int64_t e = 0; e + 1 < offsets.shape[0]; ++e) {
    const int64_t from = begin[e], to = begin[e + 1];
    attributes.stream = first + static_cast<uint64_t>(e * stream_step);
    ops::dropout(context, y.slice(from, to), x.slice(from, to), by_row.slice(from, to), attributes);
  }
}

void reference_add(Context&, const Tensor& y, const Tensor& a, const Tensor& b) {
  for (int64_t i = 0; i < y.elements(); ++i) set_element(y, i, element(a, i) + element(b, i));
}

void reference_scale(Context&, const Tensor& y, const Tensor& x, float factor) {
  for (int64_t i = 0; i < y.elements(); ++i) set_element(y, i, element(x, i) * static_cast<double>(factor));
}

void reference_clamp(Context&, const Tensor& y, const Tensor& x, float limit) {
  const auto most = static_cast<double>(limit);
  for (int64_t i = 0; i < y.elements(); ++i) {
    const double value = element(x, i);
    set_element(y, i, value > most ? most : value < -most ? -most : value);
  }
}

void reference_clamp_backward(Context&, const Tensor& dx, const Tensor& dy, const Tensor& x, float limit) {
  for (int64_t i = 0; i < dx.elements(); ++i) {
    set_element(dx, i, std::abs(element(x, i)) <= static_cast<double>(limit) ? element(dy, i) : 0.0);
  }
}

void reference_softcap(Context&, const Tensor& y, const Tensor& x, float cap) {
  const auto most = static_cast<double>(cap);
  for (int64_t i = 0; i < y.elements(); ++i) set_element(y, i, most * std::tanh(element(x, i) / most));
}

void reference_softcap_backward(Context&, const Tensor& dx, const Tensor& dy, const Tensor& y, float cap) {
  for (int64_t i = 0; i < dx.elements(); ++i) {
    const double share = element(y, i) / static_cast<double>(cap);
    set_element(dx, i, element(dy, i) * (1.0 - share * share));
  }
}

void reference_add_bias(Context&, const Tensor& y, const Tensor& bias) {
  const int64_t width = y.shape[1];
  for (int64_t i = 0; i < y.elements(); ++i) set_element(y, i, element(y, i) + element(bias, i % width));
}

void reference_add_bias_backward(Context&, const Tensor& dbias, const Tensor& dy, bool accumulate) {
  const int64_t width = dy.shape[1];
  for (int64_t j = 0; j < width; ++j) {
    double total = accumulate ? element(dbias, j) : 0.0;
    for (int64_t t = 0; t < dy.shape[0]; ++t) total += element(dy, t * width + j);
    set_element(dbias, j, total);
  }
}

void reference_dropout(Context&, const Tensor& y, const Tensor& x, const Tensor& rows,
                       ops::DropoutAttributes attributes) {
  const int64_t width = x.shape[1];
  for (int64_t i = 0; i < x.elements(); ++i) {
    const uint64_t row = static_cast<uint64_t>(rows.as<int64_t>()[i / width]);
    const int64_t j = attributes.first_column + i % width;
    const auto block = Philox::block({static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32),
                                      static_cast<uint32_t>(j / 4), static_cast<uint32_t>(attributes.stream)},
                                     dropout_key(attributes));
    const bool keep = Philox::uniform(block[static_cast<size_t>(j % 4)]) >= attributes.probability;
    set_element(y, i, keep ? element(x, i) / (1.0 - static_cast<double>(attributes.probability)) : 0.0);
  }
}

}  // namespace

void register_elementwise(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::Add, run_add, elementwise_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::Scale, run_scale, elementwise_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::Clamp, run_clamp, elementwise_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::ClampBackward, run_clamp_backward, elementwise_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::Softcap, run_softcap, elementwise_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::SoftcapBackward, run_softcap_backward, elementwise_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::AddBias, run_add_bias, elementwise_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::AddBiasBackward, run_add_bias_backward, elementwise_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::Dropout, run_dropout, elementwise_kernels);
  registry.add<ops::Add>(DeviceKind::cpu, "reference", reference_add);
  registry.add<ops::Scale>(DeviceKind::cpu, "reference", reference_scale);
  registry.add<ops::Clamp>(DeviceKind::cpu, "reference", reference_clamp);
  registry.add<ops::ClampBackward>(DeviceKind::cpu, "reference", reference_clamp_backward);
  registry.add<ops::Softcap>(DeviceKind::cpu, "reference", reference_softcap);
  registry.add<ops::SoftcapBackward>(DeviceKind::cpu, "reference", reference_softcap_backward);
  registry.add<ops::AddBias>(DeviceKind::cpu, "reference", reference_add_bias);
  registry.add<ops::AddBiasBackward>(DeviceKind::cpu, "reference", reference_add_bias_backward);
  registry.add<ops::Dropout>(DeviceKind::cpu, "reference", reference_dropout);
  registry.add<ops::GroupedDropout>(DeviceKind::cpu, "by_expert", run_grouped_dropout);
}

}  // namespace ingot::cpu
