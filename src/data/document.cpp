#include "data/document.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace ingot::data {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array formats = {Format::automatic,  Format::chat, Format::sharegpt, Format::instruction,
                                Format::completion, Format::text, Format::tokens};

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
  if (record.contains("conversations")) return Format::sharegpt;
  if (record.contains("instruction")) return Format::instruction;
  if (record.contains("prompt")) return Format::completion;
  if (record.contains("text")) return Format::text;
  throw_hint(ErrorKind::corrupt,
             "a record is {\"messages\": [...]}, {\"conversations\": [...]}, {\"instruction\", \"input\", \"output\"}, "
             "{\"prompt\", \"completion\"} or {\"text\"}",
             "the record has an unknown format; its keys are {}", keys_of(record));
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

// A message's content: a string, a list of {"type": "text", "text": ...}, or null (a message with tool calls only).
std::string content_of(const Json& message, size_t index) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    if (message.contains("tool_calls")) return {};
    if (message.contains("function_call")) {
      throw_hint(ErrorKind::corrupt, "write it as \"tool_calls\": [{\"type\": \"function\", \"function\": {...}}]",
                 "message {} has a \"function_call\", OpenAI's old form", index);
    }
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

// A tool call is {"function": {"name", "arguments"}} or, in some data sets, {"name", "arguments"}.
void normalise_tool_call(Json& call, const std::string& where) {
  if (!call.is_object()) throw_error(ErrorKind::corrupt, "{} is not an object", where);
  if (call.contains("function") && !call["function"].is_object()) {
    throw_error(ErrorKind::corrupt, "the \"function\" of {} is not an object", where);
  }
  Json& function = call.contains("function") ? call["function"] : call;
  if (!function.contains("name") || !function["name"].is_string()) {
    throw_error(ErrorKind::corrupt, "{} has no string \"name\"", where);
  }
  const auto arguments = function.find("arguments");
  if (arguments == function.end() || !arguments->is_string()) return;
  try {
    *arguments = parse_json_object(arguments->get_ref<const std::string&>());
  } catch (const Error& error) {
    throw_error(ErrorKind::corrupt, "the \"arguments\" of {}: {}", where, error.message());
  }
}

void normalise_tool_calls(Json& message, size_t index) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return;
  if (!calls->is_array()) throw_error(ErrorKind::corrupt, "the \"tool_calls\" of message {} must be a list", index);
  for (size_t c = 0; c < calls->size(); ++c) {
    normalise_tool_call((*calls)[c], fmt::format("tool call {} of message {}", c, index));
  }
}

// OpenAI's per-message weight: 0 excludes the answer from the loss.
void check_weight(const Json& message, size_t index) {
  const auto weight = message.find("weight");
  if (weight == message.end() || weight->is_null() || *weight == 0 || *weight == 1) return;
  throw_error(ErrorKind::corrupt, "the \"weight\" of message {} must be 0 or 1", index);
}

void set_tools(Json tools, Document& document) {
  if (tools.is_string() && tools.get_ref<const std::string&>().empty()) return;
  if (tools.is_string()) tools = parse_json(tools.get_ref<const std::string&>());
  if (tools.is_null()) return;
  if (!tools.is_array()) throw_error(ErrorKind::corrupt, "\"tools\" must be a list");
  if (!tools.empty()) document.tools = tools.dump();
}

// Validates the messages and stores them in the document.
void set_messages(Json messages, const char* key, Document& document) {
  if (!messages.is_array() || messages.empty()) {
    throw_error(ErrorKind::corrupt, "\"{}\" must be a list of at least one message", key);
  }
  normalise_messages(messages);
  if (std::none_of(messages.begin(), messages.end(), [](const Json& m) { return m["role"] == "assistant"; })) {
    throw_error(ErrorKind::corrupt, "\"{}\" has no assistant message, so there is nothing to train on", key);
  }
  document.messages = messages.dump();
}

void read_chat(const Json& record, Document& document) {
  const auto messages = record.find("messages");
  if (messages == record.end()) {
    throw_error(ErrorKind::corrupt, "a record of format chat needs \"messages\"; this one has {}", keys_of(record));
  }
  set_messages(*messages, "messages", document);
  set_tools(record.value("tools", Json()), document);
}

