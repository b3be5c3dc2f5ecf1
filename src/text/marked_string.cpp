#include "text/marked_string.h"

#include <algorithm>

namespace ingot::text {

namespace {

// The first range that ends behind `at`.
auto first_behind(std::span<const ByteRange> ranges, size_t at) {
  return std::upper_bound(ranges.begin(), ranges.end(), at,
                          [](size_t place, const ByteRange& range) { return place < range.second; });
}

}  // namespace

bool touches(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  const auto range = first_behind(ranges, begin);
  return range != ranges.end() && range->first < end;
}

bool covers(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  const auto range = first_behind(ranges, begin);
  return range != ranges.end() && range->first <= begin && end <= range->second;
}

ByteRanges clip(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  ByteRanges parts;
  for (auto range = first_behind(ranges, begin); range != ranges.end() && range->first < end; ++range) {
    parts.emplace_back(std::max(range->first, begin) - begin, std::min(range->second, end) - begin);
  }
  return parts;
}

MarkedString::MarkedString(std::string text, Origin origin) : text_(std::move(text)) {
  if (origin == Origin::caller) mark(0, text_.size());
}

void MarkedString::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!content_.empty() && content_.back().second == begin) {
    content_.back().second = end;
  } else {
    content_.emplace_back(begin, end);
  }
}

void MarkedString::append(std::string_view text, Origin origin) {
  const size_t begin = text_.size();
  text_.append(text);
  if (origin == Origin::caller) mark(begin, text_.size());
}

void MarkedString::append(const MarkedString& other) {
  const size_t base = text_.size();
  text_.append(other.text_);
  for (const auto& [begin, end] : other.content_) mark(base + begin, base + end);
}

void MarkedString::append(const MarkedString& other, size_t begin, size_t end) {
  const size_t base = text_.size();
  text_.append(other.text_, begin, end - begin);
  const std::span<const ByteRange> content = other.content_;
  for (auto range = first_behind(content, begin); range != content.end() && range->first < end; ++range) {
    mark(base + std::max(range->first, begin) - begin, base + std::min(range->second, end) - begin);
  }
}

MarkedString MarkedString::part(size_t begin, size_t end) const {
  MarkedString out;
  out.append(*this, begin, end);
  return out;
}

}  // namespace ingot::text
