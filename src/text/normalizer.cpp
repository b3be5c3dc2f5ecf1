#include "text/normalizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace ingot::text {
namespace {

using Kind = NormalizerStep::Kind;

// Calls `keep(begin, end)` for what lies between the matches and `replace(begin, end)` for each of them, in order.
template <class Keep, class Replace>
void for_each_stretch(const ByteRanges& matches, size_t size, Keep keep, Replace replace) {
  size_t at = 0;
  for (const auto& [begin, end] : matches) {
    if (begin > at) keep(at, begin);
    replace(begin, end);
    at = end;
  }
  if (size > at) keep(at, size);
}

std::string strip_accents(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const std::string_view character : split_characters(text)) {
    if ((char_class(decode_utf8(character, 0).code_point) & char_mark) == 0) out.append(character);
  }
  return out;
}

// Of a step that is told by the text alone.
std::string map_text(const NormalizerStep& step, std::string_view text, GrowthLimit& limit) {
  switch (step.kind) {
    case Kind::nfc: return normalize_nfc(text);
    case Kind::nfd: return normalize_nfd(text);
    case Kind::nfkc: return normalize_nfkc(text);
    case Kind::nfkd: return normalize_nfkd(text);
    case Kind::lowercase: return lower_case(text);
    case Kind::strip_accents: return strip_accents(text);
    case Kind::charsmap: return step.charsmap->apply(text, limit);
    default: return std::string(text);
  }
}

// Of a step that changes no more than single grapheme clusters: a cluster that has content and other text, and becomes
// something else than its parts would, is content.
MarkedString apply_to_clusters(const NormalizerStep& step, const MarkedString& text, GrowthLimit& limit) {
  static const Regex grapheme_cluster("\\X");
  const auto map = [&](std::string_view part) { return map_text(step, part, limit); };
  if (text.content().empty()) return {map(text.text()), Origin::author};
  MarkedString joined;
  size_t at = 0;
  for (const auto& [begin, end] : grapheme_cluster.find_all(text.text())) {
    const MarkedString cluster = text.part(begin, end);
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

MarkedString apply_step(const NormalizerStep& step, const MarkedString& text, GrowthLimit& limit) {
  MarkedString out;
  switch (step.kind) {
    case Kind::strip_left: return text.part(leading_space(text.text()), text.size());
    case Kind::strip_right: return text.part(0, text.size() - trailing_space(text.text()));
    case Kind::prepend:
      limit.check(step.to.size() + text.size());
      if (text.empty()) return out;
      out.append(step.to, Origin::author);
      out.append(text);
      return out;
    case Kind::replace:
      for_each_stretch(
          step.regex ? step.regex->find_all(text.text()) : occurrences(text.text(), step.from), text.size(),
          [&](size_t begin, size_t end) {
            limit.check(out.size() + end - begin);
            out.append(text, begin, end);
          },
          [&](size_t begin, size_t end) {
            limit.check(out.size() + step.to.size());
            out.append(step.to, touches(text.content(), begin, end) ? Origin::caller : Origin::author);
          });
      return out;
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
  const auto append = [&](std::string_view part) {
    limit.check(out.size() + part.size());
    out += part;
  };
  for_each_stretch(
      occurrences(text, from), text.size(), [&](size_t begin, size_t end) { append(text.substr(begin, end - begin)); },
      [&](size_t, size_t) { append(to); });
  return out;
}

MarkedString Normalizer::apply(MarkedString text, GrowthLimit& limit) const {
  for (const NormalizerStep& step : steps_) {
    text = apply_step(step, text, limit);
    limit.check(text.size());
  }
  return text;
}

}  // namespace ingot::text
