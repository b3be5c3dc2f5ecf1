// Tables of tab-separated values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// The fields of each line of `table`. Lines that are empty or begin with # are left out, and so is the first other
// line, which has the columns' names. Errors: corrupt for a line with fewer than `columns` fields.
std::vector<std::vector<std::string>> tab_separated_lines(std::string_view table, size_t columns);

}  // namespace ingot
