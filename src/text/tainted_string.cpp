#include "text/tainted_string.h"

#include <algorithm>

namespace ingot::text {

namespace {

// The first range that ends after `at`.
auto first_ending_after(std::span<const ByteRange> ranges, size_t at) {
  return std::upper_bound(ranges.begin(), ranges.end(), at,
                          [](size_t position, const ByteRange& range) { return position < range.second; });
}

}  // namespace

bool touches(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  const auto range = first_ending_after(ranges, begin);
  return range != ranges.end() && range->first < end;
}

bool covers(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  const auto range = first_ending_after(ranges, begin);
  return range != ranges.end() && range->first <= begin && end <= range->second;
}

ByteRanges clip(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  ByteRanges parts;
  for (auto range = first_ending_after(ranges, begin); range != ranges.end() && range->first < end; ++range) {
    parts.emplace_back(std::max(range->first, begin) - begin, std::min(range->second, end) - begin);
  }
  return parts;
}

TaintedString::TaintedString(std::string text, Origin origin) : text_(std::move(text)) {
  if (origin == Origin::caller) mark(0, text_.size());
}

void TaintedString::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!content_.empty() && content_.back().second == begin) {
    content_.back().second = end;
  } else {
    content_.emplace_back(begin, end);
  }
}

void TaintedString::append(std::string_view text, Origin origin) {
  const size_t begin = text_.size();
  text_.append(text);
  if (origin == Origin::caller) mark(begin, text_.size());
}

void TaintedString::append(const TaintedString& other) {
  const size_t base = text_.size();
  text_.append(other.text_);
  for (const auto& [begin, end] : other.content_) mark(base + begin, base + end);
}

void TaintedString::append(const TaintedString& other, size_t begin, size_t end) {
  const size_t base = text_.size();
  text_.append(other.text_, begin, end - begin);
  const std::span<const ByteRange> content = other.content_;
  for (auto range = first_ending_after(content, begin); range != content.end() && range->first < end; ++range) {
    mark(base + std::max(range->first, begin) - begin, base + std::min(range->second, end) - begin);
  }
}

TaintedString TaintedString::part(size_t begin, size_t end) const {
  TaintedString out;
  out.append(*this, begin, end);
  return out;
}

}  // namespace ingot::text
