#include "formats/unique_json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "formats/printable.h"

namespace ingot::formats {

nlohmann::json parse_unique_json(std::string_view text, const std::string& source) {
  std::vector<std::unordered_set<std::string>> keys;
  const auto callback = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    if (depth > 8) throw_error(ErrorKind::corrupt, "{}: nested too deep for an index", source);
    if (event == nlohmann::json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == nlohmann::json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == nlohmann::json::parse_event_t::key) {
      const std::string& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        throw_error(ErrorKind::corrupt, "{}: duplicate key {}", source, printable(key));
      }
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, callback);
  } catch (const nlohmann::json::exception&) {
    throw_error(ErrorKind::corrupt, "{}: not valid UTF-8 JSON", source);
  }
}

}  // namespace ingot::formats
