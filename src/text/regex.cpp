#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

namespace ingot::text {
namespace {

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

// PCRE2's \s and \w differ from those of the tokenizers library (\s includes U+180E, \w lacks marks); this rewrites
// them as the Unicode properties that the library uses. Nested classes ([a[b]]) and \h differ too, and are refused.
std::string with_unicode_classes(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  const auto refuse = [&](std::string_view what) {
    throw_error(ErrorKind::unsupported, "the pattern \"{}\" has {}, which is not supported", pattern, what);
  };
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (in_class && (c == '[' || pattern.substr(i, 2) == "&&")) refuse("a class inside a class");
      if (!in_class && c == '[') {
        in_class = true;
        out += c;
        // A ] that comes first in a class is a literal.
        if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
        if (i + 1 < pattern.size() && pattern[i + 1] == ']') out += pattern[++i];
        continue;
      }
      if (in_class && c == ']') in_class = false;
      out += c;
      continue;
    }
    const char escaped = pattern[++i];
    constexpr std::string_view word = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
    // Outside of classes Oniguruma's \w also includes these superscripts and fractions of Latin-1.
    constexpr std::string_view more = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
    switch (escaped) {
      case 's': out += "\\p{White_Space}"; break;
      case 'S': out += "\\P{White_Space}"; break;
      case 'w': out += in_class ? std::string(word) : fmt::format("[{}{}]", word, more); break;
      case 'W':
        if (in_class) refuse("\\W in a class");
        out += fmt::format("[^{}{}]", word, more);
        break;
      case 'h':
      case 'H': refuse("\\h"); break;
      default: (out += c) += escaped;
    }
  }
  return out;
}

}  // namespace

struct Regex::Code {
  pcre2_code* compiled = nullptr;
  ~Code() { pcre2_code_free(compiled); }
};

Regex::Regex(std::string_view pattern) : code_(std::make_unique<Code>()), pattern_(pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF;
  const std::string rewritten = with_unicode_classes(pattern);
  code_->compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(), options, &error,
                                  &offset, nullptr);
  if (code_->compiled == nullptr) {
    throw_error(ErrorKind::corrupt, "the pattern \"{}\" does not compile: {} at byte {}", rewritten, error_text(error),
                offset);
  }
  // Failure is ignored: without JIT, PCRE2 interprets the pattern.
  pcre2_jit_compile(code_->compiled, PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;

std::vector<std::pair<size_t, size_t>> Regex::find_all(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code_->compiled, nullptr), &pcre2_match_data_free);
  if (data == nullptr) throw_error(ErrorKind::resource, "out of memory in a regular expression");
  std::vector<std::pair<size_t, size_t>> matches;
  size_t at = 0;
  while (at < text.size()) {
    const int status = pcre2_match(code_->compiled, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                   PCRE2_NOTEMPTY, data.get(), nullptr);
    if (status == PCRE2_ERROR_NOMATCH) break;
    if (status < 0) {
      // Only an out-of-memory failure is transient.
      throw_error(status == PCRE2_ERROR_NOMEMORY ? ErrorKind::resource : ErrorKind::unsupported,
                  "the pattern \"{}\" fails on a text of {} bytes: {}", pattern_, text.size(), error_text(status));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    matches.emplace_back(range[0], range[1]);
    at = range[1];
  }
  return matches;
}

}  // namespace ingot::text
