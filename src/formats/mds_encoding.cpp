#include "formats/mds_encoding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "formats/byte_reader.h"
#include "formats/npy_dtype.h"
#include "formats/printable.h"

namespace ingot::formats {
namespace {

using Kind = MdsEncoding::Kind;

// NumPy's names of dtypes, their short codes, and the byte that encodes the dtype in an array of unspecified dtype: the
// number of bits, plus 0 for unsigned, 1 for signed and 2 for floating-point.
struct Dtype {
  std::string_view name, code;
  uint8_t byte;
};
constexpr std::array<Dtype, 11> mds_dtypes = {{{"uint8", "u1", 8},
                                               {"int8", "i1", 9},
                                               {"uint16", "u2", 16},
                                               {"int16", "i2", 17},
                                               {"float16", "f2", 18},
                                               {"uint32", "u4", 32},
                                               {"int32", "i4", 33},
                                               {"float32", "f4", 34},
                                               {"uint64", "u8", 64},
                                               {"int64", "i8", 65},
                                               {"float64", "f8", 66}}};

constexpr std::array<std::pair<std::string_view, Kind>, 14> plain_names = {{{"bytes", Kind::bytes},
                                                                            {"str", Kind::text},
                                                                            {"str_int", Kind::decimal},
                                                                            {"str_float", Kind::decimal},
                                                                            {"str_decimal", Kind::decimal},
                                                                            {"json", Kind::json},
                                                                            {"jpeg", Kind::image},
                                                                            {"png", Kind::image},
                                                                            {"pil", Kind::image},
                                                                            {"list[jpeg]", Kind::image},
                                                                            {"list[png]", Kind::image},
                                                                            {"list[pil]", Kind::image},
                                                                            {"jpeg_array", Kind::image},
                                                                            {"jpegarray", Kind::image}}};

constexpr size_t max_dims = 63;

template <class Of>
const Dtype* find_dtype(Of of) {
  const auto* found = std::find_if(mds_dtypes.begin(), mds_dtypes.end(), of);
  return found == mds_dtypes.end() ? nullptr : found;
}

// Bytes of an array; nullopt when they overflow 64 bits.
std::optional<uint64_t> size_of(std::string_view dtype, const std::vector<int64_t>& shape) {
  uint64_t size = npy_item_size(dtype);
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size)) return std::nullopt;
  }
  return size;
}

void parse_array(MdsEncoding& encoding) {
  const std::vector<std::string> parts = split(encoding.name, ':');
  if (parts.size() > 3) throw_error(ErrorKind::corrupt, "the encoding {} has too many parts", printable(encoding.name));
  if (parts.size() > 1) {
    const Dtype* dtype = find_dtype([&](const Dtype& d) { return d.name == parts[1]; });
    if (dtype == nullptr) throw_error(ErrorKind::corrupt, "the dtype of {} is not known", printable(encoding.name));
    encoding.dtype = dtype->code;
  }
  if (parts.size() > 2) {
    for (const std::string& text : split(parts[2], ',')) {
      int64_t dim = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), dim);
      if (error != std::errc() || end != text.data() + text.size() || dim < 1) {
        throw_error(ErrorKind::corrupt, "the shape of {} is invalid", printable(encoding.name));
      }
      encoding.shape.push_back(dim);
    }
    const std::optional<uint64_t> size = size_of(encoding.dtype, encoding.shape);
    if (encoding.shape.size() > max_dims || !size || *size > std::numeric_limits<uint32_t>::max()) {
      throw_error(ErrorKind::corrupt, "the shape of {} is too large for a shard", printable(encoding.name));
    }
  }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Accepts what Python's int() (`whole`), float() and Decimal() write, and some more.
bool is_decimal(std::string_view text, bool whole) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const size_t digits = text.size();
  const auto skip = [&text] {
    const size_t before = text.size();
    while (!text.empty() && is_digit(text.front())) text.remove_prefix(1);
    return before - text.size();
  };
  size_t found = skip();
  if (whole) return found == digits && found > 0;
  if (digits > 0 && found == 0 && text.front() != '.') {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    return lower == "inf" || lower == "infinity" || lower == "nan" || lower == "snan";
  }
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    found += skip();
  }
  if (found > 0 && !text.empty() && (text.front() == 'e' || text.front() == 'E')) {
    text.remove_prefix(1);
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
    found = skip();
  }
  return found > 0 && text.empty();
}

}  // namespace

std::optional<uint32_t> MdsEncoding::size() const {
  if (kind == Kind::number || (kind == Kind::array && !shape.empty())) {
    return static_cast<uint32_t>(*size_of(dtype, shape));
  }
  return std::nullopt;
}

