#include "infer/adapter_store.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/path.h"
#include "checkpoint/adapter.h"
#include "checkpoint/row_codec.h"
#include "tensor/arena.h"

namespace ingot::infer {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t max_header = uint64_t{1} << 20;
constexpr const char* files[] = {"adapter_config.json", "adapter_model.safetensors"};

int64_t modified_at(const fs::path& folder) {
  std::error_code error;
  const auto time = fs::last_write_time(folder / files[0], error);
  if (error) return 0;
  const auto since = std::chrono::file_clock::to_sys(time).time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

[[noreturn]] void not_there(const std::string& name) {
  throw_hint(ErrorKind::not_found, "GET /v1/models lists the available models", "there is no adapter '{}'", name);
}

void check_name(const std::string& name) {
  if (is_adapter_name(name)) return;
  throw_hint(ErrorKind::usage,
             "use at most 128 letters, digits, '_', '-' and '.', not starting with a dot: it is a folder name",
             "the given name of {} bytes is not a valid adapter name", name.size());
}

bool has_files(const fs::path& folder) {
  std::error_code error;
  return std::all_of(std::begin(files), std::end(files),
                     [&](const char* file) { return fs::is_regular_file(folder / file, error); });
}

// Throws if the folder holds any file of an (incomplete) adapter, or cannot be listed.
void check_no_adapter(const fs::path& folder_path) {
  list_folder(folder_path);
  for (const fs::path& folder : {folder_path, folder_path / "adapter"}) {
    for (const char* file : files) {
      if (!path_exists(folder / file)) continue;
      throw_error(ErrorKind::not_found, "{}: an adapter needs {} and {}, both regular files", folder.string(), files[0],
                  files[1]);
    }
  }
}

// Host memory in bytes of the adapter's weights in `activation`.
size_t bytes_of(const checkpoint::AdapterFile& file, DType activation) {
  size_t bytes = 0;
  for (const checkpoint::AdapterModule& module : file.modules) {
    bytes += Arena::footprint(activation, module.a.shape) + Arena::footprint(activation, module.b.shape);
  }
  return bytes;
}

// Sizes and modification times of the files; empty when one is missing.
std::string version_of(const fs::path& folder) {
  std::string version;
  for (const char* file : files) {
    std::error_code error;
    const auto size = fs::file_size(folder / file, error);
    if (error) return {};
    const auto time = fs::last_write_time(folder / file, error);
    if (error) return {};
    version += fmt::format("{} {};", size, time.time_since_epoch().count());
  }
  return version;
}

// to = from * factor, converted to the dtype of `to`. Errors: corrupt when a result is not finite.
void convert(const Tensor& to, const Tensor& from, float factor) {
  if (to.dtype == from.dtype && factor == 1) {
    std::memcpy(to.data, from.data, from.bytes());
    return;
  }
  std::vector<float> values(static_cast<size_t>(from.elements()));
  checkpoint::decode_row(checkpoint::storage_of(from.dtype), from.data, from.elements(), values.data());
  for (float& value : values) value *= factor;
  const StorageType storage = checkpoint::storage_of(to.dtype);
  checkpoint::encode_row(storage, values.data(), from.elements(), to.data);
  if (checkpoint::find_non_finite(storage, static_cast<const std::byte*>(to.data), from.elements()) >= 0) {
    throw_error(ErrorKind::corrupt, "weights times their scale of {} overflow {}", factor, name(to.dtype));
  }
}

}  // namespace

AdapterStore::AdapterStore(spec::ModelSpec model, AdapterStoreSettings settings)
    : model_(std::move(model)), settings_(std::move(settings)) {
  if (!is_folder(settings_.root)) {
    throw_hint(ErrorKind::not_found, "give the folder that contains the adapters' folders",
               "the adapters' root {} is not a folder", settings_.root.string());
  }
  settings_.root = resolved_path(settings_.root);
  list_folder(settings_.root);  // throws if it cannot be listed
  scan();
}

fs::path AdapterStore::folder_of(const std::string& name) const {
  for (const fs::path& folder_path : {settings_.root / name, settings_.root / name / "adapter"}) {
    if (has_files(folder_path)) return folder_path;
  }
  return {};
}

// The entries of the root folder; none when it is gone or cannot be read any more.
std::vector<fs::path> AdapterStore::adapter_folders() const {
  try {
    return list_folder(settings_.root);
  } catch (const Error&) {
    return {};
  }
}

void AdapterStore::scan() {
  std::map<std::string, int64_t> found;  // modification times, by name
  for (const fs::path& folder_path : adapter_folders()) {
    const std::string name = folder_path.filename().string();
    if (!is_adapter_name(name)) continue;
    const fs::path folder = folder_of(name);
    if (!folder.empty()) found.emplace(name, modified_at(folder));
  }
  auto held = entries_.lock();
  for (auto entry = held->by_name.begin(); entry != held->by_name.end();) {
    if (found.contains(entry->first) || entry->second.loading) {
      ++entry;
      continue;
    }
    drop(*held, entry->second);
    entry = held->by_name.erase(entry);
  }
  for (const auto& [name, modified] : found) {
    Entry& entry = held->by_name[name];
    entry.modified = modified;
    if (!entry.broken.empty() && entry.broken != version_of(folder_of(name))) entry.broken.clear();
  }
}

void AdapterStore::check_fits(const std::string& name, const checkpoint::AdapterFile& file) const {
  if (file.replaces_weights()) {
    throw_hint(
        ErrorKind::unsupported, "merge it into the model with `ingot model merge`",
        "the adapter {} replaces weights (DoRA, modules_to_save or biases), so it cannot be served next to others",
        name);
  }
  for (const checkpoint::AdapterModule& module : file.modules) {
    if (module.param.rank <= settings_.max_rank) continue;
    throw_hint(ErrorKind::unsupported, "serve with a larger --adapter-rank",
               "the adapter {} has rank {}; this server supports ranks up to {}", name, module.param.rank,
               settings_.max_rank);
  }
  if (const size_t bytes = bytes_of(file, settings_.activation); bytes > settings_.budget) {
    throw_error(ErrorKind::resource, "the adapter {} needs {} bytes of host memory; the limit for all adapters is {}",
                name, bytes, settings_.budget);
  }
}

std::vector<BrokenAdapter> AdapterStore::check() {
  std::vector<BrokenAdapter> broken;
  for (const fs::path& folder_path : adapter_folders()) {
    const std::string name = folder_path.filename().string();
    if (name.starts_with('.')) continue;
    std::string version;
    try {
      if (!is_folder(folder_path)) continue;
      const fs::path folder = folder_of(name);
      if (!folder.empty()) version = version_of(folder);
      if (version.empty()) {
        check_no_adapter(folder_path);
        continue;
      }
      check_name(name);
      check_fits(name, checkpoint::inspect_adapter(folder, model_));
    } catch (const Error& error) {
      broken.push_back({name, text_of(error)});
      set_broken(name, version);
    }
  }
  return broken;
}

// Marks an adapter as broken: it is not listed until its files are no longer those of `version`.
void AdapterStore::set_broken(const std::string& name, const std::string& version) {
  auto held = entries_.lock();
  const auto found = held->by_name.find(name);
  if (found != held->by_name.end()) found->second.broken = version;
}

std::vector<ListedAdapter> AdapterStore::list() const {
  std::vector<ListedAdapter> listed;
  const auto held = entries_.lock();
  for (const auto& [name, entry] : held->by_name) {
    if (entry.removed || !entry.broken.empty()) continue;
    listed.push_back({name, entry.modified, entry.adapter ? entry.adapter->rank : 0, entry.adapter != nullptr});
  }
  return listed;
}

bool AdapterStore::has(const std::string& name) const {
  check_name(name);
  {
    const auto held = entries_.lock();
    const auto found = held->by_name.find(name);
    if (found != held->by_name.end() && found->second.removed) return false;
  }
  return !folder_of(name).empty();
}

void AdapterStore::drop(Entries& all, Entry& entry) {
  if (!entry.adapter) return;
  all.bytes -= entry.adapter->bytes;
  all.resident.erase(entry.lru_position);
  entry.adapter.reset();
}

// Evicts the least recently requested adapters until `bytes` more fit in the budget. Adapters in use stay, as evicting
// them would free no memory.
void AdapterStore::make_room(Entries& all, size_t bytes) const {
  for (auto next = all.resident.begin(); next != all.resident.end() && all.bytes + bytes > settings_.budget;) {
    Entry& entry = **next++;
    if (!entry.pinned && entry.adapter.use_count() == 1) drop(all, entry);
  }
}

std::shared_ptr<const HostAdapter> AdapterStore::read(const std::string& name, const fs::path& folder) const {
  // Upper bound for the files: elements may have four bytes where they have two here, and there is a header of names
  // and shapes.
  const checkpoint::AdapterFile file =
      checkpoint::read_adapter(folder, model_, 2 * uint64_t{settings_.budget} + max_header);
  check_fits(name, file);
  const size_t bytes = bytes_of(file, settings_.activation);
  const auto memory = std::make_shared<const HostMemory>(bytes, HostMemory::Pages::small, "an adapter");
  std::byte* next = memory->data();
  const auto copied = [&](const Tensor& from, float factor) {
    const Tensor to{next, settings_.activation, from.shape, nullptr};
    next += Arena::footprint(to.bytes());
    convert(to, from, factor);
    return to;
  };
  nn::Adapter weights;
  weights.layers.resize(spec::parameters(model_).size());
  const auto factor = static_cast<float>(file.lora.factor());
  // If PEFT's patterns give layers different scales, the scales are multiplied into B.
  const bool same = std::all_of(file.modules.begin(), file.modules.end(),
                                [&](const checkpoint::AdapterModule& module) { return module.factor == factor; });
  weights.factor = same ? factor : 1;
  for (const checkpoint::AdapterModule& module : file.modules) {
    nn::LoraWeights& layer = weights.layers[module.param.base];
    layer.a = copied(module.a, 1);
    layer.b = copied(module.b, same ? 1 : module.factor);
  }
  return std::make_shared<const HostAdapter>(name, std::move(weights), memory);
}

std::shared_ptr<const HostAdapter> AdapterStore::read_version(const std::string& name, const fs::path& folder,
                                                              const std::string& version) const {
  std::shared_ptr<const HostAdapter> adapter;
  try {
    adapter = read(name, folder);
  } catch (const Error&) {
    if (version_of(folder) == version) throw;
  }
  if (adapter && version_of(folder) == version) return adapter;
  throw_hint(ErrorKind::unavailable,
             "retry when the files are complete, or install adapters by renaming a finished folder",
             "the files of the adapter {} changed while they were being read", name);
}

std::shared_ptr<const HostAdapter> AdapterStore::get(const std::string& name) {
  check_name(name);
  const fs::path folder = folder_of(name);
  const std::string version = folder.empty() ? std::string() : version_of(folder);
  if (version.empty()) {
    erase(name);
    not_there(name);
  }
  {
    auto held = entries_.lock();
    held.wait([&](const Entries& all) {
      const auto found = all.by_name.find(name);
      return found == all.by_name.end() || !found->second.loading;
    });
    Entry& entry = held->by_name[name];
    if (entry.removed) not_there(name);
    if (entry.modified == 0) entry.modified = modified_at(folder);
    if (entry.adapter && entry.version == version) {
      held->resident.splice(held->resident.end(), held->resident, entry.lru_position);
      return entry.adapter;
    }
    drop(*held, entry);
    entry.loading = true;
  }
  std::shared_ptr<const HostAdapter> adapter;
  bool body_budget_error = false;
  const auto settle = [&] {
    auto held = entries_.lock();
    Entry& entry = held->by_name.at(name);  // an entry with `loading` is not erased
    entry.loading = false;
    entries_.notify_all();
    if (adapter) {
      make_room(*held, adapter->bytes);
      body_budget_error = held->bytes + adapter->bytes > 2 * settings_.budget;
      if (body_budget_error) adapter.reset();
    }
    if (adapter && !entry.removed) {
      // What may throw comes first: if it does, the entry has no adapter and no position.
      entry.version = version;
      entry.broken.clear();
      entry.lru_position = held->resident.insert(held->resident.end(), &entry);
      entry.adapter = adapter;
      held->bytes += adapter->bytes;
      ++held->loads;
    }
  };
  try {
    adapter = read_version(name, folder, version);
  } catch (const Error& error) {
    settle();
    if (error.kind() != ErrorKind::unavailable) set_broken(name, version);
    throw;
  } catch (...) {
    settle();
    throw;
  }
  settle();
  if (body_budget_error) {
    throw_hint(ErrorKind::unavailable, "retry when other requests have finished",
               "running requests use more adapters than fit in twice {} bytes", settings_.budget);
  }
  return adapter;
}

void AdapterStore::pin(const std::string& name, bool pinned) {
  if (pinned) get(name);
  check_name(name);
  auto held = entries_.lock();
  const auto found = held->by_name.find(name);
  if (found != held->by_name.end()) found->second.pinned = pinned;
  make_room(*held, 0);
}

// Erases the entry of an adapter whose files are gone.
void AdapterStore::erase(const std::string& name) {
  auto held = entries_.lock();
  const auto found = held->by_name.find(name);
  if (found == held->by_name.end() || found->second.loading) return;
  drop(*held, found->second);
  held->by_name.erase(found);
}

void AdapterStore::remove(const std::string& name) {
  if (!has(name)) not_there(name);
  auto held = entries_.lock();
  Entry& entry = held->by_name[name];
  entry.removed = true;
  entry.pinned = false;
  drop(*held, entry);
}

void AdapterStore::add(const std::string& name) {
  check_name(name);
  const auto set_removed = [&](bool removed) {
    auto held = entries_.lock();
    const auto found = held->by_name.find(name);
    return found != held->by_name.end() && std::exchange(found->second.removed, removed);
  };
  const bool was_removed = set_removed(false);
  try {
    get(name);
  } catch (...) {
    set_removed(was_removed);
    throw;
  }
}

AdapterStoreCounts AdapterStore::counts() const {
  AdapterStoreCounts counts;
  auto held = entries_.lock();
  counts.registered = std::count_if(held->by_name.begin(), held->by_name.end(), [](const auto& each) {
    return !each.second.removed && each.second.broken.empty();
  });
  counts.resident = std::ssize(held->resident);
  counts.bytes = held->bytes;
  counts.loads = held->loads;
  return counts;
}

}  // namespace ingot::infer
