#include "checkpoint/manifest.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/file_version.h"
#include "base/json.h"
#include "base/path.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* format_name = "ingot-checkpoint";

// The hash of a manifest's text without the key "sha256".
std::string digest_of(const json& manifest) {
  json rest = manifest;
  rest.erase("sha256");
  const std::string text = rest.dump();
  return sha256_hex(std::as_bytes(std::span(text)));
}

// Whether `name` is a file directly in the folder, not a path out of it.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

void to_json(json& json, const ManifestFile& file) {
  json = {{"name", file.name}, {"size", file.bytes}, {"sha256", file.sha256}};
}

void from_json(const json& json, ManifestFile& file) {
  file = {json.value("name", ""), json.value("size", uint64_t{0}), json.value("sha256", "")};
}

ManifestFile manifest_file(const fs::path& folder, const std::string& name) {
  const MappedFile file(folder / name);
  return {name, file.bytes().size(), sha256_hex(file.bytes())};
}

std::string manifest_text(const Manifest& manifest, int64_t step) {
  json text = {{"format", format_name},
               {"version", checkpoint_format.newest},
               {"step", step},
               {"model", manifest.model},
               {"metadata", parse_lenient_json(manifest.metadata)},
               {"files", manifest.files}};
  if (!text["metadata"].is_object()) throw_error(ErrorKind::internal, "checkpoint metadata is not a JSON object");
  text["sha256"] = digest_of(text);
  return text.dump(1) + "\n";
}

void throw_damaged(const std::string& shown, int64_t step, std::span<const int64_t> steps, const std::string& what) {
  std::string hint = "there is no earlier checkpoint";
  for (const int64_t other : steps) {
    if (other < step) hint = fmt::format("remove it ({}) to continue from step {}", shown, other);
  }
  throw_hint(ErrorKind::corrupt, hint, "checkpoint {}: {}", shown, what);
}

Manifest parse_manifest(const std::string& text, int64_t step, const std::string& shown,
                        FunctionRef<void(const std::string&)> damaged) {
  Manifest manifest;
  try {
    const json read = try_parse_json(text);
    if (!read.is_object() || read.value("format", "") != format_name) damaged("manifest.json is damaged");
    require_known_version(fmt::format("{}/{}", shown, manifest_name), read, checkpoint_format);
    if (!read.contains("files") || !read["files"].is_array() || !read.contains("metadata")) {
      damaged("manifest.json is damaged");
    }
    if (read.value("sha256", "") != digest_of(read) || read.value("step", int64_t{-1}) != step) {
      damaged("manifest.json was changed after it was written: its SHA-256 differs");
    }
    read["files"].get_to(manifest.files);
    for (const ManifestFile& file : manifest.files) {
      if (!is_plain_name(file.name))
        damaged(fmt::format("manifest.json is damaged: '{}' is not a file name", file.name));
    }
    manifest.model = read.value("model", "");
    manifest.metadata = read["metadata"].dump();
  } catch (const json::exception&) {  // a JSON value has the wrong type
    damaged("manifest.json is damaged");
  }
  return manifest;
}

std::string verify_file(const fs::path& folder, const ManifestFile& file) {
  if (!regular_file_exists(folder / file.name)) return fmt::format("file '{}' is missing", file.name);
  const MappedFile found(folder / file.name);
  const size_t bytes = found.bytes().size();
  if (bytes != file.bytes)
    return fmt::format("file '{}' has {} bytes, but {} were written", file.name, bytes, file.bytes);
  if (sha256_hex(found.bytes()) == file.sha256) return {};
  return fmt::format("file '{}' was changed after it was written: its SHA-256 differs", file.name);
}

}  // namespace ingot::checkpoint
