#include "checkpoint/pull.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "checkpoint/json_object.h"
#include "checkpoint/model_source.h"
#include "storage/fetch.h"
#include "storage/store.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* public_hub = "https://huggingface.co";

std::string setting(const std::string& given, const char* variable, const char* fallback) {
  if (!given.empty()) return given;
  const char* value = environment(variable);
  return value != nullptr && *value != '\0' ? value : fallback;
}

// Whether a file of a model folder or hub repository is fetched. Subfolders hold other formats and are skipped.
bool is_wanted(const std::string& name) {
  static constexpr const char* exact[] = {"config.json",
                                          "generation_config.json",
                                          "model.safetensors.index.json",
                                          "tokenizer.json",
                                          "tokenizer_config.json",
                                          "special_tokens_map.json",
                                          "added_tokens.json",
                                          "chat_template.jinja",
                                          "tokenizer.model",
                                          "vocab.json",
                                          "merges.txt",
                                          "README.md"};
  if (name.find('/') != std::string::npos || name.front() == '.') return false;
  if (name.starts_with("LICENSE") || (name.starts_with("model") && name.ends_with(".safetensors"))) return true;
  return std::any_of(std::begin(exact), std::end(exact), [&](const char* other) { return name == other; });
}

RegisteredFile describe(const fs::path& folder, const std::string& name) {
  const MappedFile file(folder / name);
  return {name, file.bytes().size(), sha256_hex(file.bytes())};
}

FetchOptions fetch_options(const PullOptions& options, const std::string& file, const std::string& sha256) {
  FetchOptions fetching;
  fetching.sha256 = sha256;
  const std::string token = setting(options.token, "HF_TOKEN", "");
  if (!token.empty()) fetching.headers.push_back("Authorization: Bearer " + token);
  if (options.progress) {
    fetching.progress = [&options, file](uint64_t done, uint64_t total) { return options.progress(file, done, total); };
  }
  return fetching;
}

RegisteredModel registered(const Registry& registry, const std::string& name) { return registry.find(name).value(); }

RegisteredModel pull_local(const std::string& origin, const PullOptions& options) {
  const ModelSource source = open_model(origin, options.home);  // throws if it is not a model
  const Registry registry(options.home);
  const std::string name = options.name.empty() ? source.name : options.name;
  const fs::path folder = registry.folder(name);
  if (!options.copy) {
    registry.add(name, origin, source.path, {});
    return registered(registry, name);
  }
  make_folders(folder);
  std::vector<RegisteredFile> files;
  const auto copy = [&](const fs::path& from) {
    const std::string file = from.filename().string();
    fetch(from.string(), folder / file, fetch_options({.progress = options.progress}, file, ""));
    files.push_back(describe(folder, file));
  };
  if (source.kind == SourceKind::gguf) {
    copy(source.path);
  } else {
    for (const fs::path& file : list_folder(source.path)) {
      if (is_wanted(file.filename().string()) && regular_file_exists(file)) copy(file);
    }
  }
  registry.add(name, origin, {}, files);
  return registered(registry, name);
}

RegisteredModel pull_file(const std::string& origin, const PullOptions& options) {
  const std::string file = origin.substr(origin.rfind('/') + 1);
  const Registry registry(options.home);
  const std::string name = options.name.empty() ? fs::path(file).stem().string() : options.name;
  const fs::path folder = registry.folder(name);
  make_folders(folder);
  fetch(origin, folder / file, fetch_options(options, file, ""));
  registry.add(name, origin, {}, {describe(folder, file)});
  return registered(registry, name);
}

// The parts of an origin on a hub: the hub's address, "org/model" and the revision.
struct HubModel {
  std::string endpoint;
  std::string repository;
  std::string revision = "main";
};

HubModel hub_model(const std::string& origin, const PullOptions& options) {
  HubModel model;
  model.repository = origin;
  model.endpoint = setting(options.endpoint, "HF_ENDPOINT", public_hub);
  if (const size_t scheme = origin.find("://"); scheme != std::string::npos) {
    const size_t path = origin.find('/', scheme + 3);
    model.endpoint = origin.substr(0, path);
    model.repository = path == std::string::npos ? "" : origin.substr(path + 1);
  }
  while (model.endpoint.ends_with('/')) model.endpoint.pop_back();
  while (model.repository.ends_with('/')) model.repository.pop_back();
  if (const size_t at = model.repository.find('@'); at != std::string::npos) {
    model.revision = model.repository.substr(at + 1);
    model.repository.resize(at);
  }
  const auto slashes = std::count(model.repository.begin(), model.repository.end(), '/');
  if (slashes != 1 || model.revision.empty()) {
    throw_hint(ErrorKind::not_found, "give a path, org/model, https://host/org/model, or the URI of a .gguf file",
               "'{}' is neither a path nor the name of a model on a hub", origin);
  }
  return model;
}

