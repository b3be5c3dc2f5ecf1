// The maximum nesting depth of parsed values.
#pragma once

namespace ingot {

// Lists and objects around the innermost value of any JSON or YAML text that is read, whatever its source: functions
// that copy, print, compare and render values recurse once per level, so a deeper value could overflow the stack.
// Checked where texts are parsed (base/json.h, base/config_node.h), so that later code need not check.
constexpr int max_json_depth = 200;

}  // namespace ingot
