#include "infer/adapter_store.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/error.h"
#include "checkpoint/adapter.h"
#include "checkpoint/row_codec.h"
#include "tensor/arena.h"

namespace ingot::infer {

namespace {

namespace fs = std::filesystem;

constexpr size_t longest_name = 200;
constexpr const char* files[] = {"adapter_config.json", "adapter_model.safetensors"};

void check_name(const std::string& name) {
  const bool plain = !name.empty() && name.size() <= longest_name && name.front() != '.' &&
                     std::all_of(name.begin(), name.end(), [](char c) {
                       return static_cast<unsigned char>(c) >= 0x20 && c != '/' && c != '\\' && c != 0x7f;
                     });
  if (plain) return;
  throw_hint(ErrorKind::usage, "the name of a folder under the adapters' root, without a path",
             "an adapter's name of {} bytes is not a plain name", name.size());
}

bool has_files(const fs::path& folder) {
  std::error_code error;
  return std::all_of(std::begin(files), std::end(files),
                     [&](const char* file) { return fs::is_regular_file(folder / file, error); });
}

// Sizes and times of the files; empty when one is gone.
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

struct Memory {
  std::byte* data;
  explicit Memory(size_t bytes)
      : data(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{Arena::alignment}))) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::operator delete(data, std::align_val_t{Arena::alignment}); }
};

// Copies `from` times `factor` to `to`, in another type where need be.
void convert(const Tensor& to, const Tensor& from, float factor) {
  if (to.dtype == from.dtype && factor == 1) {
    std::memcpy(to.data, from.data, from.bytes());
    return;
  }
  std::vector<float> values(static_cast<size_t>(from.elements()));
  checkpoint::decode_row(checkpoint::storage_of(from.dtype), from.data, from.elements(), values.data());
  for (float& value : values) value *= factor;
  checkpoint::encode_row(checkpoint::storage_of(to.dtype), values.data(), from.elements(), to.data);
}

}  // namespace

AdapterStore::AdapterStore(spec::ModelSpec model, AdapterStoreSettings settings)
    : model_(std::move(model)), settings_(std::move(settings)) {
  std::error_code error;
  if (!fs::is_directory(settings_.root, error)) {
    throw_error(ErrorKind::not_found, "the adapters' root {} is no folder", settings_.root.string());
  }
  scan();
}

fs::path AdapterStore::folder_of(const std::string& name) const {
  const fs::path own = settings_.root / name;
  if (has_files(own)) return own;
  if (has_files(own / "adapter")) return own / "adapter";
  return {};
}

