// MaskBench (guidance-ai/jsonschemabench, folder maskbench): JSON schemas from real use, each with valid and invalid
// instances.
#pragma once

#include <memory>
#include <string>

#include "grammar/vocabulary.h"
#include "text/tokenizer.h"

namespace ingot::bench {

struct MaskBenchReport {
  std::string text;      // lines for a reader
  std::string json;      // one object
  bool is_sound = true;  // no invalid instance was accepted
};

// Runs every file of the folder: {"schema", "tests": [{"valid", "data"}]}. Instances are serialised with ", " and ": ",
// keys in the order of the file, non-ASCII characters unescaped. With a tokenizer (null: none) a mask is computed and
// timed for each of their tokens. `details`: the text names every instance with a wrong answer, not only invalid ones
// that were accepted. Errors: not_found for a folder without files, corrupt for a file of another kind.
MaskBenchReport run_maskbench(const std::string& folder, const text::Tokenizer* tokenizer,
                              const std::shared_ptr<const grammar::Vocabulary>& vocabulary, int64_t threads,
                              bool details);

}  // namespace ingot::bench
