#include "text/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <cmath>
#include <unordered_set>

#include "base/error.h"
#include "text/charsmap.h"
#include "text/sentencepiece_file.h"
#include "text/unicode.h"

namespace ingot::text {
namespace {

constexpr size_t max_piece_bytes = 1024;

// Checks what the library checks by aborting the process, or not at all.
void check(const VocabularySpec& vocabulary) {
  const std::string& name = vocabulary.name;
  std::unordered_set<std::string_view> known;
  size_t num_bytes = 0, num_unknown = 0;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& piece = vocabulary.tokens[id];
    const auto bad = [&](std::string_view what) {
      throw_error(ErrorKind::corrupt, "{}: piece {} \"{}\" {}", name, id,
                  replace_invalid_utf8(std::string_view(piece).substr(0, 40)), what);
    };
    if (piece.empty()) bad("is empty");
    if (piece.size() > max_piece_bytes) bad("is too long");
    if (!is_valid_utf8(piece) || piece.find('\0') != std::string::npos) bad("is not valid text");
    if (!known.insert(piece).second) bad("is in the vocabulary twice");
    if (!std::isfinite(vocabulary.scores[id])) bad("has a score that is not finite");
    if (vocabulary.token_types[id] < token_normal || vocabulary.token_types[id] > token_byte)
      bad("has an unknown type");
    num_bytes += vocabulary.token_types[id] == token_byte;
    num_unknown += vocabulary.token_types[id] == token_unknown;
  }
  if (num_unknown != 1) {
    throw_error(ErrorKind::corrupt, "{}: there are {} unknown tokens; exactly one is required", name, num_unknown);
  }
  if (num_bytes != 0) {
    for (int byte = 0; byte < 256; ++byte) {
      const std::string piece = fmt::format("<0x{:02X}>", byte);
      if (num_bytes == 256 && known.contains(piece)) continue;
      throw_error(ErrorKind::corrupt, "{}: the {} byte pieces are not <0x00> to <0xFF>", name, num_bytes);
    }
  }
  if (!vocabulary.charsmap.empty()) Charsmap(vocabulary.charsmap, name);
}

}  // namespace

struct SentencePieceModel::Processor {
  sentencepiece::SentencePieceProcessor library;
};

SentencePieceModel::SentencePieceModel(const VocabularySpec& vocabulary) {
  check(vocabulary);
  auto processor = std::make_unique<Processor>();
  std::string refusal;
  try {
    const auto status = processor->library.LoadFromSerializedProto(write_sentencepiece(vocabulary));
    if (!status.ok()) refusal = status.ToString();
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  if (!refusal.empty()) {
    throw_error(ErrorKind::corrupt, "{}: SentencePiece rejects the vocabulary: {}", vocabulary.name, refusal);
  }
  processor_ = std::move(processor);
}

SentencePieceModel::~SentencePieceModel() = default;

void SentencePieceModel::encode(std::string_view text, std::vector<int32_t>& out) const {
  std::vector<int> ids;
  const auto status = processor_->library.Encode(text, &ids);
  if (!status.ok()) throw_error(ErrorKind::internal, "SentencePiece cannot encode a text: {}", status.ToString());
  out.insert(out.end(), ids.begin(), ids.end());
}

void SentencePieceModel::encode_without(const std::vector<bool>& /*excluded*/, std::string_view text,
                                        std::vector<int32_t>& out) const {
  encode(text, out);
}

}  // namespace ingot::text
