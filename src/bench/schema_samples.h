// Texts sampled from the masks of JSON Schemas: `ingot bench grammar --sample`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grammar/vocabulary.h"

namespace ingot::bench {

struct SchemaSamples {
  std::optional<std::vector<std::string>> texts;  // absent if the schema does not compile
  std::optional<std::string> error;               // why the schema is refused, or no more texts were sampled
};

// For each line of the file, a schema, samples up to `count` texts, and gives them to `report`. Every text is sampled
// from tokens that the masks allow, with each allowed first byte equally likely; one that does not end within 400
// tokens is left out. Always the same texts. Errors: internal where a mask allows nothing.
void sample_schemas(const std::string& file, const std::shared_ptr<const grammar::Vocabulary>& vocabulary,
                    int64_t count, const std::function<void(const SchemaSamples&)>& report);

}  // namespace ingot::bench
