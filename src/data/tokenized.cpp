#include "data/tokenized.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace ingot::data {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t documents_at_once = 1024;

int32_t end_token(const text::Tokenizer& tokenizer) {
  const auto eos = tokenizer.eos_id();
  if (!eos) {
    throw_hint(ErrorKind::unsupported, "set eos_token in the model's tokenizer_config.json",
               "the tokenizer has no end-of-text token (EOS) to end a document with");
  }
  return *eos;
}

void append(TokenizedDocument& result, std::span<const int32_t> ids, bool loss_mask) {
  result.ids.insert(result.ids.end(), ids.begin(), ids.end());
  result.loss_mask.resize(result.ids.size(), loss_mask ? 1 : 0);
}

TokenizedDocument tokenize_answer(std::string_view prompt, std::string_view answer, const text::Tokenizer& tokenizer) {
  TokenizedDocument result;
  append(result, encode_start(prompt, tokenizer), false);
  append(result, tokenizer.encode(answer, {.add_special_tokens = false, .parse_special = false}), true);
  append(result, std::array{end_token(tokenizer)}, true);
  return result;
}

// The prompt of the Stanford Alpaca data set (README of that project), with and without an input.
std::string alpaca_prompt(const Document& document) {
  if (document.input.empty()) {
    return "Below is an instruction that describes a task. Write a response that appropriately completes the "
           "request.\n\n### Instruction:\n" +
           document.prompt + "\n\n### Response:\n";
  }
  return "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
         "response that appropriately completes the request.\n\n### Instruction:\n" +
         document.prompt + "\n\n### Input:\n" + document.input + "\n\n### Response:\n";
}

std::string text_of(const text::Tokenizer& tokenizer, std::optional<int32_t> id) {
  return id ? tokenizer.token_text(*id) : std::string();
}

// For each assistant message, whether it is in the loss: "weight": 0 excludes it.
std::vector<bool> wanted_answers(const Json& messages) {
  std::vector<bool> wanted;
  for (const Json& message : messages) {
    if (message["role"] == "assistant") wanted.push_back(message.value("weight", Json(1)) != 0);
  }
  return wanted;
}

text::ChatOptions chat_options(const text::Tokenizer& tokenizer) {
  text::ChatOptions options;
  options.bos_token = text_of(tokenizer, tokenizer.bos_id());
  options.eos_token = text_of(tokenizer, tokenizer.eos_id());
  options.render.now = template_date;
  return options;
}

TokenizedDocument tokenize_chat(const Json& messages, const Json& tools, const text::Tokenizer& tokenizer,
                                const text::ChatTemplate& chat_template) {
  const text::ChatOptions options = chat_options(tokenizer);
  text::ChatSpans spans;
  try {
    spans = chat_template.render_spans(messages, tools, options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    throw Error(ErrorKind::corrupt, error.message(), error.hint());  // the error is in the data, not in the command
  }
  const std::vector<bool> wanted = wanted_answers(messages);
  const bool all_wanted = std::find(wanted.begin(), wanted.end(), false) == wanted.end();
  if (!all_wanted && wanted.size() != spans.assistant.size()) {
    throw_hint(ErrorKind::unsupported, "remove the weights",
               "the chat template marks {} spans as written by the assistant, but there are {} assistant messages, so "
               "a \"weight\" of 0 cannot be applied",
               spans.assistant.size(), wanted.size());
  }
  TokenizedDocument result;
  const auto append_stretch = [&](size_t begin, size_t end, bool loss_mask) {
    const text::ByteRanges content = text::clip(spans.content, begin, end);
    append(result,
           tokenizer.encode(std::string_view(spans.text).substr(begin, end - begin),
                            {.add_special_tokens = false, .content = content}),
           loss_mask);
  };
  size_t done = 0;
  for (size_t i = 0; i < spans.assistant.size(); ++i) {
    const auto [begin, end] = spans.assistant[i];
    append_stretch(done, begin, false);
    append_stretch(begin, end, all_wanted || wanted[i]);
    done = end;
  }
  append_stretch(done, spans.text.size(), false);
  return result;
}

TokenizedDocument check_tokens(const Document& document, const text::Tokenizer& tokenizer) {
  const auto largest = std::max_element(document.ids.begin(), document.ids.end());
  if (largest != document.ids.end() && *largest >= tokenizer.size()) {
    throw_error(ErrorKind::corrupt, "token {} is not in the vocabulary, which ends at {}", *largest,
                tokenizer.size() - 1);
  }
  return {document.ids, document.loss_mask, document.splittable};
}

Json as_chat(const Document& document) {
  const std::string question = document.input.empty() ? document.prompt : document.prompt + "\n\n" + document.input;
  return Json::array({Json::object({{"role", "user"}, {"content", question}}),
                      Json::object({{"role", "assistant"}, {"content", document.answer}})});
}

}  // namespace

