// Fuzzes MDS folders: an index.json, a zero byte, and the first shard that it names.
#include <cstdint>

#include "tests/fuzz/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ingot::formats::fuzz::read_mds(std::as_bytes(std::span(data, size)));
  return 0;
}
