// Speed of tokenization on one thread: `ingot bench tokenizer`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace ingot::bench {

struct TokenizerReport {
  struct Seconds {
    double wall = 0;
    double cpu = 0;  // of this process, user and system
  };
  size_t bytes = 0;  // of all texts
  size_t tokens = 0;
  std::string ids_sha256;  // of the ids of all texts, concatenated, int32
  bool same_text = true;   // each text's ids decode back to it
  Seconds first, best;     // of passes over all texts; of `best`, each time is the shortest of its kind
};

// Encodes each text `repeats` times (at least 1) without special tokens, then decodes it.
TokenizerReport bench_tokenizer(const text::Tokenizer& tokenizer, const std::vector<std::string>& texts,
                                int64_t repeats);

}  // namespace ingot::bench