Json message_of_turn(const Json& turn, size_t index) {
  if (!turn.is_object() || !turn.contains("from") || !turn["from"].is_string() || !turn.contains("value") ||
      !turn["value"].is_string()) {
    throw_error(ErrorKind::corrupt, "turn {} is not an object with strings \"from\" and \"value\"", index);
  }
  const std::string& from = turn["from"].get_ref<const std::string&>();
  const auto message = [&](const char* role) { return Json{{"role", role}, {"content", turn["value"]}}; };
  if (from == "human" || from == "user") return message("user");
  if (from == "gpt" || from == "assistant") return message("assistant");
  if (from == "system") return message("system");
  if (from == "tool" || from == "observation" || from == "function_response") return message("tool");
  if (from != "function_call") {
    throw_hint(ErrorKind::corrupt, "it may be system, human, gpt, function_call or observation",
               "turn {} is from '{}', which is not known", index, from);
  }
  try {
    Json function = parse_json_object(turn["value"].get_ref<const std::string&>());
    return Json{{"role", "assistant"},
                {"content", ""},
                {"tool_calls", Json::array({Json{{"type", "function"}, {"function", std::move(function)}}})}};
  } catch (const Error& error) {
    throw_error(ErrorKind::corrupt, "the function_call of turn {}: {}", index, error.message());
  }
}

void read_sharegpt(const Json& record, Document& document) {
  const auto turns = record.find("conversations");
  if (turns == record.end()) {
    throw_error(ErrorKind::corrupt, "a record of format sharegpt needs \"conversations\"; this one has {}",
                keys_of(record));
  }
  if (!turns->is_array() || turns->empty()) {
    throw_error(ErrorKind::corrupt, "\"conversations\" must be a list of at least one turn");
  }
  Json messages = Json::array();
  if (record.contains("system") && !record["system"].is_null()) {
    std::string system = string_at(record, "system", Format::sharegpt);
    if (!system.empty()) messages.push_back({{"role", "system"}, {"content", std::move(system)}});
  }
  for (size_t t = 0; t < turns->size(); ++t) messages.push_back(message_of_turn((*turns)[t], t));
  set_messages(std::move(messages), "conversations", document);
  set_tools(record.value("tools", Json()), document);
}

}  // namespace

const char* name(Format format) {
  switch (format) {
    case Format::automatic: return "auto";
    case Format::chat: return "chat";
    case Format::sharegpt: return "sharegpt";
    case Format::instruction: return "instruction";
    case Format::completion: return "completion";
    case Format::text: return "text";
    case Format::tokens: return "tokens";
  }
  throw_error(ErrorKind::internal, "data format {} has no name", static_cast<int>(format));
}

bool is_rendered_as_chat(Format format, bool has_template) {
  return format == Format::chat || format == Format::sharegpt || (format == Format::instruction && has_template);
}

Format parse_format(std::string_view word) {
  for (const Format format : formats) {
    if (word == name(format)) return format;
  }
  throw_error(ErrorKind::usage,
              "data format '{}' is not known; it may be auto, chat, sharegpt, instruction, completion, text or tokens",
              word);
}

void normalise_messages(Json& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      throw_error(ErrorKind::corrupt, "message {} is not an object with a string \"role\"", i);
    }
    message["content"] = content_of(message, i);
    normalise_tool_calls(message, i);
    check_weight(message, i);
  }
}

bool has_loss_mask(const Document& document) {
  const std::vector<uint8_t>& loss_mask = document.loss_mask;
  return !loss_mask.empty() && std::find(loss_mask.begin() + 1, loss_mask.end(), 0) != loss_mask.end();
}

Document parse_record(std::string_view json, Format& format) {
  const Json record = parse_json_object(json);
  Document document;
  const Format kind = format == Format::automatic ? format_of(record) : format;
  document.format = kind;
  if (kind == Format::chat) {
    read_chat(record, document);
  } else if (kind == Format::sharegpt) {
    read_sharegpt(record, document);
    document.format = Format::chat;
  } else if (kind == Format::instruction) {
    document.prompt = filled(string_at(record, "instruction", kind), "instruction");
    if (record.contains("input") && !record["input"].is_null()) document.input = string_at(record, "input", kind);
    document.answer = filled(string_at(record, "output", kind), "output");
  } else if (kind == Format::completion) {
    document.prompt = string_at(record, "prompt", kind);
    document.answer = filled(string_at(record, "completion", kind), "completion");
  } else if (kind == Format::tokens) {
    throw_error(ErrorKind::usage, "format tokens is for .npy files, not for JSON");
  } else {
    document.text = filled(string_at(record, "text", kind), "text");
  }
  format = kind;
  return document;
}

}  // namespace ingot::data
