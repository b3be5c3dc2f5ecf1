// Models registered by name under the home folder: HOME/models/NAME/origin.json and, for those that were fetched, the
// model's own files next to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::checkpoint {

// $INGOT_HOME, or ~/.ingot. Absent when neither it nor $HOME is set: commands that need no store work without it.
std::optional<std::filesystem::path> find_ingot_home();
// The same for callers that require it. ErrorKind::usage when neither is set.
std::filesystem::path ingot_home();

struct RegisteredFile {
  std::string name;  // relative to the model's folder; '/' between folders
  uint64_t size = 0;
  std::string sha256;
};

// origin.json: {"version": 1, "origin", "path" (a reference to files elsewhere), "files": [{"name", "size",
// "sha256"}]}.
struct RegisteredModel {
  std::string name;            // "org/model" or "model"
  std::string origin;          // source, as the user gave it
  std::filesystem::path path;  // the folder or .gguf file to open
  std::vector<RegisteredFile> files;
};

class Registry {
 public:
  explicit Registry(const std::filesystem::path& home);

  // Ascending by name; empty while there is no home folder. Errors: corrupt for an origin.json that cannot be read,
  // unsupported for one of a newer version, list_folder's for folders.
  std::vector<RegisteredModel> list() const;
  // Absent when the name is not registered (or is not a valid name).
  std::optional<RegisteredModel> find(std::string_view name) const;
  // The folder of the model `name`. Errors: usage for an invalid name. A name is one or two parts with '/' between, of
  // letters, digits, '.', '_' and '-', not starting with '.' or '-'.
  std::filesystem::path folder(std::string_view name) const;

  // Publishes origin.json. `target`: the path of a model elsewhere; empty when its files are in folder(name).
  void add(std::string_view name, const std::string& origin, const std::filesystem::path& target,
           const std::vector<RegisteredFile>& files) const;

 private:
  std::filesystem::path models_;
};

}  // namespace ingot::checkpoint
