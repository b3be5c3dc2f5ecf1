// Models with a name, kept under the home folder: HOME/models/NAME/origin.json and, for those that were fetched, the
// model's own files beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::checkpoint {

// $INGOT_HOME, or ~/.ingot. Nothing when neither it nor $HOME is set: what needs no store works without.
std::optional<std::filesystem::path> find_ingot_home();
// The same for what needs one. ErrorKind::usage when neither is set.
std::filesystem::path ingot_home();

struct RegisteredFile {
  std::string name;  // below the model's folder; '/' between folders
  uint64_t size = 0;
  std::string sha256;
};

// origin.json: {"origin", "path" (a reference to files elsewhere), "files": [{"name", "size", "sha256"}]}.
struct RegisteredModel {
  std::string name;            // "org/model" or "model"
  std::string origin;          // where it came from, as the user gave it
  std::filesystem::path path;  // what to open: a folder or a .gguf file
  std::vector<RegisteredFile> files;
};

class Registry {
 public:
  explicit Registry(const std::filesystem::path& home);

  // Ascending name; none where there is no home folder yet. Errors: corrupt for an origin.json that cannot be read,
  // list_folder's for folders.
  std::vector<RegisteredModel> list() const;
  // Nothing when the name is not registered (or cannot be a name).
  std::optional<RegisteredModel> find(std::string_view name) const;
  // The folder of a model of that name. Errors: usage for what cannot be a name: one or two parts with '/' between, of
  // letters, digits, '.', '_' and '-', not starting with '.' or '-'.
  std::filesystem::path folder(std::string_view name) const;

  // Publishes origin.json. `target`: the path of a model elsewhere; empty when its files are in folder(name).
  void add(std::string_view name, const std::string& origin, const std::filesystem::path& target,
           const std::vector<RegisteredFile>& files) const;

 private:
  std::filesystem::path models_;
};

}  // namespace ingot::checkpoint
