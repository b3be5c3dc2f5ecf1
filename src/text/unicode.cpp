#include "text/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace ingot::text {
namespace {

#include "text/unicode_tables.inc"

constexpr uint32_t num_code_points = 0x110000;

// Expands (code point difference, value) runs to one value per code point. A run lasts until the next one begins.
std::vector<uint8_t> expand_runs(std::span<const int32_t> runs) {
  std::vector<uint8_t> values(num_code_points, 0);
  size_t start = 0;
  for (size_t i = 0; i < runs.size(); i += 2) {
    start += static_cast<size_t>(runs[i]);
    size_t end = num_code_points;
    if (i + 2 < runs.size()) end = start + static_cast<size_t>(runs[i + 2]);
    std::fill(values.begin() + static_cast<ptrdiff_t>(start), values.begin() + static_cast<ptrdiff_t>(end),
              static_cast<uint8_t>(runs[i + 1]));
  }
  return values;
}

uint8_t combining_class(uint32_t code_point) {
  static const std::vector<uint8_t> values = expand_runs(combining_runs);
  return code_point < num_code_points ? values[code_point] : uint8_t{0};
}

struct Compositions {
  std::unordered_map<uint32_t, std::pair<uint32_t, uint32_t>> parts;  // decompositions; second is 0 for a singleton
  std::unordered_map<uint64_t, uint32_t> whole;  // (first << 32 | second) -> composed, where they do compose

