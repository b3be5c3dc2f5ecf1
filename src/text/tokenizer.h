// Tokenizers: encode text to ids and decode ids to text.
//
// Three sources: a Hugging Face tokenizer.json, a SentencePiece tokenizer.model, and the vocabulary of a GGUF file.
// Formats: docs/tokenizers.md. Supported: BPE (byte-level, character-level with byte fallback, SentencePiece BPE by
// scores), unigram models, and WordPiece from GGUF files. Everything else is refused by name.
//
// Invalid UTF-8: byte-level models encode invalid bytes as themselves (an invalid byte counts as a character that is
// not a letter, number or white space); models of a tokenizer.json with byte fallback use <0xXX>; SentencePiece reads
// an invalid byte as U+FFFD. Decoding replaces invalid UTF-8 by U+FFFD; `token_bytes` returns the raw bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/special_tokens.h"

namespace ingot::text {

struct TokenizerParts;

struct EncodeOptions {
  bool add_special_tokens = true;  // add the tokens of the post-processor, e.g. BOS in front
  bool parse_special = true;       // match control tokens in the text; false for untrusted text
  // Byte ranges of content, in order, e.g. of a rendered chat (text/chat_template.h). No control token that overlaps
  // them is matched, and the model produces none. Everything else treats the text as a whole. Added tokens that are not
  // control tokens are matched in every text, as in the tokenizers library.
  std::span<const ByteRange> content = {};
};

// Token types of GGUF files and SentencePiece models.
enum TokenType : int32_t {
  token_normal = 1,
  token_unknown = 2,
  token_control = 3,
  token_user_defined = 4,
  token_unused = 5,
  token_byte = 6,
};

// A vocabulary as plain data, from a GGUF file (keys tokenizer.ggml.*; the key starts each member's comment) or from a
// SentencePiece model (text/sentencepiece_file.h).
struct VocabularySpec {
  std::string name;   // file name, for errors
  std::string model;  // model: "gpt2" byte-level BPE, "llama" BPE by scores, "t5" unigram, "bert" WordPiece
  std::string pre;    // pre, for gpt2: a name of text/splitting.h
  std::vector<std::string> tokens;       // tokens, by id; for gpt2 in the byte alphabet except control and user-defined
                                         // ones
  std::vector<int32_t> token_types;      // token_type: TokenType by id, or empty
  std::vector<std::string> merges;       // merges, for gpt2: "left right", by rank
  std::vector<float> scores;             // scores, for llama and t5, by id
  std::string charsmap;                  // precompiled_charsmap, for llama and t5; empty: no character mapping
  std::optional<bool> add_space_prefix;  // add_space_prefix, for llama and t5; unset: true
  std::optional<bool> remove_extra_whitespaces;  // remove_extra_whitespaces; unset: true for t5, false for llama
  std::optional<int32_t> bos_id, eos_id, unk_id,
      pad_id;  // bos_token_id, eos_token_id, unknown_token_id, padding_token_id
  // add_bos_token, add_eos_token; unset: BOS for llama and for gpt2 with `pre` llama-bpe, EOS for t5, both for bert,
  // where they are CLS and SEP (cls_token_id, seperator_token_id, add_sep_token).
  std::optional<bool> add_bos, add_eos;
  std::optional<bool> lowercase, strip_accents;  // normalizer.*, for bert; unset: true, and the value of `lowercase`
  std::vector<int32_t> rstrip;  // ids of tokens that absorb the white space after them, ascending; only of tokens
                                // matched before the model
  // Set for SentencePiece models: the model itself matches user-defined tokens, inside a text. Unset for GGUF files:
  // they are matched before the model, and the text after one is encoded separately, with its own space prefix.
  bool user_defined_inside = false;
  bool prefix_at_start_only = false;  // add_space_prefix applies only to the text before the first special token
  std::vector<AddedToken> added;      // in or after the ids of `tokens`, from the settings of a Hugging Face directory
};

// Immutable and thread-safe after construction.
class Tokenizer {
 public:
  // Parses the text of a tokenizer.json; `name` is the file's name for errors. The truncation and padding settings of
  // the file are ignored. Errors: corrupt; unsupported for a component that is not known, naming it; not_found when a
  // token of `special` is not in the vocabulary and add_bos or add_eos needs it.
  static std::unique_ptr<Tokenizer> from_json(std::string_view tokenizer_json, std::string_view name,
                                              const SpecialTokens& special = {});

  // Builds a tokenizer from the vocabulary of a GGUF file or a SentencePiece model. `pre` qwen2 also normalises to NFC,
  // as the original tokenizer does; models llama and t5 are encoded by the SentencePiece library. Several tokens may
  // have the type unknown, e.g. names that pad a vocabulary: unknown characters become unk_id. Errors: corrupt,
  // unsupported as above.
  static std::unique_ptr<Tokenizer> from_vocabulary(VocabularySpec spec);

  explicit Tokenizer(TokenizerParts parts);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Errors: resource for texts over 2 GiB; unsupported when a step of a tokenizer.json fails on this text: a pattern
  // that needs too much backtracking, or steps that make it too long (text/growth.h).
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The text of `ids`, as valid UTF-8. Ids without a token (a padded vocabulary) are skipped, and with `skip_special`
  // special tokens too.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // The token as written in the vocabulary; "" for ids without a token.
  const std::string& token_text(int32_t id) const;
  // The bytes that the token decodes to (before a leading space of the text is dropped); "" for ids without a token.
  const std::string& token_bytes(int32_t id) const;
  // The id of a token as written in the vocabulary; added tokens take precedence.
  std::optional<int32_t> find(std::string_view token) const;

  // The largest id plus one. A model's embedding may have more rows.
  int32_t size() const;

  bool is_special(int32_t id) const;
  bool is_control(int32_t id) const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> unk_id() const;
  std::optional<int32_t> pad_id() const;

 private:
  friend class StreamDecoder;
  struct Encoding;  // state of one call of encode
  void encode_plain(std::string_view text, bool at_start, std::span<const ByteRange> content, Encoding& encoding) const;

  std::unique_ptr<const TokenizerParts> parts_;
};

// Decodes ids one at a time. Incomplete characters are held back, so every returned string is valid UTF-8, and the
// concatenation equals `decode` of all ids. (One difference: in models with byte fallback, a run of byte tokens that is
// not valid UTF-8 as a whole still yields its valid characters, where `decode` yields one U+FFFD for each byte.) Not
// thread-safe; the tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that `id` completes; often empty in the middle of a character.
  std::string push(int32_t id);
  // The remaining text, with U+FFFD for an incomplete character. Resets the decoder.
  std::string finish();

 private:
  std::string strip_start(std::string text);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;
  bool is_first_ = true;      // no token with bytes was pushed yet
  int32_t num_stripped_ = 0;  // leading characters dropped so far (DecodeRules::strip)
  bool strip_done_ = false;
};

}  // namespace ingot::text
