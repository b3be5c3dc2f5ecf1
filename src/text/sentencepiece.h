// SentencePiece models, encoded by the SentencePiece library (behind one .cpp).
#pragma once

#include <memory>
#include <string_view>

#include "text/model.h"
#include "text/tokenizer.h"

namespace ingot::text {

class SentencePieceModel : public TokenModel {
 public:
  // `vocabulary.model` is "llama" or "t5"; types and scores are there for every token. The library is given a model
  // that is written anew from what was checked here, never the bytes of a file. Errors: corrupt: pieces that are empty,
  // twice there, too long or no text; scores that are not finite; no unknown piece, or several; byte pieces of which
  // some are missing; a bad character map.
  explicit SentencePieceModel(const VocabularySpec& vocabulary);
  ~SentencePieceModel() override;

  // A whole text, not a pre-token: the library normalises and adds the space in front. Stray bytes are U+FFFD to it.
  void encode(std::string_view text, std::vector<int32_t>& out) const override;
  // The library finds no control tokens in a text: what is excluded must be one to it.
  void encode_without(const std::vector<bool>& excluded, std::string_view text,
                      std::vector<int32_t>& out) const override;

 private:
  struct Processor;
  std::unique_ptr<const Processor> processor_;
};

}  // namespace ingot::text
