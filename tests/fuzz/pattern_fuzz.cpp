// Fuzzes regular expressions.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/grammars.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ingot::grammar::fuzz::compile_pattern({reinterpret_cast<const char*>(data), size});
  return 0;
}
