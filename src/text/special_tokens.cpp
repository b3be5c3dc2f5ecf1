#include "text/special_tokens.h"

#include <algorithm>

namespace ingot::text {

std::vector<std::string> SpecialTokens::contents() const {
  std::vector<std::string> all;
  for (const auto& content : {bos, eos, unk, pad}) {
    if (content) all.push_back(*content);
  }
  all.insert(all.end(), additional.begin(), additional.end());
  return all;
}

void SpecialTokens::mark(AddedToken& token) const {
  const std::string& content = token.content;
  if (content == bos || content == eos || content == unk || content == pad) token.special = true;
  if (std::find(additional.begin(), additional.end(), content) != additional.end() ||
      std::find(eos_ids.begin(), eos_ids.end(), token.id) != eos_ids.end()) {
    token.control = true;
  }
}

}  // namespace ingot::text
