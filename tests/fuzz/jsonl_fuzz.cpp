// Fuzzes JSONL data files.
#include <cstdint>

#include "tests/fuzz/data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ingot::data::fuzz::read_jsonl(std::as_bytes(std::span(data, size)));
  return 0;
}
