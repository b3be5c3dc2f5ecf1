// Any bytes as a tokenizer.json; where it is one, its own text is encoded and decoded with it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = ingot::text::Tokenizer::from_json(text, "fuzz");
    tokenizer->decode(tokenizer->encode(text.substr(0, 4096)));
  } catch (const ingot::Error& e) {
    if (e.kind() == ingot::ErrorKind::internal) __builtin_trap();
  }
  return 0;
}
