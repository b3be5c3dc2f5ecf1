#include "text/normalizer.h"

#include "text/unicode.h"

namespace ingot::text {
namespace {

using Kind = NormalizerStep::Kind;

std::string replace_matches(std::string_view text, const Regex& regex, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (const auto& [begin, end] : regex.find_all(text)) {
    out.append(text.substr(at, begin - at)).append(to);
    at = end;
  }
  return out.append(text.substr(at));
}

std::string strip_accents(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const std::string_view character : split_characters(text)) {
    if ((char_class(decode_utf8(character, 0).code_point) & char_mark) == 0) out.append(character);
  }
  return out;
}

std::string apply_step(const NormalizerStep& step, std::string text) {
  switch (step.kind) {
    case Kind::nfc: return normalize_nfc(text);
    case Kind::nfd: return normalize_nfd(text);
    case Kind::nfkc: return normalize_nfkc(text);
    case Kind::nfkd: return normalize_nfkd(text);
    case Kind::lowercase: return lower_case(text);
    case Kind::strip_accents: return strip_accents(text);
    case Kind::strip_left: return text.substr(leading_space(text));
    case Kind::strip_right: return text.substr(0, text.size() - trailing_space(text));
    case Kind::prepend: return text.empty() ? text : step.to + text;
    case Kind::replace:
      return step.regex ? replace_matches(text, *step.regex, step.to) : replace_all(text, step.from, step.to);
    case Kind::charsmap: return step.charsmap->apply(text);
  }
  return text;
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string_view::npos; found = text.find(from, at)) {
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

std::string Normalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const NormalizerStep& step : steps_) result = apply_step(step, std::move(result));
  return result;
}

}  // namespace ingot::text
