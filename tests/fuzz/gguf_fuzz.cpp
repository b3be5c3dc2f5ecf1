// Fuzzes GGUF files.
#include <cstdint>

#include "tests/fuzz/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ingot::formats::fuzz::read_gguf(std::as_bytes(std::span(data, size)));
  return 0;
}
