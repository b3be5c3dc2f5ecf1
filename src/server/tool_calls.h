// Calls of tools in what a model writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::server {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text; the beginning of it where the output was cut
};

// How calls stand in an output.
enum class ToolForm {
  none,    // there are none: all of it is text
  forced,  // the output is one call, {"name": ..., "arguments": ...}, as a mask of call_schema has it
  tagged,  // <tool_call>{...}</tool_call>, text may stand before
  whole,   // the output is nothing but such an object, or a list of them ("parameters" may stand for "arguments")
};

// Behind a call of ToolForm::tagged.
inline constexpr const char* tool_close_tag = "</tool_call>";

// Takes the text of one output as it comes, and tells text from calls.
class ToolReader {
 public:
  // Of more than `most` calls, those behind are dropped.
  ToolReader(ToolForm form, std::vector<std::string> tools, size_t most = SIZE_MAX)
      : form_(form), tools_(std::move(tools)), most_(most) {}

  // The part that is text for certain.
  std::string push(std::string_view piece);
  // At the end: the rest of the text; there are no more `calls` then. What looked like calls but is none is text. Of
  // ToolForm::forced there is one call however early the output ends, but where its name could still be another's.
  std::string finish();
  const std::vector<ToolCall>& calls() const { return calls_; }
  bool cut() const { return cut_; }  // the output ended within the call of ToolForm::forced, also where that is text

 private:
  bool read(std::string_view json);
  bool read_tagged(std::string_view text);
  bool read_forced(std::string_view text);

  ToolForm form_;
  std::vector<std::string> tools_;
  size_t most_;
  std::string held_;
  bool holding_ = false;  // a call has begun
  bool text_ = false;     // the whole output is text
  bool cut_ = false;
  std::vector<ToolCall> calls_;
};

// A JSON Schema of a call of one of the tools, each given as its name and the schema of its parameters.
std::string call_schema(const std::vector<std::pair<std::string, std::string>>& tools);

}  // namespace ingot::server
