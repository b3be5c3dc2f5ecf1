// WordPiece, as BERT has it: words, cut at white space, punctuation and Chinese characters, each cut into the longest
// pieces from its start on; a word that cannot be is one unknown token. In the vocabularies of GGUF files a piece that
// begins a word has U+2581 in front, others have nothing.
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
  bool strip_accents = true;  // the text is decomposed, its marks are dropped
  int32_t unk_id = 0;
};

class WordPieceModel : public TokenModel {
 public:
  WordPieceModel(const std::vector<std::pair<std::string, int32_t>>& pieces, const WordPieceOptions& options);

  // A whole text. Control characters, and bytes that are not UTF-8, are dropped.
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