  Compositions() {
    uint32_t code_point = 0;
    for (size_t i = 0; i < std::size(decompositions); i += 3) {
      code_point += static_cast<uint32_t>(decompositions[i]);
      const int32_t signed_first = decompositions[i + 1];
      const auto first = static_cast<uint32_t>(signed_first < 0 ? -signed_first : signed_first);
      const auto second = static_cast<uint32_t>(decompositions[i + 2]);
      parts.emplace(code_point, std::pair(first, second));
      if (signed_first > 0 && second != 0) whole.emplace(uint64_t{first} << 32 | second, code_point);
    }
  }
};

const Compositions& compositions() {
  static const Compositions tables;
  return tables;
}

// Hangul syllables are composed by arithmetic (Unicode standard, section 3.12).
constexpr uint32_t hangul_base = 0xAC00, lead_base = 0x1100, vowel_base = 0x1161, trail_base = 0x11A7;
constexpr uint32_t num_lead = 19, num_vowel = 21, num_trail = 28;
constexpr uint32_t num_hangul = num_lead * num_vowel * num_trail;

// The compatibility decompositions, one level deep, without the formatting tags (<font> and so on).
const std::unordered_map<uint32_t, std::vector<uint32_t>>& compatibilities() {
  static const std::unordered_map<uint32_t, std::vector<uint32_t>> table = [] {
    std::unordered_map<uint32_t, std::vector<uint32_t>> to;
    uint32_t code_point = 0;
    for (size_t i = 0; i < std::size(compatible_decompositions);) {
      code_point += static_cast<uint32_t>(compatible_decompositions[i]);
      const auto* first = &compatible_decompositions[i + 2];
      const int32_t count = compatible_decompositions[i + 1];
      to[code_point].assign(first, first + count);
      i += 2 + static_cast<size_t>(count);
    }
    return to;
  }();
  return table;
}

enum class Mapping { canonical, compatible };

void decompose(uint32_t code_point, Mapping mapping, std::vector<uint32_t>& out) {
  if (code_point - hangul_base < num_hangul) {
    const uint32_t index = code_point - hangul_base;
    out.push_back(lead_base + index / (num_vowel * num_trail));
    out.push_back(vowel_base + index % (num_vowel * num_trail) / num_trail);
    if (index % num_trail != 0) out.push_back(trail_base + index % num_trail);
    return;
  }
  if (mapping == Mapping::compatible) {
    if (const auto found = compatibilities().find(code_point); found != compatibilities().end()) {
      for (const uint32_t part : found->second) decompose(part, mapping, out);
      return;
    }
  }
  const auto found = compositions().parts.find(code_point);
  if (found == compositions().parts.end()) {
    out.push_back(code_point);
    return;
  }
  decompose(found->second.first, mapping, out);
  if (found->second.second != 0) decompose(found->second.second, mapping, out);
}

// The composition of a pair of characters; 0 if the pair does not compose.
uint32_t compose(uint32_t first, uint32_t second) {
  if (first - lead_base < num_lead && second - vowel_base < num_vowel) {
    return hangul_base + ((first - lead_base) * num_vowel + (second - vowel_base)) * num_trail;
  }
  if (first - hangul_base < num_hangul && (first - hangul_base) % num_trail == 0 &&
      second - trail_base - 1 < num_trail - 1) {
    return first + (second - trail_base);
  }
  const auto found = compositions().whole.find(uint64_t{first} << 32 | second);
  return found == compositions().whole.end() ? 0 : found->second;
}

// Puts decomposed characters into canonical order.
void order(std::vector<uint32_t>& chars) {
  for (size_t i = 0; i < chars.size();) {
    if (combining_class(chars[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < chars.size() && combining_class(chars[end]) != 0) ++end;
    std::vector<std::tuple<uint8_t, size_t, uint32_t>> run;  // class, index, character: sorts stably by class
    for (size_t k = i; k < end; ++k) run.emplace_back(combining_class(chars[k]), k, chars[k]);
    std::sort(run.begin(), run.end());
    for (size_t k = i; k < end; ++k) chars[k] = std::get<2>(run[k - i]);
    i = end;
  }
}

// Composes characters that are in canonical order.
void compose(std::vector<uint32_t>& chars) {
  size_t size = 0;                // characters kept so far
  size_t starter = chars.size();  // index of the last starter kept
  int last_class = -1;            // class of the last character kept after the starter, -1 when there is none
  for (const uint32_t c : std::vector<uint32_t>(chars)) {
    const int cls = combining_class(c);
    if (starter < size && (last_class == -1 || (last_class != 0 && last_class < cls))) {
      if (const uint32_t both = compose(chars[starter], c); both != 0) {
        chars[starter] = both;
        continue;
      }
    }
    chars[size] = c;
    if (cls == 0) {
      starter = size;
      last_class = -1;
    } else {
      last_class = cls;
    }
    ++size;
  }
  chars.resize(size);
}

// Decomposes, reorders and, if `composed`, composes each run of valid characters. Invalid bytes are copied.
std::string normalize(std::string_view text, Mapping mapping, bool composed) {
  std::string out;
  out.reserve(text.size());
  std::vector<uint32_t> chars;
  const auto flush = [&] {
    order(chars);
    if (composed) compose(chars);
    for (const uint32_t c : chars) append_utf8(out, c);
    chars.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.code_point == invalid_byte) {
      flush();
      out.push_back(text[at]);
    } else {
      decompose(c.code_point, mapping, chars);
    }
    at += c.size;
  }
  flush();
  return out;
}

// Built from tables of unicode_tables.inc: runs (difference of first code point, count, stride, what to add), and code
// points that become up to three.
struct CaseMap {
  std::unordered_map<uint32_t, std::array<uint32_t, 3>> to;

  CaseMap(std::span<const int32_t> runs, std::span<const int32_t> many) {
    int32_t start = 0;
    for (size_t i = 0; i < runs.size(); i += 4) {
      start += runs[i];
      for (int32_t k = 0; k < runs[i + 1]; ++k) {
        const int32_t from = start + k * runs[i + 2];
        to[static_cast<uint32_t>(from)] = {static_cast<uint32_t>(from + runs[i + 3]), 0, 0};
      }
    }
    int32_t from = 0;
    for (size_t i = 0; i < many.size(); i += 4) {
      from += many[i];
      to[static_cast<uint32_t>(from)] = {static_cast<uint32_t>(many[i + 1]), static_cast<uint32_t>(many[i + 2]),
                                         static_cast<uint32_t>(many[i + 3])};
    }
  }

  std::string apply(std::string_view text) const {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      const auto found = to.find(c.code_point);
      if (found == to.end()) {
        out.append(text.substr(at, c.size));
      } else {
        for (const uint32_t mapped : found->second) {
          if (mapped != 0) append_utf8(out, mapped);
        }
      }
      at += c.size;
    }
    return out;
  }
};

// The number of bytes of the longest valid beginning of a character at text[at] (at least 1), and whether the character
// is complete.
std::pair<uint32_t, bool> valid_prefix(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const uint32_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint8_t low = 0x80, high = 0xBF;  // bounds of the second byte keep out over-long forms and surrogates
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (uint32_t i = 1; i < size; ++i) {
    if (at + i >= text.size() || byte(at + i) < low || byte(at + i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {size, true};
}

}  // namespace

uint8_t char_class(uint32_t code_point) {
  static const std::vector<uint8_t> values = expand_runs(class_runs);
  return code_point < num_code_points ? values[code_point] : uint8_t{0};
}

bool is_nonspacing_mark(uint32_t code_point) {
  static const std::vector<uint8_t> values = expand_runs(nonspacing_runs);
  return code_point < num_code_points && values[code_point] != 0;
}

Utf8Char decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const auto [size, whole] = valid_prefix(text, at);
  if (!whole) return {invalid_byte, 1};
  switch (size) {
    case 1: return {byte(at), 1};
    case 2: return {(byte(at) & 0x1F) << 6 | (byte(at + 1) & 0x3F), 2};
    case 3: return {(byte(at) & 0x0F) << 12 | (byte(at + 1) & 0x3F) << 6 | (byte(at + 2) & 0x3F), 3};
    default:
      return {
          (byte(at) & 0x07) << 18 | (byte(at + 1) & 0x3F) << 12 | (byte(at + 2) & 0x3F) << 6 | (byte(at + 3) & 0x3F),
          4};
  }
}

void append_utf8(std::string& out, uint32_t code_point) {
  const auto put = [&](uint32_t value) { out.push_back(static_cast<char>(value)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t incomplete_utf8_tail(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t at = text.size() - back;
    const auto lead = static_cast<uint8_t>(text[at]);
    if (lead < 0x80) return 0;
    if (lead < 0xC0) continue;
    const auto [size, whole] = valid_prefix(text, at);
    const bool can_start = lead >= 0xC2 && lead <= 0xF4;
    return !whole && can_start && size == back ? back : 0;
  }
  return 0;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto [size, whole] = valid_prefix(text, at);
    if (!whole) return false;
    at += size;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto [size, whole] = valid_prefix(text, at);
    if (whole) {
      out.append(text.substr(at, size));
    } else {
      append_utf8(out, 0xFFFD);
    }
    at += size;
  }
  return out;
}

std::vector<std::string_view> split_characters(std::string_view text) {
  std::vector<std::string_view> characters;
  characters.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const uint32_t size = decode_utf8(text, at).size;
    characters.push_back(text.substr(at, size));
    at += size;
  }
  return characters;
}

std::string normalize_nfc(std::string_view text) {
  // Everything below U+0300 is in form C already.
  if (std::none_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) >= 0xCC; })) {
    return std::string(text);
  }
  return normalize(text, Mapping::canonical, true);
}

