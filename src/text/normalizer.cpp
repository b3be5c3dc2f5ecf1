#include "text/normalizer.h"

#include "text/unicode.h"

namespace ingot::text {

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
  for (const NormalizerStep& step : steps_) {
    switch (step.kind) {
      case NormalizerStep::Kind::nfc: result = normalize_nfc(result); break;
      case NormalizerStep::Kind::prepend:
        if (!result.empty()) result.insert(0, step.to);
        break;
      case NormalizerStep::Kind::replace: result = replace_all(result, step.from, step.to); break;
    }
  }
  return result;
}

}  // namespace ingot::text
