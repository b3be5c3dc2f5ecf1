#include "base/processor.h"

#include <charconv>
#include <fstream>
#include <map>

#include "base/strings.h"

namespace ingot {
namespace {

// The fields "name : value" of the first processor.
std::map<std::string, std::string> first_processor(const std::filesystem::path& root) {
  std::map<std::string, std::string> fields;
  std::ifstream file(root / "proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !trim(line).empty();) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    fields.emplace(trim(std::string_view(line).substr(0, colon)), trim(std::string_view(line).substr(colon + 1)));
  }
  return fields;
}

int64_t number(std::string_view text, int base) {
  if (base == 16 && text.starts_with("0x")) text.remove_prefix(2);
  int64_t value = -1;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return result.ec == std::errc() ? value : -1;
}

}  // namespace

ProcessorId processor_id(const std::filesystem::path& root) {
  std::map<std::string, std::string> fields = first_processor(root);
  if (fields.contains("vendor_id")) {
    return {fields["vendor_id"], number(fields["cpu family"], 10), number(fields["model"], 10)};
  }
  if (fields.contains("CPU implementer")) return {fields["CPU implementer"], 0, number(fields["CPU part"], 16)};
  return {};
}

}  // namespace ingot
