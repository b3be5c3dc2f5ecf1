#include "checkpoint/remote.h"

#include <algorithm>
#include <future>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/path.h"
#include "base/strings.h"
#include "base/threads.h"
#include "checkpoint/manifest.h"
#include "checkpoint/native.h"
#include "storage/uri.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* latest_name = "latest";
constexpr uint64_t max_manifest = uint64_t{1} << 28;
constexpr size_t fetched_at_once = 4;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string key_of(int64_t step, const std::string& file = {}) { return fmt::format("step-{}/{}", step, file); }

// Downloads a file of a checkpoint into the folder `to`, once more if it arrives damaged. If it is still damaged or is
// missing, passes the fault to `damaged`, which throws.
void get_file(const Store& store, int64_t step, const ManifestFile& file, const fs::path& to,
              FunctionRef<void(const std::string&)> damaged) {
  const std::string key = key_of(step, file.name);
  std::string fault;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!store.find(key)) break;
    store.get_file(key, to / file.name);
    fault = verify_file(to, file);
    if (fault.empty()) return;
    remove_path(to / file.name);
  }
  damaged(fault.empty() ? verify_file(to, file) : fault);
}

// Downloads all files, several at a time.
void get_files(const Store& store, int64_t step, const std::vector<ManifestFile>& files, const fs::path& to,
               FunctionRef<void(const std::string&)> damaged) {
  for (size_t first = 0; first < files.size(); first += fetched_at_once) {
    std::vector<std::future<void>> now;
    for (size_t i = first; i < std::min(files.size(), first + fetched_at_once); ++i) {
      now.push_back(start_task("fetching a checkpoint", [&, i] { get_file(store, step, files[i], to, damaged); }));
    }
    for (std::future<void>& one : now) one.wait();
    for (std::future<void>& one : now) one.get();
  }
}

void put_latest(Store& store, int64_t step) { store.put(latest_name, bytes_of(fmt::format("step-{}\n", step))); }

}  // namespace

OpenFiles::OpenFiles(const fs::path& folder, int64_t of) : step(of) {
  const fs::path path = folder / fmt::format("step-{}", step);
  const auto damaged = [&](const std::string& what) {
    throw_error(ErrorKind::corrupt, "checkpoint {}: {}", path.string(), what);
  };
  MappedFile manifest(path / manifest_name);
  const std::string text(reinterpret_cast<const char*>(manifest.bytes().data()), manifest.bytes().size());
  const Manifest read = parse_manifest(text, step, path.string(), damaged);
  for (const ManifestFile& file : read.files) {
    files.emplace_back(path / file.name);
    const size_t found = files.back().bytes().size();
    if (found != file.bytes) {
      damaged(fmt::format("file '{}' has {} bytes, but {} were written", file.name, found, file.bytes));
    }
    bytes += found;
  }
  bytes += manifest.bytes().size();
  files.push_back(std::move(manifest));
}

// The objects in the store.
struct RemoteCheckpoints::Listing {
  std::vector<int64_t> steps;                                // with a manifest, ascending
  std::map<int64_t, std::map<std::string, uint64_t>> files;  // file sizes in bytes, of every step
  std::optional<int64_t> latest;                             // the step in the object `latest`

  // The step in `latest` if it is newer than all steps with a manifest, has files, and its manifest was lost.
  std::optional<int64_t> broken() const {
    const bool newest = latest && (steps.empty() || *latest > steps.back());
    return newest && files.contains(*latest) ? latest : std::nullopt;
  }
};

RemoteCheckpoints::RemoteCheckpoints(std::string address, StoreOptions options)
    : address_(std::move(address)), options_(std::move(options)) {}

std::string RemoteCheckpoints::uri(int64_t step) const { return uri_below(address_, fmt::format("step-{}", step)); }

void RemoteCheckpoints::require_writable() const {
  const std::string name = "write-check";
  const std::unique_ptr<Store> store = open_store(address_, options_);
  store->put(name, bytes_of(name));
  store->remove(name);
}

RemoteCheckpoints::Listing RemoteCheckpoints::list_objects(const Store& store) const {
  Listing listing;
  for (const StoredObject& object : store.list("")) {
    const size_t slash = object.key.find('/');
    if (object.key == latest_name) {
      listing.latest = step_of(split(store.get(latest_name, 0, 64), '\n').front());
    } else if (const auto step = step_of(object.key.substr(0, slash)); step && slash != std::string::npos) {
      const std::string file = object.key.substr(slash + 1);
      listing.files[*step][file] = object.bytes;
      if (file == manifest_name) listing.steps.push_back(*step);
    }
  }
  std::sort(listing.steps.begin(), listing.steps.end());
  return listing;
}

int64_t RemoteCheckpoints::abort_unfinished_uploads() const {
  return open_store(address_, options_)->abort_unfinished_uploads("");
}

