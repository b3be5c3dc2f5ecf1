// MaskBench (guidance-ai/jsonschemabench, folder maskbench): schemas as they are in use, each with instances that are
// valid and instances that are not.
#pragma once

#include <memory>
#include <string>

#include "app/command.h"
#include "grammar/vocabulary.h"
#include "text/tokenizer.h"

namespace ingot::app {

// Every file of the folder: {"schema", "tests": [{"valid", "data"}]}. The instances are texts with ", " and ": ", their
// keys in the order of the file, characters above ASCII as themselves. With a tokenizer (null: none) masks are made for
// each token of them, and timed. Returns the exit code: that of an internal error where an invalid one is accepted.
// Errors: not_found for a folder without files, corrupt for a file of another kind.
int run_maskbench(const std::string& folder, const text::Tokenizer* tokenizer,
                  const std::shared_ptr<const grammar::Vocabulary>& vocabulary, int64_t threads, bool details,
                  const Output& output);

}  // namespace ingot::app
