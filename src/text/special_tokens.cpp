#include "text/special_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace ingot::text {

namespace {

bool is_one_character(const std::string& content) { return split_characters(content).size() == 1; }

}  // namespace

std::vector<std::string> SpecialTokens::contents() const {
  std::vector<std::string> all;
  for (const auto& content : {bos, eos, unk, pad}) {
    if (content) all.push_back(*content);
  }
  all.insert(all.end(), additional.begin(), additional.end());
  std::erase_if(all, is_one_character);
  return all;
}

void SpecialTokens::mark(AddedToken& token) const {
  const std::string& content = token.content;
  if (is_one_character(content)) return;
  if (content == bos || content == eos || content == unk || content == pad) token.special = true;
  if (std::find(additional.begin(), additional.end(), content) != additional.end() ||
      std::find(eos_ids.begin(), eos_ids.end(), token.id) != eos_ids.end()) {
    token.control = true;
  }
}

}  // namespace ingot::text
