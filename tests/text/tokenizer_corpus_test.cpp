// Runs the fuzz targets of tokenizers on their corpora.
#include "tests/fuzz/replay.h"
#include "tests/fuzz/tokenizers.h"

namespace ingot::text {
namespace {

TEST(TokenizerCorpus, TokenizerJson) { ingot::fuzz::replay("tokenizer_json", fuzz::read_tokenizer_json); }
TEST(TokenizerCorpus, SentencePiece) { ingot::fuzz::replay("sentencepiece", fuzz::read_sentencepiece); }

}  // namespace
}  // namespace ingot::text
