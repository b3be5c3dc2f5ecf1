// Fuzzes the vocabulary of GGUF files.
#include "tests/fuzz/vocabulary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ingot::checkpoint::fuzz::read_vocabulary({reinterpret_cast<const char*>(data), size});
  return 0;
}
