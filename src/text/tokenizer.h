// Tokenizers: text to ids and back.
//
// Three sources: a Hugging Face tokenizer.json, a SentencePiece tokenizer.model, and the vocabulary inside a GGUF file.
// Formats: specs/tokenizers.md. What is supported: BPE (byte-level, characters with byte fallback, SentencePiece's by
// scores), unigram models, and WordPiece from GGUF files. Everything else is refused by name.
//
// Text that is not UTF-8: byte-level models encode the stray bytes as themselves (a stray byte counts as a character
// that is neither letter, number nor white space); models of a tokenizer.json with byte fallback use <0xXX>; to
// SentencePiece a stray byte is U+FFFD. Decoding gives U+FFFD for what is not UTF-8; `token_bytes` gives the bytes.
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
  bool add_special_tokens = true;  // what the post-processor adds, e.g. BOS in front
  bool parse_special = true;       // find control tokens in the text; false for text from people one does not trust
  // Bytes of the text where no control token is found, wholly or in part, and none comes out of the model: those of
  // content in a rendered chat (text/chat_template.h). All else sees the text as one. Ranges in order.
  std::span<const ByteRange> content = {};
};

// Added tokens that are no control tokens are found in every text, as they are by the tokenizers library.

// Types of tokens in GGUF files and SentencePiece models.
enum TokenType : int32_t {
  token_normal = 1,
  token_unknown = 2,
  token_control = 3,
  token_user_defined = 4,
  token_unused = 5,
  token_byte = 6,
};

// A vocabulary as plain data: what a GGUF file has under tokenizer.ggml.* (the key is behind the name), or what a
// SentencePiece model has (text/sentencepiece_file.h).
struct VocabularySpec {
  std::string name;   // of the file, for errors
  std::string model;  // model: "gpt2" byte-level BPE, "llama" BPE by scores, "t5" unigram, "bert" WordPiece
  std::string pre;    // pre, for gpt2: a name of text/splitting.h
  std::vector<std::string> tokens;   // tokens, by id; for gpt2 in byte stand-ins except control and user-defined ones
  std::vector<int32_t> token_types;  // token_type: TokenType by id, or empty
  std::vector<std::string> merges;   // merges, for gpt2: "left right", by rank
  std::vector<float> scores;         // scores, for llama and t5, by id
  std::string charsmap;              // precompiled_charsmap, for llama and t5; empty: the text stays as it is
  std::optional<bool> add_space_prefix;          // add_space_prefix, for llama and t5; unset: true
  std::optional<bool> remove_extra_whitespaces;  // remove_extra_whitespaces; unset: true for t5, false for llama
  std::optional<int32_t> bos_id, eos_id, unk_id,
      pad_id;  // bos_token_id, eos_token_id, unknown_token_id, padding_token_id
  // add_bos_token, add_eos_token; unset: BOS for llama and llama-bpe, EOS for t5, both for bert, where they are CLS and
  // SEP (cls_token_id, seperator_token_id, add_sep_token).
  std::optional<bool> add_bos, add_eos;
  std::optional<bool> lowercase, strip_accents;  // normalizer.*, for bert; unset: true, and as lowercase
  std::vector<int32_t> rstrip;  // tokens that take the white space behind them, ascending; of those that are searched
  // User-defined tokens of SentencePiece are found by the model, inside a text; those of GGUF files before, and what
  // follows them is a text of its own with a space in front.
  bool user_defined_inside = false;
  bool prefix_at_start_only = false;  // add_space_prefix holds for the text before the first special token only
  std::vector<AddedToken> added;      // beside or behind `tokens`, from the settings of a Hugging Face folder
};

// Immutable and thread-safe after construction.
class Tokenizer {
 public:
  // Reads the text of a tokenizer.json; `name` is the file's name for errors. The truncation and padding settings of
  // the file are not applied. Errors: corrupt; unsupported for a component that is not known, naming it; not_found when
  // a token of `special` is not in the vocabulary and add_bos or add_eos needs it.
  static std::unique_ptr<Tokenizer> from_json(std::string_view tokenizer_json, std::string_view name,
                                              const SpecialTokens& special = {});

  // A vocabulary from a GGUF file or a SentencePiece model. `pre` qwen2 also normalises to NFC, as the original
  // tokenizer does; models llama and t5 are encoded by the SentencePiece library. Several tokens may be of the type
  // unknown, as names that pad a vocabulary are: unknown characters become unk_id. Errors: corrupt, unsupported as
  // above.
  static std::unique_ptr<Tokenizer> from_vocabulary(VocabularySpec spec);

  explicit Tokenizer(TokenizerParts parts);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Errors: resource for texts over 2 GiB; unsupported for what the steps of a tokenizer.json refuse: a pattern that
  // needs too much backtracking on this text, steps that make it too long (text/growth.h).
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The text of `ids`; valid UTF-8. Ids without a token (a padded vocabulary) give nothing. With `skip_special` the
  // special tokens are left out.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // The token as the vocabulary writes it, "" for ids without one.
  const std::string& token_text(int32_t id) const;
  // The bytes that the token stands for in a decoded text (before any leading space is dropped), "" for ids without
  // one.
  const std::string& token_bytes(int32_t id) const;
  // The id of a token as the vocabulary writes it; added tokens first.
  std::optional<int32_t> find(std::string_view token) const;

  // One more than the largest id. A model's embedding may have more rows.
  int32_t size() const;

  bool is_special(int32_t id) const;
  bool is_control(int32_t id) const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> unk_id() const;
  std::optional<int32_t> pad_id() const;

 private:
  friend class StreamDecoder;
  struct Encoding;  // one call of encode
  void encode_plain(std::string_view text, bool at_start, std::span<const ByteRange> content, Encoding& encoding) const;

  std::unique_ptr<const TokenizerParts> parts_;
};

// Decodes ids one at a time. Bytes are held back until whole characters are complete, so every piece is valid UTF-8,
// and all pieces together are `decode` of all ids. (One difference: in models with byte fallback, a run of byte tokens
// that is not UTF-8 as a whole still gives its valid characters, where `decode` gives one U+FFFD a byte.)
// Not thread-safe; the tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that `id` completes; often empty in the middle of a character.
  std::string push(int32_t id);
  // What is left, with U+FFFD for the incomplete character. The decoder is then as new.
  std::string finish();

 private:
  std::string strip_start(std::string text);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;
  bool is_first_ = true;      // no token was pushed yet
  int32_t num_stripped_ = 0;  // characters of the leading strip that were dropped
  bool strip_done_ = false;
};

}  // namespace ingot::text
