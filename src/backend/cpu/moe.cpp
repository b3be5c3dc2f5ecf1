#include "ops/moe.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/grouped_rows.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/moe.h"

namespace ingot::cpu {
namespace {

using ops::Context;

// Routing is a few numbers per token, so there is only the reference implementation. It computes K exponentials per
// token, in double.
void reference_route(Context& context, const Tensor& experts, const Tensor& weights, const Tensor& logits) {
  const int64_t e = logits.shape[1];
  const int64_t k = experts.shape[1];
  context.threads->parallel_for(0, logits.shape[0], row_grain(e * k), [&](int64_t lo, int64_t hi) {
    std::vector<double> row(static_cast<size_t>(e));
    std::vector<char> taken(static_cast<size_t>(e));
    for (int64_t t = lo; t < hi; ++t) {
      for (int64_t i = 0; i < e; ++i) row[static_cast<size_t>(i)] = element(logits, t * e + i);
      std::fill(taken.begin(), taken.end(), 0);
      int32_t* chosen = experts.as<int32_t>() + t * k;
      double sum = 0;
      for (int64_t c = 0; c < k; ++c) {
        size_t best = row.size();
        for (size_t i = 0; i < row.size(); ++i) {
          // Not `>`: the first NaN is selected, and is not replaced.
          if (taken[i] == 0 && (best == row.size() || (!(row[i] <= row[best]) && !std::isnan(row[best])))) best = i;
        }
        taken[best] = 1;
        chosen[c] = static_cast<int32_t>(best);
        sum += std::exp(row[best] - row[static_cast<size_t>(chosen[0])]);
      }
      for (int64_t c = 0; c < k; ++c) {
        const double shifted = row[static_cast<size_t>(chosen[c])] - row[static_cast<size_t>(chosen[0])];
        set_element(weights, t * k + c, std::exp(shifted) / sum);
      }
    }
  });
}

void reference_route_backward(Context& context, const Tensor& dlogits, const Tensor& dweights, const Tensor& experts,
                              const Tensor& weights) {
  const int64_t e = dlogits.shape[1];
  const int64_t k = experts.shape[1];
  context.threads->parallel_for(0, dlogits.shape[0], row_grain(e), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      double mean = 0;
      for (int64_t i = t * k; i < (t + 1) * k; ++i) mean += element(weights, i) * element(dweights, i);
      for (int64_t i = 0; i < e; ++i) set_element(dlogits, t * e + i, 0.0);
      for (int64_t i = t * k; i < (t + 1) * k; ++i) {
        const int64_t expert = index_of(ops::MoeRouteBackward::name, "experts", experts, i, e);
        set_element(dlogits, t * e + expert, element(weights, i) * (element(dweights, i) - mean));
      }
    }
  });
}

// A stable counting sort: counts the choices, then numbers them in order.
void reference_group(Context&, const Tensor& token_of_row, const Tensor& row_of_choice, const Tensor& offsets,
                     const Tensor& experts) {
  const int64_t count = offsets.shape[0] - 1;
  const int64_t choices = experts.elements();
  std::vector<int32_t> next(static_cast<size_t>(count) + 1, 0);
  for (int64_t i = 0; i < choices; ++i) {
    ++next[static_cast<size_t>(index_of(ops::MoeGroup::name, "experts", experts, i, count)) + 1];
  }
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  std::copy(next.begin(), next.end(), offsets.as<int32_t>());
  for (int64_t i = 0; i < choices; ++i) {
    const int32_t place = next[static_cast<size_t>(experts.as<int32_t>()[i])]++;
    row_of_choice.as<int32_t>()[i] = place;
    token_of_row.as<int32_t>()[place] = static_cast<int32_t>(i / experts.shape[1]);
  }
}

void run_gather(Context& context, const Tensor& y, const Tensor& x, const Tensor& token_of_row) {
  const size_t bytes = static_cast<size_t>(x.shape[1]) * size_of(x.dtype);
  context.threads->parallel_for(0, token_of_row.shape[0], row_grain(x.shape[1]), [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      const int64_t from = index_of(ops::GatherRows::name, "token_of_row", token_of_row, i, x.shape[0]);
      std::memcpy(static_cast<std::byte*>(y.data) + static_cast<size_t>(i) * bytes,
                  static_cast<const std::byte*>(x.data) + static_cast<size_t>(from) * bytes, bytes);
    }
  });
}

void reference_gather(Context&, const Tensor& y, const Tensor& x, const Tensor& token_of_row) {
  const int64_t h = x.shape[1];
  for (int64_t i = 0; i < y.elements(); ++i) {
    set_element(
        y, i, element(x, index_of(ops::GatherRows::name, "token_of_row", token_of_row, i / h, x.shape[0]) * h + i % h));
  }
}

