#include "text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/normalizer.h"
#include "text/split.h"
#include "text/split_patterns.h"
#include "text/unicode.h"

namespace ingot::text {
namespace {

using Splitting = PreTokenizerStep::Kind;
using Prepend = PreTokenizerStep::Prepend;

struct Range {
  size_t begin;
  size_t end;
  bool match;
};

// The matches of a step and the gaps between them; together they cover the text.
std::vector<Range> cover(const PreTokenizerStep& step, std::string_view text) {
  ByteRanges matches;
  if (step.kind == Splitting::punctuation) {
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      if ((char_class(c.code_point) & char_punctuation) != 0) matches.emplace_back(at, at + c.size);
      at += c.size;
    }
  } else {
    matches = step.regex ? step.regex->find_all(text) : occurrences(text, step.literal);
  }
  std::vector<Range> ranges;
  size_t at = 0;
  for (const auto& [begin, end] : matches) {
    if (begin > at) ranges.push_back({at, begin, step.invert});
    ranges.push_back({begin, end, !step.invert});
    at = end;
  }
  if (at < text.size()) ranges.push_back({at, text.size(), step.invert});
  return ranges;
}

void split_pattern(const PreTokenizerStep& step, std::string_view text, std::vector<std::string_view>& out) {
  std::vector<Range> ranges = cover(step, text);
  std::vector<Range> joined;
  switch (step.behavior) {
    case SplitBehavior::isolated: joined = std::move(ranges); break;
    case SplitBehavior::removed:
      std::copy_if(ranges.begin(), ranges.end(), std::back_inserter(joined), [](const Range& r) { return !r.match; });
      break;
    case SplitBehavior::contiguous:
      for (const Range& range : ranges) {
        if (!joined.empty() && joined.back().match == range.match) {
          joined.back().end = range.end;
        } else {
          joined.push_back(range);
        }
      }
      break;
    case SplitBehavior::merged_with_previous: {
      bool previous_match = false;
      for (const Range& range : ranges) {
        if (range.match && !previous_match && !joined.empty()) {
          joined.back().end = range.end;
        } else {
          joined.push_back(range);
        }
        previous_match = range.match;
      }
      break;
    }
    case SplitBehavior::merged_with_next: {
      bool next_match = false;
      for (auto range = ranges.rbegin(); range != ranges.rend(); ++range) {
        if (range->match && !next_match && !joined.empty()) {
          joined.back().begin = range->begin;
        } else {
          joined.push_back(*range);
        }
        next_match = range->match;
      }
      std::reverse(joined.begin(), joined.end());
      break;
    }
  }
  for (const Range& range : joined) out.push_back(text.substr(range.begin, range.end - range.begin));
}

void cut(const PreTokenizerStep& step, std::string_view piece, std::vector<std::string_view>& out) {
  switch (step.kind) {
    case Splitting::gpt2: split_gpt2(piece, out); break;
    case Splitting::llama3: split_llama3(piece, 3, out); break;
    case Splitting::qwen2: split_llama3(piece, 1, out); break;
    case Splitting::digits: split_digits(piece, false, out); break;
    case Splitting::digit_characters: split_digits(piece, true, out); break;
    case Splitting::white_space: split_white_space(piece, out); break;
    case Splitting::words: split_words(piece, out); break;
    case Splitting::punctuation:
    case Splitting::pattern: split_pattern(step, piece, out); break;
    case Splitting::prefix_space:
    case Splitting::metaspace: break;  // see rewrite()
  }
}

// Applies a step that inserts text: all pieces move to one new string, and the previous one is freed.
void rewrite(const PreTokenizerStep& step, bool first_at_start, Pieces& pieces, GrowthLimit& limit,
             std::vector<std::string_view>& out) {
  auto text = std::make_unique<std::string>();
  std::vector<size_t> ends;
  ends.reserve(pieces.views.size());
  for (const std::string_view piece : pieces.views) {
    const bool is_first = first_at_start && ends.empty();
    if (step.kind == Splitting::prefix_space) {
      limit.check(text->size() + 1 + piece.size());
      if (!piece.starts_with(' ')) *text += ' ';
      *text += piece;
    } else {
      const std::string escaped = replace_all(piece, " ", step.literal, limit);
      limit.check(text->size() + step.literal.size() + escaped.size());
      const bool prepends = step.prepend == Prepend::always || (step.prepend == Prepend::first && is_first);
      if (prepends && !escaped.starts_with(step.literal)) *text += step.literal;
      *text += escaped;
    }
    ends.push_back(text->size());
  }
  size_t begin = 0;
  for (const size_t end : ends) {
    const std::string_view piece = std::string_view(*text).substr(begin, end - begin);
    if (step.cut) {
      split_pattern(step, piece, out);
    } else {
      out.push_back(piece);
    }
    begin = end;
  }
  pieces.text = std::move(text);
}

}  // namespace

void PreTokenizer::add_regex(std::string_view pattern, SplitBehavior behavior, bool invert) {
  // These patterns match every character, so "isolated", and "removed" with invert, both keep each match as a piece.
  const bool keeps_matches = (behavior == SplitBehavior::isolated && !invert) ||  //
                             (behavior == SplitBehavior::removed && invert);
  if (keeps_matches && (pattern == gpt2_pattern || pattern == gpt2_pattern_grouped)) return add(Splitting::gpt2);
  if (keeps_matches && pattern == llama3_pattern) return add(Splitting::llama3);
  if (keeps_matches && pattern == qwen2_pattern) return add(Splitting::qwen2);
  PreTokenizerStep step;
  step.kind = Splitting::pattern;
  step.regex = std::make_shared<const Regex>(pattern);
  step.behavior = behavior;
  step.invert = invert;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_literal(std::string_view literal, SplitBehavior behavior, bool invert) {
  PreTokenizerStep step;
  step.kind = Splitting::pattern;
  step.literal = literal;
  step.behavior = behavior;
  step.invert = invert;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_punctuation(SplitBehavior behavior) {
  PreTokenizerStep step;
  step.kind = Splitting::punctuation;
  step.behavior = behavior;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_metaspace(std::string_view replacement, PreTokenizerStep::Prepend prepend, bool cut) {
  PreTokenizerStep step;
  step.kind = Splitting::metaspace;
  step.literal = replacement;
  step.behavior = SplitBehavior::merged_with_next;
  step.prepend = prepend;
  step.cut = cut;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add(Splitting kind) {
  PreTokenizerStep step;
  step.kind = kind;
  steps_.push_back(std::move(step));
}

Pieces PreTokenizer::split(std::string_view text, bool at_start, GrowthLimit& limit) const {
  Pieces pieces;
  if (text.empty()) return pieces;
  pieces.views.push_back(text);
  bool first_at_start = at_start;  // the first piece is at the start of the whole text
  std::vector<std::string_view> next;
  for (const PreTokenizerStep& step : steps_) {
    next.clear();
    if (step.kind == Splitting::prefix_space || step.kind == Splitting::metaspace) {
      rewrite(step, first_at_start, pieces, limit, next);
    } else {
      for (const std::string_view piece : pieces.views) cut(step, piece, next);
      first_at_start = first_at_start && !next.empty() && next.front().data() == pieces.views.front().data();
    }
    pieces.views.swap(next);
  }
  return pieces;
}

}  // namespace ingot::text
