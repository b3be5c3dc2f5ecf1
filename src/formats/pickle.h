// Reads Python pickles as data. A pickle is a program; only the instructions that build plain values and NumPy arrays
// are interpreted. Nothing is executed, whatever a file names.
// Format: protocols 2 to 5, with the opcodes as described in CPython's pickletools.py, and the calls with which NumPy
// pickles ndarray, dtype and scalars (numpy/_core/src/multiarray/methods.c, descriptor.c).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::formats {

class PickleValue {
 public:
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    real,
    text,
    bytes,
    list,
    tuple,
    dict,
    array,
    dtype,     // dtype and callable occur only while a pickle is being read
    callable,  //
  };

  PickleValue() = default;  // None
  PickleValue(Kind kind, int64_t bits) : kind_(kind), bits_(bits) {}

  Kind kind() const { return kind_; }
  int64_t integer() const { return bits_; }                     // REQUIRES integer, or boolean: 0 or 1
  double real() const { return std::bit_cast<double>(bits_); }  // REQUIRES real
  size_t index() const { return static_cast<size_t>(bits_); }   // for Pickle: index of the text, list, array, ...

 private:
  Kind kind_ = Kind::none;
  int64_t bits_ = 0;
};

// Python's name of the type: "str", "list", ...
const char* name(PickleValue::Kind kind);

// A NumPy array in C order.
struct PickleArray {
  std::string dtype;  // as NpyFile::dtype, or "O"
  std::vector<int64_t> shape;
  std::string_view data;  // row-major, little-endian; empty for "O"
  PickleValue objects;    // "O": the list of its items, row-major
};

// The value that a pickle describes. A value may be shared by several others but never contains itself. Expanding it
// recursively visits at most max_values values, where a text counts one more per 16 bytes and an array counts its
// items.
class Pickle {
 public:
  static constexpr int max_depth = 64;
  static constexpr int64_t max_values = int64_t{1} << 27;
  static constexpr int64_t max_containers = int64_t{1} << 24;  // lists, tuples, dicts, arrays, texts

  Pickle() = default;  // None
  // `bytes` must outlive this; messages begin with `source`. Memory is at most a fixed multiple of the bytes.
  // Errors: `unsupported`, by name, for everything that is not a plain value: classes and functions other than NumPy's
  // own (`os.system`), sets, persistent ids, extensions, the text opcodes of protocols 0 and 1, integers over 64 bits,
  // dict keys that are not texts, arrays of other dtypes or in Fortran order, values that contain themselves;
  // `resource` for exceeding the limits above; `corrupt` for bytes that are not a pickle and for bytes after its end.
  Pickle(std::span<const std::byte> bytes, const std::string& source);

  PickleValue root() const { return root_; }
  // All REQUIRE the kinds in their parameter names. The views are valid as long as this and the bytes.
  std::string_view string(PickleValue text_or_bytes) const { return strings_[text_or_bytes.index()]; }
  std::span<const PickleValue> items(PickleValue list_or_tuple) const { return containers_[list_or_tuple.index()]; }
  const PickleArray& array(PickleValue array) const { return arrays_[array.index()]; }
  // The value of a dict's key; nullptr if it is missing.
  const PickleValue* find(PickleValue dict, std::string_view key) const;
  std::vector<std::string_view> keys(PickleValue dict) const;

 private:
  friend class PickleReader;

  PickleValue root_;
  std::vector<std::string_view> strings_;             // views into the file or owned_
  std::deque<std::string> owned_;                     // bytes objects, which protocol 2 stores as text
  std::vector<std::vector<PickleValue>> containers_;  // lists and tuples; dicts as key, value, key, value...
  std::vector<PickleArray> arrays_;
};

}  // namespace ingot::formats
