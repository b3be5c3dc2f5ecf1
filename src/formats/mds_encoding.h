// Columns of MDS shards (MosaicML Streaming): how the bytes of a value are to be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::formats {

struct MdsEncoding {
  enum class Kind {
    bytes,    // as they are
    text,     // UTF-8
    number,   // one of `dtype`
    decimal,  // digits as text: str_int, str_float, str_decimal
    array,    // of numbers
    json,     // UTF-8
    image,    // jpeg, png, pil, lists of them, jpeg_array: bytes that are not looked into
  };

  std::string name;  // as files have it: "ndarray:int32:2048"
  Kind kind = Kind::bytes;
  std::string dtype;           // number; array: where it is the same for all values, else empty. NumPy's: "i4"
  std::vector<int64_t> shape;  // array: where it is the same for all values, else empty

  std::optional<uint32_t> size() const;  // bytes of every value, where they are as many
};

// bytes, str, int, uint8 .. uint64, int8 .. int64, float16, float32, float64, str_int, str_float, str_decimal, json,
// ndarray[:dtype[:shape]], jpeg, png, pil, list[jpeg], list[png], list[pil], jpeg_array, jpegarray.
// Errors (without saying where): unsupported for pkl, whose values are programs, and for other names; corrupt for an
// array's dtype or shape that cannot be.
MdsEncoding parse_mds_encoding(std::string_view name);

// What is wrong with a value: text and JSON that are not UTF-8 or no JSON, digits that are no number, and a size,
// dtype or shape that do not go together. Errors: corrupt, without saying where.
void check_mds_value(const MdsEncoding& encoding, std::string_view value);

// A number or an array: one of no dimension, or of one and more.
struct MdsArray {
  std::string dtype;  // NumPy's: "u1", "i8", "f2", ...
  std::vector<int64_t> shape;
  std::string_view bytes;  // row-major, little-endian; into the value
};
// REQUIRES kind number or array. Errors: corrupt, without saying where.
MdsArray read_mds_array(const MdsEncoding& encoding, std::string_view value);

// The value for an array. Errors: usage for a dtype or shape that is not the encoding's, for no element, 64 dimensions
// and more, and bytes that are not as many as dtype and shape say.
std::string mds_array_value(const MdsEncoding& encoding, const MdsArray& array);

}  // namespace ingot::formats