std::string normalize_nfd(std::string_view text) { return normalize(text, Mapping::canonical, false); }
std::string normalize_nfkc(std::string_view text) { return normalize(text, Mapping::compatible, true); }
std::string normalize_nfkd(std::string_view text) { return normalize(text, Mapping::compatible, false); }

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if ((char_class(c.code_point) & char_space) == 0) break;
    at += c.size;
  }
  return at;
}

size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;  // start of the last character
    for (size_t back = 2; back <= 4 && back <= end; ++back) {
      if (decode_utf8(text.substr(0, end), end - back).size == back) start = end - back;
    }
    if ((char_class(decode_utf8(text.substr(0, end), start).code_point) & char_space) == 0) break;
    end = start;
  }
  return text.size() - end;
}

std::string upper_case(std::string_view text) {
  static const CaseMap map(upper_runs, upper_many);
  return map.apply(text);
}

std::string lower_case(std::string_view text) {
  static const CaseMap map(lower_runs, lower_many);
  return map.apply(text);
}

std::string title_case(std::string_view text) {
  static const CaseMap map = [] {
    CaseMap upper(upper_runs, upper_many);
    for (const auto& [from, to] : CaseMap({}, title_many).to) upper.to[from] = to;
    return upper;
  }();
  return map.apply(text);
}

bool is_printable(uint32_t code_point) {
  static const std::vector<uint8_t> values = expand_runs(printable_runs);
  return code_point < num_code_points && values[code_point] != 0;
}

}  // namespace ingot::text
