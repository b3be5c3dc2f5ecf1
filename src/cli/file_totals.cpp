#include "cli/file_totals.h"

#include <algorithm>
#include <map>

namespace ingot::cli {

FileTotals file_totals(const checkpoint::TensorStore& store) {
  std::map<std::string, int64_t> elements;
  FileTotals totals;
  for (const checkpoint::StoredTensor& tensor : store.tensors()) {
    elements[tensor.dtype] += tensor.rows() * tensor.row_elements();
    totals.bytes += tensor.bytes.size();
  }
  int64_t max_elements = -1;
  for (const auto& [dtype, count] : elements) {
    if (count <= max_elements) continue;
    max_elements = count;
    totals.dtype = dtype;
  }
  std::transform(totals.dtype.begin(), totals.dtype.end(), totals.dtype.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return totals;
}

}  // namespace ingot::cli
