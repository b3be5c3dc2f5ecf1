// A string that tracks which of its bytes are content: text from the caller of a template, as opposed to text of the
// template's author. Control tokens are not matched in content (text/tokenizer.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot::text {

using ByteRange = std::pair<size_t, size_t>;  // [begin, end)
using ByteRanges = std::vector<ByteRange>;    // in order, nonempty and not adjacent

// Whether any byte of [begin, end) is in one of the ranges.
bool touches(std::span<const ByteRange> ranges, size_t begin, size_t end);

// Whether one of the ranges contains all of [begin, end), which must not be empty.
bool covers(std::span<const ByteRange> ranges, size_t begin, size_t end);

// The intersections of `ranges` with [begin, end), relative to `begin`.
ByteRanges clip(std::span<const ByteRange> ranges, size_t begin, size_t end);

enum class Origin : uint8_t { author, caller };

class TaintedString {
 public:
  TaintedString() = default;
  TaintedString(std::string text, Origin origin);
  TaintedString(std::string text, ByteRanges content) : text_(std::move(text)), content_(std::move(content)) {}

  const std::string& text() const { return text_; }
  const ByteRanges& content() const { return content_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  // `caller` if any byte is content.
  Origin origin() const { return content_.empty() ? Origin::author : Origin::caller; }
  std::pair<std::string, ByteRanges> take() && { return {std::move(text_), std::move(content_)}; }
  // Bytes of the text and its ranges.
  size_t memory() const { return text_.size() + content_.size() * sizeof(ByteRange); }

  void append(std::string_view text, Origin origin);
  void append(const TaintedString& other);
  // Appends bytes [begin, end) of `other`, which must not be *this.
  void append(const TaintedString& other, size_t begin, size_t end);
  TaintedString part(size_t begin, size_t end) const;

 private:
  void mark(size_t begin, size_t end);

  std::string text_;
  ByteRanges content_;
};

// Calls `each(view, origin)` for every maximal run of one origin, in order.
template <class Each>
void for_each_run(const TaintedString& text, Each each) {
  const std::string_view whole = text.text();
  size_t at = 0;
  for (const auto& [begin, end] : text.content()) {
    if (begin > at) each(whole.substr(at, begin - at), Origin::author);
    each(whole.substr(begin, end - begin), Origin::caller);
    at = end;
  }
  if (at < whole.size()) each(whole.substr(at), Origin::author);
}

// Applies `map` to the whole text. If mapping the runs one by one gives the same text, each keeps its origin; otherwise
// the whole result is content if any of the text is.
template <class Map>
TaintedString map_runs(const TaintedString& text, Map map) {
  std::string whole = map(std::string_view(text.text()));
  if (text.content().empty()) return {std::move(whole), Origin::author};
  TaintedString parts;
  for_each_run(text, [&](std::string_view run, Origin origin) { parts.append(map(run), origin); });
  return parts.text() == whole ? parts : TaintedString(std::move(whole), Origin::caller);
}

}  // namespace ingot::text
