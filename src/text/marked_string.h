// A string that knows which of its bytes are content: what the caller of a template gave, not what the template's
// author wrote. Control tokens are not looked for in content (text/tokenizer.h).
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
using ByteRanges = std::vector<ByteRange>;    // in order; none is empty, none touches the next

// Whether a byte of [begin, end) is in one of them.
bool touches(std::span<const ByteRange> ranges, size_t begin, size_t end);

// Whether every byte of [begin, end), which is not empty, is in one of them.
bool covers(std::span<const ByteRange> ranges, size_t begin, size_t end);

// The parts of `ranges` inside [begin, end), counted from `begin`.
ByteRanges clip(std::span<const ByteRange> ranges, size_t begin, size_t end);

enum class Origin : uint8_t { author, caller };

class MarkedString {
 public:
  MarkedString() = default;
  MarkedString(std::string text, Origin origin);
  MarkedString(std::string text, ByteRanges content) : text_(std::move(text)), content_(std::move(content)) {}

  const std::string& text() const { return text_; }
  const ByteRanges& content() const { return content_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  // The caller's when any byte is.
  Origin origin() const { return content_.empty() ? Origin::author : Origin::caller; }
  std::pair<std::string, ByteRanges> take() && { return {std::move(text_), std::move(content_)}; }
  // Bytes of text and marks.
  size_t memory() const { return text_.size() + content_.size() * sizeof(ByteRange); }

  void append(std::string_view text, Origin origin);
  void append(const MarkedString& other);
  // Bytes [begin, end) of `other`, which is not this.
  void append(const MarkedString& other, size_t begin, size_t end);
  MarkedString part(size_t begin, size_t end) const;

 private:
  void mark(size_t begin, size_t end);

  std::string text_;
  ByteRanges content_;
};

// Calls `each(view, origin)` for every stretch of one origin, in order.
template <class Each>
void for_each_run(const MarkedString& text, Each each) {
  const std::string_view whole = text.text();
  size_t at = 0;
  for (const auto& [begin, end] : text.content()) {
    if (begin > at) each(whole.substr(at, begin - at), Origin::author);
    each(whole.substr(begin, end - begin), Origin::caller);
    at = end;
  }
  if (at < whole.size()) each(whole.substr(at), Origin::author);
}

// What `map`, from text to text, makes of the whole. Where it makes the same of the stretches one by one, they keep
// their origin; else all of the result is content if any of the text is.
template <class Map>
MarkedString map_runs(const MarkedString& text, Map map) {
  std::string whole = map(std::string_view(text.text()));
  if (text.content().empty()) return {std::move(whole), Origin::author};
  MarkedString parts;
  for_each_run(text, [&](std::string_view run, Origin origin) { parts.append(map(run), origin); });
  return parts.text() == whole ? parts : MarkedString(std::move(whole), Origin::caller);
}

}  // namespace ingot::text
