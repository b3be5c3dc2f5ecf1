// One training document as read from a file, before tokenization.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::data {

enum class Format {
  automatic,    // detected from the first record
  chat,         // {"messages": [{"role", "content"}, ...], "tools"?: [...]}, OpenAI's
  sharegpt,     // {"conversations": [{"from", "value"}, ...], "system"?, "tools"?}
  instruction,  // {"instruction", "input"?, "output"}
  completion,   // {"prompt", "completion"}
  text,         // {"text"}, or a plain text file
  tokens,       // a row of a .npy file (token_rows.h), a sample of MDS shards (mds_rows.h)
};

// The recipe's name for a format: auto, chat, sharegpt, instruction, completion, text, tokens.
const char* name(Format format);
// Errors: usage, listing the words.
Format parse_format(std::string_view word);
// Whether such documents are rendered with the model's chat template. Chats require a template; instructions use one if
// the model has it.
bool is_rendered_as_chat(Format format, bool has_template);

struct Document {
  Format format = Format::text;    // never automatic; sharegpt records become chats
  std::string text;                // text
  std::string prompt;              // completion: the prompt; instruction: the instruction
  std::string input;               // instruction: optional context, may be empty
  std::string answer;              // completion and instruction
  std::string messages;            // chat: a JSON array of objects with a string "role" and a string "content"
  std::string tools;               // chat: a JSON array, or empty
  std::vector<int32_t> ids;        // tokens
  std::vector<uint8_t> loss_mask;  // tokens: 1 for each token whose prediction is in the loss
  bool splittable = false;         // tokens: may be split at any token
  int64_t line = 0;                // in its file, from 1 (tokens: row); 0 for a plain text file as a whole
};

// Whether the loss leaves out some tokens of a tokenized document. The first token, which is never predicted, is
// ignored.
bool has_loss_mask(const Document& document);

// Parses one JSON object. `format` automatic is replaced by the record's format; otherwise the record must be of the
// given format. A chat has at least one assistant message. Content that is a list of text parts is joined, null becomes
// "", and tool call arguments that are a JSON string, as in OpenAI's format, become the object that templates expect.
// ShareGPT turns from human (user), gpt (assistant), system, tool (observation) and function_call become messages; a
// function_call becomes a tool call of the assistant.
// Other keys of a record (names, ids, sources) are ignored; other keys of a message are kept.
// Errors: corrupt, saying what is wrong but not where: the caller knows file and line.
Document parse_record(std::string_view json, Format& format);

// Validates the messages of a chat and converts them to the form described above. REQUIRES an array. Errors: corrupt.
void normalise_messages(nlohmann::ordered_json& messages);

}  // namespace ingot::data
