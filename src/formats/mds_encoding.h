// Columns of MDS shards (MosaicML Streaming): the encodings of their values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::formats {

struct MdsEncoding {
  enum class Kind {
    bytes,    // uninterpreted
    text,     // UTF-8
    number,   // one number of `dtype`
    decimal,  // a number as decimal text: str_int, str_float, str_decimal
    array,    // of numbers
    json,     // UTF-8
    image,    // jpeg, png, pil, lists of them, jpeg_array: uninterpreted bytes
  };

  std::string name;  // as in the files: "ndarray:int32:2048"
  Kind kind = Kind::bytes;
  std::string dtype;           // NumPy's, as "i4", of a number; of an array if fixed for the column, else empty
  std::vector<int64_t> shape;  // of an array if fixed for the column, else empty

  std::optional<uint32_t> size() const;  // bytes of each value, if fixed
};

// Supported: bytes, str, int, uint8 .. uint64, int8 .. int64, float16, float32, float64, str_int, str_float,
// str_decimal, json, ndarray[:dtype[:shape]], jpeg, png, pil, list[jpeg], list[png], list[pil], jpeg_array, jpegarray.
// Errors (messages do not name the file): unsupported for pkl, whose values are executable, and for other names;
// corrupt for an array's invalid dtype or shape.
MdsEncoding parse_mds_encoding(std::string_view name);

// Validates a value. Errors (messages do not name the file): corrupt for text or JSON that is not UTF-8, for invalid
// JSON, for invalid decimal numbers, and for a size that does not match dtype and shape.
void check_mds_value(const MdsEncoding& encoding, std::string_view value);

// A number (no dimensions) or an array (one or more dimensions).
struct MdsArray {
  std::string dtype;  // NumPy's: "u1", "i8", "f2", ...
  std::vector<int64_t> shape;
  std::string_view bytes;  // row-major, little-endian; a view into the value
};
// REQUIRES kind number or array. Errors (messages do not name the file): corrupt.
MdsArray read_mds_array(const MdsEncoding& encoding, std::string_view value);

// Encodes an array. Errors: usage for a dtype or shape that differs from the encoding's, for an array without elements,
// for 64 or more dimensions, and for a number of bytes that does not match dtype and shape.
std::string mds_array_value(const MdsEncoding& encoding, const MdsArray& array);

}  // namespace ingot::formats
