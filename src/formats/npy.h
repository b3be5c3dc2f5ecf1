// NumPy's .npy files: arrays of numbers and of objects, versions 1 and 2, C order, little-endian.
// Format: numpy.org, "A simple file format for NumPy arrays" (NEP 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "formats/pickle.h"

namespace ingot::formats {

// Opened read-only and completely validated: the data is exactly as long as dtype and shape require.
// Errors: `unsupported` for records, text, other byte orders, Fortran order and other versions; `corrupt` for any other
// defect; those of Pickle, in which object arrays are stored; those of MappedFile.
class NpyFile {
 public:
  explicit NpyFile(const std::filesystem::path& path);
  // Reads bytes in memory, which must outlive this; `source` replaces the path in messages.
  NpyFile(std::span<const std::byte> bytes, std::string source);

  const std::string& dtype() const { return dtype_; }  // "f2" "f4" "f8" "i1".."i8" "u1".."u8" "b1", "O": objects
  const std::vector<int64_t>& shape() const { return shape_; }
  std::span<const std::byte> bytes() const { return data_; }         // row-major, a view into the file; empty for "O"
  std::span<const PickleValue> objects() const { return objects_; }  // "O": row-major
  const Pickle& pickle() const { return pickle_; }                   // the pickle that contains the objects

 private:
  void parse(std::span<const std::byte> bytes);
  void read_objects(std::span<const std::byte> bytes, uint64_t number);

  MappedFile file_;
  std::string source_;
  std::string dtype_;
  std::vector<int64_t> shape_;
  std::span<const std::byte> data_;
  Pickle pickle_;
  std::span<const PickleValue> objects_;
};

// Writes fp32 values as NumPy itself does (version 1, data 64-byte aligned), atomically.
class NpyWriter {
 public:
  // Errors: `internal` for a negative dimension or an overflowing product; those of FileWriter.
  NpyWriter(std::filesystem::path path, std::span<const int64_t> shape);
  // Appends values in row-major order. Errors: `internal` for more values than the shape has.
  void write(std::span<const float> values);
  // Publishes the file. Errors: `internal` when values are missing.
  void finish();

 private:
  std::filesystem::path path_;
  uint64_t remaining_ = 0;  // values still to come
  FileWriter file_;
};

}  // namespace ingot::formats
