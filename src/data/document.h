// One training document as a file gives it, before any tokenizer.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::data {

enum class Format {
  automatic,    // what the first record looks like
  chat,         // {"messages": [{"role", "content"}, ...], "tools"?: [...]}, OpenAI's
  sharegpt,     // {"conversations": [{"from", "value"}, ...], "system"?, "tools"?}
  instruction,  // {"instruction", "input"?, "output"}
  completion,   // {"prompt", "completion"}
  text,         // {"text"}, or a plain text file
  tokens,       // a row of a .npy file (token_rows.h), a sample of MDS shards (mds_rows.h)
};

// The word a recipe uses: auto, chat, sharegpt, instruction, completion, text, tokens.
const char* name(Format format);
// Errors: usage, listing the words.
Format parse_format(std::string_view word);
// Whether a model's chat template renders such documents, where it has one. Chats need it; instructions do without.
bool is_rendered_as_chat(Format format, bool has_template);

struct Document {
  Format format = Format::text;  // never automatic; sharegpt records become chats
  std::string text;              // text
  std::string prompt;            // completion: the prompt; instruction: the instruction
  std::string input;             // instruction: what it is about, may be empty
  std::string answer;            // completion and instruction
  std::string messages;          // chat: a JSON array of objects with a string "role" and a string "content"
  std::string tools;             // chat: a JSON array, or empty
  std::vector<int32_t> ids;      // tokens
  std::vector<uint8_t> counted;  // tokens: of each, 1 when predicting it counts
  bool splittable = false;       // tokens: may be cut anywhere
  int64_t line = 0;              // in its file, from 1 (tokens: row); 0 for a whole file of plain text
};

// Whether only a part of a document of tokens counts in the loss. Its first token is predicted by nothing.
bool counts_in_part(const Document& document);

// Reads one JSON object. `format` automatic is replaced by what the record is; otherwise the record must be of it.
// A chat has at least one assistant message; content given as a list of text parts is joined, null becomes "", and the
// arguments of a tool call that are a text of JSON, as OpenAI writes them, become the object that templates expect.
// Of ShareGPT, human (user), gpt (assistant), system, tool (observation) and function_call turns become messages; a
// function_call is a tool call of the assistant.
// Other keys of a record (names, ids, sources) are ignored; other keys of a message are kept.
// Errors: corrupt, saying what is wrong but not where: the caller knows file and line.
Document parse_record(std::string_view json, Format& format);

// What `messages` of a chat must be, checked and brought into the form above. REQUIRES an array. Errors: corrupt.
void normalise_messages(nlohmann::ordered_json& messages);

}  // namespace ingot::data