int64_t RemoteCheckpoints::remove_incomplete() const {
  const std::unique_ptr<Store> store = open_store(address_, options_);
  int64_t removed = 0;
  const Listing listing = list_objects(*store);
  for (const auto& [step, files] : listing.files) {
    if (files.contains(manifest_name) || step == listing.broken()) continue;
    for (const auto& [name, bytes] : files) store->remove(key_of(step, name));
    removed += std::ssize(files);
  }
  if (!listing.broken() && !listing.steps.empty() && listing.latest != listing.steps.back()) {
    put_latest(*store, listing.steps.back());
  }
  return removed;
}

std::vector<int64_t> RemoteCheckpoints::list() const { return list_objects(*open_store(address_, options_)).steps; }

bool RemoteCheckpoints::any() const {
  const Listing listing = list_objects(*open_store(address_, options_));
  return !listing.steps.empty() || listing.broken();
}

std::unique_ptr<Store> RemoteCheckpoints::open(const std::function<bool()>& keep_going) const {
  StoreOptions options = options_;
  options.attempts.progress = [keep_going](uint64_t, uint64_t) { return keep_going(); };
  return open_store(address_, options);
}

std::string RemoteCheckpoints::upload(const OpenFiles& files, int64_t keep,
                                      const std::function<bool()>& keep_going) const {
  const std::unique_ptr<Store> store = open(keep_going);
  const int64_t step = files.step;
  if (store->find(key_of(step, manifest_name))) {  // a checkpoint of the same step is replaced
    store->remove(latest_name);
    store->remove(key_of(step, manifest_name));
  }
  std::map<std::string, uint64_t> lacking;  // uploaded files that are not yet confirmed: bytes, by key
  const auto put = [&](const MappedFile& file) {
    const std::string key = key_of(step, file.path().filename().string());
    store->put(key, file.bytes());
    lacking[key] = file.bytes().size();
  };
  for (const MappedFile& file : std::span(files.files).first(files.files.size() - 1)) put(file);
  // Another process that starts may have removed them as leftovers of a dead run.
  for (const StoredObject& there : store->list(key_of(step))) {
    const auto found = lacking.find(there.key);
    if (found != lacking.end() && found->second == there.bytes) lacking.erase(found);
  }
  if (!lacking.empty()) {
    throw_hint(ErrorKind::unavailable, "stop the other process, or give one of the runs another name",
               "{}: has changed since it was uploaded: another process writes to {}",
               store->uri(lacking.begin()->first), address_);
  }
  put(files.files.back());
  try {
    put_latest(*store, step);
    // A surplus checkpoint loses its manifest first, so that it no longer counts as a checkpoint.
    Listing listing = list_objects(*store);
    std::erase_if(listing.steps, [&](int64_t other) { return other >= step; });
    for (size_t i = 0; i + static_cast<size_t>(keep) - 1 < listing.steps.size(); ++i) {
      const int64_t doomed = listing.steps[i];
      store->remove(key_of(doomed, manifest_name));
      listing.files[doomed].erase(manifest_name);
      for (const auto& [name, bytes] : listing.files[doomed]) store->remove(key_of(doomed, name));
    }
  } catch (const std::exception& error) {
    return text_of(error);
  }
  return {};
}

RemoteCheckpoints::Newest RemoteCheckpoints::download_newest(
    const fs::path& folder, const std::function<void(const std::string&, const std::string&)>& accept,
    const std::function<bool()>& keep_going) const {
  remove_leftovers(folder);
  const std::unique_ptr<Store> store = open(keep_going);
  const Listing listing = list_objects(*store);
  const std::vector<int64_t>& steps = listing.steps;
  const std::optional<int64_t> broken = listing.broken();
  if (steps.empty() && !broken) return {};
  const std::optional<int64_t> stored = steps.empty() ? std::nullopt : std::optional(steps.back());
  const int64_t newest = broken ? *broken : *stored;
  std::string text;  // text of the manifest read last
  const auto manifest_of = [&](int64_t step) {
    text = store->get(key_of(step, manifest_name), 0, max_manifest);
    return parse_manifest(text, step, uri(step),
                          [&](const std::string& what) { throw_damaged(uri(step), step, steps, what); });
  };
  const std::vector<int64_t> here = list_checkpoints(folder);
  if (!here.empty() && here.back() >= newest) {
    // Nothing is downloaded, but later checkpoints will be uploaded next to it: it must be of the same run.
    std::optional<Manifest> manifest;
    try {
      if (stored) manifest = manifest_of(*stored);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::corrupt && error.kind() != ErrorKind::not_found) throw;
    }
    if (manifest) accept(uri(*stored), manifest->metadata);
    return {.stored = stored, .downloaded = std::nullopt};
  }
  const auto damaged = [&](const std::string& what) { throw_damaged(uri(newest), newest, steps, what); };
  if (broken) damaged("it is incomplete: there is no manifest.json");
  Manifest manifest;
  try {
    manifest = manifest_of(newest);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::corrupt) throw;
    manifest = manifest_of(newest);
  }
  accept(uri(newest), manifest.metadata);
  import_checkpoint(folder, newest, text,
                    [&](const fs::path& to) { get_files(*store, newest, manifest.files, to, damaged); });
  return {.stored = newest, .downloaded = newest};
}

}  // namespace ingot::checkpoint