std::vector<int32_t> encode_start(std::string_view text, const text::Tokenizer& tokenizer) {
  const std::vector<int32_t> framed = tokenizer.encode("a", {.add_special_tokens = true, .parse_special = false});
  std::vector<int32_t> ids = tokenizer.encode(text, {.add_special_tokens = false, .parse_special = false});
  if (!framed.empty() && framed.front() == tokenizer.bos_id()) ids.insert(ids.begin(), framed.front());
  return ids;
}

std::vector<int32_t> encode_question(std::string_view text, const text::Tokenizer& tokenizer,
                                     const text::ChatTemplate& chat_template) {
  text::ChatOptions options = chat_options(tokenizer);
  options.add_generation_prompt = true;
  const Json messages = Json::array({Json::object({{"role", "user"}, {"content", text}})});
  const text::ChatText chat = chat_template.render(messages, Json(), options);
  return text::encode_chat(tokenizer, chat);
}

TokenizedDocument tokenize(const Document& document, const text::Tokenizer& tokenizer,
                           const text::ChatTemplate* chat_template) {
  if (document.format == Format::chat) {
    if (chat_template == nullptr) {
      throw_hint(ErrorKind::usage,
                 "use a model with a chat template, or data as {\"prompt\", \"completion\"} or {\"text\"}",
                 "the data is a chat, but the model has no chat template");
    }
    return tokenize_chat(parse_lenient_ordered_json(document.messages),
                         document.tools.empty() ? Json() : parse_lenient_ordered_json(document.tools), tokenizer,
                         *chat_template);
  }
  if (document.format == Format::instruction) {
    return chat_template != nullptr ? tokenize_chat(as_chat(document), Json(), tokenizer, *chat_template)
                                    : tokenize_answer(alpaca_prompt(document), document.answer, tokenizer);
  }
  if (document.format == Format::completion) return tokenize_answer(document.prompt, document.answer, tokenizer);
  if (document.format == Format::tokens) return check_tokens(document, tokenizer);
  TokenizedDocument result;
  append(result, encode_start(document.text, tokenizer), true);
  append(result, std::array{end_token(tokenizer)}, true);
  result.splittable = true;
  return result;
}

TokenizeReport tokenize_all(Corpus& corpus, DocumentReader& reader, const text::Tokenizer& tokenizer,
                            const text::ChatTemplate* chat_template, OnError on_error, ThreadPool& pool) {
  TokenizeReport report;
  int64_t num_refused = 0;
  std::string first_refused;
  std::vector<Document> documents;
  std::vector<std::variant<TokenizedDocument, Error>> results;
  for (bool more = true; more;) {
    documents.clear();
    for (Document document; std::ssize(documents) < documents_at_once && (more = reader.next(document));) {
      documents.push_back(std::move(document));
    }
    results.assign(documents.size(), TokenizedDocument{});
    pool.parallel_for(0, std::ssize(documents), 1, [&](int64_t begin, int64_t end) {
      for (size_t i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        try {
          results[i] = tokenize(documents[i], tokenizer, chat_template);
        } catch (const Error& error) {
          results[i] = Error(error.kind(), reader.location(documents[i].line) + ": " + error.message(), error.hint());
        }
      }
    });
    for (const auto& result : results) {
      if (const Error* error = std::get_if<Error>(&result)) {
        if (on_error == OnError::stop || error->kind() != ErrorKind::corrupt) throw Error(*error);
        if (num_refused++ == 0) first_refused = error->message();
      } else {
        corpus.add(std::get<TokenizedDocument>(result));
        ++report.num_documents;
      }
    }
  }
  report.num_skipped = reader.num_skipped() + num_refused;
  report.first_skipped = reader.num_skipped() > 0 ? reader.first_skipped() : first_refused;
  if (report.num_documents == 0) {
    throw_error(ErrorKind::corrupt, "{}: holds no usable documents: all {} are rejected, the first: {}",
                reader.path().string(), num_refused, first_refused);
  }
  return report;
}

}  // namespace ingot::data
