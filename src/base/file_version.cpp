#include "base/file_version.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ingot {

void require_known_version(const std::string& file, int64_t version, const FileFormat& format) {
  if (version <= format.newest) return;
  throw_hint(ErrorKind::unsupported, "use the version of Ingot that wrote it, or a later one",
             "{}: is a {} of format version {}; this version of Ingot reads format versions up to {}", file,
             format.name, version, format.newest);
}

namespace {

template <class Json>
void require_known_json(const std::string& file, const Json& object, const FileFormat& format) {
  const auto version = object.find("version");
  if (version == object.end() && format.unversioned_before) return;
  if (version == object.end() || !version->is_number_integer() || (!version->is_number_unsigned() && *version < 1) ||
      *version == 0) {
    throw_error(ErrorKind::corrupt, "{}: \"version\" is not a whole number of at least 1", file);
  }
  constexpr auto max_version = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  require_known_version(file, static_cast<int64_t>(std::min(version->template get<uint64_t>(), max_version)), format);
}

}  // namespace

void require_known_version(const std::string& file, const nlohmann::json& object, const FileFormat& format) {
  require_known_json(file, object, format);
}

void require_known_version(const std::string& file, const nlohmann::ordered_json& object, const FileFormat& format) {
  require_known_json(file, object, format);
}

}  // namespace ingot
