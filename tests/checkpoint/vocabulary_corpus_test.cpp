// Replays the corpus of the fuzz target of GGUF vocabularies.
#include "tests/fuzz/replay.h"
#include "tests/fuzz/vocabulary.h"

namespace ingot::checkpoint {
namespace {

TEST(VocabularyCorpus, Gguf) { ingot::fuzz::replay("vocabulary", fuzz::read_vocabulary); }

}  // namespace
}  // namespace ingot::checkpoint
