// Fuzzes chat messages and a chat template.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/templates.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ingot::text::fuzz::render_chat({reinterpret_cast<const char*>(data), size});
  return 0;
}
