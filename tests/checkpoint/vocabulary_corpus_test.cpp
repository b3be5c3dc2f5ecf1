// Runs the GGUF vocabulary fuzz target on its corpus.
#include "tests/fuzz/replay.h"
#include "tests/fuzz/vocabulary.h"

namespace ingot::checkpoint {
namespace {

TEST(VocabularyCorpus, GgufSeedsAreAcceptedOrRefusedByName) {
  ingot::fuzz::replay("vocabulary", fuzz::read_vocabulary);
}

}  // namespace
}  // namespace ingot::checkpoint
