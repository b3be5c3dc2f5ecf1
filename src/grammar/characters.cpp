#include "grammar/characters.h"

#include <algorithm>

#include "text/unicode.h"

namespace ingot::grammar {

namespace {

// The encodings from `low` to `high`, which have the same length.
TermId between(TermPool& terms, std::string_view low, std::string_view high) {
  const auto first = static_cast<uint8_t>(low[0]), last = static_cast<uint8_t>(high[0]);
  const size_t rest = low.size() - 1;
  if (rest == 0) return terms.bytes(ByteSet::range(first, last));
  const std::string min_rest(rest, '\x80'), max_rest(rest, '\xBF');
  const auto bytes_then = [&](int from, int to, std::string_view from_rest, std::string_view to_rest) {
    const ByteSet lead = ByteSet::range(static_cast<uint8_t>(from), static_cast<uint8_t>(to));
    return terms.sequence(terms.bytes(lead), between(terms, from_rest, to_rest));
  };
  low.remove_prefix(1);
  high.remove_prefix(1);
  if (first == last) return bytes_then(first, last, low, high);
  std::vector<TermId> parts;
  const bool is_first_whole = low == min_rest, is_last_whole = high == max_rest;
  if (!is_first_whole) parts.push_back(bytes_then(first, first, low, max_rest));
  if (!is_last_whole) parts.push_back(bytes_then(last, last, min_rest, high));
  const int from = is_first_whole ? first : first + 1, to = is_last_whole ? last : last - 1;
  if (from <= to) parts.push_back(bytes_then(from, to, min_rest, max_rest));
  return terms.choice(parts);
}

// A range of characters above ASCII.
TermId utf8_range(TermPool& terms, uint32_t first, uint32_t last) {
  std::vector<TermId> parts;
  constexpr uint32_t ends[] = {0x7FF, 0xFFFF, max_code_point};  // last code points encoded in two, three and four bytes
  for (const uint32_t end : ends) {
    if (first > end) continue;
    parts.push_back(between(terms, utf8(first), utf8(std::min(last, end))));
    if (last <= end) break;
    first = end + 1;
  }
  return terms.choice(parts);
}

}  // namespace

std::string utf8(uint32_t code_point) {
  std::string bytes;
  text::append_utf8(bytes, code_point);
  return bytes;
}

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

TermId encoded(TermPool& terms, const CharacterSet& set) {
  constexpr uint32_t last_ascii = 0x7F;
  ByteSet ascii;
  std::vector<TermId> parts;
  for (const auto& range : set.ranges()) {
    for (uint32_t c = range.first; c <= std::min(range.last, last_ascii); ++c) ascii.add(static_cast<uint8_t>(c));
    if (range.last > last_ascii) parts.push_back(utf8_range(terms, std::max(range.first, last_ascii + 1), range.last));
  }
  parts.push_back(terms.bytes(ascii));
  return terms.choice(parts);
}

}  // namespace ingot::grammar
