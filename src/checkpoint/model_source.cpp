#include "checkpoint/model_source.h"

#include <algorithm>

#include "base/error.h"
#include "base/path.h"
#include "checkpoint/registry.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;

namespace {

bool has_file(const fs::path& folder, std::string_view suffix) {
  const std::vector<fs::path> files = list_folder(folder);
  return std::any_of(files.begin(), files.end(),
                     [&](const fs::path& file) { return file.filename().string().ends_with(suffix); });
}

ModelSource open_folder(const fs::path& folder) {
  const bool config = path_exists(folder / "config.json");
  const bool weights = has_file(folder, ".safetensors") || path_exists(folder / "model.safetensors.index.json");
  const bool pickled = has_file(folder, ".bin") || has_file(folder, ".pt") || has_file(folder, ".pth");
  if (!weights && pickled) {
    throw_hint(ErrorKind::unsupported,
               "convert it once with transformers: AutoModelForCausalLM.from_pretrained(folder)"
               ".save_pretrained(new_folder, safe_serialization=True)",
               "{}: the weights are in PyTorch's pickle format (.bin, .pt), which can run code and is not read",
               folder.string());
  }
  if (!config && !path_exists(folder / "tokenizer.json") && !path_exists(folder / "tokenizer.model")) {
    throw_hint(ErrorKind::not_found, "a model folder has config.json, *.safetensors and tokenizer.json",
               "{}: there is no config.json in this folder", folder.string());
  }
  const fs::path plain = absolute_path(folder).lexically_normal();
  return {SourceKind::hugging_face, folder, (plain.has_filename() ? plain : plain.parent_path()).filename().string()};
}

ModelSource open_path(const fs::path& path) {
  if (is_folder(path)) return open_folder(path);
  if (path.extension() == ".gguf") return {SourceKind::gguf, path, path.stem().string()};
  throw_hint(ErrorKind::unsupported, "give the folder of a Hugging Face model, a .gguf file or a registered name",
             "{}: not a .gguf file", path.string());
}

// The model with that name, or else the only one whose name is "org/" followed by it.
std::optional<RegisteredModel> find_registered(const Registry& registry, std::string_view name) {
  if (std::optional<RegisteredModel> exact = registry.find(name)) return exact;
  std::optional<RegisteredModel> found;
  for (RegisteredModel& model : registry.list()) {
    if (!model.name.ends_with(fmt::format("/{}", name))) continue;
    if (found) return std::nullopt;
    found = std::move(model);
  }
  return found;
}

ModelSource open_registered(std::string_view name, const fs::path& home) {
  const Registry registry(home);
  const std::optional<RegisteredModel> model = find_registered(registry, name);
  if (!model) {
    std::string known;
    for (const RegisteredModel& other : registry.list()) known += (known.empty() ? "" : ", ") + other.name;
    throw_hint(ErrorKind::not_found,
               known.empty() ? "check the path; no model is registered (ingot model pull NAME)"
                             : "check the path; registered models: " + known,
               "model '{}': there is no such path and no model of that name", name);
  }
  if (!path_exists(model->path)) {
    throw_hint(ErrorKind::not_found, fmt::format("fetch it again: ingot model pull {}", model->origin),
               "model '{}': {} no longer exists", model->name, model->path.string());
  }
  ModelSource source = open_path(model->path);
  source.name = model->name;
  return source;
}

// Whether the argument is a path. If the path cannot be examined, it is a name if such a model is registered.
bool is_path(std::string_view path_or_name, const std::optional<fs::path>& home) {
  try {
    return path_exists(path_or_name);
  } catch (const Error&) {
    if (home && find_registered(Registry(*home), path_or_name)) return false;
    throw;
  }
}

}  // namespace

ModelSource open_model(std::string_view path_or_name, const fs::path& home) {
  return is_path(path_or_name, home) ? open_path(path_or_name) : open_registered(path_or_name, home);
}

ModelSource open_model(std::string_view path_or_name) {
  const std::optional<fs::path> home = find_ingot_home();
  if (is_path(path_or_name, home)) return open_path(path_or_name);
  if (home) return open_registered(path_or_name, *home);
  throw_hint(ErrorKind::not_found,
             "check the path; for a registered name set INGOT_HOME to the folder that holds the registered models",
             "model '{}': there is no such path, and neither INGOT_HOME nor HOME is set", path_or_name);
}

}  // namespace ingot::checkpoint
