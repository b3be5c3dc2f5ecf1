// Special tokens from the settings files beside a tokenizer: tokenizer_config.json, special_tokens_map.json,
// generation_config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"

namespace ingot::text {

// The tokens named here are control tokens, whatever the tokenizer's own file says, except those of a single character,
// which are also text ("!" as the padding token of GPT-2).
struct SpecialTokens {
  std::optional<std::string> bos, eos, unk, pad;  // contents, e.g. "<s>"
  std::vector<std::string> additional;            // contents
  std::vector<int32_t> eos_ids;                   // used only for ids of added tokens
  std::optional<bool> add_bos, add_eos;           // force BOS / EOS on or off; unset: as the tokenizer has it

  // bos, eos, unk and pad, then `additional`, without contents of a single character.
  std::vector<std::string> contents() const;
  // Marks an added token as special if it is bos, eos, unk or pad, as transformers does, and as a control token if it
  // is in `additional` or `eos_ids`.
  void mark(AddedToken& token) const;
};

}  // namespace ingot::text
