#include "ops/embedding.h"

#include "backend/cpu/decode.h"
#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "tensor/block_quant.h"

namespace ingot::cpu {
namespace {

using ops::Context;

// The row of the table for token t; -1 for a row of another part.
int64_t row_of(const Tensor& ids, int64_t t, int64_t vocabulary, ops::TablePart part) {
  const int64_t row = ids.as<int32_t>()[t] - part.first;
  if (row >= 0 && row < vocabulary) return row;
  if (!part.is_part) {
    throw_error(ErrorKind::internal, "embedding: token {} is {}, outside the vocabulary of {}", t, row, vocabulary);
  }
  return -1;
}

template <const ElementwiseKernels& K>
void run(Context& context, const Tensor& y, const Weight& table, const Tensor& ids, ops::TablePart part) {
  const size_t row_size = static_cast<size_t>(table.in) * size_of(y.dtype);
  context.threads->parallel_for(0, ids.shape[0], row_grain(table.in), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      std::byte* to = static_cast<std::byte*>(y.data) + static_cast<size_t>(t) * row_size;
      const int64_t row = row_of(ids, t, table.out, part);
      if (row < 0) {
        std::memset(to, 0, row_size);
      } else {
        decode_row(K, table, row, to, y.dtype);
      }
    }
  });
}

// Each thread owns a range of the vocabulary and processes all tokens in order.
template <const ElementwiseKernels& K>
void run_backward(Context& context, const Tensor& dtable, const Tensor& dy, const Tensor& ids, bool accumulate,
                  ops::TablePart part) {
  const int64_t vocabulary = dtable.shape[0];
  const int64_t width = dtable.shape[1];
  const int64_t tokens = ids.shape[0];
  for (int64_t t = 0; t < tokens; ++t) row_of(ids, t, vocabulary, part);
  const int64_t threads = context.threads->threads();
  context.threads->parallel_for(
      0, vocabulary, (vocabulary + 4 * threads - 1) / (4 * threads), [&](int64_t lo, int64_t hi) {
        float* rows = dtable.as<float>();
        if (!accumulate) std::memset(rows + lo * width, 0, static_cast<size_t>((hi - lo) * width) * sizeof(float));
        for (int64_t t = 0; t < tokens; ++t) {
          const int64_t row = ids.as<int32_t>()[t] - part.first;
          if (row < lo || row >= hi) continue;
          if (dy.dtype == DType::f32) {
            K.add.f32(rows + row * width, rows + row * width, dy.as<float>() + t * width, width);
          } else {
            K.add_from_bf16(rows + row * width, bf16(dy) + t * width, width);
          }
        }
      });
}

void reference(Context&, const Tensor& y, const Weight& table, const Tensor& ids, ops::TablePart part) {
  std::vector<float> row(static_cast<size_t>(table.in));
  for (int64_t t = 0; t < ids.shape[0]; ++t) {
    const int64_t id = row_of(ids, t, table.out, part);
    if (id < 0) {
      for (int64_t i = 0; i < table.in; ++i) set_element(y, t * table.in + i, 0);
      continue;
    }
    if (is_block(table.storage)) {
      block_codec(table.storage)
          .decode(static_cast<const std::byte*>(table.slice(id, id + 1).data), table.in, row.data());
    }
    for (int64_t i = 0; i < table.in; ++i) {
      set_element(y, t * table.in + i,
                  is_block(table.storage) ? static_cast<double>(row[static_cast<size_t>(i)])
                                          : element(table.tensor(), id * table.in + i));
    }
  }
}

void reference_backward(Context&, const Tensor& dtable, const Tensor& dy, const Tensor& ids, bool accumulate,
                        ops::TablePart part) {
  const int64_t width = dtable.shape[1];
  std::vector<double> totals(static_cast<size_t>(dtable.elements()), 0.0);
  for (int64_t i = 0; accumulate && i < dtable.elements(); ++i) totals[static_cast<size_t>(i)] = element(dtable, i);
  for (int64_t t = 0; t < ids.shape[0]; ++t) {
    const int64_t id = row_of(ids, t, dtable.shape[0], part);
    for (int64_t i = 0; id >= 0 && i < width; ++i)
      totals[static_cast<size_t>(id * width + i)] += element(dy, t * width + i);
  }
  for (int64_t i = 0; i < dtable.elements(); ++i) set_element(dtable, i, totals[static_cast<size_t>(i)]);
}

}  // namespace

void register_embedding(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::Embedding, run, elementwise_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::EmbeddingBackward, run_backward, elementwise_kernels);
  registry.add<ops::Embedding>(DeviceKind::cpu, "reference", reference);
  registry.add<ops::EmbeddingBackward>(DeviceKind::cpu, "reference", reference_backward);
}

}  // namespace ingot::cpu
