// The components of a tokenizer; filled by the readers (tokenizer_json.cpp, tokenizer_vocabulary.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/added_tokens.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace ingot::text {

// Rules for decoding tokens. Byte-level tokens are in the byte alphabet; others are plain text with replacements.
struct DecodeRules {
  bool byte_level = false;
  std::vector<std::pair<std::string, std::string>> replace;  // applied in order, to every token
  std::string drop_in_first;                                 // not empty: removed everywhere in the first token
  bool byte_fallback = false;                                // <0xXX> tokens decode to bytes
  char strip = '\0';                                         // dropped from the start of the whole text ...
  int32_t strip_count = 0;                                   // ... at most this many times
};

struct Token {
  std::string text;   // as written in the vocabulary
  std::string bytes;  // decoded
  bool special = false;
  bool control = false;
  bool fallback_byte = false;  // <0xXX>: runs of such tokens are decoded together
};

struct TokenizerParts {
  std::string name;
  std::vector<Token> tokens;  // by id
  std::unordered_map<std::string, int32_t> ids;
  AddedTokenMatcher raw_matcher;         // matches in the raw text
  AddedTokenMatcher normalized_matcher;  // matches in the normalised text
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  std::unique_ptr<TokenModel> later_model;  // for text that is not at the start; null: use `model`
  std::vector<int32_t> prefix;              // added in front if add_special_tokens
  std::vector<int32_t> suffix;
  DecodeRules decode;
  std::optional<int32_t> bos_id, eos_id, unk_id, pad_id;
  std::vector<bool> control;  // by id: whether it is a control token other than unk_id; set by the Tokenizer

  // Adds a token, or replaces the one with this id. `plain` tokens are text even in a byte-level vocabulary. Requires
  // `decode` to be set. Errors: corrupt for ids below 0 or from 2^22 on.
  void set_token(int32_t id, std::string text, bool plain);
  // Adds an added token (by set_token, `plain` as there) and registers it with the matcher that it belongs to. Requires
  // `normalizer` to be set.
  void add_token(const AddedToken& token, bool plain);
  // Adds or removes BOS in `prefix` and EOS in `suffix` according to explicit settings. Errors: not_found when a
  // setting needs a token that is not known.
  void apply_add_flags(std::optional<bool> add_bos, std::optional<bool> add_eos);
};

}  // namespace ingot::text
