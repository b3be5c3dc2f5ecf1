#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/compression.h"
#include "formats/digest.h"
#include "formats/mds.h"
#include "formats/mds_json.h"
#include "formats/printable.h"
#include "formats/unique_json.h"

namespace ingot::formats {
namespace {

using Json = nlohmann::json;

// Parses one shard of an index; its messages name the shard.
class ShardParser {
 public:
  ShardParser(const Json& shard, std::string where) : shard_(shard), where_(std::move(where)) {}

  MdsShardInfo parse() {
    if (!shard_.is_object()) bad("is not an object");
    check_keys(shard_, keys, "");
    if (at("version") != 2) other("version", "2");
    if (at("format") != "mds") other("format", "mds");
    MdsShardInfo info;
    info.columns = columns();
    if (!at("compression").is_null()) {
      info.compression = string(at("compression"), "compression");
      named([&] { compression_name(info.compression); });
    }
    for (const Json& hash : list("hashes")) {
      info.hashes.push_back(string(hash, "hashes"));
      if (!is_digest(info.hashes.back())) {
        throw_error(ErrorKind::unsupported, "{}: the hash {} is not known", where_, printable(info.hashes.back()));
      }
    }
    if (!at("size_limit").is_null()) info.size_limit = number(at("size_limit"), "size_limit", max_value);
    info.samples = static_cast<int64_t>(number(at("samples"), "samples", max_value));
    info.raw = file("raw_data", info.hashes);
    if (!at("zip_data").is_null()) info.zip = file("zip_data", info.hashes);
    if (info.zip.has_value() == info.compression.empty()) bad("has only one of compression and zip_data");
    return info;
  }

 private:
  static constexpr uint64_t max_value = std::numeric_limits<uint32_t>::max();  // offsets in a shard are 32-bit
  static constexpr std::array<std::string_view, 11> keys = {
      "version", "format",     "column_names", "column_encodings", "column_sizes", "compression",
      "hashes",  "size_limit", "samples",      "raw_data",         "zip_data"};
  static constexpr std::array<std::string_view, 3> file_keys = {"basename", "bytes", "hashes"};

  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    throw_error(ErrorKind::corrupt, "{} {}", where_, fmt::format(format, std::forward<Args>(args)...));
  }

  [[noreturn]] void other(const char* key, const char* wanted) const {
    throw_error(ErrorKind::unsupported, "{}: {} is {}; only {} is supported", where_, key, printable(at(key).dump()),
                wanted);
  }

  // Prefixes errors of `call` with the shard.
  template <class Call>
  void named(Call call) const {
    try {
      call();
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", where_, error.message()), error.hint());
    }
  }

  const Json& at(const char* key) const { return shard_.find(key).value(); }

  void check_keys(const Json& object, std::span<const std::string_view> wanted, const std::string& of) const {
    for (const std::string_view key : wanted) {
      if (!object.contains(key)) bad("has no {}{}", of, key);
    }
    for (const auto& [key, value] : object.items()) {
      if (std::find(wanted.begin(), wanted.end(), key) == wanted.end()) {
        bad("has the unknown key {}{}", of, printable(key));
      }
    }
  }

  std::string string(const Json& value, const char* key) const {
    if (!value.is_string()) bad("has {} that is not a string", key);
    return value.get<std::string>();
  }

