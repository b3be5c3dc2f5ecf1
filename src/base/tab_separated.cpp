#include "base/tab_separated.h"

#include "base/error.h"
#include "base/strings.h"

namespace ingot {

std::vector<std::vector<std::string>> tab_separated_lines(std::string_view table, size_t columns) {
  std::vector<std::vector<std::string>> lines;
  bool is_header = true;
  for (const std::string& line : split(table, '\n')) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> fields = split(line, '\t');
    if (fields.size() < columns) {
      throw_error(ErrorKind::corrupt, "'{}': {} fields, not {}", line, fields.size(), columns);
    }
    if (!is_header) lines.push_back(std::move(fields));
    is_header = false;
  }
  return lines;
}

}  // namespace ingot
