// WordPiece, as in BERT: the text is split into words at white space, punctuation and Chinese characters, and each word
// into pieces by greedy longest match from its start; a word that cannot be segmented becomes one unknown token. In the
// vocabularies of GGUF files a piece that begins a word has the prefix U+2581, others have none.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/byte_trie.h"
#include "text/model.h"

namespace ingot::text {

struct WordPieceOptions {
  bool lowercase = true;
  bool strip_accents = true;  // decompose the text (NFD) and drop nonspacing marks
  int32_t unk_id = 0;
};

class WordPieceModel : public TokenModel {
 public:
  WordPieceModel(const std::vector<std::pair<std::string, int32_t>>& pieces, const WordPieceOptions& options);

  // Encodes a whole text. Control characters and invalid UTF-8 bytes are dropped.
  void encode(std::string_view text, std::vector<int32_t>& out) const override;
  void encode_without(const std::vector<bool>& excluded, std::string_view text,
                      std::vector<int32_t>& out) const override;

 private:
  // `excluded` may be null.
  void encode_words(std::string_view text, const std::vector<bool>* excluded, std::vector<int32_t>& out) const;
  void encode_word(std::string_view word, const std::vector<bool>* excluded, std::vector<int32_t>& out) const;

  WordPieceOptions options_;
  ByteTrie pieces_;
};

}  // namespace ingot::text
