#include "checkpoint/inspect.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/row_codec.h"

namespace ingot::checkpoint {

std::string model_hash(const TensorStore& store) {
  Sha256 hash;
  for (const StoredTensor& tensor : store.tensors()) {
    const std::string head =
        fmt::format("{}{}{}{}{}{}", tensor.name, '\0', tensor.dtype, '\0', fmt::join(tensor.shape, ","), '\0');
    hash.update(std::as_bytes(std::span(head)));
    hash.update(tensor.bytes);
  }
  return hash.hex();
}

TensorValues read_tensor(const TensorStore& store, std::string_view name) {
  const StoredTensor* tensor = store.find(name);
  if (tensor == nullptr) {
    // Suggests the names with the longest common prefix.
    std::vector<std::pair<size_t, std::string>> alike;
    for (const StoredTensor& other : store.tensors()) {
      const auto parted = std::mismatch(name.begin(), name.end(), other.name.begin(), other.name.end());
      alike.emplace_back(static_cast<size_t>(parted.first - name.begin()), other.name);
    }
    std::sort(alike.begin(), alike.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    std::string near;
    for (size_t i = 0; i < std::min<size_t>(alike.size(), 5); ++i) near += (i == 0 ? "" : ", ") + alike[i].second;
    throw_hint(ErrorKind::not_found, "similar tensors: " + near, "{}: there is no tensor '{}'", store.path().string(),
               name);
  }
  if (!tensor->storage) {
    throw_error(ErrorKind::unsupported, "{}: tensor '{}' has the type {}, which Ingot does not decode", tensor->file,
                name, tensor->dtype);
  }
  TensorValues result;
  result.shape = tensor->shape;
  const int64_t in = tensor->row_elements();
  const size_t bytes = row_bytes(*tensor->storage, in);
  result.values.resize(static_cast<size_t>(tensor->rows() * in));
  for (int64_t row = 0; row < tensor->rows(); ++row) {
    decode_row(*tensor->storage, tensor->bytes.data() + static_cast<size_t>(row) * bytes, in,
               result.values.data() + row * in);
  }
  return result;
}

}  // namespace ingot::checkpoint
