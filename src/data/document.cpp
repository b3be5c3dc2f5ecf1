#include "data/document.h"

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ingot::data {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array formats = {Format::automatic, Format::chat, Format::instruction, Format::completion, Format::text};

std::string keys_of(const Json& record) {
  std::string keys;
  for (const auto& item : record.items()) {
    if (!keys.empty()) keys += ", ";
    keys += '"' + item.key() + '"';
    if (keys.size() > 200) return keys + ", ...";
  }
  return keys.empty() ? "none" : keys;
}

Format format_of(const Json& record) {
  if (record.contains("messages")) return Format::chat;
  if (record.contains("instruction")) return Format::instruction;
  if (record.contains("prompt")) return Format::completion;
  if (record.contains("text")) return Format::text;
  throw_hint(ErrorKind::corrupt,
             "a record is {\"messages\": [...]}, {\"instruction\", \"input\", \"output\"}, {\"prompt\", "
             "\"completion\"} or {\"text\"}",
             "the record is of no known format; its keys are {}", keys_of(record));
}

std::string string_at(const Json& record, const char* key, Format format) {
  const auto found = record.find(key);
  if (found == record.end()) {
    throw_error(ErrorKind::corrupt, "a record of format {} needs \"{}\"; this one has {}", name(format), key,
                keys_of(record));
  }
  if (!found->is_string()) {
    throw_error(ErrorKind::corrupt, "\"{}\" must be a string, not of type {}", key, found->type_name());
  }
  return found->get<std::string>();
}

std::string filled(std::string text, const char* key) {
  if (text.empty()) throw_error(ErrorKind::corrupt, "\"{}\" is empty", key);
  return text;
}

// What a message says: a string, a list of {"type": "text", "text": ...}, or null (a message of tool calls alone).
std::string content_of(const Json& message, size_t index) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    if (message.contains("tool_calls")) return {};
    throw_error(ErrorKind::corrupt, "message {} has no \"content\"", index);
  }
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    throw_error(ErrorKind::corrupt, "the \"content\" of message {} must be a string, not of type {}", index,
                content->type_name());
  }
  std::string text;
  for (const Json& part : *content) {
    if (!part.is_object() || part.value("type", Json()) != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      throw_error(ErrorKind::corrupt, "the \"content\" of message {} has a part that is not text", index);
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

void read_chat(Json& record, Document& document) {
  const auto messages = record.find("messages");
  if (messages == record.end()) {
    throw_error(ErrorKind::corrupt, "a record of format chat needs \"messages\"; this one has {}", keys_of(record));
  }
  if (!messages->is_array() || messages->empty()) {
    throw_error(ErrorKind::corrupt, "\"messages\" must be a list of at least one message");
  }
  bool answered = false;
  for (size_t i = 0; i < messages->size(); ++i) {
    Json& message = (*messages)[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      throw_error(ErrorKind::corrupt, "message {} is not an object with a string \"role\"", i);
    }
    message["content"] = content_of(message, i);
    answered = answered || message["role"] == "assistant";
  }
  if (!answered) {
    throw_error(ErrorKind::corrupt, "\"messages\" has no message with the role assistant, so nothing to learn from");
  }
  document.messages = messages->dump();
  if (const auto tools = record.find("tools"); tools != record.end() && !tools->is_null()) {
    if (!tools->is_array()) throw_error(ErrorKind::corrupt, "\"tools\" must be a list");
    if (!tools->empty()) document.tools = tools->dump();
  }
}

Json parse_object(std::string_view text) {
  Json record;
  try {
    record = Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw_error(ErrorKind::corrupt, "is not JSON: error at byte {}", error.byte);
  }
  if (!record.is_object()) {
    throw_hint(ErrorKind::corrupt, "each line holds one JSON object; 'jq -c .[]' makes lines of a JSON array",
               "is a JSON value of type {}, not an object", record.type_name());
  }
  return record;
}

}  // namespace

const char* name(Format format) {
  switch (format) {
    case Format::automatic: return "auto";
    case Format::chat: return "chat";
    case Format::instruction: return "instruction";
    case Format::completion: return "completion";
    case Format::text: return "text";
  }
  throw_error(ErrorKind::internal, "data format {} has no name", static_cast<int>(format));
}

Format parse_format(std::string_view word) {
  for (const Format format : formats) {
    if (word == name(format)) return format;
  }
  throw_error(ErrorKind::usage, "data format '{}' is not known; it may be auto, chat, instruction, completion or text",
              word);
}

Document parse_record(std::string_view json, Format& format) {
  Json record = parse_object(json);
  Document document;
  document.format = format == Format::automatic ? format_of(record) : format;
  if (document.format == Format::chat) {
    read_chat(record, document);
  } else if (document.format == Format::instruction) {
    document.prompt = filled(string_at(record, "instruction", document.format), "instruction");
    if (record.contains("input") && !record["input"].is_null()) {
      document.input = string_at(record, "input", document.format);
    }
    document.answer = filled(string_at(record, "output", document.format), "output");
  } else if (document.format == Format::completion) {
    document.prompt = string_at(record, "prompt", document.format);
    document.answer = filled(string_at(record, "completion", document.format), "completion");
  } else {
    document.text = filled(string_at(record, "text", document.format), "text");
  }
  format = document.format;
  return document;
}

}  // namespace ingot::data