template <const MoeKernels& K>
void run_combine(Context& context, const Tensor& y, const Tensor& z, const Tensor& row_of_choice, const Tensor& weights,
                 bool accumulate) {
  check_indices(ops::CombineRows::name, "row_of_choice", row_of_choice,
                z.shape[0]);  // the kernels address memory with them
  const int64_t h = y.shape[1];
  const int64_t k = row_of_choice.shape[1];
  by_type(y.dtype, [&]<class T>() {
    context.threads->parallel_for(0, y.shape[0], row_grain(h * k), [&](int64_t lo, int64_t hi) {
      for (int64_t t = lo; t < hi; ++t) {
        const int32_t* rows = row_of_choice.as<int32_t>() + t * k;
        const float* factors = weights ? weights.as<float>() + t * k : nullptr;
        of_type<T>(K.combine)(elements<T>(y) + t * h, elements<T>(z), rows, factors, k, h, accumulate);
      }
    });
  });
}

template <const MoeKernels& K>
void run_combine_backward(Context& context, const Tensor& dz, const Tensor& dweights, const Tensor& dy, const Tensor& z,
                          const Tensor& row_of_choice, const Tensor& weights) {
  check_indices(ops::CombineRowsBackward::name, "row_of_choice", row_of_choice, dz.shape[0]);
  const int64_t h = dy.shape[1];
  const int64_t k = row_of_choice.shape[1];
  context.threads->parallel_for(0, row_of_choice.elements(), row_grain(h), [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      const int64_t at = row_of_choice.as<int32_t>()[i] * h;
      const int64_t from = i / k * h;
      const float weight = weights.as<float>()[i];
      if (dweights) {  // before dz is written: dz may be z
        dweights.as<float>()[i] = dy.dtype == DType::f32 ? K.dot_f32(dy.as<float>() + from, z.as<float>() + at, h)
                                                         : K.dot_bf16(bf16(dy) + from, bf16(z) + at, h);
      }
      if (dy.dtype == DType::f32) {
        K.scale_f32(dz.as<float>() + at, dy.as<float>() + from, weight, h);
      } else {
        K.scale_bf16(bf16(dz) + at, bf16(dy) + from, weight, h);
      }
    }
  });
}

void reference_combine(Context& context, const Tensor& y, const Tensor& z, const Tensor& row_of_choice,
                       const Tensor& weights, bool accumulate) {
  const int64_t h = y.shape[1];
  const int64_t k = row_of_choice.shape[1];
  context.threads->parallel_for(0, y.shape[0], row_grain(h * k), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      for (int64_t j = 0; j < h; ++j) {
        double sum = accumulate ? element(y, t * h + j) : 0.0;
        for (int64_t i = t * k; i < (t + 1) * k; ++i) {
          const int64_t place = index_of(ops::CombineRows::name, "row_of_choice", row_of_choice, i, z.shape[0]);
          sum += (weights ? element(weights, i) : 1.0) * element(z, place * h + j);
        }
        set_element(y, t * h + j, sum);
      }
    }
  });
}

void reference_combine_backward(Context& context, const Tensor& dz, const Tensor& dweights, const Tensor& dy,
                                const Tensor& z, const Tensor& row_of_choice, const Tensor& weights) {
  const int64_t h = dy.shape[1];
  const int64_t k = row_of_choice.shape[1];
  context.threads->parallel_for(0, row_of_choice.elements(), row_grain(h), [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      const int64_t place = index_of(ops::CombineRowsBackward::name, "row_of_choice", row_of_choice, i, dz.shape[0]);
      double product = 0;  // before dz is written: dz may be z
      for (int64_t j = 0; dweights && j < h; ++j) product += element(dy, i / k * h + j) * element(z, place * h + j);
      if (dweights) set_element(dweights, i, product);
      for (int64_t j = 0; j < h; ++j) set_element(dz, place * h + j, element(weights, i) * element(dy, i / k * h + j));
    }
  });
}

}  // namespace

void register_moe(ops::Registry& registry, Levels levels) {
  registry.add<ops::MoeRoute>(DeviceKind::cpu, "reference", reference_route);
  registry.add<ops::MoeRouteBackward>(DeviceKind::cpu, "reference", reference_route_backward);
  registry.add<ops::MoeGroup>(DeviceKind::cpu, "reference", reference_group);
  registry.add<ops::GatherRows>(DeviceKind::cpu, "plain", run_gather);  // only copies bytes: no level is faster
  registry.add<ops::GatherRows>(DeviceKind::cpu, "reference", reference_gather);
  INGOT_ADD_LEVELS(registry, levels.best, ops::CombineRows, run_combine, moe_kernels);
  registry.add<ops::CombineRows>(DeviceKind::cpu, "reference", reference_combine);
  INGOT_ADD_LEVELS(registry, levels.best, ops::CombineRowsBackward, run_combine_backward, moe_kernels);
  registry.add<ops::CombineRowsBackward>(DeviceKind::cpu, "reference", reference_combine_backward);
}

}  // namespace ingot::cpu
