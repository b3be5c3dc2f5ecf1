// Fuzzes the JSON body of requests.
#include <cstdint>

#include "tests/fuzz/requests.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ingot::server::fuzz::read_request({reinterpret_cast<const char*>(data), size});
  return 0;
}