  uint64_t number(const Json& value, const char* key, uint64_t limit) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > limit) {
      bad("has {} that is not a whole number up to {}", key, limit);
    }
    return value.get<uint64_t>();
  }

  const Json& list(const char* key) const {
    if (!at(key).is_array()) bad("has {} that is not a list", key);
    return at(key);
  }

  std::vector<MdsColumn> columns() const {
    const Json &names = list("column_names"), &encodings = list("column_encodings"), &sizes = list("column_sizes");
    if (names.size() != encodings.size() || names.size() != sizes.size() || names.empty()) {
      bad("has {} column_names, {} column_encodings and {} column_sizes", names.size(), encodings.size(), sizes.size());
    }
    std::vector<MdsColumn> found;
    for (size_t i = 0; i < names.size(); ++i) {
      MdsColumn column{string(names[i], "column_names"), {}};
      if (!found.empty() && found.back().name >= column.name) bad("has columns that are not sorted by name");
      named([&] { column.encoding = parse_mds_encoding(string(encodings[i], "column_encodings")); });
      const std::optional<uint32_t> size = column.encoding.size();
      if (size ? sizes[i] != *size : !sizes[i].is_null()) {
        bad("has a column_sizes entry for {} that does not match its encoding {}", printable(column.name),
            printable(column.encoding.name));
      }
      found.push_back(std::move(column));
    }
    return found;
  }

  MdsFileInfo file(const char* key, const std::vector<std::string>& hashes) const {
    const Json& object = at(key);
    if (!object.is_object()) bad("has {} that is not an object", key);
    check_keys(object, file_keys, fmt::format("{}.", key));
    MdsFileInfo info;
    info.basename = string(object["basename"], key);
    const std::filesystem::path path(info.basename);
    const bool leaves = std::any_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
    if (info.basename.empty() || path.is_absolute() || leaves || !path.has_filename() ||
        info.basename.find_first_of(std::string_view("\\\0", 2)) != std::string::npos) {
      bad("has a file {} that is not inside its folder", printable(info.basename));
    }
    info.bytes = number(object["bytes"], key, max_value);
    if (!object["hashes"].is_object()) bad("has {}.hashes that is not an object", key);
    for (const auto& [name, hex] : object["hashes"].items()) {
      if (std::find(hashes.begin(), hashes.end(), name) == hashes.end())
        bad("has a hash in {}.hashes that \"hashes\" does not list", key);
      info.hashes[name] = string(hex, key);
    }
    return info;
  }

  const Json& shard_;
  std::string where_;
};

Json file_json(const MdsFileInfo& file) {
  Json hashes = Json::object();
  for (const auto& [name, hex] : file.hashes) hashes[name] = hex;
  return {{"basename", file.basename}, {"bytes", file.bytes}, {"hashes", std::move(hashes)}};
}

}  // namespace

Json mds_config_json(const MdsShardInfo& shard) {
  Json names = Json::array(), encodings = Json::array(), sizes = Json::array();
  for (const MdsColumn& column : shard.columns) {
    names.push_back(column.name);
    encodings.push_back(column.encoding.name);
    const std::optional<uint32_t> size = column.encoding.size();
    sizes.push_back(size ? Json(*size) : Json());
  }
  return {{"version", 2},
          {"format", "mds"},
          {"compression", shard.compression.empty() ? Json() : Json(shard.compression)},
          {"hashes", shard.hashes},
          {"size_limit", shard.size_limit ? Json(*shard.size_limit) : Json()},
          {"column_names", std::move(names)},
          {"column_encodings", std::move(encodings)},
          {"column_sizes", std::move(sizes)}};
}

std::string python_json(const Json& value) {
  std::string text;
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      text += (text.empty() ? "" : ", ") + Json(key).dump(-1, ' ', true) + ": " + python_json(item);
    }
    return "{" + text + "}";
  }
  if (value.is_array()) {
    for (const Json& item : value) text += (text.empty() ? "" : ", ") + python_json(item);
    return "[" + text + "]";
  }
  return value.dump(-1, ' ', true);
}

std::vector<MdsShardInfo> parse_mds_index(std::string_view text, const std::string& source) {
  const Json index = parse_unique_json(text, source);
  if (!index.is_object() || !index.contains("version") || !index.contains("shards") || !index["shards"].is_array()) {
    throw_error(ErrorKind::corrupt, "{}: not an MDS index: it has no \"version\" or no list \"shards\"", source);
  }
  if (index["version"] != 2) {
    throw_error(ErrorKind::unsupported, "{}: index version {} is not supported; expected version 2", source,
                printable(index["version"].dump()));
  }
  std::vector<MdsShardInfo> shards;
  for (const Json& shard : index["shards"]) {
    shards.push_back(ShardParser(shard, fmt::format("{}: shard {}", source, shards.size())).parse());
  }
  return shards;
}

std::string mds_index_text(std::span<const MdsShardInfo> shards) {
  Json list = Json::array();
  for (const MdsShardInfo& shard : shards) {
    Json object = mds_config_json(shard);
    object["samples"] = shard.samples;
    object["raw_data"] = file_json(shard.raw);
    object["zip_data"] = shard.zip ? file_json(*shard.zip) : Json();
    list.push_back(std::move(object));
  }
  return python_json({{"version", 2}, {"shards", std::move(list)}});
}

}  // namespace ingot::formats
