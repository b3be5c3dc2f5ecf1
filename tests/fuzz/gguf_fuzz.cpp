// Any bytes as a GGUF file: either an ingot::Error or tensors that lie inside the bytes.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "formats/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ingot::formats::GgufFile file(std::as_bytes(std::span(data, size)), "fuzz");
    volatile uint8_t sink = 0;
    for (const auto& tensor : file.tensors()) {
      for (const std::byte b : tensor.bytes) sink = static_cast<uint8_t>(sink ^ static_cast<uint8_t>(b));
    }
  } catch (const ingot::Error& e) {
    if (e.kind() == ingot::ErrorKind::internal) __builtin_trap();
  }
  return 0;
}