MdsEncoding parse_mds_encoding(std::string_view name) {
  MdsEncoding encoding;
  encoding.name = name;
  const auto* plain = std::find_if(plain_names.begin(), plain_names.end(), [&](auto& p) { return p.first == name; });
  if (plain != plain_names.end()) {
    encoding.kind = plain->second;
  } else if (const Dtype* dtype = find_dtype([&](const Dtype& d) { return d.name == name; })) {
    encoding.kind = Kind::number;
    encoding.dtype = dtype->code;
  } else if (name == "int") {
    encoding.kind = Kind::number;
    encoding.dtype = "i8";
  } else if (name == "ndarray" || name.starts_with("ndarray:")) {
    encoding.kind = Kind::array;
    parse_array(encoding);
  } else if (name == "pkl") {
    throw_hint(ErrorKind::unsupported, "write the data again with another encoding, such as json or ndarray",
               "the encoding 'pkl' holds pickles, which can run code and are not read");
  } else {
    throw_error(ErrorKind::unsupported, "the encoding {} is not known", printable(name));
  }
  return encoding;
}

MdsArray read_mds_array(const MdsEncoding& encoding, std::string_view value) {
  static const std::string nowhere = "the value";
  MdsArray array{encoding.dtype, encoding.shape, value};
  if (encoding.kind == Kind::array) {
    ByteReader reader(std::as_bytes(std::span(value)), nowhere);
    if (array.dtype.empty()) {
      const auto byte = reader.number<uint8_t>("the dtype");
      const Dtype* dtype = find_dtype([&](const Dtype& d) { return d.byte == byte; });
      if (dtype == nullptr) throw_error(ErrorKind::corrupt, "{} is not the code of a dtype", byte);
      array.dtype = dtype->code;
    }
    if (array.shape.empty()) {
      const auto byte = reader.number<uint8_t>("the shape");
      const size_t width = size_t{1} << (byte & 3);
      if (byte >> 2 == 0) throw_error(ErrorKind::corrupt, "an array without dimensions");
      for (int i = 0; i < byte >> 2; ++i) {
        uint64_t dim = 0;
        std::memcpy(&dim, reader.take(width, "a dimension").data(), width);
        if (dim == 0 || !std::in_range<int64_t>(dim))
          throw_error(ErrorKind::corrupt, "an array with a dimension of {}", dim);
        array.shape.push_back(static_cast<int64_t>(dim));
      }
    }
    array.bytes.remove_prefix(reader.position());
  }
  const std::optional<uint64_t> size = size_of(array.dtype, array.shape);
  if (size != array.bytes.size()) {
    throw_error(ErrorKind::corrupt, "dtype and shape need {} bytes, the value has {}",
                size ? std::to_string(*size) : "too many", array.bytes.size());
  }
  return array;
}

void check_mds_value(const MdsEncoding& encoding, std::string_view value) {
  switch (encoding.kind) {
    case Kind::text:
      if (!is_utf8(value)) throw_error(ErrorKind::corrupt, "the text is not UTF-8");
      return;
    case Kind::decimal:
      if (!is_decimal(value, encoding.name == "str_int")) {
        throw_error(ErrorKind::corrupt, "{} is not a number", printable(value));
      }
      return;
    case Kind::json:
      if (!nlohmann::json::accept(value)) throw_error(ErrorKind::corrupt, "the value is not JSON");
      return;
    case Kind::number:
    case Kind::array: read_mds_array(encoding, value); return;
    case Kind::bytes:
    case Kind::image: return;
  }
}

std::string mds_array_value(const MdsEncoding& encoding, const MdsArray& array) {
  const Dtype* dtype = find_dtype([&](const Dtype& d) { return d.code == array.dtype; });
  if (dtype == nullptr || (!encoding.dtype.empty() && encoding.dtype != array.dtype)) {
    throw_error(ErrorKind::usage, "an array of {} does not fit a column of {}", array.dtype, encoding.name);
  }
  if (!encoding.shape.empty() && encoding.shape != array.shape) {
    throw_error(ErrorKind::usage, "an array of another shape does not fit a column of {}", encoding.name);
  }
  if (array.shape.empty() || array.shape.size() > max_dims || array.bytes.empty() ||
      size_of(array.dtype, array.shape) != array.bytes.size()) {
    throw_error(ErrorKind::usage, "an array has 1 to {} dimensions and at least one element", max_dims);
  }
  std::string value;
  if (encoding.dtype.empty()) value += static_cast<char>(dtype->byte);
  if (encoding.shape.empty()) {
    const auto max_dim = static_cast<uint64_t>(*std::max_element(array.shape.begin(), array.shape.end()));
    const int bytes = (static_cast<int>(std::bit_width(max_dim)) + 7) / 8;  // needed for the largest dimension
    const int k = bytes > 4 ? 3 : bytes > 2 ? 2 : bytes - 1;
    value += static_cast<char>(array.shape.size() << 2 | static_cast<size_t>(k));
    for (const int64_t dim : array.shape) {
      std::array<char, 8> raw{};
      std::memcpy(raw.data(), &dim, raw.size());
      value.append(raw.data(), size_t{1} << k);
    }
  }
  value += array.bytes;
  return value;
}

}  // namespace ingot::formats
