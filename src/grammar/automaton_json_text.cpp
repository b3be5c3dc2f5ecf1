// Derivatives inside JSON strings: escape sequences for the characters of a UTF-8 language.
#include <algorithm>

#include "grammar/automaton.h"
#include "grammar/characters.h"

namespace ingot::grammar {

namespace {

using Stage = JsonEscape::Stage;

constexpr uint32_t first_low = 0xDC00;  // the first low surrogate
constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";

uint32_t joined(uint32_t high, uint32_t low) { return 0x10000 + ((high - first_surrogate) << 10) + (low - first_low); }

bool has_letter(uint32_t code_point) {
  return code_point < 0x80 && meanings.find(static_cast<char>(code_point)) != std::string_view::npos;
}

void set(Row& row, uint8_t byte, TermId to) {
  const auto known = std::find(row.to.begin(), row.to.end(), to);
  row.of[byte] = static_cast<uint8_t>(known - row.to.begin());
  if (known == row.to.end()) row.to.push_back(to);
}

}  // namespace

// The derivative by one character.
TermId Automaton::character(TermId text, uint32_t code_point) { return step(text, utf8(code_point)); }

// Whether any character from `first` to `last`, neither of them a surrogate, is allowed next.
bool Automaton::takes_any(TermId text, uint32_t first, uint32_t last) {
  constexpr uint32_t ends[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};  // last code points of 1 to 4 bytes
  for (const uint32_t end : ends) {
    if (first > end) continue;
    if (takes_any(text, utf8(first), utf8(std::min(last, end)))) return true;
    if (last <= end) return false;
    first = end + 1;
  }
  return false;
}

// The same for UTF-8 encodings from `low` to `high`, which have the same length.
bool Automaton::takes_any(TermId text, std::string_view low, std::string_view high) {
  TermId known = TermPool::nothing;  // a state that is known to allow no full range of continuation bytes
  const std::string min_rest(low.size() - 1, '\x80'), max_rest(low.size() - 1, '\xBF');
  for (int b = static_cast<uint8_t>(low[0]); b <= static_cast<uint8_t>(high[0]); ++b) {
    const TermId next = row(text).next(static_cast<uint8_t>(b));
    if (next == TermPool::nothing) continue;
    if (low.size() == 1) return true;
    const std::string_view from = b == static_cast<uint8_t>(low[0]) ? low.substr(1) : min_rest;
    const std::string_view to = b == static_cast<uint8_t>(high[0]) ? high.substr(1) : max_rest;
    const bool is_whole = from == min_rest && to == max_rest;
    if (is_whole && next == known) continue;
    if (takes_any(next, from, to)) return true;
    if (is_whole) known = next;
  }
  return false;
}

// Whether a partly read escape can be completed to a character that is allowed next.
bool Automaton::takes_escape(TermId text, const JsonEscape& escape, bool canonical) {
  const int missing = 4 * (4 - escape.digits);
  uint32_t first = uint32_t{escape.value} << missing;
  uint32_t last = first + (uint32_t{1} << missing) - 1;
  if (canonical) {
    for (; first <= std::min(last, uint32_t{0x1F}); ++first) {
      if (!has_letter(first) && character(text, first) != TermPool::nothing) return true;
    }
    return false;
  }
  if (escape.high != 0) {
    first = std::max(first, first_low);
    last = std::min(last, last_surrogate);
    return first <= last && takes_any(text, joined(escape.high, first), joined(escape.high, last));
  }
  if (first < first_surrogate && takes_any(text, first, std::min(last, first_surrogate - 1))) return true;
  if (last > last_surrogate && takes_any(text, std::max(first, last_surrogate + 1), last)) return true;
  first = std::max(first, first_surrogate);
  last = std::min(last, first_low - 1);
  return first <= last && takes_any(text, joined(first, first_low), joined(last, last_surrogate));
}

Row Automaton::json_text_row(TermId id) {
  const Term term = terms[id];
  const TermId text = term.left;
  const bool canonical = term.max != 0;
  const JsonEscape escape = JsonEscape::of(term.min);
  const auto in_text = [&](TermId next) { return terms.json_text(next, canonical); };
  const auto within = [&](const JsonEscape& next) { return terms.json_text(text, canonical, next.packed()); };
  Row result;
  switch (escape.stage) {
    case Stage::none: {
      bool may_escape = false;
      const Row plain = row(text);
      for (int b = 0; b < 256; ++b) {
        const bool inside_character = b >= 0x80 && b < 0xC0;
        const bool must_escape = b < 0x20 || b == '"' || b == '\\';
        if (plain.next(static_cast<uint8_t>(b)) == TermPool::nothing || inside_character) continue;
        may_escape = may_escape || must_escape || !canonical;
      }
      result = plain;
      for (TermId& to : result.to) to = in_text(to);
      const auto none = static_cast<uint8_t>(result.to.size());
      result.to.push_back(TermPool::nothing);
      std::fill_n(result.of.begin(), 0x20, none);
      result.of['"'] = result.of['\\'] = none;
      if (may_escape) set(result, '\\', within({.stage = Stage::backslash}));
      return result;
    }
    case Stage::backslash: {
      for (size_t i = 0; i < letters.size(); ++i) {
        if (canonical && letters[i] == '/') continue;
        set(result, static_cast<uint8_t>(letters[i]), in_text(character(text, static_cast<uint8_t>(meanings[i]))));
      }
      const JsonEscape next = {.stage = Stage::digits};
      if (takes_escape(text, next, canonical)) set(result, 'u', within(next));
      return result;
    }
    case Stage::low_backslash: set(result, '\\', within({.stage = Stage::low_u, .high = escape.high})); return result;
    case Stage::low_u: set(result, 'u', within({.stage = Stage::digits, .high = escape.high})); return result;
    case Stage::digits: break;
  }
  for (uint32_t digit = 0; digit < 16; ++digit) {
    JsonEscape next = escape;
    ++next.digits;
    next.value = static_cast<uint16_t>(escape.value * 16 + digit);
    TermId to = TermPool::nothing;
    if (!takes_escape(text, next, canonical)) continue;
    if (next.digits < 4) {
      to = within(next);
    } else if (next.high != 0) {
      to = in_text(character(text, joined(next.high, next.value)));
    } else if (next.value >= first_surrogate && next.value <= last_surrogate) {
      to = within({.stage = Stage::low_backslash, .high = next.value});
    } else {
      to = in_text(character(text, next.value));
    }
    set(result, static_cast<uint8_t>("0123456789abcdef"[digit]), to);
    if (!canonical) set(result, static_cast<uint8_t>("0123456789ABCDEF"[digit]), to);
  }
  return result;
}

}  // namespace ingot::grammar