RegisteredModel pull_hub(const std::string& origin, const PullOptions& options) {
  const HubModel hub = hub_model(origin, options);
  const Registry registry(options.home);
  const std::string name = options.name.empty() ? hub.repository : options.name;
  const fs::path folder = registry.folder(name);

  const std::string list_uri = fmt::format("{}/api/models/{}/tree/{}", hub.endpoint, hub.repository, hub.revision);
  const json list =
      parse_json(fetch_text(list_uri, uint64_t{1} << 26, fetch_options({.token = options.token}, "", "")), list_uri);
  if (!list.is_array()) throw_error(ErrorKind::corrupt, "{}: is not a list of files", list_uri);
  bool weights = false;
  std::vector<RegisteredFile> wanted;
  for (const json& item : list) {
    const JsonObject entry(item, list_uri);
    const std::string file = entry.string("path").value_or("");
    if (entry.string("type") != "file" || file.empty() || !is_wanted(file)) continue;
    RegisteredFile described{file, static_cast<uint64_t>(entry.required_integer("size")), ""};
    if (const auto large = entry.object("lfs")) described.sha256 = large->string("oid").value_or("");
    weights |= file.ends_with(".safetensors");
    wanted.push_back(described);
  }
  if (!weights) {
    throw_hint(ErrorKind::not_found, "use a model that has them, or give the URI of a .gguf file",
               "{}: {} has no model*.safetensors", hub.endpoint, hub.repository);
  }
  make_folders(folder);
  std::vector<RegisteredFile> files;
  for (const RegisteredFile& file : wanted) {
    const fs::path out = folder / file.name;
    const bool there = path_exists(out) && !file.sha256.empty() && regular_file_bytes(out) == file.size &&
                       describe(folder, file.name).sha256 == file.sha256;
    if (!there) {
      const std::string uri = fmt::format("{}/{}/resolve/{}/{}", hub.endpoint, hub.repository, hub.revision, file.name);
      fetch(uri, out, fetch_options(options, file.name, file.sha256));
    }
    files.push_back(describe(folder, file.name));
    if (files.back().size != file.size) {
      remove_path(out);
      throw_hint(ErrorKind::corrupt, "try again", "{}: has {} bytes, but the hub lists {}", out.string(),
                 files.back().size, file.size);
    }
  }
  registry.add(name, origin, {}, files);
  return registered(registry, name);
}

// Fetches a model's folder from an object store.
RegisteredModel pull_store(const std::string& origin, const PullOptions& options) {
  std::string bare = origin;
  while (bare.ends_with('/')) bare.pop_back();
  const std::unique_ptr<Store> store = open_store(bare);
  std::vector<StoredObject> wanted;
  bool weights = false, config = false;
  for (StoredObject& object : store->list("")) {
    if (object.key.empty() || !is_wanted(object.key)) continue;
    weights |= object.key.ends_with(".safetensors");
    config |= object.key == "config.json";
    wanted.push_back(std::move(object));
  }
  if (!weights || !config) {
    throw_hint(ErrorKind::not_found, "give the folder of a Hugging Face model, or a .gguf file", "{}: holds no {}",
               origin, config ? "model*.safetensors" : "config.json");
  }
  const Registry registry(options.home);
  const std::string name = options.name.empty() ? bare.substr(bare.rfind('/') + 1) : options.name;
  const fs::path folder = registry.folder(name);
  make_folders(folder);
  std::vector<RegisteredFile> files;
  for (const StoredObject& object : wanted) {
    fetch(store->uri(object.key), folder / object.key, fetch_options({.progress = options.progress}, object.key, ""));
    files.push_back(describe(folder, object.key));
    if (files.back().size != object.bytes) {
      remove_path(folder / object.key);
      throw_hint(ErrorKind::corrupt, "try again", "{}: downloaded {} bytes, but the store lists {}",
                 store->uri(object.key), files.back().size, object.bytes);
    }
  }
  registry.add(name, origin, {}, files);
  return registered(registry, name);
}

// Whether the origin is an existing path. If that cannot be determined (for example without permission), an origin of
// the form org/model is taken as a model on a hub; any other throws.
bool is_path(const std::string& origin) {
  try {
    return path_exists(origin);
  } catch (const Error&) {
    const bool from_here = origin.starts_with('/') || origin.starts_with('.');
    if (!from_here && std::count(origin.begin(), origin.end(), '/') == 1) return false;
    throw;
  }
}

}  // namespace

RegisteredModel pull(const std::string& origin, const PullOptions& options) {
  const bool remote = origin.find("://") != std::string::npos;
  if (!remote && is_path(origin)) return pull_local(origin, options);
  if (remote && origin.ends_with(".gguf")) return pull_file(origin, options);
  if (origin.starts_with("s3://")) return pull_store(origin, options);
  return pull_hub(origin, options);
}

}  // namespace ingot::checkpoint
