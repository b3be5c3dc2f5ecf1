// Runs JSON-Schema-Test-Suite through grammars and their masks: `ingot bench grammar --suite`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/times.h"
#include "grammar/vocabulary.h"
#include "text/tokenizer.h"

namespace ingot::bench {

struct SchemaSuiteReport {
  int64_t schemas = 0, compiled = 0, refused = 0, failed = 0;  // failed: cases over a limit
  int64_t valid_accepted = 0, valid_refused = 0, invalid_accepted = 0, invalid_refused = 0;
  Times compile, mask;                        // of schemas, and of masks of single tokens
  std::map<std::string, int64_t> reasons;     // why schemas were refused
  std::vector<std::string> mistakes, strict;  // invalid cases that were accepted, valid ones that were not
};

// Runs every .json file of the folder. A case is accepted when the masks allow all its tokens up to the end of the
// text. `draft`: the $schema of schemas that have none. Errors: not_found for a folder without .json files, corrupt for
// files of another kind; internal where a mask disagrees with matching a token's bytes.
SchemaSuiteReport run_schema_suite(const std::string& folder, const std::optional<std::string>& draft,
                                   const text::Tokenizer& tokenizer,
                                   const std::shared_ptr<const grammar::Vocabulary>& vocabulary);

}  // namespace ingot::bench
