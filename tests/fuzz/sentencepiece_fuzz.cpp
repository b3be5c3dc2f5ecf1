// Any bytes as a SentencePiece tokenizer.model.
#include "tests/fuzz/tokenizers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ingot::text::fuzz::read_sentencepiece({reinterpret_cast<const char*>(data), size});
  return 0;
}
