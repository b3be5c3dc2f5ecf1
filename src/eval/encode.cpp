#include "eval/encode.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenized.h"
#include "text/unicode.h"

namespace ingot::eval {

namespace {

using Json = nlohmann::ordered_json;

constexpr text::EncodeOptions plain = {.add_special_tokens = false, .parse_special = false};

// Length in bytes of `text` without the white space at its end.
size_t size_without_space(std::string_view text) {
  size_t size = 0, at = 0;
  for (const std::string_view character : text::split_characters(text)) {
    at += character.size();
    const text::Utf8Char decoded = text::decode_utf8(character, 0);
    const bool separator = decoded.code_point >= 0x1c && decoded.code_point <= 0x1f;  // Python strips these too
    if ((text::char_class(decoded.code_point) & text::char_space) == 0 && !separator) size = at;
  }
  return size;
}

// Encodes continuations of a text: both as one text, cut after the context's tokens.
void encode_after_text(const ChoiceItem& item, const TextModel& model, EncodedChoices& encoded) {
  const size_t size = size_without_space(item.prompt.text);
  const std::string context = item.prompt.text.substr(0, size), space = item.prompt.text.substr(size);
  if (!context.empty()) {
    encoded.context = data::encode_start(context, model.tokenizer);
  } else if (const auto start = model.tokenizer.bos_id() ? model.tokenizer.bos_id() : model.tokenizer.eos_id()) {
    encoded.context = {*start};
  } else {
    throw_error(ErrorKind::unsupported,
                "the context is empty, and the tokenizer has neither BOS nor EOS to use instead");
  }
  for (const std::string& choice : item.choices) {
    std::string continuation = space;
    continuation.append(item.delimiter).append(choice);
    if (context.empty()) {
      encoded.choices.push_back(model.tokenizer.encode(continuation, plain));
      continue;
    }
    std::vector<int32_t> whole = data::encode_start(context + continuation, model.tokenizer);
    whole.erase(whole.begin(), whole.begin() + std::min(std::ssize(whole), std::ssize(encoded.context)));
    encoded.choices.push_back(std::move(whole));
  }
}

}  // namespace

std::vector<int32_t> encode_prompt(const Prompt& prompt, const TextModel& model) {
  if (prompt.messages.empty()) return data::encode_start(prompt.text, model.tokenizer);
  if (model.chat == nullptr) {
    throw_hint(ErrorKind::usage, "write the prompt as text, or use a model with a chat template",
               "the model {} has no chat template for \"messages\"", model.name);
  }
  text::ChatOptions options;
  options.add_generation_prompt = true;
  options.bos_token = model.bos;
  options.eos_token = model.eos;
  options.render.now = data::template_date;
  const Json tools = prompt.tools.empty() ? Json() : parse_lenient_ordered_json(prompt.tools);
  const text::ChatText rendered = model.chat->render(parse_lenient_ordered_json(prompt.messages), tools, options);
  return text::encode_chat(model.tokenizer, rendered);
}

EncodedChoices encode_choices(const ChoiceItem& item, const TextModel& model, int64_t max_tokens) {
  EncodedChoices encoded;
  if (item.prompt.messages.empty()) {
    encode_after_text(item, model, encoded);
  } else {
    encoded.context = encode_prompt(item.prompt, model);
    for (const std::string& choice : item.choices) {
      encoded.choices.push_back(model.tokenizer.encode(item.delimiter + choice, plain));
    }
  }
  int64_t longest = 0;
  for (const std::vector<int32_t>& choice : encoded.choices) {
    if (choice.empty()) throw_error(ErrorKind::corrupt, "a choice adds no tokens to the context");
    longest = std::max(longest, std::ssize(choice));
  }
  const int64_t room = max_tokens + 1 - longest;
  if (room < 1) {
    throw_error(ErrorKind::resource, "a choice has {} tokens; the model's context is {}", longest, max_tokens);
  }
  if (std::ssize(encoded.context) > room) {
    encoded.context.erase(encoded.context.begin(), encoded.context.end() - room);
    encoded.truncated = true;
  }
  return encoded;
}

}  // namespace ingot::eval
