#include "server/prompts.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/api_error.h"
#include "server/output_detokenizer.h"

namespace ingot::server {

namespace {

// Chat templates are not trusted: they come with the model.
constexpr text::jinja::RenderOptions template_limits{
    .max_steps = 2'000'000, .max_memory = size_t{1} << 26, .max_output = size_t{1} << 24, .now = {}};

void check_ids(const ServedModel& model, const Ids& ids, const std::string& param, int64_t room) {
  if (ids.empty()) throw bad_field(param, "invalid_value", "The prompt has no tokens.");
  for (const int32_t id : ids) check_id(model, id, param);
  if (static_cast<int64_t>(ids.size()) + room > model.context) {
    throw bad_field(
        param, "context_length_exceeded",
        fmt::format("The {} has {} tokens; the context of {} {}.", room > 0 ? "prompt" : "input", ids.size(),
                    model.context, room > 0 ? "leaves no room for an answer" : "has no room for it"));
  }
}

}  // namespace

void check_id(const ServedModel& model, int32_t id, const std::string& param) {
  if (id >= 0 && id < model.vocab) return;
  throw bad_field(param, "invalid_value", fmt::format("Token id {} is outside the vocabulary of {}.", id, model.vocab));
}

text::ChatText render_chat(const ServedModel& model, std::string_view messages, std::string_view tools,
                           const std::string& variables, const std::string& param) {
  if (!model.chat) {
    throw bad_field("model", "unsupported_value",
                    fmt::format("The model '{}' has no chat template; use /v1/completions.", model.id));
  }
  text::ChatOptions options;
  options.add_generation_prompt = true;
  options.bos_token = model.bos_text;
  options.eos_token = model.eos_text;
  options.extra_variables = variables;
  options.render = template_limits;
  try {
    text::ChatText chat = model.chat->render_json(messages, tools, options);
    if (model.allow_special_tokens) chat.content.clear();
    return chat;
  } catch (const Error& error) {
    // A template raises an error for messages that it does not accept; it may also be faulty itself.
    throw bad_field(param, "invalid_value",
                    fmt::format("The model's chat template raised an error: {}", error.message()));
  }
}

int64_t longest_token_of(const text::Tokenizer& tokenizer) {
  int64_t longest = 1;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    longest = std::max(longest, std::ssize(tokenizer.token_bytes(id)));
  }
  return longest;
}

void check_bytes(const ServedModel& model, std::string_view text, const std::string& param) {
  const int64_t max_bytes = model.context * model.longest_token;
  if (std::ssize(text) <= max_bytes) return;
  throw bad_field(
      param, "context_length_exceeded",
      fmt::format("The text has {} bytes; with tokens of up to {} bytes the context of {} holds at most {}.",
                  text.size(), model.longest_token, model.context, max_bytes));
}

Ids encode(const ServedModel& model, const text::ChatText& chat, const std::string& param) {
  check_bytes(model, chat.text, param);
  Ids ids = text::encode_chat(*model.tokenizer, chat);
  check_ids(model, ids, param, 1);
  return ids;
}

Ids encode(const ServedModel& model, std::string_view text, bool add_special_tokens, const std::string& param,
           int64_t room) {
  check_bytes(model, text, param);
  Ids ids = model.tokenizer->encode(text, {.add_special_tokens = add_special_tokens});
  check_ids(model, ids, param, room);
  return ids;
}

EchoedPrompt echoed_prompt(const ServedModel& model, const Prompt& prompt, const Ids& ids, bool logprobs) {
  const text::Tokenizer& tokenizer = *model.tokenizer;
  const std::string* words = std::get_if<std::string>(&prompt);
  EchoedPrompt echoed;
  echoed.text = words ? *words : tokenizer.decode(ids);
  echoed.characters = num_characters(echoed.text);
  if (!logprobs) return echoed;
  echoed.ids = ids;
  // The special tokens that the tokenizer adds around a text are not part of it.
  const Ids prompt_ids = words ? tokenizer.encode(*words, {.add_special_tokens = false}) : ids;
  const auto first = std::search(ids.begin(), ids.end(), prompt_ids.begin(), prompt_ids.end());
  echoed.begins.assign(static_cast<size_t>(first - ids.begin()), 0);
  text::StreamDecoder decoder(tokenizer);
  size_t begin = 0;
  for (auto id = first; id != ids.end(); ++id) {
    const bool after_prompt = id - first >= std::ssize(prompt_ids);
    echoed.begins.push_back(after_prompt ? echoed.characters : std::min(begin, echoed.characters));
    begin += num_characters(decoder.push(*id));
  }
  return echoed;
}

Ids encode(const ServedModel& model, const Prompt& prompt, const std::string& param, int64_t room) {
  if (const std::string* words = std::get_if<std::string>(&prompt)) return encode(model, *words, true, param, room);
  const Ids& ids = std::get<Ids>(prompt);
  check_ids(model, ids, param, room);
  return ids;
}

}  // namespace ingot::server
