// MaskBench (guidance-ai/jsonschemabench, folder maskbench): JSON schemas from real use, each with valid and invalid
// instances.
#pragma once

#include <memory>
#include <string>

#include "app/command.h"
#include "grammar/vocabulary.h"
#include "text/tokenizer.h"

namespace ingot::app {

// Runs every file of the folder: {"schema", "tests": [{"valid", "data"}]}. Instances are serialised with ", " and ": ",
// keys in the order of the file, non-ASCII characters unescaped. With a tokenizer (null: none) a mask is computed and
// timed for each of their tokens. Returns the exit code: that of an internal error if an invalid instance is accepted.
// Errors: not_found for a folder without files, corrupt for a file of another kind.
int run_maskbench(const std::string& folder, const text::Tokenizer* tokenizer,
                  const std::shared_ptr<const grammar::Vocabulary>& vocabulary, int64_t threads, bool details,
                  const Output& output);

}  // namespace ingot::app
