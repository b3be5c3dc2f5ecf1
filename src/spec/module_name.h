// Matching of module names as in PEFT.
#pragma once

#include <string_view>

namespace ingot::spec {

// Whether an entry of target_modules matches the module: its path equals the entry or ends with "." + entry.
constexpr bool names_module(std::string_view entry, std::string_view module) {
  if (module == entry) return true;
  return module.size() > entry.size() && module.ends_with(entry) && module[module.size() - entry.size() - 1] == '.';
}

}  // namespace ingot::spec
