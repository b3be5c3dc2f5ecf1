// Fuzzes a recipe and an override.
#include <cstdint>

#include "tests/fuzz/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ingot::train::fuzz::read(std::as_bytes(std::span(data, size)));
  return 0;
}
