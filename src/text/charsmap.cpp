#include "text/charsmap.h"

#include <cstring>
#include <deque>

#include "base/error.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace ingot::text {
namespace {

// A unit is a node: its offset leads to the block of its children, whose labels are their bytes. A node with a leaf has
// its value in the child for byte 0.
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & (1u << 9)) >> 6); }
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) == 1; }
uint32_t value_of(uint32_t unit) { return unit & ((1u << 31) - 1); }

}  // namespace

Charsmap::Charsmap(std::string_view blob, std::string_view name) {
  const auto bad = [&](const char* what) {
    throw_error(ErrorKind::corrupt, "{}: the character map of the normaliser {}", name, what);
  };
  uint32_t size = 0;
  if (blob.size() < sizeof(size)) bad("is cut");
  std::memcpy(&size, blob.data(), sizeof(size));
  blob.remove_prefix(sizeof(size));
  if (size > blob.size() || size % sizeof(uint32_t) != 0 || size == 0) bad("is cut");
  units_.resize(size / sizeof(uint32_t));
  std::memcpy(units_.data(), blob.data(), size);
  replacements_ = blob.substr(size);
  if (replacements_.empty() || replacements_.back() != '\0') bad("has an unterminated replacement");

  std::vector<bool> seen(units_.size(), false);
  // A node, and the length of the shortest key prefix that leads to it: keys may share nodes.
  std::deque<std::pair<uint32_t, size_t>> to_visit = {{0, 0}};
  seen[0] = true;
  while (!to_visit.empty()) {
    const auto [node, key_size] = to_visit.front();
    to_visit.pop_front();
    const uint32_t children = node ^ offset_of(units_[node]);
    // A lookup may read the child of any byte; all of them are in one block of 256 units.
    if ((children | 0xFF) >= units_.size()) bad("points outside its own data");
    if (has_leaf(units_[node])) {
      const uint32_t value = value_of(units_[children]);
      if (value >= replacements_.size()) bad("has a replacement outside its own data");
      if (strnlen(replacements_.data() + value, max_growth * key_size + 1) > max_growth * key_size) {
        throw_error(ErrorKind::unsupported,
                    "{}: the character map of the normaliser produces more than {} bytes from a key of {}", name,
                    max_growth * key_size, key_size);
      }
    }
    for (uint32_t byte = 0; byte < 256; ++byte) {  // a text may have NUL bytes
      const uint32_t child = children ^ byte;
      if (label_of(units_[child]) != byte || seen[child]) continue;
      seen[child] = true;
      to_visit.emplace_back(child, key_size + 1);
    }
  }
}

std::optional<std::string_view> Charsmap::replacement(std::string_view text) const {
  uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    node ^= offset_of(units_[node]) ^ byte;
    if (byte == 0 || label_of(units_[node]) != byte) return std::nullopt;
    if (!has_leaf(units_[node])) continue;
    const uint32_t value = value_of(units_[node ^ offset_of(units_[node])]);
    return std::string_view(replacements_.data() + value);
  }
  return std::nullopt;
}

std::string Charsmap::apply(std::string_view text, GrowthLimit& limit) const {
  static const Regex grapheme_cluster("\\X");
  std::string out;
  out.reserve(text.size());
  const auto append = [&](std::string_view part) {
    limit.check(out.size() + part.size());
    out += part;
  };
  const auto append_each = [&](std::string_view part) {
    for (size_t at = 0; at < part.size();) {
      const std::string_view c = part.substr(at, decode_utf8(part, at).size);
      append(replacement(c).value_or(c));
      at += c.size();
    }
  };
  size_t at = 0;
  for (const auto& [begin, end] : grapheme_cluster.find_all(text)) {
    append_each(text.substr(at, begin - at));  // invalid UTF-8
    const std::string_view cluster = text.substr(begin, end - begin);
    if (const std::optional<std::string_view> found = cluster.size() < 6 ? replacement(cluster) : std::nullopt) {
      append(*found);
    } else {
      append_each(cluster);
    }
    at = end;
  }
  append_each(text.substr(at));
  return out;
}

}  // namespace ingot::text
