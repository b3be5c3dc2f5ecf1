// SentencePiece models, encoded by the SentencePiece library (hidden in the .cpp).
#pragma once

#include <memory>
#include <string_view>

#include "text/model.h"
#include "text/tokenizer.h"

namespace ingot::text {

class SentencePieceModel : public TokenModel {
 public:
  // `vocabulary.model` is "llama" or "t5"; every token has a type and a score. The library loads a model that is
  // serialised from the checked vocabulary, never the bytes of a file. Errors: corrupt: pieces that are empty,
  // duplicate, too long or not text; scores that are not finite; not exactly one unknown piece; an incomplete set of
  // byte pieces; an invalid character map.
  explicit SentencePieceModel(const VocabularySpec& vocabulary);
  ~SentencePieceModel() override;

  // Encodes a whole text, not a pre-token: the library normalises it and adds the space prefix. It reads invalid bytes
  // as U+FFFD.
  void encode(std::string_view text, std::vector<int32_t>& out) const override;
  // Same as encode(): the library never produces control pieces, so all excluded tokens must have the type control.
  void encode_without(const std::vector<bool>& excluded, std::string_view text,
                      std::vector<int32_t>& out) const override;

 private:
  struct Processor;
  std::unique_ptr<const Processor> processor_;
};

}  // namespace ingot::text
