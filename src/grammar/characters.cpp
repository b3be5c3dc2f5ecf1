#include "grammar/characters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/unicode.h"

namespace ingot::grammar {

namespace {

constexpr uint32_t first_surrogate = 0xD800, last_surrogate = 0xDFFF;

using Bytes = std::array<uint8_t, 4>;

int utf8(uint32_t c, Bytes& out) {
  if (c < 0x80) {
    out[0] = static_cast<uint8_t>(c);
    return 1;
  }
  const int size = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  constexpr uint8_t lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (int i = size - 1; i > 0; --i, c >>= 6) out[static_cast<size_t>(i)] = static_cast<uint8_t>(0x80 | (c & 0x3F));
  out[0] = static_cast<uint8_t>(lead[size] | c);
  return size;
}

// The texts of `size` bytes from `low` to `high` in order of value, from the byte `at` on.
TermId between(TermPool& terms, const Bytes& low, const Bytes& high, size_t at, size_t size) {
  if (at + 1 == size) return terms.bytes(ByteSet::range(low[at], high[at]));
  Bytes least, most;
  least.fill(0x80);
  most.fill(0xBF);
  const auto is = [&](const Bytes& value, const Bytes& end) {
    return std::equal(value.begin() + static_cast<int>(at) + 1, value.begin() + static_cast<int>(size),
                      end.begin() + static_cast<int>(at) + 1);
  };
  if (low[at] == high[at]) {
    return terms.sequence(terms.bytes(ByteSet::of(low[at])), between(terms, low, high, at + 1, size));
  }
  std::vector<TermId> parts;
  int first = low[at], last = high[at];
  if (!is(low, least)) {
    parts.push_back(terms.sequence(terms.bytes(ByteSet::of(low[at])), between(terms, low, most, at + 1, size)));
    ++first;
  }
  if (!is(high, most)) {
    parts.push_back(terms.sequence(terms.bytes(ByteSet::of(high[at])), between(terms, least, high, at + 1, size)));
    --last;
  }
  if (first <= last) {
    parts.push_back(terms.sequence(terms.bytes(ByteSet::range(static_cast<uint8_t>(first), static_cast<uint8_t>(last))),
                                   between(terms, least, most, at + 1, size)));
  }
  return terms.choice(parts);
}

TermId utf8_range(TermPool& terms, uint32_t first, uint32_t last) {
  std::vector<TermId> parts;
  constexpr uint32_t ends[] = {0x7F, 0x7FF, 0xFFFF, max_code_point};
  for (const uint32_t end : ends) {
    if (first > end) continue;
    Bytes low{}, high{};
    const int size = utf8(first, low);
    utf8(std::min(last, end), high);
    parts.push_back(between(terms, low, high, 0, static_cast<size_t>(size)));
    if (last <= end) break;
    first = end + 1;
  }
  return terms.choice(parts);
}

std::string escaped(uint32_t c) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return fmt::format("\\u{:04x}", c);
  }
}

// One of the characters that JSON escapes, few states for all of them together.
TermId escapes(TermPool& terms, const CharacterSet& set) {
  ByteSet single;
  ByteSet last_digits[2];  // of \u000x and \u001x
  for (const auto& range : set.ranges()) {
    for (uint32_t c = range.first; c <= range.last; ++c) {
      const std::string text = escaped(c);
      if (text.size() == 2) {
        single.add(static_cast<uint8_t>(text[1]));
      } else {
        last_digits[c >> 4].add(static_cast<uint8_t>(text[5]));
      }
    }
  }
  const TermId hex = terms.choice(terms.sequence(terms.byte('0'), terms.bytes(last_digits[0])),
                                  terms.sequence(terms.byte('1'), terms.bytes(last_digits[1])));
  const TermId behind = terms.choice(terms.bytes(single), terms.sequence(terms.literal("u00"), hex));
  return terms.sequence(terms.byte('\\'), behind);
}

}  // namespace

CharacterSet::CharacterSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  const auto add = [&](uint32_t first, uint32_t last) {
    if (first > last) return;
    if (!ranges_.empty() && first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, last);
    } else {
      ranges_.push_back({first, last});
    }
  };
  for (const Range& range : ranges) {
    add(range.first, std::min(range.last, first_surrogate - 1));
    add(std::max(range.first, last_surrogate + 1), range.last);
  }
}

CharacterSet CharacterSet::of(std::string_view ascii) {
  std::vector<Range> ranges;
  for (const char c : ascii) ranges.push_back({static_cast<uint8_t>(c), static_cast<uint8_t>(c)});
  return CharacterSet(std::move(ranges));
}

CharacterSet CharacterSet::operator|(const CharacterSet& other) const {
  std::vector<Range> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CharacterSet(std::move(ranges));
}

CharacterSet CharacterSet::operator&(const CharacterSet& other) const {
  return (complement() | other.complement()).complement();
}

CharacterSet CharacterSet::complement() const {
  std::vector<Range> gaps;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= max_code_point) gaps.push_back({next, max_code_point});
  return CharacterSet(std::move(gaps));
}

TermId encoded(TermPool& terms, const CharacterSet& set, Encoding encoding) {
  static const CharacterSet plain = CharacterSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).complement();
  std::vector<TermId> parts;
  const CharacterSet itself = encoding == Encoding::json ? set & plain : set;
  for (const auto& range : itself.ranges()) {
    parts.push_back(utf8_range(terms, range.first, range.last));
  }
  if (encoding == Encoding::json) {
    parts.push_back(escapes(terms, set & plain.complement()));
  }
  return terms.choice(parts);
}

std::string encoded_text(std::string_view text, Encoding encoding) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const text::Utf8Char next = text::decode_utf8(text, at);
    const uint32_t c = next.code_point;
    if (encoding == Encoding::json && (c < 0x20 || c == '"' || c == '\\')) {
      bytes += escaped(c);
    } else {
      bytes.append(text.substr(at, next.size));
    }
    at += next.size;
  }
  return bytes;
}

TermId encoded(TermPool& terms, std::string_view text, Encoding encoding) {
  return terms.literal(encoded_text(text, encoding));
}

}  // namespace ingot::grammar
