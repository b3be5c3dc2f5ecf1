#include "server/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ingot::server {

Tool read_function(Fields& fields) {
  Tool tool;
  tool.name = fields.needed_text("name");
  if (tool.name.empty() || tool.name.size() > 64) {
    throw bad_field(fields.path_of("name"), "invalid_value", "A function's name must have from 1 to 64 bytes.");
  }
  fields.text("description");
  const Json* parameters = fields.object("parameters");
  tool.parameters = parameters ? parameters->dump() : R"({"type":"object","properties":{}})";
  tool.strict = fields.boolean("strict").value_or(false);
  return tool;
}

ToolChoice read_choice_mode(Fields& fields) {
  const std::string mode = *fields.word("tool_choice", {"none", "auto", "required"});
  if (mode == "none") return ToolChoice::none;
  return mode == "required" ? ToolChoice::required : ToolChoice::automatic;
}

void allow_tools(ChatRequest& request, const std::vector<std::string>& names, const std::string& param) {
  for (const std::string& name : names) {
    if (std::ranges::find(request.tool_list, name, &Tool::name) != request.tool_list.end()) continue;
    throw bad_field(param, "invalid_value", fmt::format("There is no tool '{}'.", name.substr(0, 64)));
  }
  std::erase_if(request.tool_list,
                [&](const Tool& tool) { return std::ranges::find(names, tool.name) == names.end(); });
}

}  // namespace ingot::server
