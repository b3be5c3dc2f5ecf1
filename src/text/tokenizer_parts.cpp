#include "text/tokenizer_parts.h"

#include <algorithm>

#include "base/error.h"
#include "text/byte_alphabet.h"

namespace ingot::text {
namespace {

constexpr int32_t max_id = (1 << 22) - 1;

// The byte of a token like <0x0A>.
std::optional<char> fallback_byte(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

// `first`: a missing token is added before the others, not after them.
void apply_flag(std::optional<bool> flag, std::optional<int32_t> id, const char* what, const std::string& name,
                bool first, std::vector<int32_t>& ids) {
  if (!flag) return;
  if (*flag && !id)
    throw_error(ErrorKind::not_found, "{}: add_{}_token is set, but there is no {} token", name, what, what);
  if (!id) return;
  const bool present = std::find(ids.begin(), ids.end(), *id) != ids.end();
  if (*flag && !present) ids.insert(first ? ids.begin() : ids.end(), *id);
  if (!*flag && present) std::erase(ids, *id);
}

}  // namespace

void TokenizerParts::set_token(int32_t id, std::string text, bool plain) {
  if (id < 0 || id > max_id) throw_error(ErrorKind::corrupt, "{}: token \"{}\" has the invalid id {}", name, text, id);
  const auto index = static_cast<size_t>(id);
  if (index >= tokens.size()) tokens.resize(index + 1);
  Token& token = tokens[index];
  token = Token{};
  if (decode.byte_level && !plain) {
    token.bytes = decode_byte_alphabet(text).value_or(text);
  } else if (const std::optional<char> byte = fallback_byte(text); decode.byte_fallback && byte) {
    token.bytes = std::string(1, *byte);
    token.fallback_byte = true;
  } else {
    token.bytes = text;
    GrowthLimit limit(text.size());
    for (const auto& [from, to] : decode.replace) token.bytes = replace_all(token.bytes, from, to, limit);
  }
  ids.insert_or_assign(text, id);
  token.text = std::move(text);
}

void TokenizerParts::add_token(const AddedToken& token, bool plain) {
  set_token(token.id, token.content, plain);
  tokens[static_cast<size_t>(token.id)].special = token.special;
  tokens[static_cast<size_t>(token.id)].control = token.is_control();
  if (token.normalized) {
    GrowthLimit limit(token.content.size());
    normalized_matcher.add(token, normalizer.apply({token.content, Origin::author}, limit).text());
  } else {
    raw_matcher.add(token, token.content);
  }
}

void TokenizerParts::apply_add_flags(std::optional<bool> add_bos, std::optional<bool> add_eos) {
  apply_flag(add_bos, bos_id, "bos", name, true, prefix);
  apply_flag(add_eos, eos_id, "eos", name, false, suffix);
}

}  // namespace ingot::text
