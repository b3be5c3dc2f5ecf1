// Fuzzes tokenizer.json files.
#include "tests/fuzz/tokenizers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ingot::text::fuzz::read_tokenizer_json({reinterpret_cast<const char*>(data), size});
  return 0;
}
