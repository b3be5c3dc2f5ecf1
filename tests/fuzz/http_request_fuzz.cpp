// Fuzzes the bytes that an HTTP client sends.
#include <cstdint>

#include "tests/fuzz/http_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ingot::server::fuzz::ByteServer server;
  server.accepts({reinterpret_cast<const char*>(data), size}, true);
  return 0;
}
