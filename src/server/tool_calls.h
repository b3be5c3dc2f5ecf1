// Tool calls in a model's output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::server {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text; only its beginning if the output was cut
};

// How tool calls are written in an output.
enum class ToolForm {
  none,    // no calls: the whole output is text
  forced,  // the output is one call, {"name": ..., "arguments": ...}, as a mask of call_schema enforces
  tagged,  // <tool_call>{...}</tool_call>, possibly after text
  whole,   // the whole output is such an object, or a list of them ("parameters" may stand for "arguments")
};

// Ends a call of ToolForm::tagged.
inline constexpr const char* tool_close_tag = "</tool_call>";

// Reads the text of one output as it is generated, and separates text from tool calls.
class ToolReader {
 public:
  // Calls beyond the first `max_calls` are dropped.
  ToolReader(ToolForm form, std::vector<std::string> tools, size_t max_calls = SIZE_MAX)
      : form_(form), tools_(std::move(tools)), max_(max_calls) {}

  // Adds to the output; returns what is certainly text and not part of a call.
  std::string push(std::string_view piece);
  // At the end: the rest of the text; `calls` is complete then. What looked like calls but is not valid is text. With
  // ToolForm::forced there is one call however early the output ends, unless its name could still be that of another
  // tool.
  std::string finish();
  const std::vector<ToolCall>& calls() const { return calls_; }
  bool cut() const { return cut_; }  // the output ended within a call of ToolForm::forced, even if it is text

 private:
  bool read(std::string_view json);
  bool read_tagged(std::string_view text);
  bool read_forced(std::string_view text);

  ToolForm form_;
  std::vector<std::string> tools_;
  size_t max_;
  std::string held_;
  bool holding_ = false;  // a call has started; text is held back
  bool text_ = false;     // the whole output is text
  bool cut_ = false;
  std::vector<ToolCall> calls_;
};

// A JSON Schema for a call of one of the tools, given as the name and the parameter schema of each.
std::string call_schema(const std::vector<std::pair<std::string, std::string>>& tools);

}  // namespace ingot::server
