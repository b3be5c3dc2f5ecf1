// Runs the JSONL fuzz target on its corpus.
#include "tests/fuzz/data.h"
#include "tests/fuzz/replay.h"

namespace ingot::data {
namespace {

TEST(JsonlCorpus, IsAcceptedOrRefusedByName) {
  ingot::fuzz::replay("jsonl",
                      [](const std::string& bytes) { return fuzz::read_jsonl(std::as_bytes(std::span(bytes))); },
                      {.num_valid = 8, .num_bad = 12});
}

}  // namespace
}  // namespace ingot::data
