#include "checkpoint/registry.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_version.h"
#include "base/path.h"
#include "checkpoint/json_object.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* record_name = "origin.json";

bool is_name_part(std::string_view part) {
  constexpr size_t longest = 255;  // max length of a folder's name, in every file system
  if (part.empty() || part.size() > longest || part.front() == '.' || part.front() == '-') return false;
  return std::all_of(part.begin(), part.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

bool is_name(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return is_name_part(name);
  return is_name_part(name.substr(0, slash)) && is_name_part(name.substr(slash + 1));
}

RegisteredModel read_record(const fs::path& folder, std::string name) {
  const fs::path path = folder / record_name;
  const json document = read_json(path);
  const JsonObject record(document, path.string());
  require_known_version(path.string(), document, model_record_format);
  RegisteredModel model;
  model.name = std::move(name);
  model.origin = record.string("origin").value_or("");
  if (const json* files = record.find("files")) {
    if (!files->is_array()) throw_error(ErrorKind::corrupt, "{}: \"files\" is not a list", path.string());
    for (const json& item : *files) {
      const JsonObject file(item, path.string() + ": files");
      model.files.push_back({file.string("name").value_or(""), static_cast<uint64_t>(file.required_integer("size")),
                             file.string("sha256").value_or("")});
    }
  }
  model.path = folder;
  if (const auto target = record.string("path")) {
    model.path = *target;
  } else if (model.files.size() == 1 && model.files.front().name.ends_with(".gguf")) {
    model.path = folder / model.files.front().name;
  }
  return model;
}

}  // namespace

std::optional<fs::path> find_ingot_home() {
  // Called once at start-up by the program's main thread; nothing here modifies the environment.
  if (const char* home = environment("INGOT_HOME"); home != nullptr && *home != '\0') return home;
  if (const char* home = environment("HOME"); home != nullptr && *home != '\0') return fs::path(home) / ".ingot";
  return std::nullopt;
}

fs::path ingot_home() {
  if (std::optional<fs::path> home = find_ingot_home()) return *std::move(home);
  throw_hint(ErrorKind::usage, "set INGOT_HOME to a folder", "neither INGOT_HOME nor HOME is set");
}

Registry::Registry(const fs::path& home) : models_(home / "models") {}

fs::path Registry::folder(std::string_view name) const {
  if (!is_name(name)) {
    throw_hint(ErrorKind::usage, "use one or two parts separated by /, of letters, digits, '.', '_' and '-'",
               "'{}' is not a valid model name", name);
  }
  return models_ / name;
}

std::optional<RegisteredModel> Registry::find(std::string_view name) const {
  if (!is_name(name)) return std::nullopt;
  const fs::path folder = models_ / name;
  if (!path_exists(folder / record_name)) return std::nullopt;
  return read_record(folder, std::string(name));
}

std::vector<RegisteredModel> Registry::list() const {
  std::vector<RegisteredModel> models;
  const auto visit = [&](const fs::path& folder, const std::string& name) {
    if (!path_exists(folder / record_name)) return false;
    models.push_back(read_record(folder, name));
    return true;
  };
  const fs::path home = models_.parent_path();
  if (path_exists(home) && !is_folder(home)) {
    throw_hint(ErrorKind::not_found, "set INGOT_HOME to a folder", "{}: is not a folder", home.string());
  }
  if (!path_exists(models_)) return models;
  for (const fs::path& outer : list_folder(models_)) {
    const std::string name = outer.filename().string();
    if (!is_folder(outer) || visit(outer, name)) continue;
    for (const fs::path& inner : list_folder(outer)) {
      if (is_folder(inner)) visit(inner, name + "/" + inner.filename().string());
    }
  }
  std::sort(models.begin(), models.end(),
            [](const RegisteredModel& a, const RegisteredModel& b) { return a.name < b.name; });
  return models;
}

void Registry::add(std::string_view name, const std::string& origin, const fs::path& target,
                   const std::vector<RegisteredFile>& files) const {
  const fs::path where = folder(name);
  json record = {{"version", model_record_format.newest}, {"origin", origin}, {"files", json::array()}};
  if (!target.empty()) record["path"] = absolute_path(target).string();
  for (const RegisteredFile& file : files) {
    record["files"].push_back({{"name", file.name}, {"size", file.size}, {"sha256", file.sha256}});
  }
  make_folders(where);
  write_file(where / record_name, record.dump(2) + "\n");
}

}  // namespace ingot::checkpoint
