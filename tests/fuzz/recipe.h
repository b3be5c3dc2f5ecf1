// The recipe fuzz target, also used by the corpus test. Bytes up to the first zero are a recipe, those after it an
// override. A recipe that is accepted and written out must be read back unchanged.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "tests/fuzz/memory_file.h"
#include "train/recipe.h"

namespace ingot::train::fuzz {

// True when the recipe was accepted.
inline bool read(std::span<const std::byte> bytes) {
  const auto zero = std::find(bytes.begin(), bytes.end(), std::byte{0});
  const size_t size = static_cast<size_t>(zero - bytes.begin());
  std::vector<std::string> overrides;
  if (zero != bytes.end()) overrides.emplace_back(reinterpret_cast<const char*>(&*zero) + 1, bytes.size() - size - 1);
  std::string written;
  try {
    written = write_recipe(read_recipe(ingot::fuzz::MemoryFile(bytes.first(size)).path(), overrides));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;
  }
  const ingot::fuzz::MemoryFile again(std::as_bytes(std::span(written)));
  if (write_recipe(read_recipe(again.path(), {})) != written) throw std::logic_error("reads back as another recipe");
  return true;
}

}  // namespace ingot::train::fuzz
