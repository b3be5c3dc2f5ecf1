// What a tokenizer is made of; filled by the readers (tokenizer_json.cpp, tokenizer_vocabulary.cpp).
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

// How tokens become text. Byte-level tokens are stand-ins for bytes; others are plain text with replacements.
struct DecodeRules {
  bool byte_level = false;
  std::vector<std::pair<std::string, std::string>> replace;  // in order, in every token
  std::string drop_in_first;                                 // not empty: the first token loses every one of these
  bool byte_fallback = false;                                // <0xXX> tokens are bytes
  char strip = '\0';                                         // dropped from the start of the whole text ...
  int32_t strip_count = 0;                                   // ... at most so many times
};

struct Token {
  std::string text;   // as the vocabulary writes it
  std::string bytes;  // decoded
  bool special = false;
  bool control = false;
  bool fallback_byte = false;  // one byte of a run that is decoded together
};

struct TokenizerParts {
  std::string name;
  std::vector<Token> tokens;  // by id
  std::unordered_map<std::string, int32_t> ids;
  AddedTokenMatcher raw_matcher;         // searched before normalisation
  AddedTokenMatcher normalized_matcher;  // and after it
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  std::unique_ptr<TokenModel> later_model;  // for what does not stand at the start of the text; null: the same
  std::vector<int32_t> prefix;              // added with add_special_tokens
  std::vector<int32_t> suffix;
  DecodeRules decode;
  std::optional<int32_t> bos_id, eos_id, unk_id, pad_id;
  std::vector<bool> control;  // by id: a control token, and not what unknown characters become; set by the Tokenizer

  // Adds a token, or changes the one with this id. `plain` tokens are text even in a byte-level vocabulary.
  // The decode rules must be set before. Errors: corrupt for ids below 0 or from 2^22 on.
  void set_token(int32_t id, std::string text, bool plain);
  // Registers an added token (with set_token, `plain` as there) with the matcher it belongs to. The normalizer must be
  // set before.
  void add_token(const AddedToken& token, bool plain);
  // Makes the ids that are put around a text follow explicit add_bos / add_eos settings.
  // Errors: not_found when a setting needs a token that is not known.
  void apply_add_flags(std::optional<bool> add_bos, std::optional<bool> add_eos);
};

}  // namespace ingot::text
