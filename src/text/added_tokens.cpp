#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace ingot::text {
namespace {

size_t start_of_last_character(std::string_view text) {
  size_t at = text.size() - 1;
  for (size_t back = 1; back < 4 && at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80; ++back) --at;
  return at;
}

uint8_t class_before(std::string_view text, size_t at) {
  return char_class(decode_utf8(text, start_of_last_character(text.substr(0, at))).code_point);
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string_view content) {
  if (content.empty()) return;
  starts_[static_cast<uint8_t>(content[0])] = true;
  contents_.insert(content, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
  has_control_ = has_control_ || token.is_control();
}

template <class Each>
void AddedTokenMatcher::for_each_match(const Search& search, size_t at, Each each) const {
  int32_t node = ByteTrie::root;
  for (size_t end = at; end < search.text.size();) {
    if (search.num_steps != nullptr) ++*search.num_steps;
    node = contents_.next(node, search.text[end]);
    if (node == ByteTrie::none) break;
    ++end;
    if (contents_.value(node) != ByteTrie::none) each(contents_.value(node), end);
  }
}

bool AddedTokenMatcher::may_match(const Search& search, size_t at, const Match& match) const {
  if (!touches(search.content, at, match.end)) return true;
  if (token_of(match).is_control()) return false;
  if (covers(search.content, at, match.end)) return true;
  // Content must not hide a control token that the author wrote.
  bool hides = false;
  for (size_t begin = at; begin < match.end && !hides; ++begin) {
    for_each_match(search, begin, [&](int32_t other, size_t end) {
      hides = hides || (token_of({other, end}).is_control() && !touches(search.content, begin, end));
    });
  }
  return !hides;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::longest_match(const Search& search, size_t at) const {
  std::vector<Match> matches;
  for_each_match(search, at, [&](int32_t token, size_t end) { matches.push_back({token, end}); });
  while (!matches.empty() && !may_match(search, at, matches.back())) matches.pop_back();
  return matches.empty() ? std::nullopt : std::optional(matches.back());
}

std::vector<TextPart> AddedTokenMatcher::split(std::string_view text, bool parse_special,
                                               std::span<const ByteRange> content, size_t* num_steps) const {
  const Search search = {text, content, num_steps};
  std::vector<TextPart> parts;
  size_t plain = 0;  // the beginning of the text that is not in a part yet
  for (size_t at = 0; at < text.size();) {
    if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const std::optional<Match> match = longest_match(search, at);
    if (!match) {
      ++at;
      continue;
    }
    size_t begin = at, end = match->end;
    at = end;  // the search continues after this match, even if it is rejected
    const AddedToken& token = token_of(*match);
    if (token.is_control() && !parse_special) continue;
    if (token.single_word) {
      if (begin > 0 && (class_before(text, begin) & char_word) != 0) continue;
      if (end < text.size() && (char_class(decode_utf8(text, end).code_point) & char_word) != 0) continue;
    }
    begin = std::max(begin, plain);  // a previous rstrip may have absorbed the beginning of this match
    end = std::max(end, begin);
    if (token.lstrip) {
      while (begin > plain && (class_before(text, begin) & char_space) != 0) {
        begin = start_of_last_character(text.substr(0, begin));
      }
    }
    if (token.rstrip) {
      while (end < text.size()) {
        const Utf8Char c = decode_utf8(text, end);
        if ((char_class(c.code_point) & char_space) == 0) break;
        end += c.size;
      }
    }
    if (begin > plain) parts.push_back({std::nullopt, text.substr(plain, begin - plain)});
    parts.push_back({token.id, text.substr(begin, end - begin)});
    plain = end;
  }
  if (plain < text.size()) parts.push_back({std::nullopt, text.substr(plain)});
  return parts;
}

}  // namespace ingot::text
