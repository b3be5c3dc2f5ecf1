// Runs the fuzz targets of tokenizers on their corpora.
#include "tests/fuzz/replay.h"
#include "tests/fuzz/tokenizers.h"

namespace ingot::text {
namespace {

TEST(TokenizerJsonCorpus, IsAcceptedOrRefusedByName) {
  ingot::fuzz::replay("tokenizer_json", fuzz::read_tokenizer_json);
}
TEST(SentencePieceCorpus, IsAcceptedOrRefusedByName) { ingot::fuzz::replay("sentencepiece", fuzz::read_sentencepiece); }

}  // namespace
}  // namespace ingot::text
