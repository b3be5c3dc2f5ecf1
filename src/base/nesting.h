// How deep values may lie in one another.
#pragma once

namespace ingot {

// Lists and objects around the innermost value of any JSON or YAML text that is read, whoever wrote it: functions that
// copy, print, compare and render values call themselves once a level, so a deeper one would need more stack than there
// is. Checked where texts are read (base/json.h, base/config_node.h), so that nothing behind has to.
constexpr int max_json_depth = 200;

}  // namespace ingot
