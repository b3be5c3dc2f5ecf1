#include "text/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace ingot::text {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

// The token of `id`, or an empty one if there is none.
const Token& token_at(const TokenizerParts& parts, int32_t id) {
  static const Token none;
  const auto index = static_cast<size_t>(id);
  return id >= 0 && index < parts.tokens.size() ? parts.tokens[index] : none;
}

// The decoded bytes of a token; `drop_in_first` applies to the first one.
std::string bytes_of(const DecodeRules& rules, const Token& token, bool is_first) {
  if (!is_first || rules.drop_in_first.empty() || token.fallback_byte) return token.bytes;
  GrowthLimit limit(token.text.size());
  return replace_all(token.text, rules.drop_in_first, "", limit);
}

// Appends a run of byte tokens: as text if it is valid UTF-8 as a whole, otherwise one U+FFFD for each byte.
void append_byte_run(std::string& out, std::string& run) {
  if (is_valid_utf8(run)) {
    out += run;
  } else {
    for (size_t i = 0; i < run.size(); ++i) out += replacement;
  }
  run.clear();
}

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts) {
  parts.control.reserve(parts.tokens.size());
  for (const Token& token : parts.tokens) parts.control.push_back(token.control);
  if (parts.unk_id && static_cast<size_t>(*parts.unk_id) < parts.control.size()) {
    parts.control[static_cast<size_t>(*parts.unk_id)] = false;
  }
  parts_ = std::make_unique<const TokenizerParts>(std::move(parts));
}
Tokenizer::~Tokenizer() = default;

struct Tokenizer::Encoding {
  const EncodeOptions& options;
  GrowthLimit normalizer, pre_tokenizer;
  std::vector<int32_t> ids;
};

void Tokenizer::encode_plain(std::string_view text, bool at_start, std::span<const ByteRange> content,
                             Encoding& encoding) const {
  std::vector<int32_t>& ids = encoding.ids;
  const bool excludes_control = !encoding.options.parse_special || !content.empty();
  if (!parts_->normalized_matcher.has_control()) content = {};
  TaintedString normalized;
  if (!parts_->normalizer.empty()) {
    normalized = parts_->normalizer.apply(TaintedString(std::string(text), {content.begin(), content.end()}),
                                          encoding.normalizer);
    encoding.normalizer.next_part();
    text = normalized.text();
    content = normalized.content();
  }
  const auto is_control = [&](int32_t id) { return parts_->control[static_cast<size_t>(id)]; };
  for (const TextPart& part : parts_->normalized_matcher.split(text, encoding.options.parse_special, content)) {
    if (part.id) {
      ids.push_back(*part.id);
      continue;
    }
    const bool starts_text = at_start && part.text.data() == text.data();
    const TokenModel& model = starts_text || !parts_->later_model ? *parts_->model : *parts_->later_model;
    const Pieces pieces = parts_->pre_tokenizer.split(part.text, starts_text, encoding.pre_tokenizer);
    encoding.pre_tokenizer.next_part();
    for (const std::string_view piece : pieces.views) {
      const size_t begin = ids.size();
      model.encode(piece, ids);
      if (!excludes_control || std::none_of(ids.begin() + static_cast<ptrdiff_t>(begin), ids.end(), is_control)) {
        continue;
      }
      ids.resize(begin);
      model.encode_without(parts_->control, piece, ids);
    }
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > (size_t{1} << 31) - 1) {
    throw_hint(ErrorKind::resource, "split it into parts", "a text of {} bytes is too long to tokenize at once",
               text.size());
  }
  Encoding encoding = {options, GrowthLimit(text.size()), GrowthLimit(text.size()), {}};
  std::vector<int32_t>& ids = encoding.ids;
  ids.reserve(text.size() / 3 + 2);
  if (options.add_special_tokens) ids = parts_->prefix;
  for (const TextPart& part : parts_->raw_matcher.split(text, options.parse_special, options.content)) {
    if (part.id) {
      ids.push_back(*part.id);
      continue;
    }
    const auto begin = static_cast<size_t>(part.text.data() - text.data());
    const ByteRanges content = clip(options.content, begin, begin + part.text.size());
    encode_plain(part.text, begin == 0, content, encoding);
  }
  if (options.add_special_tokens) ids.insert(ids.end(), parts_->suffix.begin(), parts_->suffix.end());
  return std::move(encoding.ids);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text, run;
  bool is_first = true;
  for (const int32_t id : ids) {
    const Token& token = token_at(*parts_, id);
    if ((skip_special && token.special) || token.bytes.empty()) continue;
    if (token.fallback_byte) {
      run += token.bytes;
    } else {
      append_byte_run(text, run);
      text += is_first ? bytes_of(parts_->decode, token, true) : token.bytes;
    }
    is_first = false;
  }
  append_byte_run(text, run);
  int32_t drop = 0;
  while (drop < parts_->decode.strip_count && static_cast<size_t>(drop) < text.size() &&
         text[static_cast<size_t>(drop)] == parts_->decode.strip) {
    ++drop;
  }
  return replace_invalid_utf8(std::string_view(text).substr(static_cast<size_t>(drop)));
}

