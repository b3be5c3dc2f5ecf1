#include "eval/task.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"
#include "data/byte_stream.h"
#include "data/document.h"
#include "text/regex.h"

namespace ingot::eval {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* forms =
    R"(a line is {"context", "choices", "answer"} or {"prompt" or "messages", and "reference", "regex" or "json"})";

// The fields of one line; records which keys were read.
class Fields {
 public:
  explicit Fields(Json record) : record_(std::move(record)) {}

  bool has(const char* key) const { return record_.contains(key) && !record_[key].is_null(); }

  const Json* take(const char* key) {
    known_.emplace_back(key);
    return has(key) ? &record_[key] : nullptr;
  }

  std::string text(const char* key, std::string otherwise) {
    const Json* value = take(key);
    if (!value) return otherwise;
    if (!value->is_string()) wrong(key, "a string");
    return value->get<std::string>();
  }

  std::optional<std::string> pattern(const char* key) {
    if (!has(key)) {
      take(key);
      return std::nullopt;
    }
    std::string value = text(key, {});
    const text::Regex compiled(value);  // throws if it does not compile
    return value;
  }

  // A string or a list of strings.
  std::vector<std::string> texts(const char* key) {
    const Json* value = take(key);
    if (!value) return {};
    if (value->is_string()) return {value->get<std::string>()};
    std::vector<std::string> list;
    for (const Json& item : *value) {
      if (!value->is_array() || !item.is_string()) wrong(key, "a string or a list of strings");
      list.push_back(item.get<std::string>());
    }
    if (list.empty()) wrong(key, "a string or a list of strings");
    return list;
  }

  int64_t number(const char* key, int64_t otherwise) {
    const Json* value = take(key);
    if (!value) return otherwise;
    if (!value->is_number_integer() || *value < 1 || *value > (1 << 20)) wrong(key, "a whole number above 0");
    return value->get<int64_t>();
  }

  bool flag(const char* key) {
    const Json* value = take(key);
    if (!value) return false;
    if (!value->is_boolean()) wrong(key, "true or false");
    return value->get<bool>();
  }

