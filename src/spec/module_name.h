// Names of modules as PEFT matches them.
#pragma once

#include <string_view>

namespace ingot::spec {

// Whether an entry of target_modules names the module: its path equals the entry or ends with "." and it.
constexpr bool names_module(std::string_view entry, std::string_view module) {
  if (module == entry) return true;
  return module.size() > entry.size() && module.ends_with(entry) && module[module.size() - entry.size() - 1] == '.';
}

}  // namespace ingot::spec
