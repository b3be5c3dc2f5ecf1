#include "formats/npy_dtype.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/half.h"

namespace ingot::formats {
namespace {

constexpr std::array<std::string_view, 12> dtypes = {"b1", "i1", "i2", "i4", "i8", "u1",
                                                     "u2", "u4", "u8", "f2", "f4", "f8"};

template <class T>
T load(std::string_view bytes) {
  T value;
  bytes.copy(reinterpret_cast<char*>(&value), sizeof(T));
  return value;
}

}  // namespace

bool is_npy_dtype(std::string_view dtype) { return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end(); }

size_t npy_item_size(std::string_view dtype) { return static_cast<size_t>(dtype[1] - '0'); }

std::optional<int64_t> npy_integer(std::string_view dtype, std::string_view bytes) {
  if (dtype == "b1") return bytes[0] == 0 ? 0 : 1;
  if (dtype == "i1") return load<int8_t>(bytes);
  if (dtype == "i2") return load<int16_t>(bytes);
  if (dtype == "i4") return load<int32_t>(bytes);
  if (dtype == "i8") return load<int64_t>(bytes);
  if (dtype == "u1") return load<uint8_t>(bytes);
  if (dtype == "u2") return load<uint16_t>(bytes);
  if (dtype == "u4") return load<uint32_t>(bytes);
  const auto value = load<uint64_t>(bytes);
  if (!std::in_range<int64_t>(value)) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::vector<int64_t> npy_integers(std::string_view dtype, std::string_view bytes) {
  std::vector<int64_t> values;
  values.reserve(bytes.size() / npy_item_size(dtype));
  for (size_t i = 0; i < bytes.size(); i += npy_item_size(dtype)) {
    const std::optional<int64_t> value = npy_integer(dtype, bytes.substr(i));
    if (!value) throw_error(ErrorKind::corrupt, "an integer of more than 63 bits");
    values.push_back(*value);
  }
  return values;
}

double npy_real(std::string_view dtype, std::string_view bytes) {
  if (dtype == "f2") return f16_to_float(load<uint16_t>(bytes));
  if (dtype == "f4") return load<float>(bytes);
  return load<double>(bytes);
}

}  // namespace ingot::formats