  // `id` and `note` are free for the author of the file.
  void finish() const {
    for (const auto& [key, value] : record_.items()) {
      if (key == "id" || key == "note" || std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const std::string near = nearest(key, known_);
      throw_hint(ErrorKind::corrupt, near.empty() ? forms : fmt::format("did you mean \"{}\"?", near), "unknown key {}",
                 json_escape(key));
    }
  }

  [[noreturn]] static void wrong(const char* key, const char* expected) {
    throw_error(ErrorKind::corrupt, "\"{}\" must be {}", key, expected);
  }

 private:
  Json record_;
  std::vector<std::string> known_;
};

Prompt take_prompt(Fields& fields, const char* key) {
  if (fields.has(key) && fields.has("messages")) {
    throw_error(ErrorKind::corrupt, "both \"{}\" and \"messages\" are given; only one may be the prompt", key);
  }
  Prompt prompt;
  prompt.text = fields.text(key, {});
  const Json* messages = fields.take("messages");
  if (const Json* tools = fields.take("tools")) {
    if (!tools->is_array() || !messages) Fields::wrong("tools", "a list, beside \"messages\"");
    if (!tools->empty()) prompt.tools = tools->dump();
  }
  if (messages) {
    if (!messages->is_array() || messages->empty()) Fields::wrong("messages", "a list of at least one message");
    Json list = *messages;
    data::normalise_messages(list);
    prompt.messages = list.dump();
  }
  return prompt;
}

size_t take_answer(Fields& fields, const std::vector<std::string>& choices) {
  const Json* answer = fields.take("answer");
  if (!answer) throw_error(ErrorKind::corrupt, "\"answer\" is missing: the number of the right choice, from 0");
  if (answer->is_string()) {
    const auto found = std::find(choices.begin(), choices.end(), answer->get_ref<const std::string&>());
    if (found == choices.end()) throw_error(ErrorKind::corrupt, "\"answer\" is not one of the choices");
    return static_cast<size_t>(found - choices.begin());
  }
  if (!answer->is_number_integer() || *answer < 0 || *answer >= choices.size()) {
    throw_error(ErrorKind::corrupt, "\"answer\" must be the number of a choice, from 0 to {}, or its text",
                choices.size() - 1);
  }
  return answer->get<size_t>();
}

ChoiceItem choice_item(Fields& fields) {
  ChoiceItem item;
  item.prompt = take_prompt(fields, "context");
  item.delimiter = fields.text("delimiter", item.prompt.messages.empty() ? " " : "");
  item.choices = fields.texts("choices");
  if (item.choices.size() < 2) throw_error(ErrorKind::corrupt, "\"choices\" must be a list of at least two");
  for (const std::string& choice : item.choices) {
    if (choice.empty()) throw_error(ErrorKind::corrupt, "one of the \"choices\" is empty");
    if (std::count(item.choices.begin(), item.choices.end(), choice) > 1) {
      throw_error(ErrorKind::corrupt, "two of the \"choices\" are the same");
    }
  }
  item.answer = take_answer(fields, item.choices);
  return item;
}

AnswerItem answer_item(Fields& fields) {
  AnswerItem item;
  item.prompt = take_prompt(fields, "prompt");
  item.references = fields.texts("reference");
  item.regex = fields.pattern("regex");
  item.extract = fields.pattern("extract");
  item.json = fields.flag("json");
  item.max_tokens = fields.number("max_tokens", item.max_tokens);
  item.stop = fields.texts("stop");
  if (item.prompt.text.empty() && item.prompt.messages.empty()) {
    throw_error(ErrorKind::corrupt, "the prompt is empty");
  }
  if (item.references.empty() && !item.regex && !item.json) {
    throw_hint(ErrorKind::corrupt, forms,
               "the line has no \"reference\", \"regex\" or \"json\" to check the answer with");
  }
  if (item.extract && item.references.empty()) {
    throw_error(ErrorKind::corrupt, "\"extract\" needs a \"reference\" to compare with");
  }
  for (const std::string& reference : item.references) {
    if (reference.size() > max_reference_bytes) {
      throw_error(ErrorKind::corrupt, "a \"reference\" is longer than {} bytes", max_reference_bytes);
    }
  }
  for (const std::string& stop : item.stop) {
    if (stop.empty()) throw_error(ErrorKind::corrupt, "a \"stop\" is empty");
  }
  return item;
}

void add_line(Task& task, const std::string& text, int64_t line) {
  Fields fields(parse_json_object(text));
  if (fields.has("choices")) {
    task.choices.push_back(choice_item(fields));
    task.choices.back().line = line;
  } else if (fields.has("prompt") || fields.has("messages")) {
    task.answers.push_back(answer_item(fields));
    task.answers.back().line = line;
  } else {
    throw_hint(ErrorKind::corrupt, forms, "the line has neither \"choices\" nor a prompt");
  }
  fields.finish();
}

}  // namespace

Task read_task(const std::filesystem::path& path) {
  Task task;
  task.path = path;
  std::filesystem::path name = path.filename();
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  task.name = name.stem().string();
  data::LineReader lines{data::ByteStream(path)};
  for (std::string line; lines.next(line);) {
    if (!lines.too_long() && trim(line).empty()) continue;
    try {
      if (lines.too_long()) {
        throw_error(ErrorKind::corrupt, "is longer than {} MiB", data::LineReader::max_line_bytes >> 20);
      }
      add_line(task, line, lines.line_number());
    } catch (const Error& error) {
      throw Error(ErrorKind::corrupt,
                  fmt::format("{} line {}: {}", path.string(), lines.line_number(), error.message()), error.hint());
    }
  }
  if (task.choices.empty() && task.answers.empty()) {
    throw_hint(ErrorKind::corrupt, forms, "{}: the task file is empty", path.string());
  }
  return task;
}

}  // namespace ingot::eval
