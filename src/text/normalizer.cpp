#include "text/normalizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace ingot::text {
namespace {

using Normalization = NormalizerStep::Kind;

std::string strip_accents(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const std::string_view character : split_characters(text)) {
    if ((char_class(decode_utf8(character, 0).code_point) & char_mark) == 0) out.append(character);
  }
  return out;
}

// Applies a step whose result depends only on the text.
std::string map_text(const NormalizerStep& step, std::string_view text, GrowthLimit& limit) {
  switch (step.kind) {
    case Normalization::nfc: return normalize_nfc(text);
    case Normalization::nfd: return normalize_nfd(text);
    case Normalization::nfkc: return normalize_nfkc(text);
    case Normalization::nfkd: return normalize_nfkd(text);
    case Normalization::lowercase: return lower_case(text);
    case Normalization::strip_accents: return strip_accents(text);
    case Normalization::charsmap: return step.charsmap->apply(text, limit);
    default: return std::string(text);
  }
}

// Applies a step that works on single grapheme clusters. A cluster that mixes content and other text becomes content if
// its normal form differs from that of its runs.
TaintedString apply_to_clusters(const NormalizerStep& step, const TaintedString& text, GrowthLimit& limit) {
  static const Regex grapheme_cluster("\\X");
  const auto map = [&](std::string_view part) { return map_text(step, part, limit); };
  if (text.content().empty()) return {map(text.text()), Origin::author};
  TaintedString joined;
  size_t at = 0;
  for (const auto& [begin, end] : grapheme_cluster.find_all(text.text())) {
    const TaintedString cluster = text.part(begin, end);
    const bool mixed = cluster.content().size() > 1 ||
                       (cluster.content().size() == 1 && cluster.content()[0] != ByteRange{0, cluster.size()});
    if (!mixed) continue;
    std::string parts;
    for_each_run(cluster, [&](std::string_view run, Origin) { parts += map(run); });
    if (parts == map(cluster.text())) continue;
    joined.append(text, at, begin);
    joined.append(cluster.text(), Origin::caller);
    at = end;
  }
  joined.append(text, at, text.size());
  return map_runs(joined, map);
}

TaintedString apply_step(const NormalizerStep& step, const TaintedString& text, GrowthLimit& limit) {
  TaintedString out;
  switch (step.kind) {
    case Normalization::strip_left: return text.part(leading_space(text.text()), text.size());
    case Normalization::strip_right: return text.part(0, text.size() - trailing_space(text.text()));
    case Normalization::prepend:
      limit.check(step.to.size() + text.size());
      if (text.empty()) return out;
      out.append(step.to, Origin::author);
      out.append(text);
      return out;
    case Normalization::replace: {
      if (!step.regex && text.content().empty()) {  // the common case, and much faster
        return {replace_all(text.text(), step.from, step.to, limit), Origin::author};
      }
      size_t at = 0;
      for (const auto& [begin, end] :
           step.regex ? step.regex->find_all(text.text()) : occurrences(text.text(), step.from)) {
        limit.check(out.size() + begin - at + step.to.size());
        out.append(text, at, begin);
        out.append(step.to, touches(text.content(), begin, end) ? Origin::caller : Origin::author);
        at = end;
      }
      limit.check(out.size() + text.size() - at);
      out.append(text, at, text.size());
      return out;
    }
    default: return apply_to_clusters(step, text, limit);
  }
}

}  // namespace

ByteRanges occurrences(std::string_view text, std::string_view of) {
  ByteRanges found;
  for (size_t at = text.find(of); at != std::string_view::npos; at = text.find(of, at + of.size())) {
    found.emplace_back(at, at + of.size());
  }
  return found;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to, GrowthLimit& limit) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string_view::npos; found = text.find(from, at)) {
    limit.check(out.size() + found - at + to.size());
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  limit.check(out.size() + text.size() - at);
  return out.append(text.substr(at));
}

TaintedString Normalizer::apply(TaintedString text, GrowthLimit& limit) const {
  for (const NormalizerStep& step : steps_) {
    text = apply_step(step, text, limit);
    limit.check(text.size());
  }
  return text;
}

}  // namespace ingot::text
