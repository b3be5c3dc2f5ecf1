#include "text/split.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "text/unicode.h"

namespace ingot::text {
namespace {

constexpr uint8_t kind_mask = char_letter | char_number | char_space;

struct Step {
  uint8_t kind;   // letter, number, space, or 0 for everything else
  uint32_t size;  // bytes
};

constexpr std::array<uint8_t, 128> ascii = [] {
  std::array<uint8_t, 128> kinds{};
  for (size_t c = 'a'; c <= 'z'; ++c) kinds[c] = kinds[c - 'a' + 'A'] = char_letter;
  for (size_t c = '0'; c <= '9'; ++c) kinds[c] = char_number;
  for (size_t c = '\t'; c <= '\r'; ++c) kinds[c] = char_space;
  kinds[' '] = char_space;
  return kinds;
}();

Step step_at(std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 128) return {ascii[lead], 1};
  const Utf8Char c = decode_utf8(text, at);
  return {static_cast<uint8_t>(char_class(c.code_point) & kind_mask), c.size};
}

bool is_newline(char c) { return c == '\r' || c == '\n'; }

// The end of the run of characters of `kind` that starts at `at`, of at most `limit` characters (-1: no limit).
size_t end_of_run(std::string_view text, size_t at, uint8_t kind, int limit = -1) {
  while (at < text.size() && limit != 0) {
    const Step step = step_at(text, at);
    if (step.kind != kind) break;
    at += step.size;
    --limit;
  }
  return at;
}

// The number of bytes of the contraction at text[at]; 0 when there is none. Simple case folding also matches U+017F as
// s.
size_t contraction_size(std::string_view text, size_t at, bool ignore_case) {
  if (text[at] != '\'' || at + 1 >= text.size()) return 0;
  const auto letter = [&](size_t i) {
    if (i >= text.size()) return '\0';
    const char c = text[i];
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(at + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = letter(at + 2);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 3;
  if (ignore_case && text.substr(at + 1, 2) == "\xC5\xBF") return 3;
  return 0;
}

// \s+(?!\S)|\s+ : before other text, the last white-space character of a run is left to the next piece, unless it is
// the only one.
size_t end_of_space(std::string_view text, size_t at) {
  size_t end = at;
  size_t last = at;  // where the last character of the run starts
  while (end < text.size()) {
    const Step step = step_at(text, end);
    if (step.kind != char_space) break;
    last = end;
    end += step.size;
  }
  return end == text.size() || last == at ? end : last;
}

size_t next_gpt2(std::string_view text, size_t at) {
  if (const size_t size = contraction_size(text, at, false); size != 0) return at + size;
  const size_t body = text[at] == ' ' ? at + 1 : at;
  if (body < text.size()) {
    const Step step = step_at(text, body);
    if (step.kind != char_space) return end_of_run(text, body, step.kind);
  }
  return end_of_space(text, at);
}

size_t next_llama3(std::string_view text, size_t at, int max_digits) {
  if (const size_t size = contraction_size(text, at, true); size != 0) return at + size;
  const Step first = step_at(text, at);
  if (first.kind == char_letter) return end_of_run(text, at, char_letter);
  if (first.kind == char_number) return end_of_run(text, at, char_number, max_digits);
  const size_t second = at + first.size;
  if (!is_newline(text[at]) && second < text.size() && step_at(text, second).kind == char_letter) {
    return end_of_run(text, second, char_letter);
  }
  const size_t body = text[at] == ' ' ? at + 1 : at;
  if (body < text.size() && step_at(text, body).kind == 0) {
    size_t end = end_of_run(text, body, 0);
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  const size_t run_end = end_of_run(text, at, char_space);
  for (size_t end = run_end; end > at; --end) {
    if (is_newline(text[end - 1])) return end;
  }
  return end_of_space(text, at);
}

// The end of the run of numeric characters at `at`, or of only the first one if `individual`.
size_t end_of_number(std::string_view text, size_t at, bool individual) {
  while (at < text.size()) {
    const auto lead = static_cast<uint8_t>(text[at]);
    if (lead < 128 ? ascii[lead] != char_number : lead < 0xC0) break;
    const Utf8Char c = decode_utf8(text, at);
    if ((char_class(c.code_point) & char_numeric) == 0) break;
    at += c.size;
    if (individual) break;
  }
  return at;
}

}  // namespace

void split_gpt2(std::string_view text, std::vector<std::string_view>& out) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = next_gpt2(text, at);
    out.push_back(text.substr(at, end - at));
    at = end;
  }
}

void split_llama3(std::string_view text, int max_digits, std::vector<std::string_view>& out) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = next_llama3(text, at, max_digits);
    out.push_back(text.substr(at, end - at));
    at = end;
  }
}

void split_digits(std::string_view text, bool individual, std::vector<std::string_view>& out) {
  size_t start = 0;  // start of the current piece
  for (size_t at = 0; at < text.size();) {
    const size_t end = end_of_number(text, at, individual);
    if (end == at) {
      ++at;  // continuation bytes are not numeric either
      continue;
    }
    if (at > start) out.push_back(text.substr(start, at - start));
    out.push_back(text.substr(at, end - at));
    at = start = end;
  }
  if (start < text.size()) out.push_back(text.substr(start));
}

void split_white_space(std::string_view text, std::vector<std::string_view>& out) {
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    while (at < text.size() && step_at(text, at).kind != char_space) at += step_at(text, at).size;
    if (at > start) out.push_back(text.substr(start, at - start));
    if (at < text.size()) at += step_at(text, at).size;
  }
}

void split_words(std::string_view text, std::vector<std::string_view>& out) {
  size_t start = 0;  // start of the current run
  int run = 0;       // its class: char_word, 0 for others, char_space for white space
  const auto finish = [&](size_t end) {
    if (end > start && run != char_space) out.push_back(text.substr(start, end - start));
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const int kind = char_class(c.code_point) & (char_word | char_space);
    if (kind != run) {
      finish(at);
      start = at;
      run = kind;
    }
    at += c.size;
  }
  finish(text.size());
}

}  // namespace ingot::text
