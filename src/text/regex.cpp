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

}  // namespace

struct Regex::Code {
  pcre2_code* compiled = nullptr;
  ~Code() { pcre2_code_free(compiled); }
};

Regex::Regex(std::string_view pattern) : code_(std::make_unique<Code>()), pattern_(pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF;
  code_->compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &offset, nullptr);
  if (code_->compiled == nullptr) {
    throw_error(ErrorKind::corrupt, "the pattern \"{}\" does not compile: {} at byte {}", pattern, error_text(error),
                offset);
  }
  // Only a matter of speed: where there is no JIT, PCRE2 interprets.
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
      throw_error(ErrorKind::resource, "the pattern \"{}\" fails on a text of {} bytes: {}", pattern_, text.size(),
                  error_text(status));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    matches.emplace_back(range[0], range[1]);
    at = range[1];
  }
  return matches;
}

}  // namespace ingot::text
