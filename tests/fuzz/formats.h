// What the fuzz targets of formats/ do with a file, also used by the test that replays their corpora: read it, and
// touch the first and last byte of everything the reader hands out. An ingot::Error about the file is the only way out
// but success.
#pragma once

#include <cstddef>
#include <span>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/npy.h"
#include "formats/safetensors.h"

namespace ingot::formats::fuzz {

inline void touch(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  [[maybe_unused]] volatile std::byte read = bytes.front();
  read = bytes.back();
}

// True when the file was accepted.
inline bool read_safetensors(std::span<const std::byte> bytes) {
  try {
    const SafetensorsFile file(bytes, "fuzz");
    for (const TensorEntry& entry : file.entries()) touch(file.at(entry.name).bytes);
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;
  }
}

inline bool read_gguf(std::span<const std::byte> bytes) {
  try {
    const GgufFile file(bytes, "fuzz");
    for (const GgufTensor& tensor : file.tensors()) touch(file.at(tensor.name).bytes);
    for (const auto& [key, value] : file.metadata().items()) {
      if (const GgufArray* list = std::get_if<GgufArray>(&value)) {
        if (std::holds_alternative<std::vector<std::string>>(list->items)) {
          file.metadata().texts(key);
        } else if (!std::holds_alternative<std::vector<bool>>(list->items)) {
          file.metadata().reals(key);
        }
      }
    }
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;
  }
}

inline bool read_npy(std::span<const std::byte> bytes) {
  try {
    touch(NpyFile(bytes, "fuzz").bytes());
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;
  }
}

}  // namespace ingot::formats::fuzz
