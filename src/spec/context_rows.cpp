#include "spec/context_rows.h"

namespace ingot::spec {

int64_t context_parts(CpCommType type, int64_t ranks) {
  return type != CpCommType::a2a && ranks > 1 ? 2 * ranks : ranks;
}

std::vector<Range> context_rows(CpCommType type, int64_t rank, int64_t ranks, int64_t rows) {
  const int64_t parts = context_parts(type, ranks), each = rows / parts;
  const auto part = [&](int64_t number) { return Range{number * each, (number + 1) * each}; };
  if (parts == ranks) return {part(rank)};
  return {part(rank), part(parts - 1 - rank)};
}

}  // namespace ingot::spec