void AdapterStore::scan() {
  std::map<std::string, fs::path> found;
  for (const fs::directory_entry& each : fs::directory_iterator(settings_.root)) {
    const std::string name = each.path().filename().string();
    if (name.starts_with('.') || !each.is_directory()) continue;
    const fs::path folder = folder_of(name);
    if (!folder.empty()) found.emplace(name, folder);
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
  for (const auto& [name, folder] : found) held->by_name[name].folder = folder;
}

std::vector<std::string> AdapterStore::names() const {
  std::vector<std::string> names;
  auto held = entries_.lock();
  for (const auto& [name, entry] : held->by_name) names.push_back(name);
  return names;
}

void AdapterStore::drop(Entries& all, Entry& entry) const {
  if (entry.adapter) all.bytes -= entry.adapter->bytes;
  entry.adapter.reset();
}

// Takes what was used longest ago out of memory; not what requests have, which would not free any.
void AdapterStore::make_room(Entries& all) const {
  while (all.bytes > settings_.budget) {
    Entry* oldest = nullptr;
    for (auto& [name, entry] : all.by_name) {
      if (!entry.adapter || entry.pinned || entry.adapter.use_count() > 1) continue;
      if (!oldest || entry.used < oldest->used) oldest = &entry;
    }
    if (!oldest) return;
    drop(all, *oldest);
  }
}

std::shared_ptr<const HostAdapter> AdapterStore::read(const std::string& name, const fs::path& folder) const {
  const checkpoint::AdapterFile file = checkpoint::read_adapter(folder, model_);
  if (file.replaces_weights()) {
    throw_hint(ErrorKind::unsupported, "merge it into the model with `ingot model merge`",
               "the adapter {} replaces weights (DoRA, modules_to_save or biases), so it cannot be one of many", name);
  }
  size_t bytes = 0;
  for (const checkpoint::AdapterModule& module : file.modules) {
    if (module.param.rank > settings_.most_rank) {
      throw_hint(ErrorKind::unsupported, "serve with a larger most rank",
                 "the adapter {} has rank {}; this server has memory for {}", name, module.param.rank,
                 settings_.most_rank);
    }
    bytes +=
        Arena::footprint(settings_.activation, module.a.shape) + Arena::footprint(settings_.activation, module.b.shape);
  }
  if (bytes > settings_.budget) {
    throw_error(ErrorKind::resource, "the adapter {} takes {} bytes of host memory; adapters may have {}", name, bytes,
                settings_.budget);
  }
  const auto memory = std::make_shared<const Memory>(bytes);
  std::byte* next = memory->data;
  const auto copied = [&](const Tensor& from, float factor) {
    const Tensor to{next, settings_.activation, from.shape, nullptr};
    next += Arena::footprint(to.bytes());
    convert(to, from, factor);
    return to;
  };
  nn::Adapter weights;
  weights.layers.resize(spec::parameters(model_).size());
  const auto factor = static_cast<float>(file.lora.factor());
  // Where patterns give layers factors of their own, these go into B.
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

std::shared_ptr<const HostAdapter> AdapterStore::get(const std::string& name) {
  check_name(name);
  const fs::path folder = folder_of(name);
  const std::string version = folder.empty() ? std::string() : version_of(folder);
  if (version.empty()) {
    forget(name);
    throw_hint(ErrorKind::not_found, "GET /v1/models lists what there is", "there is no adapter '{}'", name);
  }
  {
    auto held = entries_.lock();
    held.wait([&](const Entries& all) {
      const auto found = all.by_name.find(name);
      return found == all.by_name.end() || !found->second.loading;
    });
    Entry& entry = held->by_name[name];
    entry.folder = folder;
    entry.used = ++held->clock;
    if (entry.adapter && entry.version == version) return entry.adapter;
    drop(*held, entry);
    entry.loading = true;
  }
  std::shared_ptr<const HostAdapter> adapter;
  const auto settle = [&] {
    auto held = entries_.lock();
    Entry& entry = held->by_name[name];
    entry.loading = false;
    if (adapter) {
      entry.adapter = adapter;
      entry.version = version;
      held->bytes += adapter->bytes;
      ++held->loads;
      make_room(*held);
    }
    entries_.notify_all();
  };
  try {
    adapter = read(name, folder);
  } catch (...) {
    settle();
    throw;
  }
  settle();
  return adapter;
}

void AdapterStore::pin(const std::string& name, bool pinned) {
  if (pinned) get(name);
  check_name(name);
  auto held = entries_.lock();
  const auto found = held->by_name.find(name);
  if (found != held->by_name.end()) found->second.pinned = pinned;
  make_room(*held);
}

bool AdapterStore::forget(const std::string& name) {
  auto held = entries_.lock();
  const auto found = held->by_name.find(name);
  if (found == held->by_name.end()) return false;
  if (found->second.loading) return true;  // what is read now is what the next has
  drop(*held, found->second);
  held->by_name.erase(found);
  return true;
}

AdapterStoreCounts AdapterStore::counts() const {
  AdapterStoreCounts counts;
  auto held = entries_.lock();
  counts.registered = static_cast<int64_t>(held->by_name.size());
  for (const auto& [name, entry] : held->by_name) counts.resident += entry.adapter != nullptr;
  counts.bytes = held->bytes;
  counts.loads = held->loads;
  return counts;
}

}  // namespace ingot::infer