const std::string& Tokenizer::token_text(int32_t id) const { return token_at(*parts_, id).text; }
const std::string& Tokenizer::token_bytes(int32_t id) const { return token_at(*parts_, id).bytes; }
bool Tokenizer::is_special(int32_t id) const { return token_at(*parts_, id).special; }
bool Tokenizer::is_control(int32_t id) const { return token_at(*parts_, id).control; }

std::optional<int32_t> Tokenizer::find(std::string_view token) const {
  const auto found = parts_->ids.find(std::string(token));
  return found == parts_->ids.end() ? std::nullopt : std::optional(found->second);
}

int32_t Tokenizer::size() const { return static_cast<int32_t>(parts_->tokens.size()); }
std::optional<int32_t> Tokenizer::bos_id() const { return parts_->bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return parts_->eos_id; }
std::optional<int32_t> Tokenizer::unk_id() const { return parts_->unk_id; }
std::optional<int32_t> Tokenizer::pad_id() const { return parts_->pad_id; }

std::string StreamDecoder::strip_start(std::string text) {
  const DecodeRules& rules = tokenizer_.parts_->decode;
  size_t drop = 0;
  while (!strip_done_ && drop < text.size()) {
    if (num_stripped_ == rules.strip_count || text[drop] != rules.strip) {
      strip_done_ = true;
    } else {
      ++num_stripped_;
      ++drop;
    }
  }
  return text.substr(drop);
}

std::string StreamDecoder::push(int32_t id) {
  const Token& token = token_at(*tokenizer_.parts_, id);
  if ((skip_special_ && token.special) || token.bytes.empty()) return {};
  std::string text;
  if (tokenizer_.parts_->decode.byte_fallback && !token.fallback_byte) {
    for (size_t i = 0; i < pending_.size(); ++i) text += replacement;  // the run of bytes ended inside a character
    pending_.clear();
  }
  pending_ += bytes_of(tokenizer_.parts_->decode, token, is_first_);
  is_first_ = false;
  const size_t whole = pending_.size() - incomplete_utf8_tail(pending_);
  text += replace_invalid_utf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return strip_start(std::move(text));
}

std::string StreamDecoder::finish() {
  std::string text;
  if (tokenizer_.parts_->decode.byte_fallback) {
    for (size_t i = 0; i < pending_.size(); ++i) text += replacement;
  } else {
    text = replace_invalid_utf8(pending_);
  }
  pending_.clear();
  text = strip_start(std::move(text));
  num_stripped_ = 0;
  strip_done_ = false;
  is_first_ = true;
  return text;
}

}  // namespace ingot::text
